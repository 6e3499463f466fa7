//! The file `users.json` in the data directory.
//!
//! Owns: its format, the rules for user names and passwords, and the read-modify-write under a lock
//! file, so that concurrent `oribi user` commands lose no change. Invariants: the file is replaced
//! atomically, and only its owner can read it. A file that cannot be parsed is an error and is
//! never overwritten. The file holds SCRAM verifiers, never passwords. In a cluster the file is
//! this node's copy of the shared users, and names those that were changed here and are not shared
//! yet (`user_sharing`). Callers: `user_store` (reads), the `oribi user` command (edits). This
//! module does not know whether a server is running.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_config::CollectionPath;
use oribi_config::is_bucket_name;
use oribi_system::clock::wall_clock;
use oribi_system::data_file::DataFileError;
use oribi_system::data_file::write_atomically;
use oribi_system::random::random_bytes;
use serde::{Deserialize, Serialize};

use super::role::{Access, Role};
use super::verifier::{ScramHash, StoredVerifier, Verifier};

const FILE_NAME: &str = "users.json";
const LOCK_NAME: &str = "users.lock";
const FORMAT: &str = "oribi-users";
const VERSION: u32 = 1;

/// Longest user name in bytes, as in other Couchbase-compatible servers.
pub const NAME_BYTES_MAX: usize = 128;

/// Name of the user as which other nodes of the cluster authenticate. No user of a file has it.
pub const NODE_NAME: &str = "@oribi-node";

const DISPLAY_NAME_CHARS_MAX: usize = 128;

/// Shortest and longest password in bytes. The upper limit keeps PLAIN within a small frame.
const PASSWORD_BYTES_MIN: usize = 6;
const PASSWORD_BYTES_MAX: usize = 1024;
const _: () = assert!(PASSWORD_BYTES_MIN < PASSWORD_BYTES_MAX);
const _: () = assert!(NODE_NAME.len() <= NAME_BYTES_MAX, "a node's name is a user's name");

/// Errors of the users file.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// A name or password that is not allowed.
    #[error("{0}")]
    Refused(&'static str),
}

/// One user as the file holds it.
#[derive(Clone)]
pub struct StoredUser {
    pub name: String,
    /// The name that people read, where an administrator has given one.
    pub display_name: Option<String>,
    /// Roles in the order in which they were given.
    pub roles: Vec<Role>,
    /// The default bucket for clients that cannot select one, where an administrator overrides the
    /// one that follows from the roles.
    pub bucket: Option<String>,
    /// The collection of such clients in their bucket, where an administrator names one.
    pub collection: Option<CollectionPath>,
    /// The administrator of the set-up: of `POST /settings/web`, or of the setting `admin_user`.
    pub is_initial: bool,
    /// UNIX time of the password, where that is known.
    pub password_changed_unix_s: Option<u32>,
    pub(super) verifiers: Vec<Verifier>,
}

/// The result of restoring users, by name.
#[derive(Default)]
pub struct RestoredUsers {
    /// There was none of that name.
    pub created: Vec<String>,
    /// It replaced one of that name.
    pub overwritten: Vec<String>,
    /// The one of that name stays.
    pub skipped: Vec<String>,
}

/// The content of a users file.
#[derive(Clone)]
pub struct UserFile {
    users: BTreeMap<String, StoredUser>,
    pub(super) unknown_user_key: Vec<u8>,
    /// Uuid of the cluster whose users these are.
    pub(super) cluster: Option<String>,
    /// Names of users that were changed or removed here, and not in the cluster yet.
    pub(super) changed_here: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    /// Key for the salts of unknown users, so that these salts stay the same over restarts.
    unknown_user_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    changed_here: BTreeSet<String>,
    users: Vec<DocumentUser>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentUser {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    roles: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bucket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    initial: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password_changed_unix_s: Option<u32>,
    verifiers: BTreeMap<String, StoredVerifier>,
}

impl StoredUser {
    /// Creates a user from a password. Takes a tenth of a second of key derivation.
    pub fn new(name: &str, password: &[u8], roles: Vec<Role>) -> Result<StoredUser, UserFileError> {
        if roles.is_empty() {
            return Err(UserFileError::Refused("a user needs at least one role"));
        }
        StoredUser::with_password(name, password, roles)
    }

