//! Why a statement ends before its last row.
//!
//! Owns: the deadline, the client, the server's end, and the user's rights as of the last look. A
//! statement also ends when it holds memory that other clients need. Sources check
//! [`StatementControl::has_to_end`] before each batch and while they wait, the admin runtime every
//! 50 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use hyper::body::Bytes;
use oribi_auth::{Identity, UserStore};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::statement_memory::{LargeValueMemory, NoMemory, StatementMemory};
use oribi_server::admin_api::memory::Reservation;

/// Why a statement ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatementEnd {
    /// Its time is over.
    Timeout,
    /// Its client has gone.
    ClientGone,
    Shutdown,
    /// The user's rights have changed.
    LostPrivileges,
    /// Others wait for memory that the statement holds.
    InTheWay,
    /// Documents cannot be read at the moment; the error says why.
    Unavailable,
}

impl StatementEnd {
    /// Message to the user.
    pub fn text(self) -> &'static str {
        match self {
            StatementEnd::Timeout => {
                "the statement took longer than it may; a longer `timeout` allows more"
            }
            StatementEnd::ClientGone => "the client has gone",
            StatementEnd::Shutdown => "the server stops",
            StatementEnd::LostPrivileges => {
                "the user's rights have changed; run the statement again"
            }
            StatementEnd::InTheWay => {
                "other clients wait for the memory that the statement's documents or rows hold; \
                 read the answer faster, or try again"
            }
            StatementEnd::Unavailable => "documents cannot be read at the moment",
        }
    }

    /// The code of the end in an answer; none where it depends on what the statement did.
    pub fn query_code(self) -> Option<u32> {
        match self {
            StatementEnd::Timeout => Some(1080),
            StatementEnd::ClientGone | StatementEnd::Shutdown => Some(1181),
            StatementEnd::LostPrivileges => Some(13014),
            StatementEnd::InTheWay => Some(5500),
            StatementEnd::Unavailable => None,
        }
    }
}

/// See the module text.
pub(crate) struct StatementControl {
    deadline: Instant,
    /// Takes pieces of the answer; closed when the client has gone.
    pieces: mpsc::Sender<Bytes>,
    stopping: watch::Receiver<bool>,
    users: Arc<UserStore>,
    identity: Arc<Identity>,
    users_generation: AtomicU64,
    memory: Arc<StatementMemory>,
    ending: Mutex<Option<StatementEnd>>,
}

impl StatementControl {
    pub fn new(
        deadline: Instant,
        pieces: mpsc::Sender<Bytes>,
        stopping: watch::Receiver<bool>,
        users: Arc<UserStore>,
        identity: Arc<Identity>,
        memory: StatementMemory,
    ) -> Arc<StatementControl> {
        let users_generation = AtomicU64::new(users.generation());
        let ending = Mutex::default();
        Arc::new(StatementControl {
            deadline,
            pieces,
            stopping,
            users,
            identity,
            users_generation,
            memory: Arc::new(memory),
            ending,
        })
    }

    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// When the statement's time is over.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Where the answer goes.
    pub fn pieces(&self) -> &mpsc::Sender<Bytes> {
        &self.pieces
    }

    /// Becomes true when the server stops.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.clone()
    }

    /// Why the statement ends early, if it does.
    pub fn ending(&self) -> Option<StatementEnd> {
        *self.ending.lock()
    }

    /// Ends the statement. The first reason stays.
    pub fn end(&self, why: StatementEnd) {
        self.ending.lock().get_or_insert(why);
    }

    /// True when the statement must end.
    pub fn has_to_end(&self) -> bool {
        if let Some(why) = self.reason() {
            self.end(why);
        }
        self.ending().is_some()
    }

    /// An error when the statement must end.
    ///
    /// # Errors
    /// Why.
    pub fn check(&self) -> Result<()> {
        match self.has_to_end() {
            false => Ok(()),
            true => bail!(self.ending().map_or("interrupted", StatementEnd::text)),
        }
    }

    /// The error of a source that cannot be read now.
    pub fn unavailable(&self, why: impl Into<String>) -> anyhow::Error {
        self.end(StatementEnd::Unavailable);
        anyhow::anyhow!(why.into())
    }

    /// Memory of the statement's documents.
    pub fn memory(&self) -> &Arc<StatementMemory> {
        &self.memory
    }

    /// Retries a reservation until it succeeds; `None` when the wait's limit passes, or the
    /// statement has to end.
    pub fn wait_for_memory<T>(&self, ask: &dyn Fn() -> Option<T>) -> Option<T> {
        self.memory.wait_for(ask, &|| self.has_to_end())
    }

    /// Reserves what a scan needs, whatever it reads.
    ///
    /// # Errors
    /// When there is no such memory in time.
    pub fn hold_usual(&self, bytes: usize) -> Result<Reservation> {
        let held = self.memory.hold_usual(bytes, &|| self.has_to_end());
        held.map_err(|why| self.no_memory(bytes, &why))
    }

    /// Reserves memory for a large document, or for a value made of one.
    ///
    /// # Errors
    /// When there is no such memory in time, or never.
    pub fn hold_large(&self, bytes: usize) -> Result<LargeValueMemory> {
        let held = self.memory.hold_large(bytes, &|| self.has_to_end());
        held.map_err(|why| self.no_memory(bytes, &why))
    }

    fn no_memory(&self, bytes: usize, why: &NoMemory) -> anyhow::Error {
        if let Err(ended) = self.check() {
            return ended;
        }
        match why {
            NoMemory::Now => self.unavailable(format!(
                "the memory for connections is in use, and a document needs {bytes} bytes of it; \
                 try again"
            )),
            NoMemory::Never(most) => anyhow::anyhow!(
                "a document needs {bytes} bytes of the memory for connections, which has {most}; \
                 leave it out, or give the buckets more quota"
            ),
        }
    }

    fn reason(&self) -> Option<StatementEnd> {
        if self.pieces.is_closed() {
            return Some(StatementEnd::ClientGone);
        }
        if *self.stopping.borrow() {
            return Some(StatementEnd::Shutdown);
        }
        if Instant::now() >= self.deadline {
            return Some(StatementEnd::Timeout);
        }
        if self.memory.is_in_the_way() {
            return Some(StatementEnd::InTheWay);
        }
        (!self.has_same_rights()).then_some(StatementEnd::LostPrivileges)
    }

    fn has_same_rights(&self) -> bool {
        let generation = self.users.generation();
        if self.users_generation.load(Ordering::Relaxed) == generation {
            return true;
        }
        let now = self.users.current(&self.identity.name);
        let is_same = now.is_some_and(|now| now.access.roles() == self.identity.access.roles());
        if is_same {
            self.users_generation.store(generation, Ordering::Relaxed);
        }
        is_same
    }
}
