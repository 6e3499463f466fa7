//! Serves the meta commands.
//!
//! Owns: the right that each command needs, and which steps it takes. Reads are in [`reading`],
//! writes in [`writing`], the marks for stale documents in `marks.rs`, and the lines of answers in
//! [`reply`]. A meta command that the binary protocol can express runs the binary request's
//! handler.

mod reading;
mod reply;
mod writing;

use oribi_auth::PrivilegeSet;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::text::{Command, DECODED_KEY_BYTES_MAX, Meta, Store};

use super::super::ServeResult;
use super::super::answer::End;
use super::super::outcome::Rejection;
use super::super::request::Request;
use super::super::rules::{self, INSERT, READ, REMOVE, RequiredAccess, UPSERT};
use super::serving::{CommandResult, Language, Offer, offered_again, serve};
use super::translated_request::{TranslatedRequest, key_of};
use crate::connection::send_buffer::SendBuffer;
use crate::connection::waker::ConnectionId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;

pub(super) fn serve_set(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    (store, meta): (&Store<'_>, &Meta<'_>),
    offer: Offer<'_>,
) -> CommandResult {
    let mut room = [0; DECODED_KEY_BYTES_MAX];
    let meant = TranslatedRequest::store(store, key_of(meta, &mut room));
    let needed = if meant.opcode == Opcode::Add { INSERT } else { UPSERT };
    run((id, state, out, env), &meant, (needed, meta), offer, |req, out| {
        writing::set(req, out, store, meta)
    })
}

/// Serves any other meta command about a document.
pub(super) fn serve_other(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    (command, meta): (&Command<'_>, &Meta<'_>),
    offer: Offer<'_>,
) -> CommandResult {
    let mut room = [0; DECODED_KEY_BYTES_MAX];
    let key = key_of(meta, &mut room);
    let place = (id, state, out, env);
    match command {
        Command::MetaDelete(_) => {
            let needed = if meta.invalidates || meta.removes_value { UPSERT } else { REMOVE };
            let meant =
                TranslatedRequest::new(Opcode::Delete, key).with_cas(writing::demanded(meta));
            run(place, &meant, (needed, meta), offer, |req, out| writing::delete(req, out, meta))
        }
        Command::MetaCount(_) => {
            let meant = writing::count_request(meta, key);
            let needed = READ.and(INSERT).and(UPSERT);
            run(place, &meant, (needed, meta), offer, |req, out| writing::count(req, out, meta))
        }
        Command::MetaDebug(_) => {
            let meant = TranslatedRequest::new(Opcode::Get, key);
            run(place, &meant, (READ, meta), offer, |req, out| reading::debug(req, out, meta))
        }
        _ => {
            let creates = if meta.vivify.is_some() { INSERT } else { PrivilegeSet::NONE };
            let writes = meta.expiry.or(meta.recache).or(meta.vivify).is_some();
            let changes = if writes { UPSERT } else { PrivilegeSet::NONE };
            let meant = TranslatedRequest::new(Opcode::Get, key);
            let needed = READ.and(creates).and(changes);
            run(place, &meant, (needed, meta), offer, |req, out| reading::get(req, out, meta))
        }
    }
}

/// Runs `action` as the handler of a request. An error of it is answered.
fn run(
    (id, state, out, env): (ConnectionId, &mut ConnectionState, &mut SendBuffer, &mut Environment),
    meant: &TranslatedRequest<'_>,
    (needed, meta): (PrivilegeSet, &Meta<'_>),
    offer: Offer<'_>,
    action: impl FnOnce(&mut Request<'_>, &mut SendBuffer) -> Result<(), Rejection>,
) -> CommandResult {
    let frame = meant.frame();
    let mut req = Request::new(id, &frame, meant.opcode, state, env);
    (req.section, req.ahead) = (offer.section, offer.ahead);
    (req.tries, req.received) = (offer.tries, offer.received);
    req.has_output = !out.is_empty();
    let timed = rules::rule(meant.opcode).and_then(|rule| rule.timed);
    let how = (RequiredAccess::InCollection(needed), timed, Language::Meta);
    let served = serve(&mut req, out, how, |req, out, permitted| {
        let done = permitted.and_then(|()| action(req, out));
        let Err(not_done) = done else { return End::Done };
        offered_again(req, not_done).unwrap_or_else(|| {
            reply::fail(req, out, meta, not_done);
            End::Done
        })
    });
    let received = req.received.filter(|_| served != ServeResult::Done);
    CommandResult { served, received, abandons_keys: false }
}