    /// Creates a user, possibly without roles and therefore without privileges. Takes as long as
    /// [`StoredUser::new`].
    pub(super) fn with_password(
        name: &str,
        password: &[u8],
        roles: Vec<Role>,
    ) -> Result<StoredUser, UserFileError> {
        check_name(name)?;
        check_password(password)?;
        let verifiers =
            ScramHash::ALL.map(|hash| Verifier::derive_new(hash, password)).into_iter().collect();
        Ok(StoredUser {
            name: name.to_owned(),
            display_name: None,
            roles,
            bucket: None,
            collection: None,
            is_initial: false,
            password_changed_unix_s: Some(wall_clock().unix_s()),
            verifiers,
        })
    }

    /// The same user with the password of another value of this name.
    pub fn with_secret_of(self, other: StoredUser) -> StoredUser {
        let password_changed_unix_s = other.password_changed_unix_s;
        assert_eq!(other.verifiers.len(), ScramHash::ALL.len(), "a user has each verifier");
        StoredUser { verifiers: other.verifiers, password_changed_unix_s, ..self }
    }

    /// True for the user's password. Takes milliseconds.
    pub(super) fn has_password(&self, password: &[u8]) -> bool {
        self.verifiers.first().is_some_and(|verifier| verifier.check_password(password))
    }

    /// True when everything but the password is the same.
    pub(super) fn is_like(&self, other: &StoredUser) -> bool {
        let of = |user: &StoredUser| {
            let (bucket, collection) = (user.bucket.clone(), user.collection.clone());
            let roles = (user.roles.clone(), user.is_initial);
            (user.name.clone(), user.display_name.clone(), roles, bucket, collection)
        };
        of(self) == of(other)
    }

    /// The same user with a default bucket for clients that cannot select one.
    pub fn with_bucket(self, bucket: &str) -> Result<StoredUser, UserFileError> {
        if !is_bucket_name(bucket) {
            return Err(UserFileError::Refused("this is not the name of a bucket"));
        }
        if !Access::new(self.roles.clone()).reaches(bucket) {
            return Err(UserFileError::Refused("the user's roles give no right in this bucket"));
        }
        debug_assert!(!self.roles.is_empty(), "a user who reaches a bucket has a role");
        Ok(StoredUser { bucket: Some(bucket.to_owned()), ..self })
    }

    /// The same user with a collection for clients that cannot select one.
    pub fn with_collection(self, collection: CollectionPath) -> StoredUser {
        StoredUser { collection: Some(collection), ..self }
    }
}

impl UserFile {
    /// Path of the users file in a data directory.
    pub fn path(data_dir: &Path) -> PathBuf {
        data_dir.join(FILE_NAME)
    }

