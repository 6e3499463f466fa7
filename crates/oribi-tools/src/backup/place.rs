//! Where an archive is, and the key of its files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use oribi_backup::Archive;
use oribi_backup::sealed_store::Key;
use oribi_backup::store::{DirectoryStore, Lock};

/// See the module text.
#[derive(Args, Clone, Debug)]
pub struct ArchivePlace {
    /// Directory of the archive.
    #[arg(value_name = "ARCHIVE")]
    path: PathBuf,
    /// File with the key of an encrypted archive: 32 random bytes in base64.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl ArchivePlace {
    /// The archive that is there.
    pub fn open(&self) -> anyhow::Result<Archive> {
        let key = self.key()?;
        let store = Box::new(self.store()?);
        Archive::open(store, key.as_ref()).with_context(|| self.describe())
    }

    /// The archive that is there, or a new one; nobody else writes to it while the lock is held.
    pub fn open_to_write(&self, may_create: bool) -> anyhow::Result<(Archive, Lock)> {
        let key = self.key()?;
        let store = self.store()?;
        if !may_create {
            // An archive that is not there must not leave a directory behind.
            Archive::open(Box::new(store.clone()), key.as_ref())
                .with_context(|| self.describe())?;
        }
        let lock = store.lock().with_context(|| self.describe())?;
        let Some(lock) = lock else {
            bail!("{}: another program writes to it", self.describe());
        };
        let archive = Archive::open_or_create(Box::new(store), key.as_ref());
        Ok((archive.with_context(|| self.describe())?, lock))
    }

    fn store(&self) -> anyhow::Result<DirectoryStore> {
        if let Some((scheme, _)) = self.path.to_string_lossy().split_once("://") {
            bail!("archives are directories; {scheme}:// is not supported");
        }
        Ok(DirectoryStore::new(&self.path))
    }

    fn key(&self) -> anyhow::Result<Option<Key>> {
        let read = |path: &Path| -> anyhow::Result<Key> {
            let named = || format!("key file {}", path.display());
            let text = fs::read_to_string(path).with_context(named)?;
            Key::parse(&text).with_context(named)
        };
        self.key_file.as_deref().map(read).transpose()
    }

    /// The error context for an archive that cannot be used.
    pub fn describe(&self) -> String {
        format!("archive {}", self.path.display())
    }
}
