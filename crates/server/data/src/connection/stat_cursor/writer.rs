//! Appends the entries of a STAT to the output block.
//!
//! Owns: the layout of an entry. A group may have millions of entries, so one entry costs three
//! copies and no allocation. The header is made once per STAT. The part of the name that many
//! entries share is put after it once. Each entry only fills in the two length fields.
//!
//! Invariants: an entry has a name. The only answer without a name is the end of the STAT, which
//! the cursor writes. A slice ends at the first entry that brings it to its size, so it exceeds it
//! by less than one entry. A group that writes several entries before it checks may exceed it by
//! more.

use std::fmt::Display;

use itoa::Integer;
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::response::{ResponseParts, encode_response_header};
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, ScopeId};

use crate::connection::request_id::RequestId;

/// Position of the key length in a header.
const KEY_BYTES_AT: usize = 2;
/// Position of the body length in a header.
const BODY_BYTES_AT: usize = 8;
const _: () = assert!(KEY_BYTES_AT + 2 <= BODY_BYTES_AT && BODY_BYTES_AT + 4 <= HEADER_BYTES);

/// Header and name prefix of the next entries; lives as long as the STAT.
#[derive(Debug)]
pub(crate) struct EntryHead {
    bytes: Vec<u8>,
    /// Bytes before the name: a header, or the first word of a line.
    before_name: usize,
}

/// The first word of an entry in the text protocol.
const TEXT_HEAD: &[u8] = b"STAT ";
const _: () = assert!(TEXT_HEAD.len() != HEADER_BYTES, "a head tells text from frames");

impl EntryHead {
    /// Creates the head for answers to this request.
    pub fn new(request: RequestId) -> EntryHead {
        let parts = ResponseParts::new(request.opcode, Status::Success, request.opaque);
        EntryHead { bytes: encode_response_header(&parts, 0).to_vec(), before_name: HEADER_BYTES }
    }

    /// Creates the head of lines of the text protocol.
    pub fn text() -> EntryHead {
        EntryHead { bytes: TEXT_HEAD.to_vec(), before_name: TEXT_HEAD.len() }
    }
}

/// One slice of a STAT.
pub(crate) struct StatWriter<'a> {
    out: &'a mut Vec<u8>,
    head: &'a mut Vec<u8>,
    before_name: usize,
    full_at: usize,
}

impl<'a> StatWriter<'a> {
    /// Creates a writer that appends to `out` until about `slice_bytes` are written.
    pub fn new(
        out: &'a mut Vec<u8>,
        head: &'a mut EntryHead,
        slice_bytes: usize,
    ) -> StatWriter<'a> {
        let full_at = out.len().saturating_add(slice_bytes);
        let before_name = head.before_name;
        StatWriter { out, head: &mut head.bytes, before_name, full_at }
    }

    /// True when the slice should end here.
    pub fn is_full(&self) -> bool {
        self.out.len() >= self.full_at
    }

    /// True for lines of the text protocol.
    pub fn is_text(&self) -> bool {
        self.before_name == TEXT_HEAD.len()
    }

    /// The output, for lines of the text protocol that have another form.
    pub fn lines(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.is_text(), "only text has lines");
        self.out
    }

    /// Charges work with little output as if it had written `bytes` more.
    pub fn charge(&mut self, bytes: usize) {
        self.full_at = self.full_at.saturating_sub(bytes);
    }

    /// Starts the common prefix of the next entries' names; empty until it is built.
    pub fn prefix(&mut self) -> Prefix<'_> {
        debug_assert!(self.head.len() >= self.before_name, "the head of an entry stays");
        self.head.truncate(self.before_name);
        Prefix(self.head)
    }

    /// Appends an entry with text as its value.
    #[inline]
    pub fn text(&mut self, name: &str, value: &str) {
        if self.is_text() {
            self.out.extend_from_slice(self.head);
            self.out.extend_from_slice(name.as_bytes());
            for part in [b" ", value.as_bytes(), b"\r\n"] {
                self.out.extend_from_slice(part);
            }
            return;
        }
        let name_bytes = self.head.len() - HEADER_BYTES + name.len();
        debug_assert!(self.head.len() >= HEADER_BYTES, "an entry begins with its header");
        let key = u16::try_from(name_bytes).expect("names are short and made here");
        let body = u32::try_from(name_bytes + value.len()).expect("values are made here");
        self.head[KEY_BYTES_AT..KEY_BYTES_AT + 2].copy_from_slice(&key.to_be_bytes());
        self.head[BODY_BYTES_AT..BODY_BYTES_AT + 4].copy_from_slice(&body.to_be_bytes());
        self.out.extend_from_slice(self.head);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Appends an entry with a decimal number as its value.
    #[inline]
    pub fn number(&mut self, name: &str, value: impl Integer) {
        self.text(name, itoa::Buffer::new().format(value));
    }

    /// Appends an entry that is `true` or `false`.
    pub fn flag(&mut self, name: &str, value: bool) {
        self.text(name, if value { "true" } else { "false" });
    }

    /// Appends an entry with any printable value; allocates, so not for groups with many entries.
    pub fn display(&mut self, name: &str, value: impl Display) {
        self.text(name, &value.to_string());
    }
}

