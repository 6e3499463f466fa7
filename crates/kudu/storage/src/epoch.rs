//! The right to write: an epoch of the table, and the vbuckets that this process owns in it.
//!
//! Owns: the session of an epoch. Invariants: its rows name the column of the epoch, so Kudu
//! refuses them as a whole as soon as the table has another one. The owned vbuckets were read after
//! the table's schema, so a vbucket lost since then was lost to a later epoch.

use oribi_kudu::{FlushMode, SchemaChange, Session, SessionOptions, Table};
use oribi_storage::Ownership;
use oribi_types::Vbid;

use std::time::Duration;

/// A Write is repeated under its identity until it is decided; only the store's closing ends it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Not the effective limit: the maker of a round bounds its size.
const BUFFER_BYTES_MAX: usize = 1 << 30;
/// A session releases its memory after each round: any tablet may get most of a round, and there
/// may be hundreds of tablets.
const SPARE_BYTES_MAX: usize = 128 << 10;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Epoch {
    table: Table,
    pub(crate) session: Session,
    owned: Vec<bool>,
}

impl Epoch {
    /// The epoch of a table that was just opened. Reads the owned vbuckets now.
    pub(crate) fn of(table: Table, vbuckets: u16, ownership: &dyn Ownership) -> Epoch {
        let owned = (0..vbuckets).map(|vbid| ownership.owns(Vbid(vbid))).collect();
        Epoch { session: session(&table), table, owned }
    }

    /// True when a vbucket may be written; without a vbucket, data of the whole bucket.
    pub(crate) fn owns(&self, vbid: Option<Vbid>) -> bool {
        let owns = |vbid: Vbid| self.owned.get(usize::from(vbid.0)).copied().unwrap_or(false);
        vbid.is_none_or(owns)
    }

    /// Starts a new session after an attempt that left half of its rows in the old one.
    pub(crate) fn renew_session(&mut self) {
        self.session = session(&self.table);
    }
}

fn session(table: &Table) -> Session {
    let options = SessionOptions::new()
        .flush_mode(FlushMode::Manual)
        .buffer_bytes_max(BUFFER_BYTES_MAX)
        .spare_bytes_max(SPARE_BYTES_MAX)
        .timeout(WRITE_TIMEOUT)
        // The failed rows are sent again, so no error may be lost.
        .error_bytes_max(usize::MAX)
        .on_schema_change(SchemaChange::Fail);
    Session::new(table, options)
}

/// Owns the vbuckets taken over, and none after another process has taken over.
#[derive(Debug, Default)]
pub(crate) struct TakenVbuckets {
    taken: Vec<bool>,
}

impl TakenVbuckets {
    pub(crate) fn add(&mut self, vbids: &[Vbid]) {
        for vbid in vbids {
            let at = usize::from(vbid.0);
            self.taken.resize(self.taken.len().max(at + 1), false);
            self.taken[at] = true;
        }
    }
}

impl Ownership for TakenVbuckets {
    fn owns(&self, vbid: Vbid) -> bool {
        self.taken.get(usize::from(vbid.0)).copied().unwrap_or(false)
    }
}
