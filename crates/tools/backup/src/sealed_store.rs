//! Files encrypted by a key that only their owner has.
//!
//! Each archive derives its own key by HKDF-SHA256 from the key file and a random salt. A file is
//! `ORIBIENC`, the version as u32 (1), a random nonce of 12 bytes, and AES-256-GCM of the content
//! with the file's name as additional data. So a file that was changed, cut, or renamed to another
//! cannot be opened. Random nonces of 96 bits are safe for 2^32 files of one key. `archive.json` is
//! not encrypted; it has the salt.

use std::io::{self, ErrorKind};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::error::ArchiveError;
use crate::manifest::Encryption;
use crate::store::{ArchiveStore, FileEntry};

const MAGIC: &[u8; 8] = b"ORIBIENC";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 8 + 4 + NONCE_LEN;
const KEY_BYTES: usize = 32;
const CIPHER: &str = "aes-256-gcm";
/// Keeps keys of other uses of a key file apart.
const INFO: &[u8] = b"oribi-backup files 1";
/// Additional data of the text that only the right key opens.
const CHECK: &str = "check";

/// Contents of a key file.
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// The key in the text of a key file: 32 bytes in base64, white space around it.
    ///
    /// # Errors
    /// When the text is something else.
    pub fn parse(text: &str) -> Result<Key, ArchiveError> {
        let bytes = STANDARD.decode(text.trim_ascii()).ok();
        let key = bytes.and_then(|bytes| bytes.try_into().ok()).map(Key);
        let reason = "a key file has 32 random bytes in base64, as from: openssl rand -base64 32";
        key.ok_or_else(|| ArchiveError::Unusable(reason.to_owned()))
    }

    /// The encryption record of a new archive of this key.
    pub(crate) fn new_encryption(&self) -> Result<Encryption, ArchiveError> {
        let mut salt = [0; KEY_BYTES];
        fill(&mut salt)?;
        let check = seal(&self.derive(&salt)?, CHECK, &[])?;
        Ok(Encryption { cipher: CIPHER.to_owned(), salt: hex(&salt), check: hex(&check) })
    }

    fn derive(&self, salt: &[u8]) -> Result<LessSafeKey, ArchiveError> {
        let failed = |_| ArchiveError::Unusable("the key cannot be derived".to_owned());
        let prk = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let mut key = [0; KEY_BYTES];
        let okm = prk.expand(&[INFO], &AES_256_GCM).map_err(failed)?;
        okm.fill(&mut key).map_err(failed)?;
        Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).map_err(failed)?))
    }
}

/// See the module text.
pub struct SealedStore {
    inner: Box<dyn ArchiveStore>,
    key: LessSafeKey,
}

impl SealedStore {
    /// The files of an archive that is encrypted like this.
    pub(crate) fn open(
        inner: Box<dyn ArchiveStore>,
        key: &Key,
        encryption: &Encryption,
    ) -> Result<SealedStore, ArchiveError> {
        let unusable = |reason: &str| ArchiveError::Unusable(reason.to_owned());
        if encryption.cipher != CIPHER {
            return Err(unusable("the archive is encrypted by a cipher that is not known"));
        }
        let damaged = || unusable("what archive.json says about encryption is damaged");
        let salt = from_hex(&encryption.salt).ok_or_else(damaged)?;
        let check = from_hex(&encryption.check).ok_or_else(damaged)?;
        let key = key.derive(&salt)?;
        match open(&key, CHECK, check) {
            Some(_) => Ok(SealedStore { inner, key }),
            None => Err(unusable("the archive was encrypted with another key")),
        }
    }
}

impl ArchiveStore for SealedStore {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let sealed = seal(&self.key, name, bytes).map_err(io::Error::other)?;
        self.inner.put(name, &sealed)
    }

    fn get_into(
        &self,
        name: &str,
        bytes_max: usize,
        memory: Vec<u8>,
    ) -> io::Result<Option<Vec<u8>>> {
        let overhead = HEAD_BYTES + AES_256_GCM.tag_len();
        let bytes_max = bytes_max.saturating_add(overhead);
        let Some(sealed) = self.inner.get_into(name, bytes_max, memory)? else { return Ok(None) };
        let opened = open(&self.key, name, sealed);
        opened
            .map(Some)
            .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it cannot be decrypted"))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<FileEntry>> {
        self.inner.list(prefix)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }
}

