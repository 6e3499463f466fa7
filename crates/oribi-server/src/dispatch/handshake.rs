//! Requests that set a connection up: features, error map, authentication, bucket, cluster
//! configuration, version, quit.
//!
//! Clients send several of these without waiting for answers; the connection serves them strictly in
//! order, and stops serving while an authentication step is computed on the blocking thread.

use std::sync::Arc;

use oribi_engine::FlushAllError;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::ConfigVersion;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

use super::access::Refusal;
use super::exchange::Exchange;
use crate::audit::{Actor, Event};
use crate::auth::{SaslServer, SaslStep, mechanisms};
use crate::blocking_thread::Job;
use crate::connection::close_reason::CloseReason;
use crate::connection::features::Features;
use crate::connection::state::{ConnectionState, Wait};
use crate::connection::write_buffer::WriteBuffer;
use crate::environment::Environment;
use crate::error_map::error_map;
use crate::limits::AGENT_BYTES_MAX;

/// An agent with this in its name reads histograms in the form that Couchbase's older tools know.
const RANGE_LINES_AGENT: &[u8] = b"cbstat";

/// Name that selects no bucket.
const NO_BUCKET: &[u8] = b"@no bucket@";

/// What VERSION and STAT answer. libmemcached takes a leading 0 for garbage, and memcached clients guess
/// abilities from the number, so it begins with the memcached version whose protocol is spoken here.
/// Client libraries that say HELLO do not look at it.
pub(super) const VERSION: &str = concat!("1.6.0-oribi-", env!("CARGO_PKG_VERSION"));

/// Hello: forgets what was negotiated and grants anew. A client that says HELLO is no memcached client.
pub(super) fn hello(x: &mut Exchange<'_>) {
    let (codes, rest) = x.frame.value.as_chunks::<2>();
    if !rest.is_empty() {
        return x.fail_with(Status::Einval, "features are two bytes each");
    }
    if x.state.is_legacy {
        x.state.deauthenticate(x.env.now_ms);
    }
    let features = Features::granted(codes.iter().map(|code| u16::from_be_bytes(*code)));
    if features.wants_cluster_maps() && !features.has(Feature::Duplex) {
        return x.fail(Status::Einval);
    }
    x.state.said_hello = true;
    x.state.features = features;
    let mut reply = [0_u8; 128];
    let mut used = 0;
    for code in features.codes() {
        reply[used..used + 2].copy_from_slice(&code.to_be_bytes());
        used += 2;
    }
    let agent = &x.frame.key[..x.frame.key.len().min(AGENT_BYTES_MAX)];
    x.state.wants_range_lines =
        x.frame.key.windows(RANGE_LINES_AGENT.len()).any(|part| part == RANGE_LINES_AGENT);
    x.state.record.agree(|agreement| {
        agreement.agent = Some(String::from_utf8_lossy(agent).into());
        agreement.features = features;
    });
    tracing::debug!(
        connection = x.id.slot,
        agent = %agent.escape_ascii(),
        granted = used / 2,
        "hello"
    );
    x.send_value(&reply[..used]);
}

/// GetErrorMap: the newest version that the client understands.
pub(super) fn get_error_map(x: &mut Exchange<'_>) {
    let version = <[u8; 2]>::try_from(x.frame.value).map(u16::from_be_bytes);
    match version.ok().and_then(error_map) {
        Some(json) => x.send_document(Status::Success, &json),
        None => x.fail(Status::Einval),
    }
}

/// SaslListMechs.
pub(super) fn sasl_list_mechs(x: &mut Exchange<'_>) {
    x.send_value(mechanisms().as_bytes());
}

/// SaslAuth: begins an exchange; whoever was authenticated is not any more.
pub(super) fn sasl_auth(x: &mut Exchange<'_>) {
    x.env.counters.auth_cmds.add(1);
    x.state.deauthenticate(x.env.now_ms);
    let mut sasl = Box::new(SaslServer::new());
    let step = sasl.start(x.frame.key, x.frame.value, &x.env.server.users);
    x.state.sasl = Some(sasl);
    advance_sasl(x, step);
}

/// SaslStep: goes on with an exchange.
pub(super) fn sasl_step(x: &mut Exchange<'_>) {
    let step = match &mut x.state.sasl {
        Some(sasl) => sasl.step(x.frame.key, x.frame.value),
        None => SaslStep::Failed,
    };
    advance_sasl(x, step);
}

fn advance_sasl(x: &mut Exchange<'_>, step: SaslStep) {
    let header = x.frame.header;
    match step {
        SaslStep::Slow(work) => {
            x.state.wait = Wait::Job { opcode: header.opcode, opaque: header.opaque };
            x.env.jobs.push((x.id, Job::Sasl(work)));
        }
        step => finish_sasl(x.state, x.out, x.env, (header.opcode, header.opaque), step),
    }
}

