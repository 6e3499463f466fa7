//! From an archive to the lanes of a restore: files are read ahead, inflated block by block, and
//! each block goes to every lane.
//!
//! Two threads: one reads files, one inflates. Memory: the files that are read, wait and are
//! inflated, one of each, and the blocks that lanes have not worked off. Memory of both is used
//! again. A lane that is slow lets the others wait once its queue is full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc as threads;

use anyhow::anyhow;
use oribi_backup::chain::Chain;
use oribi_backup::{Archive, ArchiveError, ArchiveRecord};
use oribi_client::Bytes;
use tokio::sync::mpsc;

/// Blocks between the thread that inflates and each lane.
const QUEUE: usize = 4;

/// Blocks that are remembered because their memory may be used again: those in a queue, and those
/// that lanes have in flight.
const USED: usize = 2 * QUEUE;

/// Records of a segment, inflated.
#[derive(Clone)]
pub struct RestoreBlock {
    /// Which of the chain's segments.
    pub segment: usize,
    /// How many there are.
    records: u64,
    bytes: Bytes,
}

/// Input of a lane.
pub type LaneInput = Result<RestoreBlock, Arc<ArchiveError>>;

impl RestoreBlock {
    /// Its records of the vbuckets that are `number` modulo `lanes`. The others are passed over
    /// without being decoded.
    pub fn records(&self, number: u16, lanes: u16) -> SegmentRecords<'_> {
        SegmentRecords { rest: &self.bytes, left: self.records, number, lanes }
    }

    /// A part of a record of this block, sharing its memory.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

pub struct SegmentRecords<'a> {
    rest: &'a [u8],
    /// Records that the block still has to have.
    left: u64,
    number: u16,
    lanes: u16,
}

impl<'a> Iterator for SegmentRecords<'a> {
    type Item = anyhow::Result<ArchiveRecord<'a>>;

    fn next(&mut self) -> Option<anyhow::Result<ArchiveRecord<'a>>> {
        while !self.rest.is_empty() {
            self.left = self.left.wrapping_sub(1);
            match ArchiveRecord::peek(self.rest) {
                Ok((vbid, length)) if vbid.0 % self.lanes != self.number => {
                    self.rest = &self.rest[length..];
                }
                _ => {
                    return Some(
                        ArchiveRecord::decode(&mut self.rest).map_err(anyhow::Error::from),
                    );
                }
            }
        }
        let missing = std::mem::take(&mut self.left);
        (missing > 0).then(|| Err(anyhow!("a block lacks {missing} records")))
    }
}

/// Reads all segments of a chain for so many lanes.
pub fn read(
    archive: &Arc<Archive>,
    chain: &Arc<Chain>,
    lanes: u16,
) -> Vec<mpsc::Receiver<LaneInput>> {
    let (files, read) = mpsc::channel(1);
    let (inflated, spare) = threads::channel();
    let (from, of) = (archive.clone(), chain.clone());
    tokio::task::spawn_blocking(move || {
        for segment in 0..of.segments() {
            // Without a receiver the restore has ended.
            let memory = spare.try_recv().unwrap_or_default();
            if files.blocking_send((segment, of.read(&from, segment, memory))).is_err() {
                return;
            }
        }
    });
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..lanes).map(|_| mpsc::channel(QUEUE)).unzip();
    let chain = chain.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = inflate(&chain, read, &inflated, &senders) {
            let error = Arc::new(error);
            for lane in &senders {
                let _ = lane.blocking_send(Err(error.clone()));
            }
        }
    });
    receivers
}

fn inflate(
    chain: &Chain,
    mut files: mpsc::Receiver<(usize, Result<Vec<u8>, ArchiveError>)>,
    inflated: &threads::Sender<Vec<u8>>,
    lanes: &[mpsc::Sender<LaneInput>],
) -> Result<(), ArchiveError> {
    // Blocks whose memory is used again once all lanes are through with them.
    let mut used: VecDeque<Bytes> = VecDeque::new();
    while let Some((segment, file)) = files.blocking_recv() {
        let file = file?;
        let opened = chain.open(segment, &file)?;
        let mut blocks = opened.blocks()?;
        loop {
            let oldest = used.front().is_some_and(Bytes::is_unique).then(|| used.pop_front());
            let mut plain = oldest.flatten().map_or_else(Vec::new, Vec::from);
            let Some(records) = blocks.inflate_next(&mut plain)? else { break };
            let bytes = Bytes::from(plain);
            used.push_back(bytes.clone());
            if used.len() > USED {
                used.pop_front();
            }
            let block = RestoreBlock { segment, records, bytes };
            for lane in lanes {
                if lane.blocking_send(Ok(block.clone())).is_err() {
                    return Ok(());
                }
            }
        }
        // The thread that reads may have read all files.
        let _ = inflated.send(file);
    }
    Ok(())
}
