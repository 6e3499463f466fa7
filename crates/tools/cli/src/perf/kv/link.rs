//! One connection with one batch in flight: sends it, takes its answers, checks them.
//!
//! It encodes a batch straight into the connection's buffer, sends it by one flush, and checks the
//! answers in place. It allocates nothing per operation.
//!
//! Latency is the time from the flush, or from an operation's due time, to the arrival of the chunk
//! with its answer. The clock is read once per chunk, not per operation, before its answers are
//! checked; the cost of verifying a chunk is therefore in the latency of the next one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use anyhow::bail;
use oribi_client::{ClusterMap, RejectionKind};
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::status::Status;

use super::flight::Flight;
use super::operation::{KvOperation, OperationKind};
use super::request::{Address, RequestEncoder};
use super::tally::{KvCounts, describe_status};
use super::value::{Corruption, KvValues, ValueIdentity};
use super::wire::Wire;
use super::wire::answer::KvAnswer;
use crate::perf::latencies::Recorder;

/// The inputs for judging answers.
pub struct AnswerChecker<'a> {
    /// Verifies values of reads.
    pub values: &'a KvValues,
    /// Per collection, its path and the seed of its values.
    pub collections: &'a [(String, u32)],
    /// Start of the phase.
    pub started: Instant,
    /// Latency counts from an operation's due time.
    pub from_due: bool,
    /// Most retries of an operation.
    pub retries_max: u16,
    /// A miss is not a problem.
    pub misses_allowed: bool,
}

impl AnswerChecker<'_> {
    fn now_ns(&self) -> u64 {
        // 2^64 nanoseconds are 584 years.
        self.started.elapsed().as_nanos() as u64
    }

    fn describe(&self, operation: &KvOperation) -> String {
        let verb = match operation.kind {
            OperationKind::Get => "GET",
            OperationKind::Set => "SET",
        };
        let path = self.collections.get(usize::from(operation.collection));
        let path = path.map_or("?", |(path, _)| path);
        format!("{verb} of document {} in {path}", operation.index)
    }
}

/// See the module text.
pub struct KvLink {
    wire: Wire,
    flight: Flight,
    bench: Bench,
}

/// The judging part of a link: all of it except what the answers borrow from.
struct Bench {
    counts: KvCounts,
    recorder: Rc<RefCell<Recorder>>,
    /// Operations that the server asked to try again.
    again: Vec<KvOperation>,
    /// The cluster map is out of date.
    map_is_stale: bool,
    /// Values that came compressed.
    inflated: Vec<u8>,
}

/// Operations decided by the answers in one chunk of bytes.
#[derive(Default)]
struct Chunk {
    gets: u64,
    sets: u64,
}

impl KvLink {
    /// A link over a connection with nothing in flight, which records latencies with its thread's
    /// others.
    pub fn new(wire: Wire, recorder: Rc<RefCell<Recorder>>) -> KvLink {
        let (again, inflated) = (Vec::new(), Vec::new());
        let counts = KvCounts::default();
        let bench = Bench { counts, recorder, again, map_is_stale: false, inflated };
        KvLink { wire, flight: Flight::default(), bench }
    }

    /// The server's cluster map; only between batches.
    pub async fn cluster_config(&mut self) -> anyhow::Result<ClusterMap> {
        match &mut self.wire {
            Wire::Binary(connection) => Ok(connection.cluster_config().await?),
            Wire::Text(_) => bail!("the text protocol has no cluster map"),
        }
    }

    /// Counters of this phase.
    pub fn counts(&mut self) -> &mut KvCounts {
        &mut self.bench.counts
    }

    /// Moves operations to be retried to `again`; returns whether the map is stale.
    pub fn take_back(&mut self, again: &mut Vec<KvOperation>) -> bool {
        again.append(&mut self.bench.again);
        std::mem::take(&mut self.bench.map_is_stale)
    }

