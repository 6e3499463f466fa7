//! Authentication from the client's side: SCRAM (RFC 5802, RFC 7677) and PLAIN.
//!
//! SCRAM never sends the password and makes the server prove that it knows the password too; a
//! server that cannot is refused. PLAIN sends the password as it is and is used only when asked
//! for.
//!
//! Pure computation: messages in, messages out. Randomness is handed in. Deriving the key takes
//! milliseconds, so the caller runs [`Scram::answer`] where it may block, and the connections of a
//! client share what was derived ([`SaltedPasswords`]).

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use parking_lot::Mutex;
use ring::{digest, hmac, pbkdf2};

use crate::error::ClientError;

/// Header of a client that does not bind the channel, and its base64 form.
const GS2_HEADER: &str = "n,,";
const GS2_HEADER_BASE64: &str = "biws";

/// Most rounds of key derivation that a server may ask for: a hostile one must not keep us busy.
const ROUNDS_MAX: u32 = 1_000_000;

/// Keys that a client keeps: one for each server whose users have their own salts.
const SALTED_PASSWORDS_MAX: usize = 8;

/// Longest salt of a key that is kept, in bytes.
const KEPT_SALT_BYTES_MAX: usize = 64;

/// How the client proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Mechanism {
    /// SCRAM with SHA-512.
    #[default]
    ScramSha512,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-1.
    ScramSha1,
    /// Name and password in the clear.
    Plain,
}

impl Mechanism {
    /// Name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha512 => "SCRAM-SHA512",
            Mechanism::ScramSha256 => "SCRAM-SHA256",
            Mechanism::ScramSha1 => "SCRAM-SHA1",
            Mechanism::Plain => "PLAIN",
        }
    }
}

/// The one message of PLAIN.
pub(crate) fn plain(user: &str, password: &str) -> Vec<u8> {
    [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat()
}

/// The keys that were derived from passwords last. A server sends a user the same salt each time,
/// so a client that opens several connections derives one key (RFC 5802 section 5.1 allows it).
#[derive(Clone, Default)]
pub(crate) struct SaltedPasswords(Arc<Mutex<Vec<SaltedPassword>>>);

#[derive(PartialEq, Eq)]
struct Salting {
    mechanism: Mechanism,
    password: String,
    salt: Vec<u8>,
    rounds: NonZeroU32,
}

struct SaltedPassword {
    of: Salting,
    key: Vec<u8>,
}

impl SaltedPasswords {
    /// The key of `of`. Connections that are opened together wait for the first one's key.
    fn key(&self, of: Salting, derive: impl FnOnce(&Salting) -> Vec<u8>) -> Vec<u8> {
        if of.salt.len() > KEPT_SALT_BYTES_MAX {
            return derive(&of);
        }
        let mut kept = self.0.lock();
        if let Some(known) = kept.iter().find(|known| known.of == of) {
            return known.key.clone();
        }
        let key = derive(&of);
        if kept.len() == SALTED_PASSWORDS_MAX {
            kept.remove(0);
        }
        kept.push(SaltedPassword { of, key: key.clone() });
        key
    }
}

/// A SCRAM exchange after its first message.
pub(crate) struct Scram {
    mechanism: Mechanism,
    password: String,
    known: SaltedPasswords,
    client_nonce: String,
    client_first_bare: String,
}

/// The message that proves the password, and what the server must answer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Proof {
    /// Client's final message.
    pub message: String,
    server_final: String,
}

impl Scram {
    /// Starts an exchange; `mechanism` is one of the SCRAM ones. Returns the first message too.
    pub fn start(
        mechanism: Mechanism,
        user: &str,
        password: &str,
        known: &SaltedPasswords,
        random: &[u8],
    ) -> (Scram, String) {
        let client_nonce = BASE64.encode(random);
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let client_first_bare = format!("n={user},r={client_nonce}");
        let message = format!("{GS2_HEADER}{client_first_bare}");
        let (password, known) = (password.to_owned(), known.clone());
        (Scram { mechanism, password, known, client_nonce, client_first_bare }, message)
    }

