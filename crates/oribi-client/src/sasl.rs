//! Authentication from the client's side: SCRAM (RFC 5802, RFC 7677) and PLAIN.
//!
//! SCRAM never sends the password and makes the server prove that it knows the password too; a server
//! that cannot is refused. PLAIN sends the password as it is and is used only when asked for.
//!
//! Pure computation: messages in, messages out. Randomness is handed in. Deriving the key takes
//! milliseconds, so the caller runs [`Scram::answer`] where it may block.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use crate::error::ClientError;

/// Header of a client that does not bind the channel, and its base64 form.
const GS2_HEADER: &str = "n,,";
const GS2_HEADER_BASE64: &str = "biws";

/// Most rounds of key derivation that a server may ask for: a hostile one must not keep us busy.
const ROUNDS_MAX: u32 = 1_000_000;

/// How the client proves who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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

/// A SCRAM exchange after its first message.
pub(crate) struct Scram {
    mechanism: Mechanism,
    password: String,
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
        random: &[u8],
    ) -> (Scram, String) {
        let client_nonce = BASE64.encode(random);
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let client_first_bare = format!("n={user},r={client_nonce}");
        let message = format!("{GS2_HEADER}{client_first_bare}");
        let password = password.to_owned();
        (Scram { mechanism, password, client_nonce, client_first_bare }, message)
    }

    /// Answers the server's first message. Takes as long as the server's round count asks for.
    pub fn answer(&self, server_first: &[u8]) -> Result<Proof, ClientError> {
        let challenge = Challenge::parse(server_first, &self.client_nonce)?;
        let without_proof = format!("c={GS2_HEADER_BASE64},r={}", challenge.nonce);
        let auth_message =
            format!("{},{},{without_proof}", self.client_first_bare, challenge.message);
        let (proof, signature) = match self.mechanism {
            Mechanism::ScramSha512 => self.prove::<Sha512>(&challenge, &auth_message),
            Mechanism::ScramSha256 => self.prove::<Sha256>(&challenge, &auth_message),
            Mechanism::ScramSha1 => self.prove::<Sha1>(&challenge, &auth_message),
            Mechanism::Plain => return Err(failed("PLAIN has no challenge")),
        };
        Ok(Proof {
            message: format!("{without_proof},p={}", BASE64.encode(proof)),
            server_final: format!("v={}", BASE64.encode(signature)),
        })
    }

    /// Client proof and server signature.
    fn prove<H: EagerHash + Digest>(
        &self,
        challenge: &Challenge<'_>,
        auth_message: &str,
    ) -> (Vec<u8>, Vec<u8>)
    where
        Hmac<H>: KeyInit + Mac,
    {
        let mut salted_password = vec![0; <H as Digest>::output_size()];
        let password = self.password.as_bytes();
        pbkdf2::pbkdf2_hmac::<H>(password, &challenge.salt, challenge.rounds, &mut salted_password);
        let mut client_key = hmac::<H>(&salted_password, b"Client Key");
        let stored_key = <H as Digest>::digest(&client_key);
        let client_signature = hmac::<H>(&stored_key, auth_message.as_bytes());
        for (byte, mask) in client_key.iter_mut().zip(client_signature) {
            *byte ^= mask;
        }
        let server_key = hmac::<H>(&salted_password, b"Server Key");
        (client_key, hmac::<H>(&server_key, auth_message.as_bytes()))
    }
}

impl Proof {
    /// Checks the server's final message: only who knows the password can have made it.
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
    rounds: u32,
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
                .filter(|rounds| (1..=ROUNDS_MAX).contains(rounds))
                .ok_or_else(|| failed("challenge without a sensible number of rounds"))?,
        })
    }
}

fn hmac<H: EagerHash>(key: &[u8], message: &[u8]) -> Vec<u8>
where
    Hmac<H>: KeyInit + Mac,
{
    let mut mac = <Hmac<H> as KeyInit>::new_from_slice(key).expect("a key may have any length");
    Mac::update(&mut mac, message);
    mac.finalize().into_bytes().to_vec()
}

fn failed(reason: impl Into<Cow<'static, str>>) -> ClientError {
    ClientError::Authentication(reason.into())
}

#[cfg(test)]
mod tests;
