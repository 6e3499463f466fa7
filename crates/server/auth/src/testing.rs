//! The client's side of a login, for tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::verifier::ScramHash;

/// A client that computes its proof as RFC 5802 says.
pub(crate) struct ScramClient {
    pub(crate) hash: ScramHash,
    pub(crate) name: &'static str,
    pub(crate) password: &'static str,
    pub(crate) gs2_header: &'static str,
}

impl ScramClient {
    pub(crate) fn new(hash: ScramHash, name: &'static str, password: &'static str) -> ScramClient {
        ScramClient { hash, name, password, gs2_header: "n,," }
    }

    pub(crate) fn bare(&self) -> String {
        format!("n={},r=abcDEF", self.name)
    }

    /// Client-final for a server-first, and the signature expected in server-final.
    pub(crate) fn answer(&self, server_first: &str) -> (String, String) {
        let mut parts = server_first.split(',');
        let nonce = parts.next().unwrap().strip_prefix("r=").unwrap();
        let salt = BASE64.decode(parts.next().unwrap().strip_prefix("s=").unwrap()).unwrap();
        let iterations = parts.next().unwrap().strip_prefix("i=").unwrap().parse().unwrap();
        assert!(nonce.starts_with("abcDEF") && nonce.len() > 20);

        let without_proof = format!("c={},r={nonce}", BASE64.encode(self.gs2_header));
        let auth_message = format!("{},{server_first},{without_proof}", self.bare());
        let hash = self.hash;
        let salted = hash.salted_password(self.password.as_bytes(), &salt, iterations);
        let client_key = hash.hmac(&salted, b"Client Key");
        let signature = hash.hmac(&hash.digest(&client_key), auth_message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server_key = hash.hmac(&salted, b"Server Key");
        let server_signature = hash.hmac(&server_key, auth_message.as_bytes());
        (
            format!("{without_proof},p={}", BASE64.encode(proof)),
            format!("v={}", BASE64.encode(server_signature)),
        )
    }
}

/// The first message of a client with SHA-512.
pub fn scram_first(name: &'static str) -> String {
    format!("n,,{}", ScramClient::new(ScramHash::Sha512, name, "").bare())
}

/// Its final message, and the server's final message when it is right.
pub fn scram_final(
    name: &'static str,
    password: &'static str,
    server_first: &str,
) -> (String, String) {
    ScramClient::new(ScramHash::Sha512, name, password).answer(server_first)
}
