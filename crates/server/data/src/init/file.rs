//! The format of a file of `--init`.
//!
//! Owns: names of keys, and the users. Unknown keys are errors. docs/ci-kit.md describes the file.
//! Caller: [`super::Init`].

use std::path::{Path, PathBuf};

use oribi_auth::{Role, UserChange, check_password, couchbase_role};
use oribi_system::data_file::DataFileError;
use serde::Deserialize;
use toml::Spanned;

use super::error::{InitError, invalid};

/// Maximum size of the file. Many documents belong in separate files.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InitFile {
    #[serde(default)]
    pub(super) user: Vec<FileUser>,
    #[serde(default)]
    pub(super) bucket: Vec<FileBucket>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileUser {
    name: Spanned<String>,
    /// The line of the name, from 1.
    #[serde(skip)]
    line: usize,
    password: Option<String>,
    password_file: Option<PathBuf>,
    roles: Vec<String>,
    display_name: Option<String>,
    memcached_bucket: Option<String>,
    memcached_collection: Option<String>,
}

/// A bucket. The names are those of the settings for new buckets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileBucket {
    pub(super) name: String,
    pub(super) storage: Option<String>,
    pub(super) vbuckets: Option<u16>,
    pub(super) memory_quota_mib: Option<u64>,
    pub(super) eviction: Option<String>,
    pub(super) compression_mode: Option<String>,
    pub(super) memory_tier: Option<String>,
    pub(super) conflict_resolution: Option<String>,
    pub(super) durability_min: Option<String>,
    pub(super) max_ttl_s: Option<u32>,
    pub(super) flush_enabled: Option<bool>,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    #[serde(default)]
    pub(super) collections: Vec<FileCollection>,
    #[serde(default)]
    pub(super) documents: Vec<FileDocuments>,
}

/// A collection: its path, or its path and more.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum FileCollection {
    Path(String),
    /// With a longest life.
    Whole(CollectionEntry),
}

/// A collection with its settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CollectionEntry {
    pub(super) name: String,
    pub(super) max_ttl_s: Option<u32>,
}

/// Documents of one collection: one with key and value, or those of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileDocuments {
    pub(super) collection: Option<String>,
    pub(super) key: Option<String>,
    /// Any TOML value, which becomes JSON.
    pub(super) value: Option<toml::Value>,
    /// A file of JSON lines, relative to the directory of the `--init` file.
    pub(super) file: Option<PathBuf>,
}

impl InitFile {
    pub(super) fn read(path: &Path) -> Result<InitFile, InitError> {
        let failed = |error| DataFileError::io("read", path, error);
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        if bytes > FILE_BYTES_MAX {
            let detail = "it is larger than 16 MiB; put documents into files of JSON lines";
            return Err(invalid(path, detail.to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let mut file: InitFile =
            toml::from_str(&text).map_err(|error| invalid(path, error.to_string()))?;
        for user in &mut file.user {
            let before = text.get(..user.name.span().start).unwrap_or_default();
            user.line = 1 + before.matches('\n').count();
        }
        Ok(file)
    }
}

impl FileUser {
    /// The user as a change.
    pub(super) fn into_change(self, directory: &Path) -> Result<UserChange, String> {
        let name = self.name.get_ref();
        let of_user = |why: String| format!("user {name:?} in line {}: {why}", self.line);
        let password = match (&self.password, &self.password_file) {
            (Some(password), None) => password.clone().into_bytes(),
            (None, Some(file)) => {
                let path = directory.join(file);
                let mut password = std::fs::read(&path)
                    .map_err(|error| of_user(format!("cannot read {}: {error}", path.display())))?;
                while password.ends_with(b"\n") || password.ends_with(b"\r") {
                    password.pop();
                }
                password
            }
            _ => return Err(of_user("write either password or password_file".to_owned())),
        };
        check_password(&password).map_err(|why| of_user(why.to_string()))?;
        let roles = self.roles.iter().map(|role| parse_role(role));
        let roles = roles.collect::<Result<Vec<Vec<Role>>, String>>().map_err(of_user)?;
        Ok(UserChange {
            password: Some(password),
            roles: Some(roles.concat()),
            display_name: Some(self.display_name.unwrap_or_default()),
            bucket: Some(self.memcached_bucket.unwrap_or_default()),
            collection: Some(self.memcached_collection.unwrap_or_default()),
            is_initial: false,
            name: self.name.into_inner(),
        })
    }
}

/// A role in Oribi's form or in Couchbase's.
fn parse_role(text: &str) -> Result<Vec<Role>, String> {
    match text.parse::<Role>() {
        Ok(role) => Ok(vec![role]),
        Err(why) => couchbase_role::parse_list(text).map_err(|_| why.to_string()),
    }
}
