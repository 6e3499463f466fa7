//! The users of a running server.
//!
//! Owns: the table in force, its reload when `users.json` changes, development mode, the cache of
//! verified passwords, and the count of failures. Invariants:
//! 1. A look-up costs the same for a known and an unknown name, and returns something to verify in
//!    both cases; verification of an unknown name never succeeds.
//! 2. Development mode can end while the server runs (an administrator adds the first user) but
//!    never begin. When the last user is removed, no login succeeds until a restart, because the
//!    server may listen on a public address by then.
//! 3. A file that became unreadable leaves the table as it was.
//! 4. Every change of the table changes its generation, so that workers notice it and update the
//!    rights of open connections.
//!
//! Callers: `sasl`, the admin HTTP, and the workers' deadline scans, which also trigger the reload
//! when there are no logins.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use oribi_system::random::random_bytes;
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

use super::privilege::{Privilege, PrivilegeSet};
use super::role::{Access, Identity, Role, RoleScope};
use super::shared_users::SharedUsers;
use super::user_file::{NODE_NAME, UserFile, UserFileError};
use super::verifier::{ITERATIONS, SALT_BYTES, ScramHash, Verifier};

/// The user of development mode.
pub const DEVELOPMENT_NAME: &str = "Administrator";
/// The password of development mode. It is public.
pub const DEVELOPMENT_PASSWORD: &str = "password";
/// Name of the identity of clients that do not authenticate, in development mode.
pub const ANONYMOUS_NAME: &str = "(anonymous)";

/// Privileges of other nodes, in all buckets: they copy documents and change none.
const NODE_PRIVILEGES: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::Read,
    Privilege::MetaRead,
    Privilege::SystemXattrRead,
    Privilege::SimpleStats,
    Privilege::DcpStream,
]);

/// Privileges of the anonymous identity in bucket `default`. memcached's clients also reset
/// statistics.
const ANONYMOUS_PRIVILEGES: PrivilegeSet =
    PrivilegeSet::READ_WRITE.and(PrivilegeSet::of(&[Privilege::Stats]));

/// Rounds for the development password: the smallest number that every client accepts, because
/// there is no secret to protect.
const DEVELOPMENT_ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");
const _: () = assert!(DEVELOPMENT_ITERATIONS.get() <= ITERATIONS.get());

/// Minimum time between two logged failures; failures in between are counted only.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Users, and the state needed to verify them.
pub struct UserStore {
    data_dir: Option<PathBuf>,
    table: ArcSwap<UserTable>,
    /// The other nodes of the cluster, once there is a secret for them.
    nodes: OnceLock<Arc<User>>,
    loaded_stamp: Mutex<Option<FileStamp>>,
    /// How often the table was replaced.
    generation: AtomicU64,
    /// The other nodes' users, in a cluster whose nodes share them.
    shared: OnceLock<Arc<dyn SharedUsers>>,
    /// Key of the password cache; it makes the cache useless outside this process.
    cache_key: [u8; 32],
    failures: AtomicU64,
    failure_log: Mutex<FailureLog>,
}

/// Identity of one version of the file: inode, size, modification time.
type FileStamp = (u64, u64, i64, i64);

#[derive(Default)]
struct FailureLog {
    last: Option<Instant>,
    suppressed: u64,
}

#[derive(Clone)]
struct UserTable {
    users: HashMap<String, Arc<User>>,
    unknown_user_key: Vec<u8>,
    iterations: NonZeroU32,
    anonymous: Option<Arc<Identity>>,
}

/// A user to verify, known or unknown.
pub(super) struct User {
    identity: Arc<Identity>,
    known: bool,
    secret: Secret,
    /// Keyed hash of the last password that was verified.
    cached_password: Mutex<Option<Vec<u8>>>,
}

enum Secret {
    Stored(Vec<Verifier>),
    Development(Vec<(ScramHash, [u8; SALT_BYTES], OnceLock<Verifier>)>),
}

impl UserStore {
    /// The users of a data directory; development mode when none is configured.
    pub fn open(data_dir: &Path) -> Result<UserStore, UserFileError> {
        let stamp = file_stamp(data_dir);
        let file = UserFile::load(data_dir)?;
        let table =
            if file.is_empty() { UserTable::development() } else { UserTable::of_file(&file) };
        Ok(UserStore::with_table(Some(data_dir.to_owned()), stamp, table))
    }

