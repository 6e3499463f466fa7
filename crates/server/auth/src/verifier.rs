//! The SCRAM verifier of RFC 5802 section 3, which is stored instead of a password.
//!
//! Owns: the three hash functions in one enum, key derivation, and the two checks made with a
//! verifier (a client proof, a plain password). Invariants: comparisons take constant time; every
//! key is as long as the hash, which is checked when a verifier comes from a file. Callers:
//! `scram`, `user_file`, `user_store`. This module does not do SASLprep: a password is the bytes
//! that the client sends, as with the official clients.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use oribi_system::random::random_bytes;

/// PBKDF2 rounds of new verifiers. RFC 7677 requires at least 4096. The client pays the same number
/// at every connect, so this is not the much larger number advised for passwords at rest.
pub(super) const ITERATIONS: NonZeroU32 = NonZeroU32::new(15_000).expect("not zero");

/// Upper limit of rounds in a users file. A larger number counts as damage: one login would take
/// seconds.
const ITERATIONS_MAX: u32 = 10_000_000;

/// Bytes of a new salt.
pub(super) const SALT_BYTES: usize = 16;
const _: () = assert!(SALT_BYTES >= 16, "salts of two users differ");
const _: () = assert!(ITERATIONS.get() <= ITERATIONS_MAX);

/// The hash function of a SCRAM mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ScramHash {
    Sha1,
    Sha256,
    Sha512,
}

impl ScramHash {
    /// Every hash function, in the order in which verifiers are listed in a users file.
    pub(super) const ALL: [ScramHash; 3] = [ScramHash::Sha512, ScramHash::Sha256, ScramHash::Sha1];

    /// Name of the SASL mechanism on the wire. Unlike the RFC's names, it has no dash before the
    /// digits.
    pub(super) fn mechanism(self) -> &'static str {
        match self {
            ScramHash::Sha1 => "SCRAM-SHA1",
            ScramHash::Sha256 => "SCRAM-SHA256",
            ScramHash::Sha512 => "SCRAM-SHA512",
        }
    }

    pub(super) fn from_mechanism(name: &[u8]) -> Option<ScramHash> {
        ScramHash::ALL.into_iter().find(|hash| hash.mechanism().as_bytes() == name)
    }

    fn hmac_algorithm(self) -> hmac::Algorithm {
        match self {
            ScramHash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            ScramHash::Sha256 => hmac::HMAC_SHA256,
            ScramHash::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest_algorithm(self) -> &'static digest::Algorithm {
        self.hmac_algorithm().digest_algorithm()
    }

    pub(super) fn output_bytes(self) -> usize {
        self.digest_algorithm().output_len()
    }

    pub(super) fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hmac_algorithm(), key), message).as_ref().to_vec()
    }

    pub(super) fn digest(self, message: &[u8]) -> Vec<u8> {
        digest::digest(self.digest_algorithm(), message).as_ref().to_vec()
    }

    /// `Hi(password, salt, iterations)`, which is PBKDF2 with one block. Milliseconds of work.
    pub(super) fn salted_password(
        self,
        password: &[u8],
        salt: &[u8],
        iterations: NonZeroU32,
    ) -> Vec<u8> {
        assert!(!salt.is_empty(), "a password without a salt would be derived alike for all users");
        let algorithm = match self {
            ScramHash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            ScramHash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            ScramHash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut output = vec![0; self.output_bytes()];
        debug_assert_eq!(output.len(), self.output_bytes(), "a key has the length of its hash");
        pbkdf2::derive(algorithm, iterations, salt, password, &mut output);
        output
    }
}

/// Verifies a password without holding it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Verifier {
    pub(super) hash: ScramHash,
    pub(super) salt: Vec<u8>,
    pub(super) iterations: NonZeroU32,
    stored_key: Vec<u8>,
    server_key: Vec<u8>,
}

/// A verifier as the users file holds it: binary fields in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredVerifier {
    salt: String,
    iterations: u32,
    stored_key: String,
    server_key: String,
}

