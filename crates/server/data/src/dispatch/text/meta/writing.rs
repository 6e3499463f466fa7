//! `ms`, `md` and `ma`.

use oribi_engine::{
    EXPLICIT_CAS_END, FillingItem, MetaOutcome, MutationOutcome, WithMetaMode, WithMetaRequest,
};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{COUNTER_DO_NOT_CREATE, CounterExtras};
use oribi_protocol::status::Status;
use oribi_protocol::text::answer::{LINE_END, write_number};
use oribi_protocol::text::{Meta, Store, StoreMode};
use oribi_types::{Cas, Datatype, RevSeqno};

use super::super::super::outcome::{HandlerReply, Rejection};
use super::super::super::request::{Request, RequestLocation};
use super::super::handling::{count_and_touch, handle, touch_marked};
use super::super::marks::{ATTEMPTS_MAX, BUSY, Change, Marks, current, rewrite};
use super::super::translated_request::TranslatedRequest;
use super::reading::{absolute, last_expiry};
use super::reply::{MetaReply, write_code};
use crate::connection::parked::Answer;
use crate::connection::send_buffer::SendBuffer;

/// The CAS that a command demands, as in the binary protocol, where 0 demands none.
pub(super) fn demanded(meta: &Meta<'_>) -> u64 {
    meta.cas.map_or(0, |cas| if cas == 0 { u64::MAX } else { cas })
}

pub(super) fn set(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    store: &Store<'_>,
    meta: &Meta<'_>,
) -> Result<(), Rejection> {
    let bytes = req.received.as_ref().map_or(store.value.len(), FillingItem::value_bytes);
    let cas = match (meta.new_cas, store.mode) {
        (Some(new), StoreMode::Set | StoreMode::Cas | StoreMode::Add | StoreMode::Replace) => {
            set_with_cas(req, store, new)?
        }
        (_, StoreMode::Cas) if meta.invalidates => set_stale(req, store, meta)?,
        (_, StoreMode::Append | StoreMode::Prepend) if meta.vivify.is_some() => {
            concat_or_add(req, store, meta.vivify.unwrap_or(0))?
        }
        _ => stored(req)?,
    };
    if !meta.quiet {
        let bytes = match store.mode {
            StoreMode::Append | StoreMode::Prepend => {
                joined_bytes(req, meta, (cas, bytes))?.unwrap_or(bytes)
            }
            _ => bytes,
        };
        write_code(out.tail(), meta, "HD", (Some(cas), Some(bytes)));
    }
    Ok(())
}

/// The size of the document that a value was joined to, if the command requests the size.
fn joined_bytes(
    req: &Request<'_>,
    meta: &Meta<'_>,
    (cas, added_bytes): (u64, usize),
) -> Result<Option<usize>, Rejection> {
    if !meta.flags.iter().any(|flag| flag[0] == b's') {
        return Ok(None);
    }
    let item = req.locate().and_then(|located| current(req, located));
    // The value is stored. A document that left since has no size.
    let Some(item) = item.ok().flatten() else { return Ok(None) };
    // A version that is not durable yet is not found.
    let is_pending = req.waits_for_durability() && item.cas().0 != cas;
    let pending_bytes = if is_pending { added_bytes } else { 0 };
    Ok(item.plain_body_bytes().ok().map(|bytes| bytes + pending_bytes))
}

/// Runs the binary request; returns the new CAS.
fn stored(req: &mut Request<'_>) -> Result<u64, Rejection> {
    match handle(req)? {
        HandlerReply::Written(Answer::Mutation(mutation)) => Ok(mutation.cas.0),
        _ => Ok(0),
    }
}

/// Stores a value. A value whose CAS is only too old replaces the document, too, but is stale.
fn set_stale(req: &mut Request<'_>, store: &Store<'_>, meta: &Meta<'_>) -> Result<u64, Rejection> {
    let value = store.value;
    let located = req.locate()?;
    for _ in 0..ATTEMPTS_MAX {
        let item = current(req, located)?.ok_or(Status::KeyEnoent)?;
        // No version has the CAS 0, so it is not one that is only too old.
        let asked = Cas(meta.cas.unwrap_or(0));
        if asked == Cas(0) || asked > item.cas() {
            return Err(Status::KeyEexists.into());
        }
        let is_old = asked < item.cas();
        let won = is_old && Marks::of(&item).won;
        let change = Change {
            marks: Marks { stale: is_old, won },
            expiry: (!is_old).then_some(store.expiry),
            value: Some((value, store.flags)),
            creates: false,
        };
        match rewrite(req, located, item.cas(), &change) {
            Err(Rejection::Status(Status::KeyEexists | Status::KeyEnoent)) => {}
            written => {
                req.count(|counters| &counters.cmd_set);
                return written.map(|mutation| mutation.cas.0);
            }
        }
    }
    Err(BUSY)
}

