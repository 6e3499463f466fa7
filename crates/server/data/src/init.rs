//! The initial state of a server: an administrator, users, buckets, collections and documents that
//! are there before it serves.
//!
//! Owns: the order in which an `--init` file is applied, and its errors. The parts are `file` (the
//! format), `error`, `administrator` (the user from settings and environment), `buckets` (buckets,
//! scopes and collections) and `seeds` (documents). Invariants:
//! - the file is checked as a whole before anything changes;
//! - applying the same file again changes nothing; a file that differs is applied where the setting
//!   can change, and ends the start where it cannot;
//! - what the file does not name stays as it is;
//! - a document that exists is never replaced.
//!
//! Caller: the server's start, before it accepts connections.

mod administrator;
mod buckets;
mod error;
mod file;
mod seeds;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use oribi_auth::{Role, UserChange, UserChangeError, UserStore};
use oribi_config::Settings;

use crate::buckets::{BucketError, BucketOptions, Buckets};
use error::invalid;
use file::InitFile;

pub use administrator::Administrator;
pub use error::InitError;

/// The checked initial state.
pub(crate) struct Init {
    path: PathBuf,
    users: Vec<UserChange>,
    buckets: Vec<buckets::InitBucket>,
}

impl Init {
    /// Reads the settings, and the file if they name one.
    ///
    /// # Errors The first invalid entry; nothing has changed then.
    pub(crate) fn read(
        settings: &Settings,
        administrator: Option<Administrator>,
    ) -> Result<Init, InitError> {
        let mut users = Vec::new();
        if let Some(administrator) = administrator::resolve(settings, administrator)? {
            users.push(administrator.into_change());
        }
        let mut init = Init { path: PathBuf::new(), users, buckets: Vec::new() };
        if let Some(path) = &settings.init {
            let file = InitFile::read(path)?;
            init.path.clone_from(path);
            init.add(file, settings).map_err(|detail| invalid(path, detail))?;
        }
        Ok(init)
    }

    fn add(&mut self, file: InitFile, settings: &Settings) -> Result<(), String> {
        let directory = self.path.parent().map(Path::to_owned).unwrap_or_default();
        for user in file.user {
            let change = user.into_change(&directory)?;
            if self.users.iter().any(|other| other.name == change.name) {
                return Err(format!("user {:?} is there twice", change.name));
            }
            self.users.push(change);
        }
        // The first user has to be an administrator.
        self.users.sort_by_key(|user| !is_admin(user));
        for bucket in file.bucket {
            let bucket = buckets::InitBucket::of(bucket, &directory, settings)?;
            if self.buckets.iter().any(|other| other.name == bucket.name) {
                return Err(format!("bucket {:?} is there twice", bucket.name));
            }
            self.buckets.push(bucket);
        }
        Ok(())
    }

    /// Makes the users.
    ///
    /// # Errors The first user that cannot be created.
    pub(crate) fn apply_users(&mut self, users: &UserStore) -> Result<(), InitError> {
        for change in self.users.drain(..) {
            let name = change.name.clone();
            match users.ensure(change) {
                Ok(true) => {
                    tracing::info!(user = name, "made or changed a user of the initial state")
                }
                Ok(false) => {}
                Err(UserChangeError::File(error)) => return Err(error.into()),
                Err(refused) => {
                    return Err(InitError::User { name, detail: refused.to_string() });
                }
            }
        }
        Ok(())
    }

    /// The buckets to create where they are missing, with their options.
    pub(crate) fn new_buckets(&self) -> Vec<(String, BucketOptions)> {
        self.buckets.iter().map(|bucket| (bucket.name.clone(), bucket.options.clone())).collect()
    }

    /// Brings the buckets into the state that the file says, documents last. Blocks until these are
    /// on disk.
    ///
    /// # Errors The first bucket, collection or document that cannot be created.
    pub(crate) fn apply_buckets(
        &self,
        buckets: &Buckets,
        data_dir: &Path,
    ) -> Result<(), InitError> {
        for bucket in &self.buckets {
            let handle = buckets
                .get(&bucket.name)
                .ok_or_else(|| BucketError::Unknown(bucket.name.clone()))?;
            bucket.apply(&self.path, buckets, &handle)?;
            seeds::apply(&bucket.seeds, &handle, data_dir)?;
        }
        Ok(())
    }
}

fn is_admin(user: &UserChange) -> bool {
    user.roles.as_ref().is_some_and(|roles| roles.contains(&Role::Admin))
}
