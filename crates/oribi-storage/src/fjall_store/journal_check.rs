//! Looks at the journals before fjall does, because fjall is too forgiving with them.
//!
//! fjall replays a journal up to the first entry that it cannot read, cuts the file off there and
//! goes on. That is right after a crash, whose unfinished last batch was never acknowledged, and
//! wrong after damage: acknowledged batches behind it would silently be gone for good. This
//! module walks the entries without decoding them and tells the two apart, before anything is cut.
//!
//! Owns: the rule. A crash leaves entries in the order in which they were written, and then nothing
//! (the end of the file, or the zeros that it was made with). So an entry of an unknown kind, entries
//! or batches in an impossible order, a complete batch with a wrong checksum, or an end-of-batch
//! marker behind an entry that cannot be read are damage. A journal that was cut at exactly the
//! end of a batch cannot be told from a shorter one.
//!
//! The format is that of fjall 3.1, to which the workspace is pinned; the tests of this crate write
//! journals with that version and damage them.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3Default;

use super::failure::io_error;
use crate::StoreError;

/// Tags of entries; 0 is where a journal has not been written yet.
const UNWRITTEN: u8 = 0;
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;

/// Start of a batch behind its tag: number of items u32, fjall's own sequence number u64, which
/// rises from batch to batch.
const START_BYTES: usize = 12;
/// Item behind its tag: kind, compression, keyspace u64, key length u16, value length u32, stored
/// value length u32; then the key and the stored value.
const ITEM_BYTES: usize = 20;
const ITEM_KIND_AT: usize = 0;
const ITEM_COMPRESSION_AT: usize = 1;
const ITEM_KEY_BYTES_AT: usize = 10;
const ITEM_STORED_BYTES_AT: usize = 16;
/// Highest kind of an item, and highest number of a compression.
const ITEM_KIND_MAX: u8 = 4;
const ITEM_COMPRESSION_MAX: u8 = 1;
/// End of a batch behind its tag: checksum u64 (XXH3 of the entries between) and the trailer.
const END_BYTES: usize = 12;
const END_TRAILER_AT: usize = 8;
const END_TRAILER: &[u8; 4] = b"FJL\x03";
/// Removal of a keyspace's content behind its tag: keyspace u64.
const CLEAR_BYTES: usize = 8;

/// Unit in which the system writes files back.
const PAGE_BYTES: u64 = 4096;
/// Zeros that are enough to say that nothing was written: more than stand in a row in an entry's
/// numbers.
const UNWRITTEN_BYTES_MIN: u64 = 64;

/// Large, because journals are read from beginning to end.
const READ_BYTES: usize = 256 * 1024;

/// Checks every journal in the directory of a complete store. Changes nothing.
pub(super) fn check_journals(directory: &Path) -> Result<(), StoreError> {
    let mut journals = 0;
    for entry in directory.read_dir().map_err(|error| io_error(&error))? {
        let path = entry.map_err(|error| io_error(&error))?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            journals += 1;
            check_journal(&path)?;
        }
    }
    match journals {
        0 => Err(StoreError::Corrupt(format!("{}: no journal", directory.display()))),
        _ => Ok(()),
    }
}

/// How the walk through a journal ended.
enum Walk {
    /// Where nothing more was written.
    Ended,
    /// At an entry that is cut off or unreadable, which a crash may have left.
    CutOff,
    /// At something that no crash leaves.
    Damaged(&'static str),
}

fn check_journal(path: &Path) -> Result<(), StoreError> {
    let file = File::open(path).map_err(|error| io_error(&error))?;
    let file_bytes = file.metadata().map_err(|error| io_error(&error))?.len();
    let mut journal = Journal {
        reader: BufReader::with_capacity(READ_BYTES, file),
        at: 0,
        file_bytes,
        items_left: None,
        last_seqno: None,
        checksum: Xxh3Default::new(),
        body: Vec::new(),
    };
    let mut entry_at = 0;
    let walk = loop {
        match journal.entry().map_err(|error| io_error(&error))? {
            Some(walk) => break walk,
            None => entry_at = journal.at,
        }
    };
    let what = match walk {
        Walk::Ended => return Ok(()),
        Walk::Damaged(what) => what,
        Walk::CutOff if journal.has_end_marker(entry_at).map_err(|error| io_error(&error))? => {
            "an unreadable entry with whole batches behind it"
        }
        Walk::CutOff => return Ok(()),
    };
    let text = format!(
        "{}: {what} at offset {entry_at} (after a power loss, see accept-damaged-journal)",
        path.display()
    );
    Err(StoreError::Corrupt(text))
}

struct Journal {
    reader: BufReader<File>,
    at: u64,
    file_bytes: u64,
    /// Items that the open batch still has to have; `None` between batches.
    items_left: Option<u32>,
    last_seqno: Option<u64>,
    /// Of the entries of the open batch.
    checksum: Xxh3Default,
    /// Key and value of an item, here only to be kept between items.
    body: Vec<u8>,
}

impl Journal {
    /// Walks over one entry; `Some` when that is where the walk ends.
    fn entry(&mut self) -> std::io::Result<Option<Walk>> {
        let Some([tag]) = self.read::<1>()? else { return Ok(Some(Walk::Ended)) };
        match (tag, self.items_left) {
            (UNWRITTEN, _) => self.unwritten().map(Some),
            (START, None) => self.start(),
            (ITEM, Some(left)) if left > 0 => {
                self.items_left = Some(left - 1);
                self.item()
            }
            (CLEAR, Some(left)) if left > 0 => {
                self.items_left = Some(left - 1);
                let Some(clear) = self.read::<CLEAR_BYTES>()? else { return cut_off() };
                self.checksum.update(&[CLEAR]);
                self.checksum.update(&clear);
                Ok(None)
            }
            (END, Some(0)) => self.end(),
            (START | ITEM | END | CLEAR, _) => Ok(Some(Walk::Damaged("an entry out of order"))),
            _ => Ok(Some(Walk::Damaged("an entry of an unknown kind"))),
        }
    }