    /// Development mode without a data directory.
    pub fn development() -> UserStore {
        UserStore::with_table(None, None, UserTable::development())
    }

    /// True when no user is configured and the development password is accepted.
    pub fn is_development(&self) -> bool {
        self.table.load().anonymous.is_some()
    }

    /// The identity of a client that does not authenticate: one in development mode, else none.
    pub fn anonymous(&self) -> Option<Arc<Identity>> {
        self.table.load().anonymous.clone()
    }

    /// Verifies a name and password (HTTP Basic). Blocks for milliseconds unless the same password
    /// was verified before.
    pub fn verify_basic(&self, name: &str, password: &[u8]) -> Option<Arc<Identity>> {
        self.reload_if_changed();
        if let Some(identity) = self.check_cached(name, password) {
            return Some(identity);
        }
        let identity = self.check_password(name, password);
        // Nodes have nothing to do at the admin HTTP.
        let identity = identity.filter(|identity| identity.name != NODE_NAME);
        assert!(identity.as_ref().is_none_or(|identity| identity.name == name), "a user is itself");
        if identity.is_none() {
            self.record_failure("Basic", name);
        }
        identity
    }

    /// Lets clients that do not authenticate, in development mode, use this bucket instead of
    /// `default`. Called before the server serves.
    pub fn admit_anonymous_to(&self, bucket: &str) {
        let table = self.table.load_full();
        if table.anonymous.is_some() {
            let anonymous = Some(Arc::new(anonymous_in(bucket)));
            self.table.store(Arc::new(UserTable { anonymous, ..UserTable::clone(&table) }));
        }
    }

    /// Lets other nodes of the cluster authenticate as [`NODE_NAME`] with the cluster's secret, on
    /// key-value connections. Called before the server serves. Milliseconds of work.
    pub fn admit_nodes(&self, secret: &[u8]) {
        self.admit_nodes_by(ScramHash::ALL.map(|hash| Verifier::derive_new(hash, secret)));
    }

    /// The same with a login that takes no time, for simulations.
    #[cfg(any(test, feature = "testing"))]
    pub fn admit_nodes_at_once(&self, secret: &[u8]) {
        let derive = |hash| Verifier::derive(hash, secret, &[1; SALT_BYTES], NonZeroU32::MIN);
        self.admit_nodes_by(ScramHash::ALL.map(derive));
    }

    fn admit_nodes_by(&self, verifiers: [Verifier; ScramHash::ALL.len()]) {
        let identity = Identity {
            name: NODE_NAME.to_owned(),
            access: Access::new(vec![Role::Of(NODE_PRIVILEGES, RoleScope::bucket("*"))]),
            bucket: None,
            collection: None,
        };
        let user = User::new(identity, true, Secret::Stored(verifiers.into_iter().collect()));
        assert!(self.nodes.set(Arc::new(user)).is_ok(), "a server has one secret");
    }

    /// The other nodes, if the name is theirs.
    fn nodes_named(&self, name: &str) -> Option<&Arc<User>> {
        self.nodes.get().filter(|_| name == NODE_NAME)
    }

    /// The part of [`UserStore::verify_basic`] that needs no key derivation. `None` means "call
    /// `verify_basic`", not "wrong password".
    pub fn verify_basic_cached(&self, name: &str, password: &[u8]) -> Option<Arc<Identity>> {
        self.reload_if_changed();
        self.check_cached(name, password)
    }

    /// The user of this name, authenticated by a certificate.
    pub fn certified(&self, name: &str) -> Option<Arc<Identity>> {
        self.reload_if_changed();
        self.table.load().users.get(name).map(|user| user.identity())
    }

    /// Ends development mode without users, so that every login fails until a cluster's users are
    /// here. Called before the server serves.
    pub fn await_cluster(&self) {
        self.table.store(Arc::new(UserTable::of_file(&UserFile::empty())));
        assert!(!self.is_development(), "the public password is not accepted");
    }

    /// Makes every change one of all nodes of a cluster. Called once, while the server starts.
    pub fn share(&self, shared: Arc<dyn SharedUsers>) {
        assert!(self.shared.set(shared).is_ok(), "a server is in one cluster");
    }

    pub(super) fn shared(&self) -> Option<&dyn SharedUsers> {
        self.shared.get().map(|shared| &**shared)
    }

