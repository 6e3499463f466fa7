//! Walks through a segment from beginning to end.
//!
//! Owns: the read-ahead buffer and every check of the bytes read. Invariants: a length is compared
//! with the rest of its frame or file before it is used; a record is shown only after its checksum
//! was right, unless the caller checks the few that it needs; reading stops at the first damage and
//! says where. It allocates per segment and for records larger than the buffer, never per record.
//! Callers: opening, warmup and compaction.

use std::io;
use std::sync::Arc;

use super::files::LogFile;
use super::layout::{
    FRAME_HEADER_BYTES, FRAME_TRAILER_BYTES, FrameChecksum, FrameHeader, RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES, StoredRecord, decode_record, decode_unchecked, stored_bytes_of,
};
use super::planted::{Bug, PlantedBug};

/// Large, because segments are read from beginning to end.
const READ_BYTES: usize = 1 << 20;
const _: () = assert!(FRAME_HEADER_BYTES <= READ_BYTES && RECORD_HEADER_BYTES <= READ_BYTES);

/// Why a segment cannot be read on.
#[derive(Debug)]
pub(super) enum ReadFault {
    Io(io::Error),
    /// The bytes at this offset differ from the written ones.
    Bad {
        offset: u64,
        what: &'static str,
    },
    /// A whole frame of a later release, which this one must neither use nor cut off.
    Foreign(String),
}

/// One step through a segment.
#[derive(Debug)]
pub(super) enum Step<'a> {
    Frame {
        header: FrameHeader,
        at: u64,
    },
    /// A record of it, at this offset.
    Record {
        at: u64,
        raw: &'a [u8],
        stored: StoredRecord<'a>,
    },
    /// The frame is whole; the next one is at this offset.
    FrameEnd {
        next: u64,
    },
    End,
}

struct OpenFrame {
    payload_end: u64,
    records_left: u32,
    checksum: FrameChecksum,
}

pub(super) struct SegmentReader {
    file: Arc<dyn LogFile>,
    id: u32,
    seed: u64,
    end: u64,
    /// Offset of what comes next.
    at: u64,
    buffer: Vec<u8>,
    /// The next part, in the buffer.
    start: usize,
    frame: Option<OpenFrame>,
    /// Records are shown before their checksum was compared; the frame's own is compared anyway.
    is_lazy: bool,
    planted: PlantedBug,
}

impl SegmentReader {
    /// Reads from the first frame to offset `end`.
    pub(super) fn new(
        file: Arc<dyn LogFile>,
        id: u32,
        seed: u64,
        end: u64,
        planted: PlantedBug,
    ) -> SegmentReader {
        SegmentReader {
            is_lazy: false,
            planted,
            file,
            id,
            seed,
            end,
            at: SEGMENT_HEADER_BYTES as u64,
            buffer: Vec::new(),
            start: 0,
            frame: None,
        }
    }

    /// Leaves it to the caller to check the records that matter, with [`decode_record`].
    pub(super) fn lazy(self) -> SegmentReader {
        SegmentReader { is_lazy: true, ..self }
    }

    /// Reads on at a frame that begins at `offset`.
    pub(super) fn jump(&mut self, offset: u64) {
        self.at = offset;
        self.buffer.clear();
        self.start = 0;
        self.frame = None;
    }

    /// The first frame of this segment that begins at `from` or after it.
    pub(super) fn find_frame(&self, from: u64) -> io::Result<Option<u64>> {
        let id = self.id;
        find_frame(&*self.file, self.seed, from, &mut |header| header.segment == id)
    }

