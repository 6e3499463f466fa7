//! The right to write: an epoch of the table, and which vbuckets this process owns in it.
//!
//! Owns: the session of an epoch. Invariants: its rows name the column of the epoch, so that they are refused as
//! a whole from the moment on at which the table has another one; the owned vbuckets were asked for after the
//! table's schema was read, so that one that was lost since then was lost to a later epoch.

use oribi_kudu::{FlushMode, SchemaChange, Session, SessionOptions, Table};
use oribi_storage::Ownership;
use oribi_types::Vbid;

use std::time::Duration;

/// A Write is repeated under its identity until it is decided; what is to end it is the store being closed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
/// Rounds are bounded by whoever makes them.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Epoch {
    table: Table,
    pub(crate) session: Session,
    owned: Vec<bool>,
}

impl Epoch {
    /// The epoch of a table that was just opened. Asks for the owned vbuckets now.
    pub(crate) fn of(table: Table, vbuckets: u16, ownership: &dyn Ownership) -> Epoch {
        let owned = (0..vbuckets).map(|vbid| ownership.owns(Vbid(vbid))).collect();
        Epoch { session: session(&table), table, owned }
    }

    /// Whether a vbucket may be written, or with none what belongs to the whole bucket.
    pub(crate) fn owns(&self, vbid: Option<Vbid>) -> bool {
        let owns = |vbid: Vbid| self.owned.get(usize::from(vbid.0)).copied().unwrap_or(false);
        vbid.is_none_or(owns)
    }

    /// Begins anew after an attempt that left half of its rows in the session.
    pub(crate) fn renew_session(&mut self) {
        self.session = session(&self.table);
    }
}

fn session(table: &Table) -> Session {
    let options = SessionOptions {
        flush_mode: FlushMode::Manual,
        buffer_bytes_max: BUFFER_BYTES_MAX,
        timeout: Some(WRITE_TIMEOUT),
        // Which rows failed decides what is sent again, so none may be lost.
        error_bytes_max: usize::MAX,
        on_schema_change: SchemaChange::Fail,
        ..SessionOptions::default()
    };
    Session::new(table, options)
}

/// Owns what was taken over, and nothing after somebody else has taken over.
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