    /// Queues an operation for the next exchange.
    pub fn push(
        &mut self,
        encoder: &mut RequestEncoder,
        operation: KvOperation,
        address: &Address<'_>,
    ) {
        let opaque = self.flight.add(operation);
        let sent = encoder.push(&mut self.wire, &operation, address, opaque);
        self.bench.counts.written_bytes += sent as u64;
    }

    /// Sends the queued requests and takes all answers.
    pub async fn exchange(&mut self, judge: &AnswerChecker<'_>) -> anyhow::Result<()> {
        let KvLink { wire, flight, bench } = self;
        if flight.open() == 0 {
            return Ok(());
        }
        let sent_ns = judge.now_ns();
        wire.flush().await?;
        while flight.open() > 0 {
            let answer = wire.next().await?;
            let now_ns = judge.now_ns();
            let mut chunk = Chunk::default();
            let mut site = None;
            if bench.settle(flight, judge, &answer, now_ns, &mut chunk).is_err() {
                site = Some(answer.opaque);
            }
            while flight.open() > 0 && site.is_none() {
                let Some(answer) = wire.try_next()? else { break };
                if bench.settle(flight, judge, &answer, now_ns, &mut chunk).is_err() {
                    site = Some(answer.opaque);
                }
            }
            bench.record(&chunk, now_ns.saturating_sub(sent_ns));
            if let Some(opaque) = site {
                return Err(stray(wire, opaque));
            }
        }
        flight.begin();
        Ok(())
    }

    /// Ends a phase: operations in flight count as unanswered.
    pub fn abandon(&mut self) {
        let unanswered = self.flight.begin() as u64;
        self.bench.counts.unanswered += unanswered;
    }

    /// Counts an operation that is not retried although the server asked for it.
    pub fn give_up(&mut self, operation: &KvOperation) {
        self.bench.give_up(operation);
    }
}

/// The answer belongs to no operation in flight.
struct StrayAnswer;

fn stray(wire: &mut Wire, opaque: u32) -> anyhow::Error {
    wire.protocol_error(format!("an answer that nothing in flight waits for (0x{opaque:08x})"))
}

impl Bench {
    fn settle(
        &mut self,
        flight: &mut Flight,
        judge: &AnswerChecker<'_>,
        answer: &KvAnswer<'_>,
        now_ns: u64,
        chunk: &mut Chunk,
    ) -> Result<(), StrayAnswer> {
        let operation = flight.take(answer.opaque).ok_or(StrayAnswer)?;
        if answer.kind != Some(operation.kind) {
            return Err(StrayAnswer);
        }
        let status = answer.status;
        if status != Status::Success.code() && self.is_tried_again(judge, operation, status) {
            return Ok(());
        }
        let counts = &mut self.counts;
        match operation.kind {
            OperationKind::Get => {
                counts.gets += 1;
                if status == Status::Success.code() {
                    self.verify(judge, &operation, answer);
                }
            }
            OperationKind::Set => {
                counts.sets += 1;
                counts.stored += u64::from(status == Status::Success.code());
            }
        }
        if status != Status::Success.code() {
            self.refuse(judge, &operation, answer);
        }
        if judge.from_due {
            self.record_one(operation.kind, now_ns.saturating_sub(operation.due_ns));
        } else {
            match operation.kind {
                OperationKind::Get => chunk.gets += 1,
                OperationKind::Set => chunk.sets += 1,
            }
        }
        Ok(())
    }

    fn verify(
        &mut self,
        judge: &AnswerChecker<'_>,
        operation: &KvOperation,
        answer: &KvAnswer<'_>,
    ) {
        let counts = &mut self.counts;
        counts.hits += 1;
        counts.read_bytes += answer.value.len() as u64;
        let seed = judge.collections[usize::from(operation.collection)].1;
        let identity = ValueIdentity { index: operation.index, seed };
        let verdict = match answer.is_compressed {
            false => judge.values.verify(identity, answer.value),
            true => inflate(answer.value, &mut self.inflated)
                .and_then(|value| judge.values.verify(identity, value)),
        };
        if let Err(kind) = verdict {
            let bytes = answer.value.len();
            let reason = kind.name().replace('_', " ");
            counts.corrupt(kind, || {
                format!("{}: {reason} (a value of {bytes} bytes)", judge.describe(operation))
            });
        }
    }