    /// Reads the users of a data directory; none when there is no file.
    pub fn load(data_dir: &Path) -> Result<UserFile, UserFileError> {
        let path = UserFile::path(data_dir);
        match fs::read_to_string(&path) {
            Ok(text) => UserFile::parse(&text)
                .map_err(|detail| DataFileError::corrupt(&path, detail).into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(UserFile::empty()),
            Err(error) => Err(DataFileError::io("read", &path, error).into()),
        }
    }

    /// Reads, changes and replaces the users of a data directory under the lock file. `change`
    /// returns `false` when it changed nothing; then nothing is written.
    pub fn edit(
        data_dir: &Path,
        change: impl FnOnce(&mut UserFile) -> bool,
    ) -> Result<bool, UserFileError> {
        UserFile::try_edit(data_dir, |file| Ok(change(file)))
    }

    /// [`UserFile::edit`] with a change that may be refused; then nothing is written.
    pub(super) fn try_edit<E: From<UserFileError>>(
        data_dir: &Path,
        change: impl FnOnce(&mut UserFile) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let lock_path = data_dir.join(LOCK_NAME);
        let lock_failed = |error| DataFileError::io("lock", &lock_path, error);
        let lock = File::create(&lock_path).map_err(lock_failed).map_err(UserFileError::from)?;
        lock.lock().map_err(lock_failed).map_err(UserFileError::from)?;

        let mut file = UserFile::load(data_dir)?;
        let changed = change(&mut file)?;
        if changed {
            let path = UserFile::path(data_dir);
            write_atomically(&path, file.to_text().as_bytes(), 0o600)
                .map_err(|error| UserFileError::from(DataFileError::io("write", &path, error)))?;
        }
        Ok(changed)
    }

    /// The file's content, with the verifiers of passwords: to be kept as safe as the file.
    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::from_str(&self.to_shared_text()).expect("the text is JSON")
    }

    /// Adds the users of another file. One that is there stays, unless it is to be replaced.
    pub(super) fn adopt(&mut self, other: UserFile, replaces: bool) -> RestoredUsers {
        let of_backup = other.users.len();
        let mut restored = RestoredUsers::default();
        for (name, user) in other.users {
            let is_there = self.users.contains_key(&name);
            if !is_there || replaces {
                self.put(user);
            }
            match (is_there, replaces) {
                (false, _) => restored.created.push(name),
                (true, true) => restored.overwritten.push(name),
                (true, false) => restored.skipped.push(name),
            }
        }
        let named = restored.created.len() + restored.overwritten.len() + restored.skipped.len();
        assert_eq!(named, of_backup, "the answer names each user of the backup once");
        restored
    }

    /// Adds a user or replaces the one of the same name; true when the name is new.
    pub fn put(&mut self, user: StoredUser) -> bool {
        debug_assert!(check_name(&user.name).is_ok(), "a stored name was checked");
        self.note_change(&user.name);
        self.users.insert(user.name.clone(), user).is_none()
    }

    /// Removes a user; false when there is none of that name.
    pub fn remove(&mut self, name: &str) -> bool {
        let is_removed = self.users.remove(name).is_some();
        if is_removed {
            self.note_change(name);
        }
        is_removed
    }

    fn note_change(&mut self, name: &str) {
        if self.cluster.is_some() {
            self.changed_here.insert(name.to_owned());
        }
    }

    /// The user of this name.
    pub fn get(&self, name: &str) -> Option<&StoredUser> {
        self.users.get(name)
    }

    /// The users in the order of their names.
    pub fn users(&self) -> impl Iterator<Item = &StoredUser> {
        self.users.values()
    }

    /// True when no user is configured.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    pub(super) fn empty() -> UserFile {
        UserFile {
            users: BTreeMap::new(),
            unknown_user_key: random_bytes::<32>().to_vec(),
            cluster: None,
            changed_here: BTreeSet::new(),
        }
    }

