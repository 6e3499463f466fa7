//! The examples of RFC 5802 and RFC 7677, and servers that cheat.

use super::*;

/// Both examples have user "user" and password "pencil".
fn start(mechanism: Mechanism, nonce: &str) -> Scram {
    let (mut scram, message) =
        Scram::start(mechanism, "user", "pencil", &SaltedPasswords::default(), b"");
    assert_eq!(message, "n,,n=user,r=");
    // The examples' nonces are not base64 of anything short, so they are put in directly.
    scram.client_nonce = nonce.to_owned();
    scram.client_first_bare = format!("n=user,r={nonce}");
    scram
}

#[test]
fn example_of_rfc_5802() {
    let scram = start(Mechanism::ScramSha1, "fyko+d2lbbFgONRv9qkxdawL");
    let challenge = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
    let proof = scram.answer(challenge).unwrap();
    assert_eq!(
        proof.message,
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    );
    assert!(proof.verify(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=").is_ok());
}

#[test]
fn example_of_rfc_7677() {
    let scram = start(Mechanism::ScramSha256, "rOprNGfwEbeRWgbNEkqO");
    let challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    let proof = scram.answer(challenge).unwrap();
    assert_eq!(
        proof.message,
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    let signature = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert!(proof.verify(signature).is_ok());
    assert!(proof.verify(&[&signature[..], b",ext=1"].concat()).is_ok());
    assert!(proof.verify(b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_err());
    assert!(proof.verify(b"").is_err(), "a server must prove itself");
    assert!(proof.verify(b"e=other-error").is_err());
}

#[test]
fn refuses_bad_challenges() {
    let bad: [&[u8]; 9] = [
        b"",
        b"\xff\xfe",
        b"r=xyz,s=QSXCR+Q6sek8bf92,i=4096",
        b"r=abc,s=QSXCR+Q6sek8bf92,i=4096",
        b"r=abcdef,i=4096",
        b"r=abcdef,s=???,i=4096",
        b"r=abcdef,s=QSXCR+Q6sek8bf92,i=0",
        b"r=abcdef,s=QSXCR+Q6sek8bf92,i=99999999",
        b"m=ext,r=abcdef,s=QSXCR+Q6sek8bf92,i=4096",
    ];
    for challenge in bad {
        let error = start(Mechanism::ScramSha512, "abc").answer(challenge).expect_err("refused");
        assert!(matches!(error, ClientError::Authentication(_)));
    }
}

#[test]
fn escapes_names_and_joins_plain() {
    let (_, message) =
        Scram::start(Mechanism::ScramSha512, "a,b=c", "", &SaltedPasswords::default(), b"\0\0\0");
    assert_eq!(message, "n,,n=a=2Cb=3Dc,r=AAAA");
    assert_eq!(plain("user", "secret"), b"\0user\0secret");
}

#[test]
fn a_key_is_derived_once() {
    let salting = |mechanism, password: &str, salt: &[u8], rounds| Salting {
        mechanism,
        password: password.to_owned(),
        salt: salt.to_vec(),
        rounds: NonZeroU32::new(rounds).unwrap(),
    };
    let known = SaltedPasswords::default();
    let mut derived = 0_u8;
    let mut key = |known: &SaltedPasswords, of| {
        known.key(of, |_| {
            derived += 1;
            vec![derived]
        })
    };
    let usual = || salting(Mechanism::ScramSha512, "pencil", b"salt", 10);
    assert_eq!(key(&known, usual()), [1]);
    assert_eq!(key(&known.clone(), usual()), [1], "clones share what they know");
    let others = [
        salting(Mechanism::ScramSha256, "pencil", b"salt", 10),
        salting(Mechanism::ScramSha512, "pen", b"salt", 10),
        salting(Mechanism::ScramSha512, "pencil", b"pepper", 10),
        salting(Mechanism::ScramSha512, "pencil", b"salt", 11),
    ];
    for (other, number) in others.into_iter().zip(2..) {
        assert_eq!(key(&known, other), [number], "everything that makes a key is compared");
    }
    assert_eq!(key(&known, usual()), [1]);
    for rounds in 20..40 {
        key(&known, salting(Mechanism::ScramSha512, "pencil", b"salt", rounds));
    }
    assert_eq!(known.0.lock().len(), SALTED_PASSWORDS_MAX, "a server cannot fill the memory");
    key(&known, salting(Mechanism::ScramSha512, "pencil", &[0; KEPT_SALT_BYTES_MAX + 1], 10));
    assert_eq!(known.0.lock().iter().filter(|kept| kept.of.salt.len() > 4).count(), 0);
}
