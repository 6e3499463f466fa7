//! Tests of the exchanges as a client sees them, with the examples of RFC 5802 and RFC 7677.

use std::fs;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_system::data_file::DataFileError;
use proptest::prelude::*;

use super::scram::{ClientFirst, ScramExchange};
use super::testing::ScramClient;
use super::verifier::{ScramHash, Verifier};
use super::{
    NODE_NAME, NodeLogin, Privilege, PrivilegeSet, Role, SaslServer, SaslStep, StoredUser,
    UserFile, UserFileError, UserStore,
};

/// Runs the server's part of a published example.
fn run_example(
    hash: ScramHash,
    client_first: &str,
    salt: &str,
    server_nonce: &str,
    client_final: &str,
) -> (String, Option<String>) {
    let rounds = NonZeroU32::new(4096).expect("not zero");
    let salt = BASE64.decode(salt).unwrap();
    let verifier = Verifier::derive(hash, b"pencil", &salt, rounds);
    let client_first = ClientFirst::parse(client_first.as_bytes()).unwrap();
    let exchange = ScramExchange::begin_with_nonce(client_first, &salt, rounds, server_nonce);
    let server_first = exchange.server_first().to_owned();
    let proof = exchange.client_final(client_final.as_bytes());
    (server_first, proof.and_then(|proof| proof.check(&verifier)))
}

#[test]
fn example_of_rfc_5802() {
    let (server_first, server_final) = run_example(
        ScramHash::Sha1,
        "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "QSXCR+Q6sek8bf92",
        "3rfcNHYJY1ZVvWVs7j",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    );
    assert_eq!(
        server_first,
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    );
    assert_eq!(server_final.as_deref(), Some("v=rmF9pqV8S7suAoZWja4dJRkFsKQ="));
}

