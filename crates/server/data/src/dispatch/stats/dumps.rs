//! `stats cachedump` and `lru_crawler metadump`: a line for each document in memory.
//!
//! Owns: the form of these lines, which memcached's tools read, and the walk. Invariants: a step
//! looks at some groups of one table, so neither the lock nor a slice grows with the bucket; a dump
//! that memcached bounds is bounded to as many bytes. A document that is written during the walk
//! may be missing, and one may be listed twice when a table grows. Documents that were evicted
//! whole are not listed.

use std::io::Write;
use std::sync::Arc;

use oribi_engine::{ItemRef, WalkCursor};
use oribi_types::{CollectionId, Timestamp, Vbid};

use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::{StatProducer, StatWriter};

/// Longest answer to `stats cachedump`, as in memcached.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;
/// Cost of one step, in bytes of output.
const STEP_CHARGE: usize = 256;

/// How documents are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DumpForm {
    /// `ITEM key [size b; expiry s]`
    Cachedump,
    /// `key=... exp=...`, with the key escaped as in a URI.
    Metadump,
}

/// A dump in progress.
pub(super) struct Dump {
    bucket: Arc<BucketHandle>,
    collection: CollectionId,
    now: Timestamp,
    form: DumpForm,
    vbid: Vbid,
    cursor: WalkCursor,
    lines_left: u64,
    bytes_left: usize,
}

impl Dump {
    /// The dump of this group, if it is one. `argument` is what memcached's clients send: for a
    /// `cachedump` a class, and the number of documents or 0.
    pub fn named(
        group: &str,
        argument: &str,
        (bucket, collection): (&Arc<BucketHandle>, CollectionId),
        now: Timestamp,
    ) -> Option<Dump> {
        let (form, limit, bytes_left) = match group {
            "cachedump" => {
                let limit = argument.split_whitespace().nth(1)?.parse::<u64>().ok()?;
                // memcached keeps 32 bits.
                (DumpForm::Cachedump, limit as u32, CACHEDUMP_BYTES_MAX)
            }
            "metadump" => (DumpForm::Metadump, 0, usize::MAX),
            _ => return None,
        };
        Some(Dump {
            bucket: Arc::clone(bucket),
            collection,
            now,
            form,
            vbid: Vbid(0),
            cursor: WalkCursor::default(),
            lines_left: if limit == 0 { u64::MAX } else { u64::from(limit) },
            bytes_left,
        })
    }

    /// Visits some documents; true when that was the last step.
    fn step(&mut self, out: &mut Vec<u8>) -> bool {
        debug_assert!(self.vbid.0 < self.bucket.vbuckets(), "a dump ends after the last vbucket");
        let Dump { bucket, cursor, lines_left, bytes_left, .. } = self;
        let form = self.form;
        let visit = &mut |item: &ItemRef| {
            let begin = out.len();
            if *lines_left == 0 || !write_line(out, form, item) {
                return;
            }
            *lines_left -= 1;
            let bytes = out.len() - begin;
            if bytes > *bytes_left {
                out.truncate(begin);
                *lines_left = 0;
            }
            *bytes_left = bytes_left.saturating_sub(bytes);
        };
        let vbucket = bucket.bucket().vbucket(self.vbid);
        let is_walked = vbucket
            .is_none_or(|vbucket| vbucket.walk_documents(self.collection, cursor, self.now, visit));
        if is_walked {
            self.vbid = Vbid(self.vbid.0 + 1);
            self.cursor = WalkCursor::default();
        }
        self.lines_left == 0 || self.vbid.0 >= self.bucket.vbuckets()
    }
}

impl StatProducer for Dump {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        while !writer.is_full() {
            if self.step(writer.lines()) {
                return true;
            }
            writer.charge(STEP_CHARGE);
        }
        false
    }
}

/// Appends the line of a document; false for a key that the form cannot show.
fn write_line(out: &mut Vec<u8>, form: DumpForm, item: &ItemRef) -> bool {
    let key = item.key().key;
    let result = match form {
        DumpForm::Cachedump => {
            // A key of another protocol may have bytes that end a word or a line.
            if key.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
                return false;
            }
            out.extend_from_slice(b"ITEM ");
            out.extend_from_slice(key);
            let bytes = item.plain_body_bytes().unwrap_or_default();
            write!(out, " [{bytes} b; {} s]\r\n", item.expiry())
        }
        DumpForm::Metadump => {
            out.extend_from_slice(b"key=");
            escape(out, key);
            let expiry = if item.expiry() == 0 { -1 } else { i64::from(item.expiry()) };
            // A CAS is a clock in nanoseconds.
            let written_s = item.cas().0 / 1_000_000_000;
            let fetched = if item.frequency() > 0 { "yes" } else { "no" };
            let (cas, size) = (item.cas().0, item.block_bytes());
            writeln!(
                out,
                " exp={expiry} la={written_s} cas={cas} fetch={fetched} cls=1 size={size}"
            )
        }
    };
    result.is_ok()
}

/// Appends a key with all bytes but the unreserved ones of a URI as `%XX`, as memcached does.
fn escape(out: &mut Vec<u8>, key: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in key {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            byte => out.extend_from_slice(&[
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 0xf)],
            ]),
        }
    }
}
