//! JSON with its checksum: the form of an archive's small files.
//!
//! Layout: the JSON text, a line feed, the SHA-256 of the text in hexadecimal, a line feed. JSON
//! alone would not do: it still parses after most changes of a byte.

use ring::digest::{SHA256, digest};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ArchiveError;

/// Bytes after the text: two line feeds and 64 digits.
const TRAILER_BYTES: usize = 66;

pub(crate) fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as the bytes of a file.
pub(crate) fn write(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    let checksum = sha256(&bytes);
    bytes.push(b'\n');
    bytes.extend_from_slice(checksum.as_bytes());
    bytes.push(b'\n');
    Ok(bytes)
}

/// The value in a file called `name`.
pub(crate) fn read<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, ArchiveError> {
    let damaged = |reason: &str| ArchiveError::damaged(name, reason);
    let split = bytes.len().checked_sub(TRAILER_BYTES).ok_or_else(|| damaged("it is cut off"))?;
    let (text, trailer) = bytes.split_at(split);
    if trailer != format!("\n{}\n", sha256(text)).as_bytes() {
        return Err(damaged("its checksum is another one"));
    }
    serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))
}

#[cfg(test)]
mod tests {
    //! Every single damage is noticed.

    use super::*;

    #[test]
    fn any_changed_byte_and_any_cut_is_noticed() {
        let value = ("text".to_owned(), 7_u64);
        let bytes = write(&value).unwrap();
        assert_eq!(read::<(String, u64)>("f", &bytes).unwrap(), value);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            read::<(String, u64)>("f", &damaged).unwrap_err();
            read::<(String, u64)>("f", &bytes[..at]).unwrap_err();
        }
    }
}