/// Builds the common prefix of several entries' names.
pub(crate) struct Prefix<'w>(&'w mut Vec<u8>);

impl Prefix<'_> {
    /// Appends text as it is.
    pub fn text(self, text: &str) -> Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Appends `vb_`, a vbucket's number, and a colon.
    pub fn vbucket(self, vbid: oribi_types::Vbid) -> Self {
        self.0.extend_from_slice(b"vb_");
        self.0.extend_from_slice(itoa::Buffer::new().format(vbid.0).as_bytes());
        self.0.push(b':');
        self
    }

    /// Appends a scope's id in hexadecimal digits, and a colon.
    pub fn scope(self, id: ScopeId) -> Self {
        self.hexadecimal(id.0)
    }

    /// Appends a collection's id in hexadecimal digits, and a colon.
    pub fn collection(self, id: CollectionId) -> Self {
        self.hexadecimal(id.0)
    }

    fn hexadecimal(self, id: u32) -> Self {
        self.0.extend_from_slice(HexText::new(id).as_str().as_bytes());
        self.0.push(b':');
        self
    }
}

/// An id as `0x` and hexadecimal digits without leading zeros.
pub(crate) struct HexText {
    bytes: [u8; 10],
    start: usize,
}

impl HexText {
    pub fn new(id: u32) -> HexText {
        let mut bytes = [0; 10];
        let (mut start, mut rest) = (bytes.len(), id);
        loop {
            start -= 1;
            bytes[start] = b"0123456789abcdef"[(rest & 0xf) as usize];
            rest >>= 4;
            if rest == 0 {
                break;
            }
        }
        start -= 2;
        bytes[start..start + 2].copy_from_slice(b"0x");
        debug_assert!(start < bytes.len() - 2, "a number has a digit");
        HexText { bytes, start }
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[self.start..]).expect("only digits were written")
    }
}

#[cfg(test)]
mod tests {
    use oribi_protocol::frame::{DecodedFrame, decode};
    use oribi_types::{CollectionId, Vbid};
    use proptest::prelude::*;

    use super::{EntryHead, HexText, StatWriter};
    use crate::connection::request_id::RequestId;

    #[test]
    fn entries_are_frames_with_prefix_name_and_value() {
        let mut head = EntryHead::new(RequestId { opcode: 0x10, opaque: 77 });
        let mut out = b"before".to_vec();
        let mut writer = StatWriter::new(&mut out, &mut head, 100);
        writer.prefix().vbucket(Vbid(12)).collection(CollectionId(0x1f));
        writer.number("items", 5_u64);
        assert!(!writer.is_full());
        writer.prefix();
        writer.flag("x", true);
        writer.charge(60);
        assert!(writer.is_full());
        let mut rest = &out[6..];
        for (name, value) in [("vb_12:0x1f:items", "5"), ("x", "true")] {
            let Ok(DecodedFrame::Complete { frame, consumed }) = decode(rest) else { panic!() };
            assert_eq!((frame.key, frame.value), (name.as_bytes(), value.as_bytes()));
            assert_eq!((frame.header.opcode, frame.header.opaque), (0x10, 77));
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty());
    }

    proptest! {
        #[test]
        fn hexadecimal_text_is_that_of_the_standard_library(id: u32) {
            prop_assert_eq!(HexText::new(id).as_str().to_owned(), format!("{id:#x}"));
        }
    }
}