fn seal(key: &LessSafeKey, name: &str, bytes: &[u8]) -> Result<Vec<u8>, ArchiveError> {
    let mut nonce = [0; NONCE_LEN];
    fill(&mut nonce)?;
    let mut sealed = Vec::with_capacity(HEAD_BYTES + bytes.len() + AES_256_GCM.tag_len());
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&VERSION.to_be_bytes());
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(bytes);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(
        nonce,
        Aad::from(name.as_bytes()),
        &mut sealed[HEAD_BYTES..],
    );
    let tag = tag.map_err(|_| ArchiveError::Unusable(format!("{name} cannot be encrypted")))?;
    sealed.extend_from_slice(tag.as_ref());
    Ok(sealed)
}

fn open(key: &LessSafeKey, name: &str, mut sealed: Vec<u8>) -> Option<Vec<u8>> {
    let head: [u8; HEAD_BYTES] = *sealed.first_chunk()?;
    let (magic, rest) = head.split_at(MAGIC.len());
    let (version, nonce) = rest.split_at(4);
    if magic != MAGIC || version != VERSION.to_be_bytes() {
        return None;
    }
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let opened = key.open_within(nonce, Aad::from(name.as_bytes()), &mut sealed, HEAD_BYTES..);
    let bytes = opened.ok()?.len();
    sealed.truncate(bytes);
    Some(sealed)
}

fn fill(bytes: &mut [u8]) -> Result<(), ArchiveError> {
    getrandom::fill(bytes)
        .map_err(|error| ArchiveError::Unusable(format!("no randomness: {error}")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len().is_multiple_of(2) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pair = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    is_hex.then(|| (0..text.len()).step_by(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    //! Only the right key opens a file, and only the file that it was.

    use super::*;
    use crate::store::MemoryArchiveStore;

    fn key(byte: u8) -> Key {
        Key([byte; KEY_BYTES])
    }

    #[test]
    fn files_come_back_by_their_key_and_name_only() {
        let memory = MemoryArchiveStore::default();
        let encryption = key(1).new_encryption().unwrap();
        let open = |key: &Key| SealedStore::open(Box::new(memory.clone()), key, &encryption);
        let store = open(&key(1)).unwrap();
        store.put("a", b"content").unwrap();
        store.put("b", b"").unwrap();
        assert_eq!(store.get("a", 7).unwrap().as_deref(), Some(&b"content"[..]));
        assert_eq!(store.get("b", 7).unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(store.get("c", 7).unwrap(), None);
        store.get("a", 6).unwrap_err();
        assert!(open(&key(2)).is_err(), "another key");
        let sealed = memory.files.lock().unwrap()["a"].clone();
        assert!(!sealed.windows(7).any(|window| window == b"content"));
        memory.files.lock().unwrap().insert("b".to_owned(), sealed.clone());
        store.get("b", 7).expect_err("the content of another file");
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            memory.files.lock().unwrap().insert("a".to_owned(), damaged);
            assert_eq!(store.get("a", 7).unwrap_err().kind(), ErrorKind::InvalidData, "{at}");
            memory.files.lock().unwrap().insert("a".to_owned(), sealed[..at].to_vec());
            store.get("a", 7).expect_err("cut off");
        }
    }

    #[test]
    fn key_files_have_32_bytes() {
        let text = format!(" {}\n", STANDARD.encode([7; 32]));
        assert_eq!(Key::parse(&text).unwrap().0, [7; 32]);
        for text in ["", "short", &STANDARD.encode([7; 31]), &"ab".repeat(32)] {
            assert!(Key::parse(text).is_err(), "{text}");
        }
    }
}
