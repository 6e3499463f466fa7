//! The uuid and name by which clients know the cluster of this node.
//!
//! Owns: `cluster.json` in the data directory, and the rule for names. Invariants: the uuid is
//! generated once and never changes; an acknowledged name is durable; a file that cannot be parsed
//! is reported and never overwritten. Nodes of a cluster keep their identity in etcd, and the file
//! only seeds it. Callers: the start, and the admin HTTP when the name changes.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use oribi_system::data_file::{DataFileError, write_atomically};

const FILE_NAME: &str = "cluster.json";
const FILE_MODE: u32 = 0o600;
const VERSION: u32 = 1;

/// Longest name, in characters. Clients attach it to every span and metric that they report.
pub const CLUSTER_NAME_CHARS_MAX: usize = 256;

/// See the module text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterIdentity {
    pub uuid: String,
    /// The name; empty until one is set.
    pub name: String,
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct IdentityFile {
    version: u32,
    #[serde(flatten)]
    identity: ClusterIdentity,
}

impl ClusterIdentity {
    /// A new identity, different from that of every other cluster.
    pub fn random() -> ClusterIdentity {
        let bytes: [u8; 16] = oribi_system::random::random_bytes();
        let uuid = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        ClusterIdentity { uuid, name: String::new() }
    }

    /// Reads the identity of a data directory, and creates one if there is none.
    ///
    /// # Errors
    /// A file that cannot be parsed, or an I/O error.
    pub fn open(data_dir: &Path) -> Result<ClusterIdentity, DataFileError> {
        let path = data_dir.join(FILE_NAME);
        match std::fs::read(&path) {
            Ok(json) => parse(&json).map_err(|detail| DataFileError::corrupt(&path, detail)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let identity = ClusterIdentity::random();
                identity.write(data_dir)?;
                Ok(identity)
            }
            Err(error) => Err(DataFileError::io("read", &path, error)),
        }
    }

    /// Writes the file of a data directory. Durable when it returns.
    ///
    /// # Errors
    /// An I/O error; the old file remains.
    pub fn write(&self, data_dir: &Path) -> Result<(), DataFileError> {
        let path = data_dir.join(FILE_NAME);
        let file = IdentityFile { version: VERSION, identity: self.clone() };
        let json = serde_json::to_vec_pretty(&file).expect("a plain struct");
        write_atomically(&path, &json, FILE_MODE)
            .map_err(|error| DataFileError::io("write", &path, error))
    }
}

/// True for a valid cluster name. An empty name removes the name.
pub fn is_cluster_name(name: &str) -> bool {
    name.chars().count() <= CLUSTER_NAME_CHARS_MAX && !name.chars().any(char::is_control)
}

fn parse(json: &[u8]) -> Result<ClusterIdentity, String> {
    let file: IdentityFile = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if file.version != VERSION {
        return Err(format!("version is {}, this program reads {VERSION}", file.version));
    }
    let ClusterIdentity { uuid, name } = &file.identity;
    if uuid.len() != 32 || !uuid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("the uuid is not 32 hexadecimal digits".to_owned());
    }
    if !is_cluster_name(name) {
        return Err("the name is too long or has control characters".to_owned());
    }
    Ok(file.identity)
}

#[cfg(test)]
mod tests {
    use super::{CLUSTER_NAME_CHARS_MAX, ClusterIdentity, FILE_NAME, is_cluster_name};

    #[test]
    fn an_identity_is_made_once_and_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let first = ClusterIdentity::open(scratch.path()).unwrap();
        assert_eq!((first.uuid.len(), first.name.as_str()), (32, ""));
        let named = ClusterIdentity { name: "blue".to_owned(), ..first.clone() };
        named.write(scratch.path()).unwrap();
        assert_eq!(ClusterIdentity::open(scratch.path()).unwrap(), named);
        assert_ne!(ClusterIdentity::random().uuid, first.uuid);
    }

    #[test]
    fn a_file_that_is_not_understood_stays() {
        let uuid = "0".repeat(32);
        for text in [
            String::new(),
            "{}".to_owned(),
            format!(r#"{{"version":2,"uuid":"{uuid}","name":""}}"#),
            r#"{"version":1,"uuid":"12","name":""}"#.to_owned(),
            format!(r#"{{"version":1,"uuid":"{uuid}","name":"a\u0000"}}"#),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join(FILE_NAME);
            std::fs::write(&path, &text).unwrap();
            assert!(ClusterIdentity::open(scratch.path()).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn names_are_text_of_bounded_length() {
        assert!(is_cluster_name("") && is_cluster_name("Prod (EU) \u{e9}"));
        assert!(is_cluster_name(&"\u{e9}".repeat(CLUSTER_NAME_CHARS_MAX)));
        assert!(!is_cluster_name(&"x".repeat(CLUSTER_NAME_CHARS_MAX + 1)));
        assert!(!is_cluster_name("a\nb"));
    }
}
