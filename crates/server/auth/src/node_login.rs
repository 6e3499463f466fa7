//! The client's side of a login to another node: SCRAM with SHA-512 as [`NODE_NAME`].
//!
//! Owns: the two messages, and the check that the other node has the secret too. Invariants: the
//! secret is never sent; nothing of the other node's messages panics, and none makes this node
//! derive keys for longer than [`ITERATIONS_MAX`] rounds take. Callers: links between nodes.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_system::random::random_bytes;
use subtle::ConstantTimeEq as _;

use super::user_file::NODE_NAME;
use super::verifier::ScramHash;

const HASH: ScramHash = ScramHash::Sha512;
const NONCE_BYTES: usize = 18;
/// Most rounds that another node may ask for: a tenth of a second.
const ITERATIONS_MAX: u32 = 100_000;

/// Why a login to another node failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node's challenge is malformed")]
pub struct NodeLoginError;

/// A login that has begun.
pub struct NodeLogin {
    nonce: String,
}

/// The answer to a challenge.
pub struct NodeProof {
    client_final: String,
    server_final: String,
}

impl NodeLogin {
    /// The SASL mechanism that both messages name.
    pub fn mechanism() -> &'static str {
        HASH.mechanism()
    }

    /// A login with a fresh nonce.
    pub fn begin() -> NodeLogin {
        NodeLogin { nonce: BASE64.encode(random_bytes::<NONCE_BYTES>()) }
    }

    fn bare(&self) -> String {
        format!("n={NODE_NAME},r={}", self.nonce)
    }

    /// The message that requests a challenge.
    pub fn client_first(&self) -> String {
        format!("n,,{}", self.bare())
    }

    /// Answers the other node's challenge. Milliseconds of work.
    ///
    /// # Errors
    /// The challenge is malformed, or requires too much work.
    pub fn answer(&self, secret: &[u8], challenge: &[u8]) -> Result<NodeProof, NodeLoginError> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| NodeLoginError)?;
        let mut fields = challenge.split(',');
        let mut field = |name: &str| fields.next().and_then(|field| field.strip_prefix(name));
        let nonce = field("r=").ok_or(NodeLoginError)?;
        let salt = field("s=").and_then(|salt| BASE64.decode(salt).ok()).ok_or(NodeLoginError)?;
        let iterations = field("i=").and_then(|rounds| rounds.parse::<NonZeroU32>().ok());
        let iterations = iterations.filter(|rounds| rounds.get() <= ITERATIONS_MAX);
        let iterations = iterations.ok_or(NodeLoginError)?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(NodeLoginError);
        }
        let without_proof = format!("c=biws,r={nonce}");
        let message = format!("{},{challenge},{without_proof}", self.bare());
        let salted = HASH.salted_password(secret, &salt, iterations);
        let client_key = HASH.hmac(&salted, b"Client Key");
        let signature = HASH.hmac(&HASH.digest(&client_key), message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server_signature = HASH.hmac(&HASH.hmac(&salted, b"Server Key"), message.as_bytes());
        Ok(NodeProof {
            client_final: format!("{without_proof},p={}", BASE64.encode(proof)),
            server_final: format!("v={}", BASE64.encode(server_signature)),
        })
    }
}

impl NodeProof {
    /// The message that proves the knowledge of the secret.
    pub fn client_final(&self) -> &str {
        &self.client_final
    }

    /// True when the other node has proved that it has the secret.
    pub fn is_answered_by(&self, server_final: &[u8]) -> bool {
        self.server_final.as_bytes().ct_eq(server_final).into()
    }
}