    fn start(&mut self) -> std::io::Result<Option<Walk>> {
        let Some(start) = self.read::<START_BYTES>()? else { return cut_off() };
        let (items, seqno) = start.split_at(4);
        let number = |bytes: &[u8]| {
            bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let seqno = Some(number(seqno));
        if seqno <= self.last_seqno {
            return Ok(Some(Walk::Damaged("a batch out of order")));
        }
        self.last_seqno = seqno;
        self.items_left = u32::try_from(number(items)).ok();
        self.checksum.reset();
        Ok(None)
    }

    fn end(&mut self) -> std::io::Result<Option<Walk>> {
        let Some(end) = self.read::<END_BYTES>()? else { return cut_off() };
        let (checksum, trailer) = end.split_at(END_TRAILER_AT);
        if trailer != END_TRAILER {
            return cut_off();
        }
        if checksum != self.checksum.digest().to_le_bytes() {
            return Ok(Some(Walk::Damaged("a batch with a wrong checksum")));
        }
        self.items_left = None;
        Ok(None)
    }

    /// Behind a zero instead of a tag: unwritten when the whole rest of the disk page is zero, and
    /// a little more where little is left of it. A page that never reached the disk looks like
    /// this too, and what stands behind it was then written by the same, unacknowledged group.
    fn unwritten(&mut self) -> std::io::Result<Walk> {
        let rest_of_page = PAGE_BYTES - self.at % PAGE_BYTES;
        let looked_at = rest_of_page.max(UNWRITTEN_BYTES_MIN);
        let mut bytes = Vec::new();
        self.reader.by_ref().take(looked_at).read_to_end(&mut bytes)?;
        match bytes.iter().all(|byte| *byte == 0) {
            true => Ok(Walk::Ended),
            false => Ok(Walk::CutOff),
        }
    }

    fn item(&mut self) -> std::io::Result<Option<Walk>> {
        let Some(item) = self.read::<ITEM_BYTES>()? else { return cut_off() };
        let number = |at: usize| u64::from(item[at]);
        let key_bytes = number(ITEM_KEY_BYTES_AT) | number(ITEM_KEY_BYTES_AT + 1) << 8;
        let stored_bytes = (0..4).map(|byte| number(ITEM_STORED_BYTES_AT + byte) << (8 * byte));
        let body_bytes = key_bytes + stored_bytes.sum::<u64>();
        let is_known = item[ITEM_KIND_AT] <= ITEM_KIND_MAX
            && item[ITEM_COMPRESSION_AT] <= ITEM_COMPRESSION_MAX
            && self.at + body_bytes <= self.file_bytes;
        if !is_known {
            return cut_off();
        }
        self.body.clear();
        let read = self.reader.by_ref().take(body_bytes).read_to_end(&mut self.body)?;
        self.at += read as u64;
        self.checksum.update(&[ITEM]);
        self.checksum.update(&item);
        self.checksum.update(&self.body);
        Ok(None)
    }

    /// The next `N` bytes, or `None` when the file ends before them.
    fn read<const N: usize>(&mut self) -> std::io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => {
                self.at += N as u64;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True when an end-of-batch marker stands anywhere from `offset` on. Only read when something
    /// is wrong, and then from the file once more.
    fn has_end_marker(&mut self, offset: u64) -> std::io::Result<bool> {
        const MARKER_BYTES: usize = 1 + END_BYTES;
        self.reader.seek(SeekFrom::Start(offset))?;
        let mut window: Vec<u8> = Vec::new();
        loop {
            let kept = window.len().min(MARKER_BYTES - 1);
            window.drain(..window.len() - kept);
            let read = self.reader.by_ref().take(READ_BYTES as u64).read_to_end(&mut window)?;
            let is_marker =
                |bytes: &[u8]| bytes[0] == END && &bytes[1 + END_TRAILER_AT..] == END_TRAILER;
            if window.windows(MARKER_BYTES).any(is_marker) {
                return Ok(true);
            }
            if read == 0 {
                return Ok(false);
            }
        }
    }
}

fn cut_off() -> std::io::Result<Option<Walk>> {
    Ok(Some(Walk::CutOff))
}
