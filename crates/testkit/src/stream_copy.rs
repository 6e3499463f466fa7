//! A copy of some vbuckets that a consumer makes from change streams, and its positions in them.
//!
//! Owns: what a careful consumer does. It keeps its history, seqno and snapshot for each vbucket,
//! continues from there on any connection, forgets what a server tells it to forget, and refuses
//! what breaks the order of a stream. Tests that know what was written compare the copy with it.
//! The oracle of kill cycles is the [`StreamLog`](crate::StreamLog).

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use oribi_protocol::dcp::marker::MarkerFlags;
use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras, StreamValue};
use oribi_protocol::status::Status;
use oribi_types::{Seqno, VbUuid, Vbid};

use crate::stream_connection::{MessageKind, StreamConnection, StreamDocument, StreamMessage};

/// Pause before a request that was refused for the moment is sent again.
const BACK_OFF: Duration = Duration::from_millis(20);

/// Where a consumer is in one vbucket.
#[derive(Clone, Debug, Default)]
struct Position {
    uuid: VbUuid,
    seqno: Seqno,
    snapshot: (Seqno, Seqno),
    /// The server has accepted the request.
    is_open: bool,
    /// The snapshot that was announced, until the stream ends.
    marker: Option<(Seqno, Seqno)>,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct StreamCopy {
    positions: BTreeMap<Vbid, Position>,
    /// Every change in the order in which it came, without those that were taken back.
    changes: Vec<(Vbid, StreamDocument)>,
    rollbacks: Vec<(Vbid, Seqno)>,
    from_disk: u64,
}

impl StreamCopy {
    /// The copy of a consumer that has nothing.
    pub fn new() -> StreamCopy {
        StreamCopy::default()
    }

    /// Requests streams of these vbuckets from where the copy is.
    ///
    /// # Errors
    /// The connection's.
    pub fn resume(
        &mut self,
        connection: &mut StreamConnection,
        vbuckets: impl IntoIterator<Item = Vbid>,
    ) -> Result<()> {
        for vbid in vbuckets {
            let position = self.positions.entry(vbid).or_default();
            (position.marker, position.is_open) = (None, false);
            if position.seqno == position.snapshot.1 {
                position.snapshot = (position.seqno, position.seqno);
            }
            self.request(connection, vbid)?;
        }
        Ok(())
    }

    fn request(&self, connection: &mut StreamConnection, vbid: Vbid) -> Result<()> {
        let position = self.positions.get(&vbid).cloned().unwrap_or_default();
        let extras = StreamRequestExtras {
            flags: StreamFlags::ACTIVE_ONLY,
            start: position.seqno,
            end: Seqno(u64::MAX),
            vb_uuid: position.uuid,
            snapshot_start: position.snapshot.0,
            snapshot_end: position.snapshot.1,
        };
        connection.request(vbid, &extras, &StreamValue::default())
    }

    /// Takes messages until the streams are open and the copy is at each of these seqnos, or
    /// beyond.
    ///
    /// # Errors
    /// The connection's, and everything that a server must not send.
    pub fn read_to(
        &mut self,
        connection: &mut StreamConnection,
        seqnos: &BTreeMap<Vbid, Seqno>,
    ) -> Result<()> {
        let is_there = |(vbid, seqno): (&Vbid, &Seqno), copy: &StreamCopy| {
            let position = copy.positions.get(vbid);
            position.is_some_and(|position| position.is_open && position.seqno >= *seqno)
        };
        while !seqnos.iter().all(|place| is_there(place, self)) {
            let StreamMessage { vbid, what } = connection.hear()?;
            self.take(connection, vbid, what)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        connection: &mut StreamConnection,
        vbid: Vbid,
        what: MessageKind,
    ) -> Result<()> {
        let position = self.positions.entry(vbid).or_default();
        match what {
            MessageKind::Opened(log) => {
                position.uuid = log.first().map_or(VbUuid(0), |newest| newest.0);
                position.is_open = true;
            }
            MessageKind::Rollback(to) => {
                ensure!(to < position.seqno, "{vbid}: sent back to {to:?} from {position:?}");
                (position.seqno, position.snapshot) = (to, (to, to));
                self.changes.retain(|(of, it)| *of != vbid || it.seqno <= to);
                self.rollbacks.push((vbid, to));
                self.request(connection, vbid)?;
            }
            // The vbucket still loads, or memory is short.
            MessageKind::Refused(Status::Etmpfail | Status::Enomem) => {
                thread::sleep(BACK_OFF);
                self.request(connection, vbid)?;
            }
            MessageKind::Refused(status) => bail!("{vbid} is refused: {status:?}"),
            MessageKind::End(reason) => bail!("the stream of {vbid} ended: {reason:?}"),
            MessageKind::Marker(marker) => {
                let (start, end) = (marker.start, marker.end);
                ensure!(end > position.seqno, "{vbid}: {marker:?} at {position:?}");
                position.marker = Some((start, end));
                self.from_disk += u64::from(marker.flags.has(MarkerFlags::DISK));
            }
            MessageKind::Document(document) => {
                position.advance(vbid, document.seqno)?;
                self.changes.push((vbid, document));
            }
            MessageKind::Event { seqno, .. } | MessageKind::Advanced(seqno) => {
                position.advance(vbid, seqno)?
            }
        }
        Ok(())
    }

    /// Where the copy is in a vbucket.
    pub fn seqno(&self, vbid: Vbid) -> Seqno {
        self.positions.get(&vbid).map_or(Seqno(0), |position| position.seqno)
    }

    /// How often, and where to, servers sent the consumer back.
    pub fn rollbacks(&self) -> &[(Vbid, Seqno)] {
        &self.rollbacks
    }

    /// Snapshots that came from disk.
    pub fn disk_snapshots(&self) -> u64 {
        self.from_disk
    }

    /// Every change that counts, in the order of each vbucket.
    pub fn changes(&self) -> &[(Vbid, StreamDocument)] {
        &self.changes
    }

    /// The documents that there are, by key.
    pub fn table(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut table = BTreeMap::new();
        for (_, change) in &self.changes {
            match &change.value {
                Some(value) => _ = table.insert(change.key.clone(), value.clone()),
                None => _ = table.remove(&change.key),
            }
        }
        table
    }
}

impl Position {
    fn advance(&mut self, vbid: Vbid, seqno: Seqno) -> Result<()> {
        let Some((start, end)) = self.marker else { bail!("{vbid}: {seqno:?} without a snapshot") };
        ensure!(
            start <= seqno && seqno <= end,
            "{vbid}: {seqno:?} outside of {start:?} to {end:?}"
        );
        ensure!(seqno > self.seqno, "{vbid}: {seqno:?} after {:?}", self.seqno);
        (self.seqno, self.snapshot) = (seqno, (start, end));
        Ok(())
    }
}