    /// The directory with the users; `None` where they are in memory only.
    pub(super) fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// A number that changes whenever the users change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The user of this name as of now.
    pub fn current(&self, name: &str) -> Option<Arc<Identity>> {
        if let Some(nodes) = self.nodes_named(name) {
            return Some(nodes.identity());
        }
        self.table.load().users.get(name).map(|user| user.identity())
    }

    /// Failed authentications since the start.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Loads `users.json` when its stamp differs from that of the last load.
    pub fn reload_if_changed(&self) {
        let Some(data_dir) = &self.data_dir else { return };
        let stamp = file_stamp(data_dir);
        let mut loaded_stamp = self.loaded_stamp.lock();
        if stamp == *loaded_stamp {
            return;
        }
        *loaded_stamp = stamp;
        match UserFile::load(data_dir) {
            Ok(file) if file.is_empty() && self.is_development() => {}
            Ok(file) => {
                let table = UserTable::of_file(&file);
                tracing::info!(users = table.users.len(), "reloaded the users file");
                assert!(table.anonymous.is_none(), "a users file admits no guest");
                self.table.store(Arc::new(table));
                self.generation.fetch_add(1, Ordering::Release);
                if let Some(shared) = self.shared() {
                    shared.note_reload();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot reload the users file; the users loaded before stay")
            }
        }
    }

    /// The user of this name, or for an unknown name a user that looks the same to a client but
    /// always fails.
    pub(super) fn find(&self, name: &str) -> Arc<User> {
        let table = self.table.load();
        // Made in both cases, so that timing does not reveal whether the user exists.
        let unknown = table.unknown_user(name);
        if let Some(nodes) = self.nodes_named(name) {
            return Arc::clone(nodes);
        }
        table.users.get(name).map_or(unknown, Arc::clone)
    }

    /// The identity, when this password was verified before; costs one HMAC.
    pub(super) fn check_cached(&self, name: &str, password: &[u8]) -> Option<Arc<Identity>> {
        let tag = ScramHash::Sha256.hmac(&self.cache_key, password);
        let table = self.table.load();
        let user = table.users.get(name)?;
        debug_assert!(user.is_known(), "only known users are in the table");
        let cached = user.cached_password.lock();
        let matches: bool = cached.as_ref()?.ct_eq(&tag).into();
        matches.then(|| user.identity())
    }

    /// Checks a password by key derivation. Blocks for milliseconds.
    pub(super) fn check_password(&self, name: &str, password: &[u8]) -> Option<Arc<Identity>> {
        let user = self.find(name);
        let matches = user.verifier(ScramHash::Sha512).check_password(password);
        if !matches || !user.is_known() {
            return None;
        }
        assert!(user.is_known(), "an unknown user never logs in");
        *user.cached_password.lock() = Some(ScramHash::Sha256.hmac(&self.cache_key, password));
        Some(user.identity())
    }

    /// Counts a failure and logs it unless one was logged just before.
    pub(super) fn record_failure(&self, mechanism: &str, name: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let suppressed = {
            let mut log = self.failure_log.lock();
            let too_soon =
                log.last.is_some_and(|last| now.duration_since(last) < FAILURE_LOG_INTERVAL);
            if too_soon {
                log.suppressed += 1;
                return;
            }
            debug_assert!(log.last.is_none_or(|last| last <= now), "failures follow each other");
            log.last = Some(now);
            std::mem::take(&mut log.suppressed)
        };
        // Both come from the network: truncated here, and escaped by the debug form.
        let mechanism: String = mechanism.chars().take(24).collect();
        let name: String = name.chars().take(64).collect();
        tracing::info!(?mechanism, ?name, suppressed, "authentication failed");
    }

    fn with_table(
        data_dir: Option<PathBuf>,
        stamp: Option<FileStamp>,
        table: UserTable,
    ) -> UserStore {
        UserStore {
            data_dir,
            table: ArcSwap::from_pointee(table),
            nodes: OnceLock::new(),
            loaded_stamp: Mutex::new(stamp),
            cache_key: random_bytes(),
            generation: AtomicU64::new(0),
            shared: OnceLock::new(),
            failures: AtomicU64::new(0),
            failure_log: Mutex::default(),
        }
    }
}

impl UserTable {
    fn of_file(file: &UserFile) -> UserTable {
        let users = file.users().map(|stored| {
            let access = Access::new(stored.roles.clone());
            let (bucket, collection) = (stored.bucket.clone(), stored.collection.clone());
            let identity = Identity { name: stored.name.clone(), access, bucket, collection };
            let user = User::new(identity, true, Secret::Stored(stored.verifiers.clone()));
            (stored.name.clone(), Arc::new(user))
        });
        UserTable {
            users: users.collect(),
            unknown_user_key: file.unknown_user_key.clone(),
            iterations: ITERATIONS,
            anonymous: None,
        }
    }