/// Answers a step that is computed. `request` is opcode and opaque.
pub(crate) fn finish_sasl(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    env: &mut Environment,
    request: (u8, u32),
    step: SaslStep,
) {
    // The users may have changed while the step was computed.
    let step = match step {
        SaslStep::Success { identity, payload } => match env.server.users.current(&identity.name) {
            Some(identity) => SaslStep::Success { identity, payload },
            None => SaslStep::Failed,
        },
        step => step,
    };
    let (status, value) = match step {
        SaslStep::Continue(value) => (Status::AuthContinue, value),
        SaslStep::Success { identity, .. }
            if !env.server.admit_user(identity.access.is_admin()) =>
        {
            state.sasl = None;
            state.close(CloseReason::TooManyConnections);
            (state.wire_status(Status::RateLimitedMaxConnections), Vec::new())
        }
        SaslStep::Success { identity, payload } => {
            state.sasl = None;
            state.authenticate(identity);
            if env.server.audit.is_on() {
                env.server.audit.record(state.actor(), Event::Authenticated);
            }
            (Status::Success, payload)
        }
        SaslStep::Failed | SaslStep::Slow(_) => {
            let sasl = state.sasl.take();
            env.counters.auth_errors.add(1);
            if env.audits_refusal() {
                let user = sasl.map_or_else(String::new, |sasl| sasl.claimed_name().to_owned());
                let actor = Actor { user, ..state.actor() };
                env.server.audit.record(actor, Event::AuthenticationFailed);
            }
            (Status::AuthError, Vec::new())
        }
    };
    let parts = ResponseParts { value: &value, ..ResponseParts::new(request.0, status, request.1) };
    write_response(out.tail(), &parts);
}

/// Answers a flush that is done. `request` is opcode and opaque.
pub(crate) fn finish_flush(
    out: &mut WriteBuffer,
    request: (u8, u32),
    result: &Result<(), FlushAllError>,
) {
    let is_quiet = Opcode::from_u8(request.0).is_some_and(Opcode::is_quiet);
    let status = match result {
        Ok(()) if is_quiet => return,
        Ok(()) => Status::Success,
        Err(FlushAllError::Disabled | FlushAllError::NotAllHere) => Status::NotSupported,
        Err(FlushAllError::WarmingUp) => Status::Etmpfail,
        Err(error) => {
            tracing::error!(%error, "flush_all failed");
            Status::Etmpfail
        }
    };
    write_response(out.tail(), &ResponseParts::new(request.0, status, request.1));
}

/// Answers a request whose answer the blocking thread has made.
pub(crate) fn finish_answer(
    state: &ConnectionState,
    out: &mut WriteBuffer,
    request: (u8, u32),
    (status, value): (Status, &[u8]),
) {
    let status = state.wire_status(status);
    let parts = ResponseParts::new(request.0, status, request.1);
    write_response(out.tail(), &ResponseParts { value, ..parts });
}

/// SelectBucket. A bucket that is not there and one that may not be used look the same.
pub(super) fn select_bucket(x: &mut Exchange<'_>) {
    if x.frame.key == NO_BUCKET {
        x.state.select(None);
        return x.succeed();
    }
    let name = std::str::from_utf8(x.frame.key).ok();
    const REFUSED: Refusal = Refusal::Status(Status::Eaccess, "no such bucket, or no right in it");
    let Some(bucket) = name.and_then(|name| x.env.server.buckets.get(name)) else {
        return x.answer_refusal(REFUSED);
    };
    let previous = x.state.bucket.take();
    x.state.select(Some(bucket));
    if !x.state.rights.somewhere().is_empty() {
        return x.succeed();
    }
    x.state.select(previous);
    x.answer_refusal(REFUSED);
}

/// ListBuckets: names that the user has a right in, separated by spaces.
pub(super) fn list_buckets(x: &mut Exchange<'_>) {
    let Some(identity) = &x.state.identity else { return x.fail(Status::Eaccess) };
    let buckets = x.env.server.buckets.list();
    let names: Vec<&str> = buckets
        .iter()
        .map(|bucket| bucket.name())
        .filter(|name| identity.access.reaches(name))
        .collect();
    x.send_value(names.join(" ").as_bytes());
}

/// GetClusterConfig, of the selected bucket or of the cluster. A client that names the version it has
/// gets an empty answer when there is nothing newer.
pub(super) fn get_cluster_config(x: &mut Exchange<'_>) {
    let known = match ConfigVersion::decode(x.frame.extras) {
        Some(_) if !x.state.features.has(Feature::GetClusterConfigWithKnownVersion) => {
            let context = "naming the known version was not negotiated";
            return x.fail_with(Status::Einval, context);
        }
        known => known,
    };
    let document = match x.state.bucket.as_ref().filter(|bucket| !bucket.is_deleted()) {
        Some(bucket) => x.env.server.bucket_document(bucket),
        None => x.env.server.cluster.global_document(),
    };
    x.state.config_sent = document.version;
    let current = document.version.to_wire();
    let is_current =
        |known: ConfigVersion| (known.epoch, known.revision) >= (current.epoch, current.revision);
    if known.is_some_and(is_current) {
        return x.succeed();
    }
    x.send_document(Status::Success, &Arc::clone(&document.json));
}

/// Version.
pub(super) fn version(x: &mut Exchange<'_>) {
    x.send_value(VERSION.as_bytes());
}

/// Quit: everything before it is answered, then the connection ends.
pub(super) fn quit(x: &mut Exchange<'_>) {
    if !x.opcode.is_quiet() {
        x.succeed();
    }
    x.state.close(CloseReason::Quit);
}
