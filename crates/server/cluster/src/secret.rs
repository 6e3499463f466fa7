//! The secret that the nodes of a cluster share.
//!
//! Owns: reading and checking the file, and the proof by which nodes notice that their secrets
//! differ. Links between nodes authenticate with the secret as a user that only nodes have.
//! Invariants: the secret is in no record, log line or error; a proof allows guessing, so a secret
//! has at least [`SECRET_BYTES_MIN`] bytes. Callers: the server's start, and the agent.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ring::hmac;
use serde::{Deserialize, Serialize};

/// Shortest secret: `openssl rand -hex 32` makes 64 bytes, `openssl rand -base64 24` makes 32.
pub const SECRET_BYTES_MIN: usize = 32;
/// Longest secret: the longest password of a user.
pub const SECRET_BYTES_MAX: usize = 1024;

/// Mode bits by which other users of the machine may read the file.
const READ_BY_OTHERS: u32 = 0o077;
/// What the key of beacons is made of, besides the cluster's name.
const BEACON_KEY_OF: &str = "oribi cluster beacons 1";
/// What proofs are made of, besides their salt.
const PROOF_OF: &str = "oribi cluster secret 1";

/// See the module text.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret(Vec<u8>);

/// Why a file holds no secret.
#[derive(Debug, thiserror::Error)]
pub enum ClusterSecretError {
    #[error("cluster_secret_file: cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error(
        "cluster_secret_file: other users may read {}, its mode is {mode:03o}; run chmod 600 on it",
        path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "cluster_secret_file: {} holds {length} bytes, a secret has {SECRET_BYTES_MIN} to \
         {SECRET_BYTES_MAX}; make one with openssl rand -hex 32, the same on every node",
        path.display()
    )]
    Length { path: PathBuf, length: usize },
}

impl ClusterSecret {
    /// Reads the secret of a file. The end of its last line does not count.
    ///
    /// # Errors
    /// See [`ClusterSecretError`].
    pub fn read(path: &Path) -> Result<ClusterSecret, ClusterSecretError> {
        let unreadable = |error| ClusterSecretError::Read { path: path.to_owned(), error };
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.mode() & 0o777;
        if mode & READ_BY_OTHERS != 0 {
            return Err(ClusterSecretError::Exposed { path: path.to_owned(), mode });
        }
        let mut secret = Vec::new();
        // Room for the end of a line, and for one byte too many.
        let limit = SECRET_BYTES_MAX as u64 + 3;
        file.take(limit).read_to_end(&mut secret).map_err(unreadable)?;
        while secret.ends_with(b"\n") || secret.ends_with(b"\r") {
            secret.pop();
        }
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
            let (path, length) = (path.to_owned(), secret.len());
            return Err(ClusterSecretError::Length { path, length });
        }
        Ok(ClusterSecret(secret))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The secret of tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_test() -> ClusterSecret {
        ClusterSecret(vec![b's'; SECRET_BYTES_MIN])
    }

    #[cfg(test)]
    pub(crate) fn of_another_cluster() -> ClusterSecret {
        ClusterSecret(vec![b'o'; SECRET_BYTES_MIN])
    }

    /// A proof with a fresh salt.
    pub(crate) fn prove(&self) -> SecretProof {
        let salt = hex(&oribi_system::random::random_bytes::<16>());
        let proof = hex(hmac::sign(&self.key(), &message(&salt)).as_ref());
        SecretProof { version: SecretProof::VERSION, salt, proof }
    }

    /// The key that authenticates the beacons of a cluster.
    pub(crate) fn beacon_key(&self, cluster: &str) -> hmac::Key {
        let text = format!("{BEACON_KEY_OF} {cluster}");
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.key(), text.as_bytes()).as_ref())
    }

    /// True when `proof` was made with this secret.
    pub(crate) fn fits(&self, proof: &SecretProof) -> bool {
        let Some(tag) = from_hex(&proof.proof) else { return false };
        hmac::verify(&self.key(), &message(&proof.salt), &tag).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(..)")
    }
}

/// The record by which nodes compare their secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecretProof {
    pub(crate) version: u32,
    salt: String,
    proof: String,
}

impl SecretProof {
    pub(crate) const VERSION: u32 = 1;
}

fn message(salt: &str) -> Vec<u8> {
    format!("{PROOF_OF} {salt}").into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{ClusterSecret, SECRET_BYTES_MAX, SecretProof};

    fn read(content: &[u8], mode: u32) -> Result<ClusterSecret, String> {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("secret");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        ClusterSecret::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_is_the_content_without_line_end() {
        let secret = "s".repeat(32);
        for end in ["", "\n", "\r\n"] {
            let read = read(format!("{secret}{end}").as_bytes(), 0o400).unwrap();
            assert_eq!(read.bytes(), secret.as_bytes());
            assert_eq!(format!("{read:?}"), "ClusterSecret(..)");
        }
    }

    #[test]
    fn bad_files_get_errors_that_say_what_to_do() {
        let short = read(b"short\n", 0o600).unwrap_err();
        assert!(short.contains("holds 5 bytes") && short.contains("openssl rand"), "{short}");
        let long = read(&vec![b's'; SECRET_BYTES_MAX + 1], 0o600).unwrap_err();
        assert!(long.contains("32 to 1024"), "{long}");
        for mode in [0o640, 0o604] {
            let exposed = read("s".repeat(32).as_bytes(), mode).unwrap_err();
            assert!(exposed.contains(&format!("{mode:03o}")), "{exposed}");
            assert!(exposed.contains("chmod 600"), "{exposed}");
        }
        let missing = ClusterSecret::read("/nonexistent/secret".as_ref()).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/secret"), "{missing}");
    }

    #[test]
    fn a_proof_fits_its_secret_alone() {
        let (one, two) = (ClusterSecret(vec![1; 32]), ClusterSecret(vec![2; 32]));
        let proof = one.prove();
        assert_ne!(proof, one.prove(), "each has its salt");
        let text = serde_json::to_string(&proof).unwrap();
        let stored: SecretProof = serde_json::from_str(&text).unwrap();
        assert!(one.fits(&stored) && !two.fits(&stored));
        for damaged in ["", "0", "zz", "\u{e9}\u{e9}"] {
            assert!(!one.fits(&SecretProof { proof: damaged.to_owned(), ..proof.clone() }));
        }
    }
}
