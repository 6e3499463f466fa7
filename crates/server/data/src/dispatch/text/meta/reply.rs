//! Lines of answers to meta commands.

use oribi_engine::Item;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_protocol::text::Meta;
use oribi_protocol::text::answer::{LINE_END, write_flag, write_key_flag};

use super::super::super::answer::describe;
use super::super::super::outcome::Rejection;
use super::super::super::request::Request;
use super::super::answer::{Verb, write_failure};
use super::super::marks::Marks;
use crate::connection::send_buffer::SendBuffer;

/// A document's part in an answer.
pub(super) struct MetaReply {
    pub cas: u64,
    pub flags: u32,
    /// Absolute, 0 for none, before the command.
    pub expiry: u32,
    /// The expiry that the command gives a document by `T`: shown after this flag.
    pub touched: Option<u32>,
    /// The same by `N`, for a document that the command creates.
    pub vivified: Option<u32>,
    pub value_bytes: usize,
    /// The document was read before.
    pub is_read: bool,
    /// Seconds since the document was last written.
    pub age_s: u64,
    /// Marks before the command.
    pub marks: Marks,
    /// The client has won.
    pub wins: bool,
}

impl MetaReply {
    /// The document's visible properties at `now_s`.
    pub fn of(item: &Item, uses: u32, now_s: u32) -> Option<MetaReply> {
        // A CAS is a clock in nanoseconds, rounded down.
        let written_s = item.cas().0.saturating_add(0xffff) / 1_000_000_000;
        Some(MetaReply {
            cas: item.cas().0,
            flags: item.flags(),
            expiry: item.expiry(),
            touched: None,
            vivified: None,
            value_bytes: item.plain_body_bytes().ok()?,
            is_read: item.frequency() > uses,
            age_s: u64::from(now_s).saturating_sub(written_s),
            marks: Marks::of(item),
            wins: false,
        })
    }

    /// Appends what the flags ask for, in their order, then the marks.
    pub fn write_flags(&self, out: &mut Vec<u8>, meta: &Meta<'_>, now_s: u32) {
        let mut expiry = self.expiry;
        for flag in meta.flags.iter() {
            match flag[0] {
                b'T' => expiry = self.touched.unwrap_or(expiry),
                b'N' => expiry = self.vivified.unwrap_or(expiry),
                b't' if expiry == 0 => out.extend_from_slice(b" t-1"),
                b't' => write_flag(out, b't', expiry.saturating_sub(now_s).into()),
                b's' => write_flag(out, b's', self.value_bytes as u64),
                b'c' => write_flag(out, b'c', self.cas),
                b'f' => write_flag(out, b'f', self.flags.into()),
                b'h' => write_flag(out, b'h', self.is_read.into()),
                b'l' => write_flag(out, b'l', self.age_s),
                b'k' => write_key_flag(out, meta.key, meta.is_base64),
                b'O' => write_opaque(out, flag),
                _ => {}
            }
        }
        for (is_shown, letter) in
            [(self.marks.won, b'Z'), (self.marks.stale, b'X'), (self.wins, b'W')]
        {
            if is_shown {
                out.extend_from_slice(&[b' ', letter]);
            }
        }
    }
}

fn write_opaque(out: &mut Vec<u8>, flag: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(flag);
}

/// Appends a line with a code and the flags that any answer repeats: opaque and key, and for a
/// write CAS and size.
pub(super) fn write_code(
    out: &mut Vec<u8>,
    meta: &Meta<'_>,
    code: &str,
    (cas, value_bytes): (Option<u64>, Option<usize>),
) {
    out.extend_from_slice(code.as_bytes());
    for flag in meta.flags.iter() {
        match (flag[0], cas, value_bytes) {
            (b'O', ..) => write_opaque(out, flag),
            (b'k', ..) => write_key_flag(out, meta.key, meta.is_base64),
            (b'c', Some(cas), _) => write_flag(out, b'c', cas),
            (b's', _, Some(bytes)) => write_flag(out, b's', bytes as u64),
            _ => {}
        }
    }
    out.extend_from_slice(LINE_END);
}

/// Answers a command that was not done.
#[cold]
pub(super) fn fail(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    meta: &Meta<'_>,
    not_done: Rejection,
) {
    use Opcode::{Add, Append, Prepend, Replace, Set};
    let (status, context) = describe(req, not_done);
    let is_store = matches!(req.opcode, Set | Add | Replace | Append | Prepend);
    let compares = meta.cas.is_some() && req.opcode != Add;
    let code = match status {
        Status::KeyEnoent | Status::KeyEexists if is_store && !compares => Some("NS"),
        Status::NotStored => Some("NS"),
        Status::KeyEnoent => Some("NF"),
        Status::KeyEexists => Some("EX"),
        _ => None,
    };
    match code {
        Some(code) => write_code(out.tail(), meta, code, (is_store.then_some(0), None)),
        None => write_failure(out.tail(), Verb::Count, status, context.as_deref()),
    }
}
