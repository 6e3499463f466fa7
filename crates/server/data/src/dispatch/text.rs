//! Serves commands of memcached's text protocol by the handlers of the binary protocol.
//!
//! Owns: the binary request that each command means, and the steps around its handler. Rights,
//! counters, timings, fetches and waits for memory are those of the binary request. [`answer`]
//! writes what the client gets.
//!
//! Invariants:
//! - a command is answered once, or offered again and answered then;
//! - nothing is allocated on behalf of `get`, `set` and their like.
//!
//! The connection calls this for each command.

mod answer;
mod handling;
mod late;
mod marks;
mod meta;
mod serving;
mod translated_request;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::ExpiryExtras;
use oribi_protocol::text::{Command, Store};

use crate::connection::close_reason::CloseReason;
use crate::connection::send_buffer::SendBuffer;
use crate::connection::waker::ConnectionId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use answer::{Form, Verb};
use serving::{DONE, Language, run};
use translated_request::TranslatedRequest;

pub(crate) use late::{answer_parked, begin_login, continue_stat, finish, refuse_line};
pub(crate) use serving::{CommandResult, Offer};
pub(crate) use translated_request::translate;

pub(crate) fn serve_command(
    id: ConnectionId,
    state: &mut ConnectionState,
    out: &mut SendBuffer,
    env: &mut Environment,
    command: &Command<'_>,
    offer: Offer<'_>,
) -> CommandResult {
    let simple = |meant: TranslatedRequest<'_>, form, offer, (state, out, env)| {
        run(id, state, out, env, &meant, form, offer)
    };
    let place = (&mut *state, &mut *out, &mut *env);
    match *command {
        Command::Get { key, keys, is_last } => {
            let form = Form::Value { key, with_cas: keys.with_cas, is_last };
            simple(TranslatedRequest::get(key, keys), form, offer, place)
        }
        Command::Store(store) if !store.is_terminated && offer.received.is_none() => {
            answer::line(out, "CLIENT_ERROR bad data chunk", store.quiet && store.meta.is_none());
            DONE
        }
        Command::Store(Store { meta: Some(meta), .. }) => {
            let Command::Store(store) = command else { return DONE };
            meta::serve_set(id, state, out, env, (store, &meta), offer)
        }
        Command::Store(store) => {
            let form = Form::Line { verb: Verb::Store(store.mode), quiet: store.quiet };
            let meant = TranslatedRequest::store(&store, store.key).quiet_if(store.quiet);
            simple(meant, form, offer, place)
        }
        Command::Delete { key, quiet } => {
            let form = Form::Line { verb: Verb::Delete, quiet };
            let meant = TranslatedRequest::new(Opcode::Delete, key).quiet_if(quiet);
            simple(meant, form, offer, place)
        }
        Command::Count { key, delta, decrement, quiet } => {
            let form = Form::Line { verb: Verb::Count, quiet };
            let meant = TranslatedRequest::count(key, delta, decrement).quiet_if(quiet);
            simple(meant, form, offer, place)
        }
        Command::Touch { key, expiry, quiet } => {
            let meant = TranslatedRequest::new(Opcode::Touch, key).quiet_if(quiet);
            let meant = meant.with_extras(ExpiryExtras { expiry }.encode());
            simple(meant, Form::Line { verb: Verb::Touch, quiet }, offer, place)
        }
        Command::FlushAll { delay, quiet } => {
            let meant = TranslatedRequest::new(Opcode::Flush, b"").quiet_if(quiet);
            let meant = meant.with_extras(ExpiryExtras { expiry: delay }.encode());
            simple(meant, Form::Line { verb: Verb::Flush, quiet }, offer, place)
        }
        Command::Stats { group } => {
            let group = late::group_of(group);
            simple(
                TranslatedRequest::new(Opcode::Stat, group),
                Form::Line { verb: Verb::Stat, quiet: false },
                offer,
                place,
            )
        }
        Command::MetaGet(ref meta)
        | Command::MetaDelete(ref meta)
        | Command::MetaCount(ref meta)
        | Command::MetaDebug(ref meta) => {
            meta::serve_other(id, state, out, env, (command, meta), offer)
        }
        _ => {
            let language = match command {
                Command::Version | Command::Verbosity { .. } | Command::Quit => {
                    Some(Language::Text)
                }
                Command::MetaNoop => Some(Language::Meta),
                _ => None,
            };
            if let Some(language) = language {
                env.counters.cmd_total.add(1);
                language.counter(&env.counters).add(1);
            }
            tell(state, out, command);
            DONE
        }
    }
}

/// Answers a command that touches no document.
fn tell(state: &mut ConnectionState, out: &mut SendBuffer, command: &Command<'_>) {
    match *command {
        Command::End => answer::line(out, "END", false),
        Command::Version => answer::line(out, answer::VERSION, false),
        // There is nothing to make more verbose, and memcached's clients expect it to work.
        Command::Verbosity { quiet } => answer::line(out, "OK", quiet),
        Command::MetaNoop => answer::line(out, "MN", false),
        Command::Quit => state.close(CloseReason::Quit),
        Command::Invalid(fault) => answer::line(out, fault.answer, fault.quiet),
        _ => debug_assert!(false, "it is served by a handler"),
    }
}
