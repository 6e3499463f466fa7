//! Calls the handler of the binary request that a command means.
//!
//! Owns: the handlers of the text protocol alone: touches and counts keep the marks of a
//! document ([`Marks`]), as in memcached. Only a document with marks takes their path; any other
//! one takes that of the binary protocol.

use oribi_engine::{AppliedMutation, ItemRef, counter_value};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{CounterExtras, ExpiryExtras};
use oribi_protocol::status::Status;
use oribi_protocol::text::answer::write_number;
use oribi_types::Cas;

use super::super::outcome::{HandlerReply, Outcome, Rejection};
use super::super::request::{Request, RequestLocation};
use super::super::{handlers, reads, writes};
use super::marks::{ATTEMPTS_MAX, BUSY, Change, Marks, current, rewrite};
use crate::connection::parked::Answer;

/// Calls the handler of a request.
#[inline]
pub(super) fn handle<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let outcome = match req.opcode {
        Opcode::Get => return reads::get(req),
        Opcode::Set => writes::set(req),
        Opcode::Touch => touch(req),
        Opcode::Gat => get_and_touch(req),
        Opcode::Increment | Opcode::Decrement => count(req, None),
        _ => handlers::call(req),
    };
    note(req, &outcome);
    outcome
}

/// Notes a write whose answer may have to wait.
#[inline]
fn note(req: &mut Request<'_>, outcome: &Outcome<'_>) {
    if req.waits_for_durability()
        && let Ok(HandlerReply::Written(answer)) = outcome
    {
        req.state.deferred.text().note(answer.position());
    }
}

/// Counts and changes the expiry in one write.
pub(super) fn count_and_touch<'a>(req: &mut Request<'a>, expiry: u32) -> Outcome<'a> {
    let outcome = count(req, Some(expiry));
    note(req, &outcome);
    outcome
}

fn touch<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let located = req.locate()?;
    let ExpiryExtras { expiry } = ExpiryExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    let Some((_, mutation)) = touch_marked(req, located, expiry)? else {
        return handlers::call(req);
    };
    req.count(|counters| &counters.cmd_touch);
    req.counters().touch_hits.add(1);
    Ok(HandlerReply::Written(Answer::Touched(mutation)))
}

fn get_and_touch<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let located = req.locate()?;
    let ExpiryExtras { expiry } = ExpiryExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    req.reserve_document(located)?;
    let Some((item, mutation)) = touch_marked(req, located, expiry)? else {
        return handlers::call(req);
    };
    req.count(|counters| &counters.cmd_touch);
    req.count(|counters| &counters.cmd_get);
    req.counters().get_hits.add(1);
    req.counters().touch_hits.add(1);
    req.collection_counters(located.key.collection).gets.add(1);
    Ok(HandlerReply::Document { item, cas: mutation.cas, key: &[] })
}

/// Changes the expiry of a document that has marks; `expiry` as on the binary wire. Returns the
/// document as it was before, which may have expired by now. `None`, without a change, when there
/// is no document or it has no marks.
pub(super) fn touch_marked(
    req: &mut Request<'_>,
    located: RequestLocation<'_>,
    expiry: u32,
) -> Result<Option<(ItemRef, AppliedMutation)>, Rejection> {
    for _ in 0..ATTEMPTS_MAX {
        let Some((item, marks)) = marked(req, located)? else { return Ok(None) };
        let change = Change { marks, expiry: Some(expiry), ..Change::default() };
        match rewrite(req, located, item.cas(), &change) {
            Err(Rejection::Status(Status::KeyEexists | Status::KeyEnoent)) => {}
            written => return written.map(|mutation| Some((item, mutation))),
        }
    }
    Err(BUSY)
}

fn count<'a>(req: &mut Request<'a>, expiry: Option<u32>) -> Outcome<'a> {
    let located = req.locate()?;
    let extras = CounterExtras::decode(req.frame.extras).ok_or(Status::Einval)?;
    let is_decrement = req.opcode == Opcode::Decrement;
    for _ in 0..ATTEMPTS_MAX {
        let found = match expiry {
            Some(_) => current(req, located)?.map(|item| (Marks::of(&item), item)),
            None => marked(req, located)?.map(|(item, marks)| (marks, item)),
        };
        // `handlers::call` refuses the other versions.
        let found = found.filter(|(_, item)| req.cas() == Cas(0) || req.cas() == item.cas());
        let counter = found.and_then(|(marks, item)| Some((counter_value(&item)?, item, marks)));
        let Some((before, item, marks)) = counter else { return handlers::call(req) };
        let value = match is_decrement {
            true => before.saturating_sub(extras.delta),
            false => before.wrapping_add(extras.delta),
        };
        let mut digits = Vec::with_capacity(20);
        write_number(&mut digits, value);
        let next = Some((&digits[..], item.flags()));
        let change = Change { marks, value: next, expiry, ..Change::default() };
        let mutation = match rewrite(req, located, item.cas(), &change) {
            Err(Rejection::Status(Status::KeyEexists | Status::KeyEnoent)) => continue,
            written => written?,
        };
        req.count(|counters| &counters.cmd_set);
        let counters = req.counters();
        if is_decrement { &counters.decr_hits } else { &counters.incr_hits }.add(1);
        req.collection_counters(located.key.collection).stores.add(1);
        return Ok(HandlerReply::Written(Answer::Counter { mutation, value }));
    }
    Err(BUSY)
}

/// The document and its marks, if it has any.
fn marked(
    req: &Request<'_>,
    located: RequestLocation<'_>,
) -> Result<Option<(ItemRef, Marks)>, Rejection> {
    let Some(item) = current(req, located)? else { return Ok(None) };
    let marks = Marks::of(&item);
    Ok(Some((item, marks)).filter(|(_, marks)| *marks != Marks::default()))
}
