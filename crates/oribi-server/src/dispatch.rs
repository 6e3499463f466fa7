//! From a decoded frame to its handler: one arm, one call per opcode.
//!
//! Owns: the order of the checks that every request passes (is it known, may this user send it, has it
//! the right shape, are its framing extras understood) and the list of handlers. Invariants: a refused
//! request is answered and the connection goes on; no handler runs before its [`rules::Rule`] is
//! satisfied; nothing here allocates, and only sampled commands read a clock. Called by the connection for each frame. It does not read or
//! write sockets and does not wait: a handler that has to wait says so in the connection's state.

mod access;
mod collections;
mod counter;
mod exchange;
mod handshake;
mod key_listing;
mod locks;
mod observing;
mod range_scan;
mod reads;
mod rules;
mod sampling;
mod stats;
mod sub_document;
mod with_meta;
mod writes;

use oribi_engine::FillingItem;
use oribi_protocol::feature::Feature;
use oribi_protocol::frame_info::{self, RequestFrames};
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::Datatype;

use crate::connection::fetches::Tries;
use crate::connection::state::{ConnectionState, Wait};
use crate::counters::timings::CommandKind;
use crate::environment::Environment;
use crate::slow_operation_log::{Operation, OperationClass};
use crate::status;

pub(crate) use exchange::{Exchange, write_answer, write_context};
pub(crate) use handshake::{finish_answer, finish_flush, finish_sasl};
pub(crate) use range_scan::{ContinuedScan, finish_range_scan, resume_range_scan};
pub(crate) use stats::{
    PreparedStat, StatCursor, StatPreparation, begin_stat, continue_stat, fetched,
};

use access::Refusal;
use rules::{Rule, Who};

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// It was dealt with.
    Done,
    /// It has to wait until what is parked is answered; offer it again then.
    Later,
    /// It needs something from the store; offer it again when that was fetched.
    Fetch {
        /// Later requests may be served meanwhile.
        overtakable: bool,
        /// What is to be known of it then.
        tries: Tries,
    },
}

/// True when this opcode, sent by a client that has not said HELLO, makes it a memcached client.
pub(crate) fn makes_legacy(code: u8) -> bool {
    Opcode::from_u8(code).and_then(rules::rule).is_some_and(|rule| rule.who != Who::Anybody)
}

/// Most bytes of a request's value that are received: a document's, and its attributes where they come along.
pub(crate) fn value_bytes_max(code: u8) -> usize {
    match Opcode::from_u8(code).and_then(rules::rule) {
        Some(rule) if rule.datatypes & Datatype::XATTR.0 != 0 => with_meta::SENT_BYTES_MAX,
        _ => VALUE_BYTES_MAX,
    }
}

/// Answers one request whose opcode is not known at all.
pub(crate) fn opcode_of(code: u8) -> Option<Opcode> {
    Opcode::from_u8(code)
}

/// Serves one request.
pub(crate) fn serve(x: &mut Exchange<'_>) -> Served {
    let is_first = x.tries.is_first();
    if is_first {
        x.env.counters.cmd_total.add(1);
        if x.env.stretch.is_full() {
            end_stretch(x.state, x.env);
        }
        x.env.stretch.push(x.frame.header.opcode);
        if x.state.features.has(Feature::Tracing) {
            x.tries.begun_ns = x.env.latency_clock.now_ns().max(1);
        }
    }
    let Some(rule) = rules::rule(x.opcode) else {
        x.answer_refusal(match x.state.identity {
            Some(_) => Refusal::Status(Status::NotSupported, "this server does not know how"),
            None => Refusal::Status(Status::Eaccess, "authenticate first"),
        });
        return Served::Done;
    };
    if let Err(refusal) = check(x, rule) {
        x.answer_refusal(refusal);
        return Served::Done;
    }
    let in_order = x.infos.barrier || !rule.reorders;
    if in_order && x.state.has_parked() {
        x.state.wait = Wait::Parked;
        return Served::Later;
    }
    if is_first {
        x.tries.weight = rule.timed.and_then(|kind| sample(x, kind)).unwrap_or(0);
    }
    match rule.timed.filter(|_| x.tries.weight != 0) {
        Some(kind) => call_timed(x, kind),
        None => call(x),
    }
    if x.needs_fetch {
        let overtakable = !in_order && x.state.features.has(Feature::UnorderedExecution);
        return Served::Fetch { overtakable, tries: x.tries };
    }
    if x.tries.begun_ns != 0 || !is_first {
        note_if_slow(x, rule);
    }
    Served::Done
}