#[test]
fn example_of_rfc_7677() {
    let (server_first, server_final) = run_example(
        ScramHash::Sha256,
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    );
    assert_eq!(
        server_first,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    assert_eq!(server_final.as_deref(), Some("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
}

fn log_in(client: &ScramClient, users: &Arc<UserStore>) -> SaslStep {
    let mechanism = client.hash.mechanism().as_bytes();
    let mut server = SaslServer::new();
    let client_first = format!("{}{}", client.gs2_header, client.bare());
    let step = server.start(mechanism, client_first.as_bytes(), users);
    let SaslStep::Continue(server_first) = step else { panic!("{step:?}") };
    let (client_final, expected) = client.answer(std::str::from_utf8(&server_first).unwrap());
    let step = server.step(mechanism, client_final.as_bytes()).run();
    if let SaslStep::Success { payload, .. } = &step {
        assert_eq!(payload, expected.as_bytes());
    }
    step
}

fn plain(users: &Arc<UserStore>, name: &str, password: &str) -> SaslStep {
    let payload = format!("\0{name}\0{password}");
    SaslServer::new().start(b"PLAIN", payload.as_bytes(), users)
}

fn one_user(name: &str, password: &str, role: Role) -> (tempfile::TempDir, Arc<UserStore>) {
    let scratch = tempfile::tempdir().unwrap();
    add_user(scratch.path(), name, password, role);
    let users = Arc::new(UserStore::open(scratch.path()).unwrap());
    (scratch, users)
}

fn add_user(data_dir: &std::path::Path, name: &str, password: &str, role: Role) {
    let user = StoredUser::new(name, password.as_bytes(), vec![role]).unwrap();
    assert!(UserFile::edit(data_dir, |file| file.put(user)).unwrap());
}

#[test]
fn scram_accepts_the_right_password_and_nothing_else() {
    let (_scratch, users) = one_user("al,ice=1", "secret1", Role::read_only("default"));
    assert!(!users.is_development() && users.anonymous().is_none());
    for hash in ScramHash::ALL {
        let step = log_in(&ScramClient::new(hash, "al=2Cice=3D1", "secret1"), &users);
        let SaslStep::Success { identity, .. } = step else { panic!("{step:?}") };
        assert_eq!(identity.name, "al,ice=1");
        assert_eq!(identity.access.everywhere("default"), PrivilegeSet::READ_ONLY);

        let step = log_in(&ScramClient::new(hash, "al=2Cice=3D1", "secret2"), &users);
        assert!(matches!(step, SaslStep::Failed), "{step:?}");
        let step = log_in(&ScramClient::new(hash, "bob", "secret1"), &users);
        assert!(matches!(step, SaslStep::Failed), "{step:?}");
    }
    assert_eq!(users.failures(), 6);
}

#[test]
fn nodes_authenticate_with_the_cluster_secret() {
    let (_scratch, users) = one_user("alice", "secret1", Role::Admin);
    let secret = "0123456789abcdef0123456789abcdef";
    let client = ScramClient::new(ScramHash::Sha512, NODE_NAME, secret);
    assert!(matches!(log_in(&client, &users), SaslStep::Failed), "there is no secret yet");
    users.admit_nodes(secret.as_bytes());
    let SaslStep::Success { identity, .. } = log_in(&client, &users) else { panic!("refused") };
    let rights = identity.access.everywhere("any");
    assert!(
        rights.holds(PrivilegeSet::of(&[Privilege::DcpStream]))
            && !rights.holds(PrivilegeSet::of(&[Privilege::Upsert]))
    );
    assert!(!identity.access.is_admin());
    assert_eq!(users.current(NODE_NAME).unwrap().name, NODE_NAME, "its rights stay");
    let wrong = ScramClient::new(ScramHash::Sha512, NODE_NAME, "another");
    assert!(matches!(log_in(&wrong, &users), SaslStep::Failed));
    // Not over HTTP, and no user takes the name.
    assert!(users.verify_basic(NODE_NAME, secret.as_bytes()).is_none());
    assert!(StoredUser::new(NODE_NAME, b"secret1", Vec::new()).is_err());
}

#[test]
fn nodes_prove_their_secret_to_each_other() {
    let users = Arc::new(UserStore::development());
    let secret = b"0123456789abcdef0123456789abcdef";
    users.admit_nodes(secret);
    let mechanism = NodeLogin::mechanism().as_bytes();
    for (own, is_right) in [(&secret[..], true), (b"another secret of some length....", false)] {
        let (login, mut server) = (NodeLogin::begin(), SaslServer::new());
        let step = server.start(mechanism, login.client_first().as_bytes(), &users);
        let SaslStep::Continue(challenge) = step else { panic!("{step:?}") };
        let proof = login.answer(own, &challenge).unwrap();
        match server.step(mechanism, proof.client_final().as_bytes()).run() {
            SaslStep::Success { identity, payload } => {
                assert!(is_right && identity.name == NODE_NAME);
                assert!(proof.is_answered_by(&payload) && !proof.is_answered_by(b"v="));
            }
            step => assert!(!is_right, "{step:?}"),
        }
    }
    let login = NodeLogin::begin();
    let first = login.client_first();
    let nonce = first.rsplit_once("r=").unwrap().1;
    for challenge in [
        String::new(),
        format!("r={nonce},s=AAAA,i=4096"),
        "r=other,s=AAAA,i=4096".to_owned(),
        format!("r={nonce}x,s=?,i=4096"),
        format!("r={nonce}x,s=AAAA,i=0"),
        format!("r={nonce}x,s=AAAA,i=4000000000"),
    ] {
        assert!(login.answer(secret, challenge.as_bytes()).is_err(), "{challenge}");
    }
    assert!(login.answer(secret, b"\xff").is_err());
}

#[test]
fn scram_accepts_a_client_that_could_bind_channels() {
    let users = Arc::new(UserStore::development());
    let mut client = ScramClient::new(ScramHash::Sha256, "Administrator", "password");
    client.gs2_header = "y,,";
    assert!(matches!(log_in(&client, &users), SaslStep::Success { .. }));
    client.gs2_header = "n,a=Administrator,";
    assert!(matches!(log_in(&client, &users), SaslStep::Success { .. }));
}

#[test]
fn an_unknown_user_looks_like_a_known_one() {
    let (_scratch, users) = one_user("alice", "secret1", Role::Admin);
    let ask = |name: &str| {
        let message = format!("n,,n={name},r=abc");
        let step = SaslServer::new().start(b"SCRAM-SHA512", message.as_bytes(), &users);
        let SaslStep::Continue(server_first) = step else { panic!("{step:?}") };
        let text = String::from_utf8(server_first).unwrap();
        let (_, rest) = text.split_once(",s=").unwrap();
        let (salt, iterations) = rest.split_once(",i=").unwrap();
        (salt.to_owned(), iterations.to_owned())
    };
    let (known, unknown) = (ask("alice"), ask("nobody"));
    assert_eq!(ask("nobody"), unknown, "the salt of an unknown user must not change");
    assert_ne!(ask("nobody2").0, unknown.0);
    assert_eq!(known.0.len(), unknown.0.len());
    assert_eq!(known.1, unknown.1);
}

#[test]
fn plain_derives_slowly_once_and_then_from_the_cache() {
    let (_scratch, users) = one_user("alice", "secret1", Role::Admin);
    let step = plain(&users, "alice", "secret1");
    assert!(matches!(step, SaslStep::Slow(_)), "{step:?}");
    assert!(matches!(step.run(), SaslStep::Success { .. }));
    assert!(matches!(plain(&users, "alice", "secret1"), SaslStep::Success { .. }));

    for (name, password) in [("alice", "secret2"), ("nobody", "secret1"), ("alice", "")] {
        let step = plain(&users, name, password);
        assert!(matches!(step, SaslStep::Slow(_)), "{step:?}");
        assert!(matches!(step.run(), SaslStep::Failed));
    }
    assert!(users.verify_basic("alice", b"secret1").is_some());
    assert!(users.verify_basic("alice", b"secret3").is_none());
    assert!(users.verify_basic_cached("alice", b"secret3").is_none());
    assert_eq!(users.failures(), 4);
}

#[test]
fn development_mode_admits_password_and_anonymous() {
    let scratch = tempfile::tempdir().unwrap();
    let users = Arc::new(UserStore::open(scratch.path()).unwrap());
    assert!(users.is_development());
    let anonymous = users.anonymous().unwrap();
    assert!(anonymous.access.everywhere("default").holds(PrivilegeSet::READ_WRITE));
    assert!(!anonymous.access.reaches("other"));
    assert!(!anonymous.access.is_admin());
    for hash in ScramHash::ALL {
        let step = log_in(&ScramClient::new(hash, "Administrator", "password"), &users);
        let SaslStep::Success { identity, .. } = step else { panic!("{step:?}") };
        assert!(identity.access.is_admin());
        let step = log_in(&ScramClient::new(hash, "Administrator", "passwort"), &users);
        assert!(matches!(step, SaslStep::Failed));
    }
    assert!(users.verify_basic("Administrator", b"password").is_some());
}

#[test]
fn reloaded_users_end_development_mode() {
    let scratch = tempfile::tempdir().unwrap();
    let users = Arc::new(UserStore::open(scratch.path()).unwrap());
    add_user(scratch.path(), "alice", "secret1", Role::Admin);
    assert!(matches!(plain(&users, "alice", "secret1").run(), SaslStep::Success { .. }));
    assert!(!users.is_development() && users.anonymous().is_none());
    assert!(users.verify_basic("Administrator", b"password").is_none());

    // A damaged file changes nothing.
    let path = UserFile::path(scratch.path());
    let good = fs::read(&path).unwrap();
    fs::write(&path, b"{").unwrap();
    assert!(users.verify_basic("alice", b"secret1").is_some());
    assert!(matches!(
        UserFile::load(scratch.path()),
        Err(UserFileError::File(DataFileError::Corrupt { .. }))
    ));
    assert!(UserFile::edit(scratch.path(), |file| file.remove("alice")).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"{");

    fs::write(&path, good).unwrap();
    assert!(UserFile::edit(scratch.path(), |file| file.remove("alice")).unwrap());
    assert!(users.verify_basic("alice", b"secret1").is_none());
    assert!(users.verify_basic("Administrator", b"password").is_none());
    assert!(!users.is_development());
    assert!(UserStore::open(scratch.path()).unwrap().is_development());
}

#[test]
fn the_users_file_is_private_and_holds_no_password() {
    let (scratch, _users) = one_user("alice", "s3cret-pencil", Role::read_write("*"));
    let path = UserFile::path(scratch.path());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&path).unwrap().contains("s3cret-pencil"));
    let file = UserFile::load(scratch.path()).unwrap();
    let names: Vec<_> = file.users().map(|user| (user.name.clone(), user.roles.clone())).collect();
    assert_eq!(names, [("alice".to_owned(), vec![Role::read_write("*")])]);
}

#[test]
fn names_and_passwords_have_rules() {
    let role = || vec![Role::Admin];
    let long = "x".repeat(129);
    for name in ["", "a:b", "a\nb", long.as_str()] {
        assert!(StoredUser::new(name, b"secret1", role()).is_err(), "{name:?}");
    }
    for password in [&b"short"[..], b"with\0zero", &[b'x'; 1025]] {
        assert!(StoredUser::new("alice", password, role()).is_err());
    }
    assert!(StoredUser::new("alice", b"secret1", Vec::new()).is_err());
}

#[test]
fn malformed_first_messages_fail() {
    let messages = [
        "",
        "n",
        "n,",
        "n,,",
        "n,,n=u",
        "n,,n=,r=x",
        "n,,n=u,r=",
        "n,,m=x,n=u,r=x",
        "p=tls,,n=u,r=x",
        "n,a=other,n=u,r=x",
        "n,b=u,n=u,r=x",
        "n,,n=u=2D,r=x",
        "n,,n=u=,r=x",
        "n,,r=x,n=u",
        "n,,n=u,r=x\ty",
        "x,,n=u,r=x",
    ];
    for message in messages {
        assert!(ClientFirst::parse(message.as_bytes()).is_none(), "{message:?}");
    }
    assert!(ClientFirst::parse(b"n,,n=\xff,r=x").is_none());
    // The server ignores unknown extensions at the end, as the RFC requires.
    assert!(ClientFirst::parse(b"n,,n=u,r=x,z=1").is_some());
}

/// Regression 1: the nonce of Couchbase's C++ SDK core has spaces, which the RFC's grammar does not
/// allow. The server refused it, so no Python or Node.js client could log in.
#[test]
fn a_nonce_with_spaces_is_accepted() {
    assert!(ClientFirst::parse(b"n,,n=u,r=0x34 0xffffff90 0x01").is_some());
}

#[test]
fn exchange_rejects_altered_messages() {
    let users = Arc::new(UserStore::development());
    let client = ScramClient::new(ScramHash::Sha512, "Administrator", "password");
    let mutations: [fn(&str) -> String; 4] = [
        |text| text.replacen("r=abcDEF", "r=abcDEG", 1),
        |text| text.replacen("c=biws", "c=eSws", 1),
        |text| text.split_once(",p=").unwrap().0.to_owned(),
        |text| text.replacen(",p=", ",p=A", 1),
    ];
    for mutate in mutations {
        let mut server = SaslServer::new();
        let first = format!("n,,{}", client.bare());
        let step = server.start(b"SCRAM-SHA512", first.as_bytes(), &users);
        let SaslStep::Continue(server_first) = step else { panic!("{step:?}") };
        let (good, _) = client.answer(std::str::from_utf8(&server_first).unwrap());
        assert!(matches!(
            server.step(b"SCRAM-SHA512", mutate(&good).as_bytes()).run(),
            SaslStep::Failed
        ));
        // The exchange is over, so even the correct message fails.
        assert!(matches!(server.step(b"SCRAM-SHA512", good.as_bytes()).run(), SaslStep::Failed));
    }

    let mut server = SaslServer::new();
    assert!(matches!(server.step(b"SCRAM-SHA512", b"c=biws"), SaslStep::Failed));
    server.start(b"SCRAM-SHA512", format!("n,,{}", client.bare()).as_bytes(), &users);
    assert!(matches!(server.step(b"SCRAM-SHA256", b"c=biws"), SaslStep::Failed));
    assert!(matches!(server.start(b"OAUTHBEARER", b"x", &users), SaslStep::Failed));
    assert!(matches!(server.start(b"PLAIN", &vec![b'x'; 5000], &users), SaslStep::Failed));
}

#[test]
fn every_listed_mechanism_is_known() {
    for name in super::mechanisms().split(' ') {
        assert!(
            name == "PLAIN" || ScramHash::from_mechanism(name.as_bytes()).is_some(),
            "{name:?}"
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_messages_never_panic(
        mechanism in prop_oneof![
            Just(&b"SCRAM-SHA512"[..]), Just(&b"SCRAM-SHA1"[..]), Just(&b"PLAIN"[..]), Just(&b"\xff"[..])
        ],
        first in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "n,,n=[a-z=,]{0,8},r=[a-z,=]{0,8}".prop_map(String::into_bytes),
        ],
        second in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..80),
            "c=biws,r=[a-z,=]{0,8}(,p=[A-Za-z0-9+/=]{0,90})?".prop_map(String::into_bytes),
        ],
    ) {
        let users = Arc::new(UserStore::development());
        let mut server = SaslServer::new();
        let step = server.start(mechanism, &first, &users);
        let is_success = matches!(step, SaslStep::Success { .. });
        prop_assert!(!is_success);
        let step = server.step(mechanism, &second);
        let is_success = matches!(step, SaslStep::Success { .. });
        prop_assert!(!is_success);
    }

    #[test]
    fn arbitrary_files_never_panic(text in ".{0,200}") {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(UserFile::path(scratch.path()), &text).unwrap();
        let is_refused = UserStore::open(scratch.path()).is_err();
        prop_assert!(is_refused);
    }
}

/// The message `user NUL password` lacks the first NUL. The server wrote its password to the audit
/// log as a name.
#[test]
fn a_malformed_first_message_names_nobody() {
    let users = Arc::new(UserStore::development());
    let claimed = |mechanism: &[u8], payload: &[u8]| {
        let mut sasl = SaslServer::new();
        let _ = sasl.start(mechanism, payload, &users);
        sasl.claimed_name().to_owned()
    };
    assert_eq!(claimed(b"PLAIN", b"\0ann\0secret"), "ann");
    assert_eq!(claimed(b"PLAIN", b"ann\0ann\0secret"), "ann");
    for malformed in [&b"ann\0secret"[..], b"secret", b"", b"a\0secret\0b\0c", b"\0\0\0secret"] {
        assert_eq!(claimed(b"PLAIN", malformed), "", "{malformed:?}");
    }
    assert_eq!(claimed(b"SCRAM-SHA1", b"n,,n=ann,r=x"), "ann");
}