    pub(super) fn parse(text: &str) -> Result<UserFile, String> {
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if document.format != FORMAT || document.version != VERSION {
            let (format, version) = (document.format, document.version);
            return Err(format!("format {format:?} version {version} is not known here"));
        }
        let unknown_user_key = BASE64
            .decode(&document.unknown_user_key)
            .map_err(|_| "unknown_user_key is not base64".to_owned())?;
        let mut users = BTreeMap::new();
        for entry in document.users {
            let user = parse_user(&entry).map_err(|why| format!("user {:?}: {why}", entry.name))?;
            if users.insert(entry.name.clone(), user).is_some() {
                return Err(format!("user {:?} is there twice", entry.name));
            }
        }
        let (cluster, changed_here) = (document.cluster, document.changed_here);
        Ok(UserFile { users, unknown_user_key, cluster, changed_here })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.to_document())
            .expect("strings and numbers always have a JSON form");
        text.push('\n');
        text
    }

    /// The users as nodes share them: without the marks of one node, and without spaces.
    pub(super) fn to_shared_text(&self) -> String {
        let own = self.to_document();
        let shared = Document { cluster: None, changed_here: BTreeSet::new(), ..own };
        serde_json::to_string(&shared).expect("strings and numbers always have a JSON form")
    }

    fn to_document(&self) -> Document {
        let users = self.users.values().map(|user| DocumentUser {
            name: user.name.clone(),
            display_name: user.display_name.clone(),
            roles: user.roles.iter().map(Role::to_string).collect(),
            bucket: user.bucket.clone(),
            collection: user.collection.as_ref().map(CollectionPath::to_string),
            initial: user.is_initial,
            password_changed_unix_s: user.password_changed_unix_s,
            verifiers: user
                .verifiers
                .iter()
                .map(|verifier| (verifier.hash.mechanism().to_owned(), verifier.to_stored()))
                .collect(),
        });
        let document = Document {
            format: FORMAT.to_owned(),
            version: VERSION,
            unknown_user_key: BASE64.encode(&self.unknown_user_key),
            cluster: self.cluster.clone(),
            changed_here: self.changed_here.clone(),
            users: users.collect(),
        };
        debug_assert_eq!(document.users.len(), self.users.len(), "each user is written");
        document
    }
}

fn parse_user(entry: &DocumentUser) -> Result<StoredUser, String> {
    check_name(&entry.name).map_err(|error| error.to_string())?;
    let roles = entry
        .roles
        .iter()
        .map(|text| text.parse::<Role>().map_err(|error| error.to_string()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut verifiers = Vec::with_capacity(ScramHash::ALL.len());
    for hash in ScramHash::ALL {
        let stored = entry
            .verifiers
            .get(hash.mechanism())
            .ok_or_else(|| format!("no verifier for {}", hash.mechanism()))?;
        verifiers.push(Verifier::from_stored(hash, stored)?);
    }
    let collection = entry.collection.as_deref().map(str::parse).transpose()?;
    let (name, bucket) = (entry.name.clone(), entry.bucket.clone());
    let display_name = entry.display_name.clone();
    if let Some(name) = &display_name {
        check_display_name(name).map_err(|error| error.to_string())?;
    }
    assert_eq!(verifiers.len(), ScramHash::ALL.len(), "a user has each verifier");
    let (is_initial, password_changed_unix_s) = (entry.initial, entry.password_changed_unix_s);
    Ok(StoredUser {
        name,
        display_name,
        roles,
        bucket,
        collection,
        is_initial,
        password_changed_unix_s,
        verifiers,
    })
}

pub(super) fn check_name(name: &str) -> Result<(), UserFileError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(UserFileError::Refused("a user name has 1 to 128 bytes"));
    }
    if name == NODE_NAME {
        return Err(UserFileError::Refused("this name is that of the cluster's nodes"));
    }
    // A colon ends the name in HTTP Basic; control characters would end it in PLAIN or garble logs.
    if name.chars().any(|character| character.is_control() || character == ':') {
        return Err(UserFileError::Refused(
            "a user name may not contain control characters or a colon",
        ));
    }
    Ok(())
}

pub(super) fn check_display_name(name: &str) -> Result<(), UserFileError> {
    if name.chars().count() > DISPLAY_NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(UserFileError::Refused(
            "a display name has at most 128 characters, none of them a control character",
        ));
    }
    Ok(())
}

/// The rule for passwords.
pub fn check_password(password: &[u8]) -> Result<(), UserFileError> {
    if !(PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX).contains(&password.len()) {
        return Err(UserFileError::Refused("a password has 6 to 1024 bytes"));
    }
    if password.contains(&0) {
        return Err(UserFileError::Refused("a password may not contain a zero byte"));
    }
    Ok(())
}