/// Tells the slow operation log about a request that is done, of which something is known about its time.
fn note_if_slow(x: &mut Exchange<'_>, rule: &Rule) {
    let Tries { begun_ns, waiting_since_ms, .. } = x.tries;
    let fetch_ms = match waiting_since_ms {
        0 => 0,
        since_ms => x.env.now_ms.saturating_sub(since_ms),
    };
    // What was measured from the first try on has the wait in it.
    let elapsed_us = (begun_ns != 0)
        .then(|| x.env.latency_clock.now_ns().saturating_sub(begun_ns) / 1_000)
        .map(|all_us| all_us.saturating_sub(fetch_ms * 1_000));
    let operation = Operation {
        opcode: x.frame.header.opcode,
        class: rule.class(),
        connection: x.state.record.number,
        user: x.state.identity.as_ref().map_or("", |identity| &identity.name),
        bucket: x.state.bucket.as_ref().map_or("", |bucket| bucket.name()),
        key: x.frame.key,
        execute_us: elapsed_us,
        fetch_ms,
        persist_ms: 0,
    };
    x.env.slow.note(x.env.now_ms, &operation);
}

/// Reads the clock for the requests since it was last read for them, and tells the slow operation log when that
/// is long ago. What is measured by itself is not told twice.
pub(crate) fn end_stretch(state: &ConnectionState, env: &mut Environment) {
    let Some(least_us) = env.slow.least_us() else { return };
    let now_ns = env.latency_clock.now_ns();
    let elapsed_us = env.stretch.elapsed_us(now_ns);
    if elapsed_us >= least_us && !state.features.has(Feature::Tracing) {
        note_stretch(state, env, elapsed_us);
    }
    env.stretch.begin(now_ns);
}

#[cold]
fn note_stretch(state: &ConnectionState, env: &mut Environment, elapsed_us: u64) {
    let opcodes = env.stretch.opcodes();
    let class_of = |code: &u8| {
        let rule = opcode_of(*code).and_then(rules::rule);
        rule.map_or(OperationClass::Other, Rule::class)
    };
    let classes: Vec<OperationClass> = opcodes.iter().map(class_of).collect();
    let (Some(opcode), Some(class)) = (opcodes.first(), classes.first()) else { return };
    let operation = Operation {
        opcode: *opcode,
        class: *class,
        connection: state.record.number,
        user: state.identity.as_ref().map_or("", |identity| &identity.name),
        bucket: state.bucket.as_ref().map_or("", |bucket| bucket.name()),
        key: b"",
        execute_us: Some(elapsed_us),
        fetch_ms: 0,
        persist_ms: 0,
    };
    env.slow.note_stretch(env.now_ms, &operation, (opcodes, &classes));
}

/// An item for the value of a store request, `value_bytes` long, of which all else is there. `None` when
/// it would be refused; it is then received and answered as usual.
pub(crate) fn begin_store(x: &mut Exchange<'_>, value_bytes: usize) -> Option<FillingItem> {
    let rule = rules::rule(x.opcode)?;
    check(x, rule).ok()?;
    writes::begin_store(x, value_bytes)
}

/// Counts a command that is about to run; its weight when it is to be timed.
fn sample(x: &Exchange<'_>, kind: CommandKind) -> Option<u8> {
    x.state.operations.as_ref()?.timings().sample(kind)
}

/// Records how long the try took that was the last one.
fn call_timed(x: &mut Exchange<'_>, kind: CommandKind) {
    let begun_ns = x.env.latency_clock.now_ns();
    call(x);
    let elapsed_ns = x.env.latency_clock.now_ns().saturating_sub(begun_ns);
    if let Some(operations) = x.state.operations.as_ref().filter(|_| !x.needs_fetch) {
        operations.timings().record(kind, elapsed_ns, x.tries.weight);
    }
}

/// Everything that can be said about a request without running it.
fn check(x: &mut Exchange<'_>, rule: &Rule) -> Result<(), Refusal> {
    access::check(x, rule.who)?;
    let datatype = x.frame.header.datatype;
    if !rule.admits(x.frame) {
        return Err(Refusal::Status(Status::Einval, rule.misfit(x.frame)));
    }
    if datatype != 0 {
        check_datatype(x, rule, datatype)?;
    }
    if x.frame.header.magic == Magic::AltClientRequest {
        x.infos = decode_infos(x, rule)?;
    }
    Ok(())
}

fn check_datatype(x: &Exchange<'_>, rule: &Rule, datatype: u8) -> Result<(), Refusal> {
    if datatype & !rule.datatypes != 0 {
        return Err(Refusal::Status(Status::Einval, "this command does not take this datatype"));
    }
    if !x.state.features.admits_datatype(datatype) {
        return Err(Refusal::Status(Status::Einval, "this datatype was not negotiated"));
    }
    Ok(())
}