    /// The development user. Nothing is derived here, so that the server starts fast.
    fn development() -> UserTable {
        let secret = ScramHash::ALL.map(|hash| (hash, random_bytes(), OnceLock::new()));
        let identity = Identity {
            name: DEVELOPMENT_NAME.to_owned(),
            access: Access::new(vec![Role::Admin]),
            bucket: None,
            collection: None,
        };
        let user = User::new(identity, true, Secret::Development(secret.into_iter().collect()));
        let anonymous = anonymous_in("default");
        UserTable {
            users: HashMap::from([(DEVELOPMENT_NAME.to_owned(), Arc::new(user))]),
            unknown_user_key: random_bytes::<32>().to_vec(),
            iterations: DEVELOPMENT_ITERATIONS,
            anonymous: Some(Arc::new(anonymous)),
        }
    }

    fn unknown_user(&self, name: &str) -> Arc<User> {
        let verifiers = ScramHash::ALL.map(|hash| {
            let key = &self.unknown_user_key;
            Verifier::of_unknown_user(hash, key, name.as_bytes(), self.iterations)
        });
        let identity = Identity {
            name: name.to_owned(),
            access: Access::default(),
            bucket: None,
            collection: None,
        };
        Arc::new(User::new(identity, false, Secret::Stored(verifiers.into_iter().collect())))
    }
}

/// The identity of clients that do not authenticate, which may use one bucket.
fn anonymous_in(bucket: &str) -> Identity {
    Identity {
        name: ANONYMOUS_NAME.to_owned(),
        access: Access::new(vec![Role::Of(ANONYMOUS_PRIVILEGES, RoleScope::bucket(bucket))]),
        bucket: None,
        collection: None,
    }
}

impl User {
    fn new(identity: Identity, known: bool, secret: Secret) -> User {
        User { identity: Arc::new(identity), known, secret, cached_password: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.identity.name
    }

    pub(super) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity)
    }

    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// True when [`User::verifier`] would take milliseconds.
    pub(super) fn needs_derivation(&self, hash: ScramHash) -> bool {
        match &self.secret {
            Secret::Stored(_) => false,
            Secret::Development(lazy) => {
                lazy.iter().any(|(of, _, verifier)| *of == hash && verifier.get().is_none())
            }
        }
    }

    /// The input of SCRAM's server-first message, without deriving a key.
    pub(super) fn salt_and_iterations(&self, hash: ScramHash) -> (Vec<u8>, NonZeroU32) {
        match &self.secret {
            Secret::Stored(_) => {
                let verifier = self.verifier(hash);
                (verifier.salt.clone(), verifier.iterations)
            }
            Secret::Development(lazy) => {
                let (_, salt, _) = of_hash(lazy, |(of, _, _)| *of == hash);
                (salt.to_vec(), DEVELOPMENT_ITERATIONS)
            }
        }
    }

    /// The verifier for a hash function, derived on first use.
    pub(super) fn verifier(&self, hash: ScramHash) -> &Verifier {
        match &self.secret {
            Secret::Stored(verifiers) => of_hash(verifiers, |verifier| verifier.hash == hash),
            Secret::Development(lazy) => {
                let (_, salt, verifier) = of_hash(lazy, |(of, _, _)| *of == hash);
                let password = DEVELOPMENT_PASSWORD.as_bytes();
                verifier
                    .get_or_init(|| Verifier::derive(hash, password, salt, DEVELOPMENT_ITERATIONS))
            }
        }
    }
}

fn of_hash<T>(entries: &[T], is_wanted: impl Fn(&T) -> bool) -> &T {
    entries
        .iter()
        .find(|entry| is_wanted(entry))
        .expect("every table is made from ScramHash::ALL, and a users file without one is corrupt")
}

fn file_stamp(data_dir: &Path) -> Option<FileStamp> {
    let metadata = std::fs::metadata(UserFile::path(data_dir)).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
