//! The oracle of change streams: what one consumer has heard, and whether a server may say it.
//!
//! A consumer keeps its log over the lives of a server and continues where it was, as a real one
//! does. The oracle checks, for each vbucket:
//!
//! 1. seqnos ascend and lie in the snapshot that was announced; a snapshot is complete before the
//!    next one begins and has a document at most once (`vbucket_stream.rs`). A slow consumer may be
//!    left behind by a scan of the disk; the next scan continues where it stopped;
//! 2. every change is a write that was attempted. One with the seqno of an acknowledged write is
//!    that write;
//! 3. where a snapshot ends, every acknowledged write up to there was heard, or a later one of its
//!    document;
//! 4. a server that has lost what the consumer knows sends it back, and not further than to the
//!    end of what both know. So nothing that was promised durable is taken back;
//! 5. in the end, the table that the log makes is the one that a full read finds.
//!
//! The oracle does no I/O. The caller reports what a connection brought, and lets it oracle when no
//! write is in flight.

#[cfg(test)]
mod tests;
mod vbucket_stream;

use std::collections::BTreeMap;

use oribi_protocol::dcp::stream_request::StreamRequestExtras;
use oribi_types::{Cas, Seqno, VbUuid, Vbid};

use crate::ack_log::{AckLog, ValueHash, VbucketReport, Violation, value_hash};
use vbucket_stream::{VbucketStream, Version};

/// Most violations that are kept; one bug causes thousands.
const VIOLATIONS_MAX: usize = 100;

/// Counts of what a log has heard, to show that it checked something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTally {
    pub changes: u64,
    pub snapshots: u64,
    /// Streams that had to go back.
    pub rollbacks: u64,
    /// Acknowledged writes that were looked for.
    pub compared: u64,
}

/// Changes that one consumer has received. See the module's description.
#[derive(Debug, Default)]
pub struct StreamLog {
    vbuckets: BTreeMap<Vbid, VbucketStream>,
    violations: Vec<Violation>,
    tally: StreamTally,
}

impl StreamLog {
    /// The log of a consumer that knows nothing.
    pub fn new() -> StreamLog {
        StreamLog::default()
    }

    /// The log of another consumer of the same server, which knows nothing.
    pub fn of_another(&self) -> StreamLog {
        let vbuckets = self.vbuckets.iter();
        let of_another = vbuckets.map(|(vbid, stream)| (*vbid, stream.of_another()));
        StreamLog { vbuckets: of_another.collect(), ..StreamLog::default() }
    }

    /// The request that continues where a vbucket's stream was.
    pub fn request(&self, vbid: Vbid) -> StreamRequestExtras {
        self.vbuckets.get(&vbid).map(VbucketStream::request).unwrap_or_default()
    }

    /// A server has started and reports what it has.
    pub fn restarted(&mut self, recovered: &BTreeMap<Vbid, VbucketReport>) {
        for (vbid, found) in recovered {
            self.vbuckets.entry(*vbid).or_default().restarted(found.clone());
        }
    }

    /// The server has accepted the request and shows its failover table.
    pub fn opened(&mut self, vbid: Vbid, histories: &[(VbUuid, Seqno)]) {
        self.check(vbid, |stream| stream.opened(histories));
    }

    /// The server has refused the request: the consumer has to forget everything beyond `to`.
    pub fn rolled_back(&mut self, vbid: Vbid, to: Seqno) {
        self.tally.rollbacks += 1;
        self.check(vbid, |stream| stream.rolled_back(to));
    }

    pub fn marker(&mut self, vbid: Vbid, start: Seqno, end: Seqno) {
        self.tally.snapshots += 1;
        self.check(vbid, |stream| stream.marker(start, end));
    }

    /// A document has changed; `None` as value means that it is gone.
    pub fn change(
        &mut self,
        vbid: Vbid,
        name: &[u8],
        value: Option<&[u8]>,
        seqno: Seqno,
        cas: Cas,
    ) {
        self.tally.changes += 1;
        let version = Version { seqno, cas, value: value_hash(value) };
        self.check(vbid, |stream| stream.change(name, version));
    }