/// Appends or prepends, and stores the value where there is no document.
fn concat_or_add(req: &mut Request<'_>, store: &Store<'_>, expiry: u32) -> Result<u64, Rejection> {
    let located = req.locate()?;
    for _ in 0..ATTEMPTS_MAX {
        match stored(req) {
            Err(Rejection::Status(Status::NotStored)) => {}
            done => return done,
        }
        let change = Change {
            expiry: Some(expiry),
            value: Some((store.value, store.flags)),
            creates: true,
            ..Change::default()
        };
        match rewrite(req, located, Cas(0), &change) {
            Err(Rejection::Status(Status::KeyEexists)) => {}
            written => return written.map(|mutation| mutation.cas.0),
        }
    }
    Err(BUSY)
}

/// Stores a value with the CAS that the client chose.
fn set_with_cas(req: &mut Request<'_>, store: &Store<'_>, new: u64) -> Result<u64, Rejection> {
    const INVALID: Rejection =
        Rejection::Because(Status::Einval, "a CAS is chosen between 0 and 2^63");
    if new == 0 || new >= EXPLICIT_CAS_END.0 {
        return Err(INVALID);
    }
    let value = store.value;
    let (located, now) = (req.locate()?, req.env.now);
    let (rev_seqno, is_live) = match located.vbucket(req)?.get_meta(&req.context(), located.key) {
        MetaOutcome::Found(item, _) => (item.rev_seqno().0 + 1, item.is_live(now.unix_s())),
        MetaOutcome::Miss => (1, false),
        MetaOutcome::Refused(refused) => return Err(refused.into()),
    };
    if store.mode == StoreMode::Replace && !is_live {
        return Err(Status::KeyEnoent.into());
    }
    let is_json = oribi_subdoc::json::is_json(value);
    let request = WithMetaRequest {
        mode: if store.mode == StoreMode::Add { WithMetaMode::Add } else { WithMetaMode::Set },
        value,
        datatype: if is_json { Datatype::JSON } else { Datatype::RAW },
        flags: store.flags,
        expired: false,
        expiry: absolute(store.expiry, now.unix_s()),
        given_cas: Some(Cas(new)),
        rev_seqno: RevSeqno(rev_seqno),
        cas: req.cas(),
        resolution: None,
    };
    req.admit_durable()?;
    req.count(|counters| &counters.cmd_set);
    let vbucket = located.vbucket(req)?;
    let outcome = vbucket.store_with_meta(&req.write_context(), located.key, &request);
    match outcome {
        MutationOutcome::Done(mutation) => {
            if req.waits_for_durability() {
                req.state.deferred.text().note(Answer::Mutation(mutation));
            }
            Ok(mutation.cas.0)
        }
        outcome => Err(outcome.into()),
    }
}

pub(super) fn delete(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    meta: &Meta<'_>,
) -> Result<(), Rejection> {
    if meta.invalidates || meta.removes_value {
        change(req, meta)?;
    } else {
        handle(req)?;
    }
    if !meta.quiet {
        write_code(out.tail(), meta, "HD", (None, None));
    }
    Ok(())
}

/// Marks the document as stale, removes its value, or both.
fn change(req: &mut Request<'_>, meta: &Meta<'_>) -> Result<(), Rejection> {
    let located = req.locate()?;
    for _ in 0..ATTEMPTS_MAX {
        let item = current(req, located)?.ok_or(Status::KeyEnoent)?;
        if meta.cas.is_some_and(|cas| cas != item.cas().0) {
            return Err(Status::KeyEexists.into());
        }
        let marks = match meta.invalidates {
            true => Marks { stale: true, won: false },
            false => Marks::of(&item),
        };
        let change = Change {
            marks,
            expiry: meta.expiry.filter(|_| meta.invalidates),
            value: meta.removes_value.then_some((&b""[..], 0)),
            creates: false,
        };
        match rewrite(req, located, item.cas(), &change) {
            Err(Rejection::Status(Status::KeyEexists | Status::KeyEnoent)) => {}
            written => return written.map(drop),
        }
    }
    Err(BUSY)
}