impl Verifier {
    /// Derives the verifier of `password`. Milliseconds of work.
    pub(super) fn derive(
        hash: ScramHash,
        password: &[u8],
        salt: &[u8],
        iterations: NonZeroU32,
    ) -> Verifier {
        let salted_password = hash.salted_password(password, salt, iterations);
        let client_key = hash.hmac(&salted_password, b"Client Key");
        assert_eq!(client_key.len(), hash.output_bytes(), "a key has the length of its hash");
        Verifier {
            hash,
            salt: salt.to_vec(),
            iterations,
            stored_key: hash.digest(&client_key),
            server_key: hash.hmac(&salted_password, b"Server Key"),
        }
    }

    /// Derives a verifier with a fresh salt and the usual number of rounds.
    pub(super) fn derive_new(hash: ScramHash, password: &[u8]) -> Verifier {
        Verifier::derive(hash, password, &random_bytes::<SALT_BYTES>(), ITERATIONS)
    }

    /// The verifier of an unknown user. Its salt depends only on the key and the name, so repeated
    /// requests reveal nothing. Its keys are random, so no proof matches.
    pub(super) fn of_unknown_user(
        hash: ScramHash,
        key: &[u8],
        name: &[u8],
        iterations: NonZeroU32,
    ) -> Verifier {
        let mut message = hash.mechanism().as_bytes().to_vec();
        message.push(0);
        message.extend_from_slice(name);
        let mut salt = ScramHash::Sha256.hmac(key, &message);
        salt.truncate(SALT_BYTES);
        assert_eq!(salt.len(), SALT_BYTES, "an unknown user's salt is as long as any other");
        Verifier {
            hash,
            salt,
            iterations,
            stored_key: random_bytes::<64>()[..hash.output_bytes()].to_vec(),
            server_key: random_bytes::<64>()[..hash.output_bytes()].to_vec(),
        }
    }

    /// Checks a client proof over `auth_message` (RFC 5802 section 3). Returns the server signature
    /// when the proof is right.
    pub(super) fn check_proof(&self, auth_message: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        let client_signature = self.hash.hmac(&self.stored_key, auth_message);
        let server_signature = self.hash.hmac(&self.server_key, auth_message);
        debug_assert_eq!(
            server_signature.len(),
            self.hash.output_bytes(),
            "signatures are of the hash"
        );
        if proof.len() != client_signature.len() {
            return None;
        }
        let client_key: Vec<u8> =
            proof.iter().zip(&client_signature).map(|(left, right)| left ^ right).collect();
        let matches: bool = self.hash.digest(&client_key).ct_eq(&self.stored_key).into();
        matches.then_some(server_signature)
    }

    /// Verifies a plain password by deriving the keys again. Takes milliseconds.
    pub(super) fn check_password(&self, password: &[u8]) -> bool {
        let other = Verifier::derive(self.hash, password, &self.salt, self.iterations);
        other.stored_key.ct_eq(&self.stored_key).into()
    }

    pub(super) fn to_stored(&self) -> StoredVerifier {
        StoredVerifier {
            salt: BASE64.encode(&self.salt),
            iterations: self.iterations.get(),
            stored_key: BASE64.encode(&self.stored_key),
            server_key: BASE64.encode(&self.server_key),
        }
    }

    /// Reads a verifier from the users file; `Err` names its fault.
    pub(super) fn from_stored(
        hash: ScramHash,
        stored: &StoredVerifier,
    ) -> Result<Verifier, String> {
        let decode = |what: &str, text: &str| {
            BASE64.decode(text).map_err(|_| format!("{} {what} is not base64", hash.mechanism()))
        };
        let iterations = NonZeroU32::new(stored.iterations)
            .filter(|iterations| iterations.get() <= ITERATIONS_MAX)
            .ok_or_else(|| format!("{} has {} iterations", hash.mechanism(), stored.iterations))?;
        let verifier = Verifier {
            hash,
            salt: decode("salt", &stored.salt)?,
            iterations,
            stored_key: decode("stored_key", &stored.stored_key)?,
            server_key: decode("server_key", &stored.server_key)?,
        };
        let lengths_fit = verifier.stored_key.len() == hash.output_bytes()
            && verifier.server_key.len() == hash.output_bytes()
            && !verifier.salt.is_empty();
        if !lengths_fit {
            return Err(format!("{} has a key or salt of the wrong length", hash.mechanism()));
        }
        Ok(verifier)
    }
}