    /// The stream has come to a seqno without a document: an event, or what is not for this stream.
    pub fn advanced(&mut self, vbid: Vbid, seqno: Seqno) {
        self.check(vbid, |stream| stream.advance(seqno));
    }

    /// The connection is gone, or all streams are.
    pub fn disconnected(&mut self) {
        self.vbuckets.values_mut().for_each(VbucketStream::closed);
    }

    /// True when every vbucket has come to the seqno that is given for it, and to a snapshot's end.
    pub fn has_reached(&self, seqnos: &BTreeMap<Vbid, VbucketReport>) -> bool {
        seqnos.iter().all(|(vbid, found)| {
            let stream = self.vbuckets.get(vbid);
            let known = stream.map_or(Seqno(0), VbucketStream::seqno);
            known >= found.high_seqno && stream.is_none_or(VbucketStream::is_at_snapshot_end)
        })
    }

    /// Compares what was heard since the last time with the writes. No write is in flight, and the
    /// server has not been started again since.
    pub fn judge(&mut self, log: &AckLog) {
        let writes = log.writes();
        let mut found = Vec::new();
        for (vbid, stream) in &mut self.vbuckets {
            for (name, version) in stream.take_unjudged() {
                let about = |text: String| (*vbid, name.clone(), text);
                let seqno = version.seqno.0;
                if !writes.was_attempted(*vbid, &name, version.value) {
                    found.push(about(format!("seqno {seqno} shows what was never written")));
                }
                let Some(write) = writes.at(*vbid, version.seqno) else { continue };
                if (&write.name, write.value, write.cas) != (&name, version.value, version.cas) {
                    let other = String::from_utf8_lossy(&write.name);
                    found.push(about(format!("seqno {seqno} was acknowledged as {other}'s write")));
                }
            }
            let Some(upto) = stream.certain_up_to() else { continue };
            for (seqno, write) in writes.up_to(*vbid, upto) {
                self.tally.compared += 1;
                if stream.newest(&write.name).is_none_or(|newest| newest.seqno < seqno) {
                    let text = format!("the write with seqno {} was left out", seqno.0);
                    found.push((*vbid, write.name.clone(), text));
                }
            }
        }
        for (vbid, name, text) in found {
            self.complain(vbid, &format!("document {}: {text}", String::from_utf8_lossy(&name)));
        }
    }

    /// Compares the table that the log makes with the documents that certainly exist, when all of
    /// them have been read.
    pub fn compare(&mut self, log: &AckLog) {
        let mut expected: BTreeMap<(Vbid, Vec<u8>), ValueHash> = BTreeMap::new();
        for (vbid, name, value) in log.documents() {
            expected.insert((vbid, name.to_vec()), value_hash(Some(value)));
        }
        let mut heard: BTreeMap<(Vbid, Vec<u8>), ValueHash> = BTreeMap::new();
        for (vbid, stream) in &self.vbuckets {
            for (name, version) in stream.table() {
                heard.insert((*vbid, name.to_vec()), version.value);
            }
        }
        let places = expected.keys().chain(heard.keys()).cloned();
        for place in places.collect::<std::collections::BTreeSet<_>>() {
            let text = match (expected.get(&place), heard.get(&place)) {
                (Some(read), Some(known)) if read == known => continue,
                (Some(_), None) => "is there, but not in the stream's table",
                (None, _) => "is in the stream's table, but not there",
                _ => "has another value in the stream's table",
            };
            self.complain(place.0, &format!("{}: {text}", String::from_utf8_lossy(&place.1)));
        }
    }

    /// The counts so far.
    pub fn tally(&self) -> StreamTally {
        self.tally
    }

    /// Notes a violation that the caller has found.
    pub fn complain(&mut self, vbid: Vbid, text: &str) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation(format!("stream of {vbid}: {text}")));
        }
    }

    /// Takes the violations so far.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    fn check(&mut self, vbid: Vbid, step: impl FnOnce(&mut VbucketStream) -> Result<(), String>) {
        let stream = self.vbuckets.entry(vbid).or_default();
        if let Err(text) = step(stream) {
            let at = stream.describe();
            self.complain(vbid, &format!("{text}, {at}"));
        }
    }
}
