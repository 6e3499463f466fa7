//! The server side of SCRAM (RFC 5802, RFC 7677), without channel binding.
//!
//! Owns: parsing of the two client messages and the text of the two server messages. The exchange
//! is
//!
//! ```text
//! C: n,,n=user,r=CNONCE                     client-first: GS2 header, then the bare message
//! S: r=CNONCE SNONCE,s=SALT,i=ROUNDS        server-first
//! C: c=biws,r=CNONCE SNONCE,p=PROOF         client-final
//! S: v=SIGNATURE                            server-final
//! ```
//!
//! and the proof covers all of it except the GS2 header, which client-final repeats in base64
//! (`c=`). Invariants: a message is plain data until every part has been checked; every deviation
//! fails the exchange, and none panics. Caller: `sasl`. This module does not look users up and does
//! not derive keys.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_system::random::random_bytes;

use super::verifier::Verifier;

/// Random bytes of the server's half of the nonce.
const NONCE_BYTES: usize = 18;

/// A parsed client-first message.
pub(super) struct ClientFirst {
    /// User name with `=2C` and `=3D` resolved.
    pub(super) name: String,
    gs2_header: String,
    bare: String,
    client_nonce: String,
}

impl ClientFirst {
    /// Parses `gs2-header client-first-message-bare`; returns `None` for any other form.
    pub(super) fn parse(message: &[u8]) -> Option<ClientFirst> {
        let message = std::str::from_utf8(message).ok()?;
        let (flag, rest) = message.split_once(',')?;
        // `y` means "I support channel binding, you do not", which is true of this server; `p=`
        // demands channel binding.
        if flag != "n" && flag != "y" {
            return None;
        }
        let (authzid, bare) = rest.split_once(',')?;
        let gs2_header = &message[..message.len() - bare.len()];
        debug_assert!(gs2_header.ends_with(','), "a header ends before the bare message");

        let mut attributes = bare.split(',');
        // A leading `m=` is a mandatory extension; this server supports none.
        let name = unescape_name(attributes.next()?.strip_prefix("n=")?)?;
        let client_nonce = attributes.next()?.strip_prefix("r=")?;
        if !is_nonce(client_nonce) || name.is_empty() {
            return None;
        }
        // The server does not let a user act for another user. An authzid equal to the user's own
        // name is harmless.
        if !authzid.is_empty() && unescape_name(authzid.strip_prefix("a=")?)? != name {
            return None;
        }
        Some(ClientFirst {
            name,
            gs2_header: gs2_header.to_owned(),
            bare: bare.to_owned(),
            client_nonce: client_nonce.to_owned(),
        })
    }
}

/// An exchange after server-first was built.
pub(super) struct ScramExchange {
    gs2_header: String,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

/// A client-final message of correct form, whose proof is still unchecked.
pub(super) struct ClientProof {
    auth_message: Vec<u8>,
    proof: Vec<u8>,
}

impl ScramExchange {
    /// Answers client-first for a user with this salt and number of rounds.
    pub(super) fn begin(
        client_first: ClientFirst,
        salt: &[u8],
        iterations: NonZeroU32,
    ) -> ScramExchange {
        let server_nonce = BASE64.encode(random_bytes::<NONCE_BYTES>());
        debug_assert!(server_nonce.len() >= NONCE_BYTES, "a nonce has enough random bytes");
        ScramExchange::begin_with_nonce(client_first, salt, iterations, &server_nonce)
    }

    /// [`ScramExchange::begin`] with a given server nonce, as the RFC's examples need.
    pub(super) fn begin_with_nonce(
        client_first: ClientFirst,
        salt: &[u8],
        iterations: NonZeroU32,
        server_nonce: &str,
    ) -> ScramExchange {
        assert!(!server_nonce.is_empty(), "the client does not choose the whole nonce");
        let nonce = format!("{}{server_nonce}", client_first.client_nonce);
        debug_assert!(
            nonce.len() > client_first.client_nonce.len(),
            "the server adds to the nonce"
        );
        ScramExchange {
            gs2_header: client_first.gs2_header,
            client_first_bare: client_first.bare,
            server_first: format!("r={nonce},s={},i={iterations}", BASE64.encode(salt)),
            nonce,
        }
    }

    /// The message to send to the client.
    pub(super) fn server_first(&self) -> &str {
        &self.server_first
    }

    /// Parses client-final and checks everything in it except the proof.
    pub(super) fn client_final(&self, message: &[u8]) -> Option<ClientProof> {
        let message = std::str::from_utf8(message).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut attributes = without_proof.split(',');
        let binding = BASE64.decode(attributes.next()?.strip_prefix("c=")?).ok()?;
        if binding != self.gs2_header.as_bytes() {
            return None;
        }
        if attributes.next()?.strip_prefix("r=")? != self.nonce {
            return None;
        }
        let proof = BASE64.decode(proof).ok()?;
        let auth_message =
            format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        Some(ClientProof { auth_message: auth_message.into_bytes(), proof })
    }
}

impl ClientProof {
    /// Checks the proof; returns server-final when it is right.
    pub(super) fn check(&self, verifier: &Verifier) -> Option<String> {
        let signature = verifier.check_proof(&self.auth_message, &self.proof)?;
        Some(format!("v={}", BASE64.encode(signature)))
    }
}

/// Resolves `=2C` and `=3D`; RFC 5802 section 5.1 makes any other use of `=` an error.
fn unescape_name(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (character, rest) = if let Some(rest) = part.strip_prefix("2C") {
            (',', rest)
        } else {
            ('=', part.strip_prefix("3D")?)
        };
        name.push(character);
        name.push_str(rest);
    }
    Some(name)
}

/// Accepts printable ASCII without comma, as in the RFC's grammar, and also spaces. The C++ core of
/// Couchbase's Python and Node.js SDKs sends its nonce as hexadecimal numbers separated by spaces.
fn is_nonce(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && byte != b',' || byte == b' ';
    !text.is_empty() && text.bytes().all(is_allowed)
}