    /// Answers the server's first message. Takes as long as the server's round count asks for.
    pub fn answer(self, server_first: &[u8]) -> Result<Proof, ClientError> {
        let challenge = Challenge::parse(server_first, &self.client_nonce)?;
        let without_proof = format!("c={GS2_HEADER_BASE64},r={}", challenge.nonce);
        let auth_message =
            format!("{},{},{without_proof}", self.client_first_bare, challenge.message);
        let (stretch, hash) = match self.mechanism {
            Mechanism::ScramSha512 => (pbkdf2::PBKDF2_HMAC_SHA512, hmac::HMAC_SHA512),
            Mechanism::ScramSha256 => (pbkdf2::PBKDF2_HMAC_SHA256, hmac::HMAC_SHA256),
            Mechanism::ScramSha1 => (pbkdf2::PBKDF2_HMAC_SHA1, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Mechanism::Plain => return Err(failed("PLAIN has no challenge")),
        };
        let salting = Salting {
            mechanism: self.mechanism,
            password: self.password,
            salt: challenge.salt,
            rounds: challenge.rounds,
        };
        let salted_password = self.known.key(salting, |of| {
            let mut key = vec![0; hash.digest_algorithm().output_len()];
            pbkdf2::derive(stretch, of.rounds, &of.salt, of.password.as_bytes(), &mut key);
            key
        });
        let (proof, signature) = prove(hash, &salted_password, &auth_message);
        Ok(Proof {
            message: format!("{without_proof},p={}", BASE64.encode(proof)),
            server_final: format!("v={}", BASE64.encode(signature)),
        })
    }
}

/// Client proof and server signature (RFC 5802 section 3).
fn prove(
    hash: hmac::Algorithm,
    salted_password: &[u8],
    auth_message: &str,
) -> (Vec<u8>, hmac::Tag) {
    let sign = |key: &[u8], message: &[u8]| hmac::sign(&hmac::Key::new(hash, key), message);
    let client_key = sign(salted_password, b"Client Key");
    let stored_key = digest::digest(hash.digest_algorithm(), client_key.as_ref());
    let client_signature = sign(stored_key.as_ref(), auth_message.as_bytes());
    let masked = client_key.as_ref().iter().zip(client_signature.as_ref());
    let proof = masked.map(|(byte, mask)| byte ^ mask).collect();
    let server_key = sign(salted_password, b"Server Key");
    (proof, sign(server_key.as_ref(), auth_message.as_bytes()))
}

impl Proof {
    /// Checks the server's final message: only a server that knows the password can have made it.
    pub fn verify(&self, server_final: &[u8]) -> Result<(), ClientError> {
        // Extensions may follow the signature.
        let signature = server_final.split(|&byte| byte == b',').next().unwrap_or_default();
        if signature == self.server_final.as_bytes() {
            return Ok(());
        }
        Err(failed("the server could not prove that it knows the password"))
    }
}

/// The server's first message.
struct Challenge<'a> {
    message: &'a str,
    nonce: &'a str,
    salt: Vec<u8>,
    rounds: NonZeroU32,
}

impl<'a> Challenge<'a> {
    fn parse(message: &'a [u8], client_nonce: &str) -> Result<Challenge<'a>, ClientError> {
        let message = std::str::from_utf8(message).map_err(|_| failed("challenge is no text"))?;
        let mut fields = message.split(',');
        let mut field = |name: &str| fields.next().and_then(|field| field.strip_prefix(name));
        let nonce = field("r=").ok_or_else(|| failed("challenge without nonce"))?;
        let salt = field("s=").and_then(|salt| BASE64.decode(salt).ok());
        let rounds = field("i=").and_then(|rounds| rounds.parse().ok());
        if !nonce.starts_with(client_nonce) || nonce.len() == client_nonce.len() {
            return Err(failed("the server's nonce does not extend the client's"));
        }
        Ok(Challenge {
            message,
            nonce,
            salt: salt.ok_or_else(|| failed("challenge without salt"))?,
            rounds: rounds
                .filter(|rounds: &NonZeroU32| rounds.get() <= ROUNDS_MAX)
                .ok_or_else(|| failed("challenge without a sensible number of rounds"))?,
        })
    }
}

fn failed(reason: impl Into<Cow<'static, str>>) -> ClientError {
    ClientError::Authentication(reason.into())
}

#[cfg(test)]
mod tests;