    /// Offset of what comes next.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    pub(super) fn next(&mut self) -> Result<Step<'_>, ReadFault> {
        match &self.frame {
            None if self.at >= self.end => Ok(Step::End),
            None => self.frame_header(),
            Some(frame) if self.at < frame.payload_end => self.record(),
            Some(_) => self.frame_end(),
        }
    }

    fn frame_header(&mut self) -> Result<Step<'_>, ReadFault> {
        let (at, seed) = (self.at, self.seed);
        self.fill(FRAME_HEADER_BYTES)?;
        let bytes = &self.buffer[self.start..self.start + FRAME_HEADER_BYTES];
        let Some(header) = FrameHeader::decode(bytes, seed, at) else {
            return Err(ReadFault::Bad { offset: at, what: "no frame header" });
        };
        if header.segment != self.id {
            return Err(ReadFault::Bad { offset: at, what: "a frame of another segment" });
        }
        let payload_at = at + FRAME_HEADER_BYTES as u64;
        let frame_end = payload_at
            .checked_add(header.payload_bytes)
            .and_then(|end| end.checked_add(FRAME_TRAILER_BYTES as u64));
        if frame_end.is_none_or(|end| end > self.end) {
            return Err(ReadFault::Bad { offset: at, what: "a frame that is cut off" });
        }
        let encoded = bytes.first_chunk().expect("the slice has the length of a header");
        self.frame = Some(OpenFrame {
            payload_end: payload_at + header.payload_bytes,
            records_left: header.records,
            checksum: FrameChecksum::begin(encoded),
        });
        self.advance(FRAME_HEADER_BYTES);
        Ok(Step::Frame { header, at })
    }

    fn record(&mut self) -> Result<Step<'_>, ReadFault> {
        let at = self.at;
        let bad = |what| ReadFault::Bad { offset: at, what };
        let (payload_end, records_left) =
            self.frame.as_ref().map_or((0, 0), |frame| (frame.payload_end, frame.records_left));
        let left = payload_end - at;
        if records_left == 0 || left < RECORD_HEADER_BYTES as u64 {
            return Err(bad("a record that does not fit into its frame"));
        }
        self.fill(RECORD_HEADER_BYTES)?;
        let head = self.buffer[self.start..].first_chunk().expect("the buffer was just filled");
        let stored_bytes = stored_bytes_of(head);
        if stored_bytes > left {
            return Err(bad("a record that is longer than its frame"));
        }
        let stored_bytes = stored_bytes as usize;
        self.fill(stored_bytes)?;
        let start = self.start;
        self.advance(stored_bytes);
        let raw = &self.buffer[start..start + stored_bytes];
        let (stored, checksum) = match self.is_lazy || self.planted.has(Bug::IgnoresChecksums) {
            false => decode_record(raw).map_err(bad)?,
            true => decode_unchecked(raw).map_err(bad)?,
        };
        if let Some(frame) = &mut self.frame {
            assert!(frame.records_left > 0, "a frame has the records that it announced");
            frame.records_left -= 1;
            frame.checksum.add(checksum);
        }
        Ok(Step::Record { at, raw, stored })
    }

    fn frame_end(&mut self) -> Result<Step<'_>, ReadFault> {
        let at = self.at;
        self.fill(FRAME_TRAILER_BYTES)?;
        let trailer = &self.buffer[self.start..self.start + FRAME_TRAILER_BYTES];
        let is_whole = self
            .frame
            .take()
            .is_some_and(|frame| frame.records_left == 0 && frame.checksum.trailer() == trailer);
        if !is_whole && !self.planted.has(Bug::IgnoresChecksums) {
            return Err(ReadFault::Bad { offset: at, what: "a frame with a wrong checksum" });
        }
        self.advance(FRAME_TRAILER_BYTES);
        Ok(Step::FrameEnd { next: self.at })
    }

    fn advance(&mut self, bytes: usize) {
        debug_assert!(
            self.start + bytes <= self.buffer.len(),
            "bytes are read before they are skipped"
        );
        self.start += bytes;
        self.at += bytes as u64;
    }

    /// Has at least `wanted` bytes in the buffer. The caller has checked that a frame has them; the
    /// file may still be shorter than it was.
    fn fill(&mut self, wanted: usize) -> Result<(), ReadFault> {
        debug_assert!(self.start <= self.buffer.len(), "the position is within the buffer");
        let have = self.buffer.len() - self.start;
        if have >= wanted {
            return Ok(());
        }
        let cut_off = ReadFault::Bad { offset: self.at, what: "the end of the file" };
        let left = self.end - self.at;
        if left < wanted as u64 {
            return Err(cut_off);
        }
        debug_assert!(left >= have as u64, "buffered bytes are of the segment");
        self.buffer.copy_within(self.start.., 0);
        self.start = 0;
        let length = (wanted.max(READ_BYTES) as u64).min(left) as usize;
        self.buffer.resize(length, 0);
        let offset = self.at + have as u64;
        let read = self.file.read_at(&mut self.buffer[have..], offset).map_err(ReadFault::Io)?;
        self.buffer.truncate(have + read);
        if self.buffer.len() < wanted { Err(cut_off) } else { Ok(()) }
    }
}

/// The first frame header at `from` or after it, at any multiple of a unit, that `is_wanted`. Only
/// used when something is wrong: it looks at every place of the rest of the segment.
pub(super) fn find_frame(
    file: &dyn LogFile,
    seed: u64,
    from: u64,
    is_wanted: &mut dyn FnMut(&FrameHeader) -> bool,
) -> io::Result<Option<u64>> {
    let unit = super::layout::UNIT_BYTES;
    let mut at = from.next_multiple_of(unit);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read_at(&mut buffer, at)?;
        let places = (read + 1).saturating_sub(FRAME_HEADER_BYTES);
        for place in (0..places).step_by(unit as usize) {
            let found = FrameHeader::decode(&buffer[place..], seed, at + place as u64);
            if found.is_some_and(|header| is_wanted(&header)) {
                return Ok(Some(at + place as u64));
            }
        }
        if read < buffer.len() {
            return Ok(None);
        }
        debug_assert!(places > 0, "a full buffer has a place for a header");
        at += (places as u64).next_multiple_of(unit);
    }
}
