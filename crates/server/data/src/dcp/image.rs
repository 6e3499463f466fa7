//! Messages of one part of a backfill, encoded once for all connections that send the same
//! messages.
//!
//! Owns: the bytes of the messages, where each ends, and in which form they are. Consumers with
//! equal options get equal messages but for the opaque. So the first connection that sends a part
//! makes its messages and leaves them with the part. A connection with the same opaques sends them
//! from there, and one with others copies them and writes its opaque into each. A connection with
//! other options makes its own messages, as for changes from memory.
//!
//! Invariant: message `i` is that of change `i` of the part, and empty if that is an event. The
//! engine counts the bytes while the part is there, the connection while they wait to be sent.

use std::ops::Range;
use std::sync::Arc;

use oribi_engine::dcp::{BackfillPart, StreamChange};
use oribi_protocol::dcp::StreamHead;
use oribi_protocol::dcp::open::OpenFlags;
use oribi_protocol::frame::set_opaque;
use oribi_protocol::limits::{GATHER_VALUE_BYTES_MIN, HEADER_BYTES};

use super::frames::{DamagedDocument, FrameWriter};
use crate::connection::features::Features;
use crate::connection::send_buffer::{PinnedValue, SendBuffer};

/// Bytes of a message without key and value, about.
const FRAME_BYTES: usize = 64;

/// All that the messages of a change depend on, except the opaque and the vbucket, which is the
/// part's.
#[derive(PartialEq, Eq, Debug)]
struct Form {
    flags: OpenFlags,
    features: Features,
    compresses: bool,
    expirations: bool,
    stream_id: Option<u16>,
}

impl Form {
    fn of(writer: &FrameWriter<'_>, stream: StreamHead) -> Form {
        Form {
            flags: writer.flags,
            features: writer.features,
            compresses: writer.options.compresses,
            expirations: writer.options.expirations,
            stream_id: stream.stream_id,
        }
    }
}

/// See the module text.
pub(crate) struct Image {
    form: Form,
    opaque: u32,
    messages: Arc<Vec<u8>>,
    /// Where each message ends.
    ends: Vec<u32>,
}

impl Image {
    /// The messages of a run; `None` when the connection has to make them one by one.
    pub fn of(
        part: &BackfillPart<'_>,
        writer: &FrameWriter<'_>,
        stream: StreamHead,
    ) -> Option<Arc<Image>> {
        let made = part.made_once(|| {
            // A part with a damaged document has none; the stream fails when it comes to it. One
            // with a large document has none either.
            let made = Image::make(part, writer, stream).ok();
            let bytes = made.as_ref().map_or(0, |image| image.messages.capacity());
            (made.map(Arc::new), bytes)
        })?;
        let image = Option::clone(&made)?;
        (image.form == Form::of(writer, stream)).then_some(image)
    }

    fn make(
        part: &BackfillPart<'_>,
        writer: &FrameWriter<'_>,
        stream: StreamHead,
    ) -> Result<Image, DamagedDocument> {
        let documents = || (0..part.whole_len()).map(|index| part.document(index));
        let records = || documents().flatten().map(|document| document.record);
        let bytes = records().map(|it| FRAME_BYTES + it.key.key.len() + it.value.len()).sum();
        let mut out = SendBuffer::new();
        out.tail().reserve_exact(bytes);
        let mut ends = Vec::with_capacity(part.whole_len());
        for document in documents() {
            if let Some(document) = document {
                writer.change(&mut out, stream, &StreamChange::Document(document))?;
            }
            let end = u32::try_from(out.tail().len());
            ends.push(end.expect("a part is 64 KiB, or one document"));
        }
        if out.holds_pinned() {
            // One of them becomes large when it is inflated. Each connection sends it by itself.
            return Err(DamagedDocument);
        }
        assert_eq!(ends.len(), part.whole_len(), "each document of the part has an end");
        let messages = Arc::new(std::mem::take(out.tail()));
        debug_assert!(ends.is_sorted(), "messages follow each other");
        Ok(Image { form: Form::of(writer, stream), opaque: stream.opaque, messages, ends })
    }

    /// How many messages of `range` fit: at least one, and as many as begin within `room` bytes.
    pub fn fitting(&self, range: Range<usize>, room: u64) -> usize {
        debug_assert!(range.end <= self.ends.len(), "a run ends inside its part");
        let begin = u64::from(self.begin_of(range.start));
        let ends = &self.ends[range];
        let fitting = ends.partition_point(|end| u64::from(*end) - begin < room) + 1;
        fitting.min(ends.len())
    }

    /// Appends messages of a stream, and returns their bytes.
    pub fn append(&self, range: Range<usize>, stream: StreamHead, out: &mut SendBuffer) -> usize {
        debug_assert!(range.end <= self.ends.len(), "a run ends inside its part");
        let part = self.begin_of(range.start)..self.begin_of(range.end);
        debug_assert!(part.end as usize <= self.messages.len(), "an end is inside the messages");
        let bytes = (part.end - part.start) as usize;
        if stream.opaque == self.opaque && bytes >= GATHER_VALUE_BYTES_MIN {
            out.pin(PinnedValue::Messages(Arc::clone(&self.messages), part));
            return bytes;
        }
        let tail = out.tail();
        let begin = tail.len();
        tail.extend_from_slice(&self.messages[part.start as usize..part.end as usize]);
        if stream.opaque != self.opaque {
            for index in range {
                let at = begin + (self.begin_of(index) - part.start) as usize;
                set_opaque(&mut tail[at..at + HEADER_BYTES], stream.opaque);
            }
        }
        bytes
    }

    fn begin_of(&self, index: usize) -> u32 {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}
