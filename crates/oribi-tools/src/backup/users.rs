//! Users in a backup: from the users file of a data directory, and into one.
//!
//! Passwords are there as verifiers, which are as secret as the file: encrypt such an archive.

use std::path::Path;

use anyhow::{Context, bail};
use oribi_backup::manifest::Manifest;
use oribi_server::auth::{UserFile, UserFileError};
use oribi_server::data_dir::DataDir;
use serde_json::Value;

/// The users in a data directory, which must have some.
pub fn read(data_dir: &Path) -> anyhow::Result<Value> {
    let file = UserFile::load(data_dir)?;
    if file.is_empty() {
        bail!("{} has no users", data_dir.display());
    }
    Ok(file.to_json())
}

/// Adds the users of a backup to those of a data directory.
pub fn write(data_dir: &Path, manifest: &Manifest, replaces: bool) -> anyhow::Result<()> {
    let id = &manifest.begin.id;
    let users = manifest.begin.users.as_ref();
    let users = users.with_context(|| format!("backup {id} has no users"))?;
    let users = UserFile::from_json(users).map_err(anyhow::Error::msg);
    let users = users.with_context(|| format!("the users in backup {id}"))?;
    DataDir::prepare(data_dir)?;
    let mut adopted = 0;
    UserFile::edit(data_dir, |file| {
        adopted = file.adopt(users, replaces);
        adopted > 0
    })
    .map_err(|error: UserFileError| anyhow::anyhow!(error))?;
    eprintln!("oribi: {adopted} users were added or replaced in {}", data_dir.display());
    Ok(())
}