    /// Decides whether to retry a refused operation, and queues it for that.
    fn is_tried_again(
        &mut self,
        judge: &AnswerChecker<'_>,
        mut operation: KvOperation,
        status: u16,
    ) -> bool {
        let Err(refused) = RejectionKind::from_status(status) else { return false };
        if !refused.is_transient() {
            return false;
        }
        self.map_is_stale |= refused == RejectionKind::NotMyVbucket;
        let counts = &mut self.counts;
        counts.refuse(status);
        if operation.attempts < judge.retries_max {
            counts.retries += 1;
            operation.attempts += 1;
            self.again.push(operation);
            return true;
        }
        self.give_up(&operation);
        true
    }

    fn give_up(&mut self, operation: &KvOperation) {
        let counts = &mut self.counts;
        counts.given_up += 1;
        match operation.kind {
            OperationKind::Get => counts.gets += 1,
            OperationKind::Set => counts.sets += 1,
        }
    }

    /// Counts an operation that was refused for good.
    fn refuse(
        &mut self,
        judge: &AnswerChecker<'_>,
        operation: &KvOperation,
        answer: &KvAnswer<'_>,
    ) {
        let status = answer.status;
        let counts = &mut self.counts;
        if operation.kind == OperationKind::Get && status == Status::KeyEnoent.code() {
            counts.misses += 1;
            if !judge.misses_allowed {
                counts.example(|| format!("{}: not found", judge.describe(operation)));
            }
            return;
        }
        counts.refuse(status);
        counts.example(|| {
            let reason = match answer.line {
                [] => describe_status(status),
                line => String::from_utf8_lossy(line).into_owned(),
            };
            format!("{}: {reason}", judge.describe(operation))
        });
    }

    fn record(&mut self, chunk: &Chunk, latency_ns: u64) {
        let recent = &mut self.recorder.borrow_mut().recent;
        for (histogram, count) in [(&mut recent.read, chunk.gets), (&mut recent.write, chunk.sets)]
        {
            if count > 0 {
                histogram.saturating_record_n(latency_ns, count);
            }
        }
    }

    fn record_one(&mut self, kind: OperationKind, latency_ns: u64) {
        let recent = &mut self.recorder.borrow_mut().recent;
        match kind {
            OperationKind::Get => recent.read.saturating_record(latency_ns),
            OperationKind::Set => recent.write.saturating_record(latency_ns),
        }
    }
}

/// Decompresses a value into `out`, which grows to the largest one.
fn inflate<'a>(packed: &[u8], out: &'a mut Vec<u8>) -> Result<&'a [u8], Corruption> {
    let bad = |_| Corruption::Compression;
    let bytes = snap::raw::decompress_len(packed).map_err(bad)?;
    if bytes > VALUE_BYTES_MAX {
        return Err(Corruption::Compression);
    }
    if out.len() < bytes {
        out.resize(bytes, 0);
    }
    snap::raw::Decoder::new().decompress(packed, out).map_err(bad)?;
    Ok(&out[..bytes])
}

#[cfg(test)]
mod tests {
    //! Values that come compressed.

    use super::*;

    #[test]
    fn only_sound_compressed_values_are_inflated() {
        let mut out = Vec::new();
        let packed = snap::raw::Encoder::new().compress_vec(&[7; 1000]).unwrap();
        assert_eq!(inflate(&packed, &mut out), Ok(&[7; 1000][..]));
        assert_eq!(inflate(&packed[..5], &mut out), Err(Corruption::Compression));
        assert_eq!(inflate(&[0xff; 40], &mut out), Err(Corruption::Compression));
        // A length of 4 GiB is not plausible.
        let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
        assert_eq!(inflate(&huge, &mut out), Err(Corruption::Compression));
        assert!(out.len() <= 1000);
    }
}