/// The binary request of an `ma`, to which memcached compares no CAS if it is 0.
pub(super) fn count_request<'a>(meta: &Meta<'_>, key: &'a [u8]) -> TranslatedRequest<'a> {
    let opcode = match meta.mode {
        b'D' | b'-' => Opcode::Decrement,
        _ => Opcode::Increment,
    };
    let extras = CounterExtras {
        delta: meta.delta.unwrap_or(1),
        initial: 0,
        // Whether the counter is created is known only if that is a separate step.
        expiry: COUNTER_DO_NOT_CREATE,
    };
    TranslatedRequest::new(opcode, key).with_extras(extras.encode()).with_cas(meta.cas.unwrap_or(0))
}

/// A counter after an `ma`.
struct TextCounter {
    value: u64,
    shown: MetaReply,
    is_created: bool,
}

pub(super) fn count(
    req: &mut Request<'_>,
    out: &mut SendBuffer,
    meta: &Meta<'_>,
) -> Result<(), Rejection> {
    let TextCounter { value, shown, is_created } = counted(req, meta)?;
    // The answer to a counter that is created is not left out, as in memcached.
    if meta.quiet && !is_created {
        return Ok(());
    }
    let mut digits = Vec::with_capacity(20);
    write_number(&mut digits, value);
    let out = out.tail();
    match meta.shows_value {
        false => out.extend_from_slice(b"HD"),
        true => {
            out.extend_from_slice(b"VA ");
            write_number(out, digits.len() as u64);
        }
    }
    shown.write_flags(out, meta, req.env.now.unix_s());
    out.extend_from_slice(LINE_END);
    if meta.shows_value {
        out.extend_from_slice(&digits);
        out.extend_from_slice(LINE_END);
    }
    Ok(())
}

/// Counts, or creates the counter.
fn counted(req: &mut Request<'_>, meta: &Meta<'_>) -> Result<TextCounter, Rejection> {
    let (located, now_s) = (req.locate()?, req.env.now.unix_s());
    let shown = |cas: Cas, expiry| MetaReply {
        cas: cas.0,
        flags: 0,
        expiry,
        touched: meta.expiry.map(|expiry| absolute(expiry, now_s)),
        vivified: None,
        value_bytes: 0,
        is_read: false,
        age_s: 0,
        marks: Marks::default(),
        wins: false,
    };
    // A version that is not durable yet admits no second write.
    let touches_at_once = meta.expiry.filter(|_| req.waits_for_durability());
    for _ in 0..ATTEMPTS_MAX {
        let counted = match touches_at_once {
            Some(expiry) => count_and_touch(req, expiry),
            None => handle(req),
        };
        let vivify = match (counted, meta.vivify) {
            (Ok(HandlerReply::Written(Answer::Counter { mutation, value })), _) => {
                let (cas, expiry) = touched(req, located, meta, mutation.cas)?;
                return Ok(TextCounter { value, shown: shown(cas, expiry), is_created: false });
            }
            (Err(Rejection::Status(Status::KeyEnoent)), Some(vivify)) => vivify,
            (Err(not_done), _) => return Err(not_done),
            (Ok(_), _) => return Err(Status::Einternal.into()),
        };
        let mut digits = Vec::with_capacity(20);
        write_number(&mut digits, meta.initial);
        let change = Change {
            expiry: Some(last_expiry(meta, vivify)),
            value: Some((&digits, 0)),
            creates: true,
            ..Change::default()
        };
        match rewrite(req, located, Cas(0), &change) {
            Err(Rejection::Status(Status::KeyEexists)) => {}
            written => {
                let vivified = Some(absolute(vivify, now_s));
                let shown = MetaReply { vivified, ..shown(written?.cas, 0) };
                return Ok(TextCounter { value: meta.initial, shown, is_created: true });
            }
        }
    }
    Err(BUSY)
}

/// Changes the expiry of a counter if the command requests it. Returns CAS, and the expiry that it
/// had, where the command shows it.
fn touched(
    req: &mut Request<'_>,
    located: RequestLocation<'_>,
    meta: &Meta<'_>,
    cas: Cas,
) -> Result<(Cas, u32), Rejection> {
    let shows_expiry = meta.flags.iter().any(|flag| flag[0] == b't');
    let item = if shows_expiry { current(req, located)? } else { None };
    let before = item.map_or(0, |item| item.expiry());
    let later = meta.expiry.filter(|_| !req.waits_for_durability());
    let Some(expiry) = later else { return Ok((cas, before)) };
    if let Some((_, mutation)) = touch_marked(req, located, expiry)? {
        return Ok((mutation.cas, before));
    }
    match located.vbucket(req)?.touch(&req.context(), located.key, expiry) {
        MutationOutcome::Done(mutation) => Ok((mutation.cas, before)),
        // Another client deleted it after the count, which is done.
        MutationOutcome::NotFound => Ok((cas, before)),
        outcome => Err(outcome.into()),
    }
}