fn decode_infos(x: &Exchange<'_>, rule: &Rule) -> Result<RequestFrames, Refusal> {
    let features = x.state.features;
    let refuse = |status, context| Err(Refusal::Status(status, context));
    if !features.has(Feature::AltRequest) {
        return refuse(Status::Einval, "framing extras were not negotiated");
    }
    let infos = frame_info::decode(x.frame.framing).map_err(|error| {
        Refusal::Status(status::of_frame_info(error), "the framing extras are not understood")
    })?;
    if infos.stream_id.is_some() {
        return refuse(Status::Einval, "only change streams have a stream id");
    }
    if let Some(durability) = infos.durability {
        if !rule.durable {
            return refuse(Status::Einval, "this command takes no durability level");
        }
        if !features.has(Feature::SyncReplication) {
            return refuse(Status::NotSupported, "durable writes were not negotiated");
        }
        let is_in_memory = x.state.bucket.as_ref().is_some_and(|bucket| bucket.is_in_memory());
        if durability.level.needs_persistence() && is_in_memory {
            return refuse(Status::DurabilityInvalidLevel, "the bucket is in memory only");
        }
    }
    if infos.preserve_expiry {
        if !rule.preserves_expiry {
            return refuse(Status::Einval, "this command cannot keep the expiry");
        }
        if !features.has(Feature::PreserveTtl) {
            return refuse(Status::NotSupported, "keeping the expiry was not negotiated");
        }
    }
    Ok(infos)
}

/// The list of handlers.
fn call(x: &mut Exchange<'_>) {
    match x.opcode {
        Opcode::Get | Opcode::Getq => reads::get(x),
        Opcode::Getk | Opcode::Getkq => reads::get_with_key(x),
        Opcode::Gat | Opcode::Gatq => reads::get_and_touch(x),
        Opcode::GetLocked => locks::get_locked(x),
        Opcode::UnlockKey => locks::unlock(x),
        Opcode::GetMeta | Opcode::GetqMeta => reads::get_meta(x),
        Opcode::ObserveSeqno => reads::observe_seqno(x),
        Opcode::GetAllVbSeqnos => reads::get_all_vb_seqnos(x),
        Opcode::GetFailoverLog => observing::failover_log(x),
        Opcode::Observe => observing::observe(x),
        Opcode::GetRandomKey => sampling::get_random_key(x),
        Opcode::GetKeys => key_listing::get_keys(x),
        Opcode::EvictKey => sampling::evict_key(x),
        Opcode::SetWithMeta
        | Opcode::SetqWithMeta
        | Opcode::AddWithMeta
        | Opcode::AddqWithMeta
        | Opcode::DelWithMeta
        | Opcode::DelqWithMeta => with_meta::store(x),
        Opcode::Set | Opcode::Setq => writes::set(x),
        Opcode::Add | Opcode::Addq => writes::add(x),
        Opcode::Replace | Opcode::Replaceq => writes::replace(x),
        Opcode::Append | Opcode::Appendq => writes::append(x),
        Opcode::Prepend | Opcode::Prependq => writes::prepend(x),
        Opcode::Delete | Opcode::Deleteq => writes::delete(x),
        Opcode::Touch => writes::touch(x),
        Opcode::Flush | Opcode::Flushq => writes::flush(x),
        Opcode::Increment | Opcode::Incrementq => counter::increment(x),
        Opcode::Decrement | Opcode::Decrementq => counter::decrement(x),
        Opcode::SubdocGet | Opcode::SubdocExists | Opcode::SubdocGetCount => {
            sub_document::look_up_one(x);
        }
        Opcode::SubdocMultiLookup => sub_document::look_up_several(x),
        Opcode::SubdocDictAdd
        | Opcode::SubdocDictUpsert
        | Opcode::SubdocDelete
        | Opcode::SubdocReplace
        | Opcode::SubdocArrayPushLast
        | Opcode::SubdocArrayPushFirst
        | Opcode::SubdocArrayInsert
        | Opcode::SubdocArrayAddUnique
        | Opcode::SubdocCounter
        | Opcode::SubdocReplaceBodyWithXattr => sub_document::mutate_one(x),
        Opcode::SubdocMultiMutation => sub_document::mutate_several(x),
        Opcode::Hello => handshake::hello(x),
        Opcode::GetErrorMap => handshake::get_error_map(x),
        Opcode::SaslListMechs => handshake::sasl_list_mechs(x),
        Opcode::SaslAuth => handshake::sasl_auth(x),
        Opcode::SaslStep => handshake::sasl_step(x),
        Opcode::SelectBucket => handshake::select_bucket(x),
        Opcode::ListBuckets => handshake::list_buckets(x),
        Opcode::GetClusterConfig => handshake::get_cluster_config(x),
        Opcode::Noop | Opcode::Verbosity => x.succeed(),
        Opcode::Version => handshake::version(x),
        Opcode::Quit | Opcode::Quitq => handshake::quit(x),
        Opcode::CollectionsGetManifest => collections::get_manifest(x),
        Opcode::CollectionsGetId => collections::get_collection_id(x),
        Opcode::CollectionsGetScopeId => collections::get_scope_id(x),
        Opcode::Stat => stats::stat(x),
        Opcode::RangeScanCreate => range_scan::create(x),
        Opcode::RangeScanContinue => range_scan::proceed(x),
        Opcode::RangeScanCancel => range_scan::cancel(x),
        _ => x.fail(Status::NotSupported),
    }
}

#[cfg(test)]
mod tests;
