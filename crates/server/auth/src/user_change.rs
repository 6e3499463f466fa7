//! Changes of users by a running server.
//!
//! Owns: which changes are possible, and their order: check, derive keys, agree with the other
//! nodes of a cluster, write the file, put it in force. Invariants: a change that returns `Ok` is
//! durable, and in force for every later login; a refused change leaves the file as it was; at
//! least one user with the role `admin` remains, so that a request cannot lock everybody out.
//! Callers: the admin HTTP and `--init`. Derivation takes a tenth of a second, so no event loop may
//! call this.

use oribi_config::CollectionPath;
use serde_json::Value;

use super::role::{Access, Role};
use super::user_change_error::UserChangeError;
use super::user_file::{
    RestoredUsers, StoredUser, UserFile, UserFileError, check_display_name, check_name,
};
use super::user_store::UserStore;

/// A change of one user. `None` leaves a property of an existing user as it is.
#[derive(Default)]
pub struct UserChange {
    /// Name of the user.
    pub name: String,
    /// The new password; a new user needs one.
    pub password: Option<Vec<u8>>,
    pub roles: Option<Vec<Role>>,
    /// The new name for people; empty for none.
    pub display_name: Option<String>,
    /// The new default bucket for clients that cannot select one; empty for none.
    pub bucket: Option<String>,
    /// The new collection of such clients; empty for none.
    pub collection: Option<String>,
    /// Makes the user the administrator of the set-up.
    pub is_initial: bool,
}

impl UserStore {
    /// The users as the file has them.
    pub fn stored(&self) -> Result<Vec<StoredUser>, UserFileError> {
        self.refresh();
        match self.data_dir() {
            Some(data_dir) => Ok(UserFile::load(data_dir)?.users().cloned().collect()),
            None => Ok(Vec::new()),
        }
    }

    /// Changes a user, or adds one if `may_add`; false when there was nothing to change.
    pub fn change(&self, change: UserChange, may_add: bool) -> Result<bool, UserChangeError> {
        check_name(&change.name).map_err(|error| refused_as("_", error))?;
        // Before the lock, because it takes long.
        let derived = match &change.password {
            Some(password) => Some(
                StoredUser::with_password(&change.name, password, Vec::new())
                    .map_err(|error| refused_as("password", error))?,
            ),
            None => None,
        };
        self.edit(|file| {
            let present = file.get(&change.name).cloned();
            let before = match (present, derived.clone()) {
                (None, _) if !may_add => return Err(UserChangeError::Unknown),
                (None, None) => {
                    return Err(refused("password", "a new user needs a password"));
                }
                (None, Some(new)) => new,
                (Some(present), None) => present,
                (Some(present), Some(new)) => present.with_secret_of(new),
            };
            let user = changed(before, &change)?;
            file.put(user);
            Ok(true)
        })
    }

    /// Makes a user what `change` says; false when the user is that already, password included.
    pub fn ensure(&self, change: UserChange) -> Result<bool, UserChangeError> {
        let present = self.stored()?.into_iter().find(|user| user.name == change.name);
        if let Some(present) = present {
            let knows = |password: &Vec<u8>| present.has_password(password);
            let same_secret = change.password.as_ref().is_none_or(knows);
            if same_secret && changed(present.clone(), &change)?.is_like(&present) {
                return Ok(false);
            }
        }
        self.change(change, true)
    }

    /// All users with their verifiers, as the users file has them.
    pub fn backup(&self) -> Result<Value, UserFileError> {
        self.refresh();
        let file = match self.data_dir() {
            Some(data_dir) => UserFile::load(data_dir)?,
            None => UserFile::empty(),
        };
        Ok(file.to_json())
    }

    /// Adds the users that [`UserStore::backup`] gave. One that is there stays, unless it is to be
    /// replaced.
    pub fn restore(&self, text: &str, replaces: bool) -> Result<RestoredUsers, UserChangeError> {
        let users = UserFile::parse(text).map_err(|why| refused("backup", &why))?;
        let mut restored = RestoredUsers::default();
        self.edit(|file| {
            restored = file.adopt(users.clone(), replaces);
            Ok(!restored.created.is_empty() || !restored.overwritten.is_empty())
        })?;
        Ok(restored)
    }

    pub fn remove(&self, name: &str) -> Result<(), UserChangeError> {
        self.edit(|file| match file.remove(name) {
            true => Ok(true),
            false => Err(UserChangeError::Unknown),
        })
        .map(drop)
    }

    fn edit(
        &self,
        mut change: impl FnMut(&mut UserFile) -> Result<bool, UserChangeError>,
    ) -> Result<bool, UserChangeError> {
        let Some(data_dir) = self.data_dir() else {
            return Err(refused("_", "this server keeps no users"));
        };
        let mut checked = |file: &mut UserFile| {
            let was_empty = file.is_empty();
            let changed = change(file)?;
            if !file.has_admin() {
                let why = if was_empty { FIRST_USER } else { NO_ADMIN };
                return Err(refused("roles", why));
            }
            Ok(changed)
        };
        let outcome = match self.shared() {
            Some(shared) => self.edit_shared(shared, &mut checked),
            None => UserFile::try_edit(data_dir, checked),
        };
        self.reload_if_changed();
        outcome
    }
}

const NO_ADMIN: &str = "No user would have the role admin";

const FIRST_USER: &str = "This server is in development mode, and its first user has to be an \
                          administrator. Create one with the role admin first, which ends the \
                          development mode, or start the server with --admin-user NAME and the \
                          password in ORIBI_ADMIN_PASSWORD";

/// The user after the change.
fn changed(before: StoredUser, change: &UserChange) -> Result<StoredUser, UserChangeError> {
    let mut user = before;
    user.is_initial |= change.is_initial;
    if let Some(roles) = &change.roles {
        user.roles.clone_from(roles);
        // A default bucket that was set for other roles would make every request fail.
        let reaches = |bucket: &String| Access::new(roles.clone()).reaches(bucket);
        user.bucket = user.bucket.filter(reaches);
    }
    if let Some(name) = &change.display_name {
        check_display_name(name).map_err(|error| refused_as("name", error))?;
        user.display_name = Some(name.clone()).filter(|name| !name.is_empty());
    }
    match change.bucket.as_deref() {
        None => {}
        Some("") => user.bucket = None,
        Some(bucket) => {
            user =
                user.with_bucket(bucket).map_err(|error| refused_as("memcachedBucket", error))?;
        }
    }
    match change.collection.as_deref() {
        None => {}
        Some("") => user.collection = None,
        Some(text) => {
            let path: CollectionPath =
                text.parse().map_err(|why: String| refused("memcachedCollection", &why))?;
            user = user.with_collection(path);
        }
    }
    Ok(user)
}

pub(super) fn refused(field: &'static str, message: &str) -> UserChangeError {
    UserChangeError::Refused { field, message: message.to_owned() }
}

/// A value that the users file does not take, as a refusal of that field.
fn refused_as(field: &'static str, error: UserFileError) -> UserChangeError {
    match error {
        UserFileError::Refused(why) => refused(field, why),
        error @ UserFileError::File(_) => error.into(),
    }
}
