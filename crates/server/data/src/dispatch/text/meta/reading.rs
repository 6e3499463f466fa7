//! `mg` and `me`.

use std::ops::Deref;

use oribi_engine::{
    GetOutcome, Item, ItemRef, LOCKED_CAS, OperationRejection, ReadTarget, SharedItem,
    SharedOutcome, VersionOutcome,
};
use oribi_protocol::status::Status;
use oribi_protocol::text::Meta;
use oribi_protocol::text::answer::{LINE_END, write_number};
use oribi_types::Cas;

use super::super::super::outcome::Rejection;
use super::super::super::request::{Request, RequestLocation};
use super::super::super::rules::UPSERT;
use super::super::answer::document;
use super::super::marks::{ATTEMPTS_MAX, BUSY, Change, Marks, rewrite};
use super::reply::{MetaReply, write_code};
use crate::connection::send_buffer::SendBuffer;

const DAMAGED: Rejection =
    Rejection::Because(Status::Etmpfail, "the document could not be read from the store");

/// A document, its CAS, and the uses that this read counted.
type ReadResult<'a> = (ReadItem<'a>, Cas, u32);

/// A document by what keeps it in memory.
enum ReadItem<'a> {
    /// The read section of the turn. It is small, and not compressed.
    Shared(SharedItem<'a>),
    Counted(ItemRef),
}

impl Deref for ReadItem<'_> {
    type Target = Item;

    fn deref(&self) -> &Item {
        match self {
            ReadItem::Shared(item) => item,
            ReadItem::Counted(item) => item,
        }
    }
}

pub(super) fn get(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    meta: &Meta<'_>,
) -> Result<(), Rejection> {
    let located = req.locate()?;
    for _ in 0..ATTEMPTS_MAX {
        let found = find(req, located, meta.is_no_use)?;
        let Some((item, cas, uses)) = found else {
            match meta.vivify {
                Some(expiry) if !create(req, out, located, meta, expiry)? => continue,
                Some(_) => {}
                None => miss(req, out, meta),
            }
            return Ok(());
        };
        if meta.shows_value {
            req.reserve_answer(item.value_bytes())?;
        }
        let now_s = req.env.now.unix_s();
        let mut shown = MetaReply::of(&item, uses, now_s).ok_or(DAMAGED)?;
        shown.cas = cas.0;
        if !update(req, located, meta, &item, &mut shown)? {
            continue;
        }
        req.count(|counters| &counters.cmd_get);
        req.counters().get_hits.add(1);
        req.collection_counters(located.key.collection).gets.add(1);
        return answer(out, meta, &item, &shown, now_s);
    }
    Err(BUSY)
}

fn find<'a>(
    req: &Request<'a>,
    located: RequestLocation<'_>,
    is_no_use: bool,
) -> Result<Option<ReadResult<'a>>, OperationRejection> {
    if is_no_use {
        let vbucket = located.vbucket(req)?;
        return match vbucket.read_version(&req.context(), located.key, ReadTarget::Document) {
            VersionOutcome::Found(item, _) if item.is_deleted() => Ok(None),
            VersionOutcome::Found(item, cas) => Ok(Some((ReadItem::Counted(item), cas, 0))),
            VersionOutcome::Miss => Ok(None),
            VersionOutcome::Refused(refused) => Err(refused),
        };
    }
    match located.get_shared(req) {
        SharedOutcome::Hit(item) => {
            let cas = item.cas();
            return Ok(Some((ReadItem::Shared(item), cas, 1)));
        }
        SharedOutcome::Miss => return Ok(None),
        SharedOutcome::Undecided => {}
    }
    match located.get(req) {
        GetOutcome::Hit(item) => {
            let cas = item.cas();
            Ok(Some((ReadItem::Counted(item), cas, 1)))
        }
        GetOutcome::HitLocked(item) => Ok(Some((ReadItem::Counted(item), LOCKED_CAS, 1))),
        GetOutcome::Miss => Ok(None),
        GetOutcome::Refused(refused) => Err(refused),
    }
}

/// Makes the change that the read requests: another expiry, or the mark that the client has won.
/// False when the document has changed since the read.
fn update(
    req: &mut Request<'_>,
    located: RequestLocation<'_>,
    meta: &Meta<'_>,
    item: &Item,
    shown: &mut MetaReply,
) -> Result<bool, Rejection> {
    let marks = shown.marks;
    let now_s = req.env.now.unix_s();
    let recache_s = meta.recache.map_or(0, |expiry| absolute(expiry, now_s));
    // Flags take effect in their order, as in memcached: after T, R sees the new expiry.
    let mut letters = meta.flags.iter().map(|flag| flag[0]);
    let is_touched = letters.find(|letter| matches!(letter, b'T' | b'R')) == Some(b'T');
    let touched = meta.expiry.filter(|_| is_touched);
    let expiry = touched.map_or(shown.expiry, |expiry| absolute(expiry, now_s));
    let is_due = expiry != 0 && expiry < recache_s;
    let may_mark = req.holds(located.key.collection, UPSERT);
    shown.wins = !marks.won && (marks.stale || is_due) && may_mark;
    if meta.expiry.is_none() && !shown.wins {
        return Ok(true);
    }
    let marks = Marks { won: marks.won || shown.wins, ..marks };
    let change = Change { marks, expiry: meta.expiry, ..Change::default() };
    let mutation = match rewrite(req, located, item.cas(), &change) {
        Err(Rejection::Status(Status::KeyEexists | Status::KeyEnoent)) => return Ok(false),
        written => written?,
    };
    shown.cas = mutation.cas.0;
    if let Some(expiry) = meta.expiry {
        req.count(|counters| &counters.cmd_touch);
        req.counters().touch_hits.add(1);
        shown.touched = Some(absolute(expiry, req.env.now.unix_s()));
    }
    Ok(true)
}

