//! Where an archive is, and the key of its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use oribi_backup::Archive;
use oribi_backup::sealed_store::Key;
use oribi_backup::store::{ArchiveStore, DirectoryStore, Lock};

use crate::target::parse_timeout;

#[cfg(feature = "object-stores")]
use super::objects::ObjectArchive;

/// See the module text.
#[derive(Args, Clone, Debug)]
pub struct ArchivePlace {
    /// Directory of the archive, or s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX.
    #[arg(value_name = "ARCHIVE")]
    path: String,
    /// File with the key of an encrypted archive: 32 random bytes in base64.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How long an object store that fails is asked again.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_timeout)]
    store_patience: Duration,
}

impl ArchivePlace {
    /// The archive that is there.
    pub fn open(&self) -> anyhow::Result<Archive> {
        let key = self.key()?;
        let store = match self.objects()? {
            Some(store) => store,
            None => Box::new(self.directory()),
        };
        Archive::open(store, key.as_ref()).with_context(|| self.describe())
    }

    /// The archive that is there, or a new one. While the lock of a directory is held, no other
    /// program writes to it; in object stores, conditional writes keep writers apart.
    pub fn open_to_write(&self, may_create: bool) -> anyhow::Result<(Archive, Option<Lock>)> {
        let key = self.key()?;
        if let Some(store) = self.objects()? {
            let archive = match may_create {
                true => Archive::open_or_create(store, key.as_ref()),
                false => Archive::open(store, key.as_ref()),
            };
            return Ok((archive.with_context(|| self.describe())?, None));
        }
        let store = self.directory();
        if !may_create {
            // A missing archive must not create a directory.
            Archive::open(Box::new(store.clone()), key.as_ref())
                .with_context(|| self.describe())?;
        }
        let lock = store.lock().with_context(|| self.describe())?;
        if lock.is_none() {
            bail!("{}: another program writes to it", self.describe());
        }
        let archive = Archive::open_or_create(Box::new(store), key.as_ref());
        Ok((archive.with_context(|| self.describe())?, lock))
    }

    fn directory(&self) -> DirectoryStore {
        DirectoryStore::new(&self.path)
    }

    /// The object store, if the place is in one.
    #[cfg(feature = "object-stores")]
    fn objects(&self) -> anyhow::Result<Option<Box<dyn ArchiveStore>>> {
        if !self.path.contains("://") {
            return Ok(None);
        }
        let store = ObjectArchive::open(&self.path, self.store_patience)
            .with_context(|| self.describe())?;
        Ok(Some(Box::new(store)))
    }

    #[cfg(not(feature = "object-stores"))]
    fn objects(&self) -> anyhow::Result<Option<Box<dyn ArchiveStore>>> {
        match self.path.contains("://") {
            true => bail!("{}: this program is built without object stores", self.describe()),
            false => Ok(None),
        }
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
        format!("archive {}", self.path)
    }
}
