//! The line of a large document, made in pieces.
//!
//! Owns: the reference to the document, and how far its line is made. The value stays where it is,
//! in its block or in the copy of a backfill, and is encoded piece by piece as the client takes the
//! line. A compressed value is inflated in pieces, and once before to find out whether it is JSON.
//!
//! Invariant: all pieces together are the line that [`super::line::write_document`] makes, except
//! that spaces after a compressed JSON value stay.

use std::io::{self, Read};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oribi_engine::ItemRef;
use oribi_engine::compression::Inflater;
use oribi_engine::dcp::{ChangedDocument, SharedRecord};
use oribi_protocol::change_line::in_one_line;
use oribi_protocol::change_token::Position;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_subdoc::json::is_json;
use oribi_types::Datatype;
use serde::de::IgnoredAny;

use super::line::{Extent, line_of, xattrs_of};
use super::names::Names;
use crate::connection::memory::Reservation;
use crate::dcp::frames::{DamagedDocument, parts};

/// Bytes of a value that are encoded at once: whole groups of base64.
const STEP_BYTES: usize = 3 * 1024;
const _: () = assert!(STEP_BYTES.is_multiple_of(3), "a step is whole groups of base64");

/// Where the value stays.
enum Place {
    Item(ItemRef),
    Record(SharedRecord),
}

impl Place {
    fn value(&self) -> &[u8] {
        match self {
            Place::Item(item) => item.value(),
            Place::Record(record) => record.value(),
        }
    }
}

/// See the module text.
pub struct LargeLine {
    place: Place,
    /// The value without attributes, and for JSON without spaces around it.
    body: Range<usize>,
    inflating: Option<Box<Inflater>>,
    is_json: bool,
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Bytes of the value, inflated, that are in pieces.
    made: usize,
    /// Bytes of an incomplete group of base64.
    rest: Vec<u8>,
    /// The reservation for the block.
    _reservation: Option<Reservation>,
}

impl LargeLine {
    /// The line of a mutation with its value; `None` when the document cannot be kept in its place.
    pub fn new(
        document: &ChangedDocument<'_>,
        position: &Position,
        extent: Extent,
        names: &Names,
        reservation: Option<Reservation>,
    ) -> Result<Option<LargeLine>, DamagedDocument> {
        let place = match (document.item, document.copied) {
            (Some(item), _) => Place::Item(item.clone()),
            (None, Some(copied)) => Place::Record(copied.share()),
            (None, None) => return Ok(None),
        };
        let record = &document.record;
        let (attributes, body) = parts(document)?;
        let is_called_json = record.datatype.contains(Datatype::JSON);
        let mut range = attributes.len()..record.value.len();
        let (inflating, is_json) = match record.datatype.contains(Datatype::SNAPPY) {
            true => (Some(begin(body)?), is_called_json && inflates_to_json(body)?),
            false => (None, is_called_json && is_json(body)),
        };
        if is_json && inflating.is_none() {
            range.start += body.len() - body.trim_ascii_start().len();
            range.end -= body.len() - body.trim_ascii_end().len();
            debug_assert!(range.start <= range.end, "a JSON text is not blank");
        }
        let xattrs = if extent.xattrs { xattrs_of(document)? } else { Vec::new() };
        let line = line_of(document, position, names, None, &xattrs);
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        line.begin_value(&mut head, is_json);
        line.end_value(&mut tail, is_json);
        Ok(Some(LargeLine {
            place,
            body: range,
            inflating,
            is_json,
            head,
            tail,
            made: 0,
            rest: Vec::new(),
            _reservation: reservation,
        }))
    }

    /// Appends the next piece of about so many bytes; true when it was the last.
    pub fn write(&mut self, out: &mut Vec<u8>, bytes: usize) -> Result<bool, DamagedDocument> {
        out.append(&mut self.head);
        let value = &self.place.value()[self.body.clone()];
        let total = self.inflating.as_ref().map_or(value.len(), |all| all.total_bytes());
        while self.made < total && out.len() < bytes {
            let ready = match &mut self.inflating {
                None => &value[self.made..],
                Some(inflating) => {
                    inflating.make(value, self.made).map_err(|_| DamagedDocument)?;
                    inflating.ready(self.made)
                }
            };
            let step = &ready[..ready.len().min(STEP_BYTES)];
            self.made += step.len();
            debug_assert!(!step.is_empty() && self.made <= total, "a step goes forward");
            match self.is_json {
                true => in_one_line(out, step),
                false => encode(&mut self.rest, step, self.made == total, out),
            }
        }
        let is_whole = self.made == total;
        if is_whole {
            out.append(&mut self.tail);
        }
        Ok(is_whole)
    }
}

/// Appends base64 of all whole groups, or of everything at the end.
fn encode(rest: &mut Vec<u8>, step: &[u8], is_end: bool, out: &mut Vec<u8>) {
    rest.extend_from_slice(step);
    let whole = if is_end { rest.len() } else { rest.len() - rest.len() % 3 };
    let at = out.len();
    out.resize(at + whole.div_ceil(3) * 4, 0);
    STANDARD.encode_slice(&rest[..whole], &mut out[at..]).expect("the groups fit");
    rest.drain(..whole);
    debug_assert!(rest.len() < 3 && (!is_end || rest.is_empty()), "less than a group is left");
}

fn begin(body: &[u8]) -> Result<Box<Inflater>, DamagedDocument> {
    Inflater::new(body, VALUE_BYTES_MAX).map(Box::new).map_err(|_| DamagedDocument)
}

/// Whether a compressed body is JSON, as far as pieces of it can show: [`is_json`] wants all of it
/// in memory.
fn inflates_to_json(body: &[u8]) -> Result<bool, DamagedDocument> {
    let mut reader = Pieces { body, inflating: begin(body)?, at: 0, open: Vec::new() };
    let parsed = serde_json::from_reader::<_, IgnoredAny>(&mut reader);
    let error = match parsed {
        Ok(IgnoredAny) => return Ok(reader.open.is_empty()),
        Err(error) => error,
    };
    // Other errors are those of the text.
    match error.is_io() && error.io_error_kind() == Some(io::ErrorKind::InvalidInput) {
        true => Err(DamagedDocument),
        false => Ok(false),
    }
}

/// Reads a compressed body in pieces, as long as they are UTF-8.
struct Pieces<'a> {
    body: &'a [u8],
    inflating: Box<Inflater>,
    at: usize,
    /// The begun character at the end of the last piece.
    open: Vec<u8>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let made = self.inflating.make(self.body, self.at);
        made.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let ready = self.inflating.ready(self.at);
        let bytes = ready.len().min(into.len());
        into[..bytes].copy_from_slice(&ready[..bytes]);
        self.at += bytes;
        self.open.extend_from_slice(&into[..bytes]);
        let begun = match std::str::from_utf8(&self.open) {
            Ok(_) => self.open.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.open.drain(..begun);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