/// The UNIX time that an expiry as on the binary wire means; 0 for none.
pub(super) fn absolute(wire: u32, now_s: u32) -> u32 {
    match wire {
        0 => 0,
        1..=oribi_protocol::limits::RELATIVE_EXPIRY_S_MAX => now_s.saturating_add(wire),
        _ => wire,
    }
}

fn answer(
    out: &mut SendBuffer,
    meta: &Meta<'_>,
    held: &ReadItem<'_>,
    shown: &MetaReply,
    now_s: u32,
) -> Result<(), Rejection> {
    // A client that sends the CAS it knows has the value already.
    let is_known = meta.cas == Some(shown.cas);
    if !meta.shows_value || is_known {
        out.tail().extend_from_slice(b"HD");
        shown.write_flags(out.tail(), meta, now_s);
        out.tail().extend_from_slice(LINE_END);
        return Ok(());
    }
    let head = |out: &mut SendBuffer, bytes: usize| {
        out.tail().extend_from_slice(b"VA ");
        write_number(out.tail(), bytes as u64);
        shown.write_flags(out.tail(), meta, now_s);
        out.tail().extend_from_slice(LINE_END);
    };
    let is_sent = match held {
        ReadItem::Counted(item) => document(out, item, head),
        ReadItem::Shared(item) => {
            head(out, item.body().len());
            out.tail().extend_from_slice(item.body());
            out.tail().extend_from_slice(LINE_END);
            true
        }
    };
    if is_sent { Ok(()) } else { Err(DAMAGED) }
}

fn miss(req: &mut Request<'_>, out: &mut SendBuffer, meta: &Meta<'_>) {
    req.count(|counters| &counters.cmd_get);
    req.counters().get_misses.add(1);
    if !meta.quiet {
        write_code(out.tail(), meta, "EN", (None, None));
    }
}

/// Creates an empty document for the client to store; false when there is one by now.
fn create(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    located: RequestLocation<'_>,
    meta: &Meta<'_>,
    expiry: u32,
) -> Result<bool, Rejection> {
    let marks = Marks { won: true, stale: false };
    let last = last_expiry(meta, expiry);
    let change = Change { marks, expiry: Some(last), creates: true, ..Change::default() };
    let mutation = match rewrite(req, located, Cas(0), &change) {
        Err(Rejection::Status(Status::KeyEexists)) => return Ok(false),
        written => written?,
    };
    req.count(|counters| &counters.cmd_get);
    req.counters().get_misses.add(1);
    if !meta.is_no_use && !req.waits_for_durability() {
        // The read that creates a document is a use of it.
        find(req, located, false)?;
    }
    let now_s = req.env.now.unix_s();
    let shown = MetaReply {
        cas: mutation.cas.0,
        flags: 0,
        expiry: 0,
        touched: meta.expiry.map(|expiry| absolute(expiry, now_s)),
        vivified: Some(absolute(expiry, now_s)),
        value_bytes: 0,
        is_read: false,
        age_s: 0,
        marks: Marks::default(),
        wins: true,
    };
    let head = if meta.shows_value { "VA 0" } else { "HD" };
    out.tail().extend_from_slice(head.as_bytes());
    shown.write_flags(out.tail(), meta, now_s);
    out.tail().extend_from_slice(LINE_END);
    if meta.shows_value {
        out.tail().extend_from_slice(LINE_END);
    }
    Ok(true)
}

/// The expiry of a document that is created: that of `T` or `N`, whichever comes last.
pub(super) fn last_expiry(meta: &Meta<'_>, vivify: u32) -> u32 {
    let mut last = vivify;
    for flag in meta.flags.iter() {
        match flag[0] {
            b'T' => last = meta.expiry.unwrap_or(last),
            b'N' => last = vivify,
            _ => {}
        }
    }
    last
}

pub(super) fn debug(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    meta: &Meta<'_>,
) -> Result<(), Rejection> {
    let located = req.locate()?;
    let Some((item, cas, _)) = find(req, located, true)? else {
        out.tail().extend_from_slice(b"EN");
        out.tail().extend_from_slice(LINE_END);
        return Ok(());
    };
    let now_s = req.env.now.unix_s();
    let shown = MetaReply::of(&item, 0, now_s).ok_or(DAMAGED)?;
    let expiry = match shown.expiry {
        0 => -1,
        at => i64::from(at) - i64::from(now_s),
    };
    let line = format!(
        " exp={expiry} la={} cas={} fetch={} cls=1 size={}\r\n",
        shown.age_s,
        cas.0,
        if shown.is_read { "yes" } else { "no" },
        item.block_bytes(),
    );
    out.tail().extend_from_slice(b"ME ");
    out.tail().extend_from_slice(meta.key);
    out.tail().extend_from_slice(line.as_bytes());
    Ok(())
}
