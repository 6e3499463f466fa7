//! Serves requests that set a connection up: features, error map, authentication, bucket, cluster
//! configuration, version, quit.
//!
//! Clients pipeline several of these. The connection serves them strictly in order, and stops while
//! the blocking thread computes an authentication step.

use std::sync::Arc;

use oribi_auth::audit::{Actor, Event};
use oribi_auth::{SaslServer, SaslStep, mechanisms};
use oribi_protocol::feature::Feature;
use oribi_protocol::request::ConfigVersion;
use oribi_protocol::status::Status;

use super::late_outcome::{LateOutcome, LateReply};
use super::outcome::{HandlerReply, Outcome, Rejection, RuleRejection};
use super::request::Request;
use crate::buckets::BucketHandle;
use crate::connection::close_reason::CloseReason;
use crate::connection::features::Features;
use crate::connection::request_id::RequestId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::error_map::error_map;
use crate::dispatch::job::{BlockingJob, Lane};
use crate::limits::AGENT_BYTES_MAX;

/// Prefix of the agent names of Oribi's own tools, which read a histogram as one JSON document.
const HISTOGRAMS_AGENT: &[u8] = b"oribi/";

/// Bucket name that selects no bucket.
const NO_BUCKET: &[u8] = b"@no bucket@";

/// The version in the answers to VERSION and STAT. libmemcached treats a leading 0 as garbage, and
/// memcached clients guess abilities from the number. Consumers of change streams do without
/// compression below 5.5. It therefore begins with the Couchbase version that this server is like.
pub(super) const VERSION: &str = concat!("8.0.0-oribi-", env!("CARGO_PKG_VERSION"));

/// The version for clients of the text protocol, which compare it with memcached's.
pub(super) const TEXT_VERSION: &str = concat!("1.6.0-oribi-", env!("CARGO_PKG_VERSION"));

/// [`TEXT_VERSION`] as the answer to `version`.
pub(super) const VERSION_LINE: &str = concat!("VERSION 1.6.0-oribi-", env!("CARGO_PKG_VERSION"));

/// Hello: forgets the negotiated features and grants anew. A client that says HELLO is no memcached
/// client.
pub(super) fn hello<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    refuse_on_producer(req)?;
    let (codes, rest) = req.frame.value.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Rejection::Because(Status::Einval, "features are two bytes each"));
    }
    let features = Features::granted(codes.iter().map(|code| u16::from_be_bytes(*code)));
    if features.wants_cluster_maps() && !features.has(Feature::Duplex) {
        return Err(Status::Einval.into());
    }
    let reads_histograms = req.frame.key.starts_with(HISTOGRAMS_AGENT);
    req.state.greet(features, reads_histograms, req.env.now_ms);
    let granted: Vec<u8> = features.codes().flat_map(u16::to_be_bytes).collect();
    let agent = &req.frame.key[..req.frame.key.len().min(AGENT_BYTES_MAX)];
    req.state.record().agree(|agreement| {
        agreement.agent = Some(String::from_utf8_lossy(agent).into());
        agreement.features = features;
    });
    tracing::debug!(
        connection = req.connection.slot,
        agent = %agent.escape_ascii(),
        granted = granted.len() / 2,
        "hello"
    );
    Ok(HandlerReply::value(granted))
}

/// A connection with change streams keeps its user, bucket and features.
fn refuse_on_producer(req: &Request<'_>) -> Result<(), Rejection> {
    let context = "the connection is open for change streams";
    match req.state.producer {
        Some(_) => Err(Rejection::Because(Status::NotSupported, context)),
        None => Ok(()),
    }
}

/// GetErrorMap: answers with the newest version that the client understands.
pub(super) fn get_error_map<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let version = <[u8; 2]>::try_from(req.frame.value).map(u16::from_be_bytes);
    Ok(HandlerReply::Json(version.ok().and_then(error_map).ok_or(Status::Einval)?))
}

pub(super) fn sasl_list_mechs<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    refuse_on_producer(req)?;
    Ok(HandlerReply::text(mechanisms()))
}

/// SaslAuth: begins an exchange and forgets the user authenticated before.
pub(super) fn sasl_auth<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    refuse_on_producer(req)?;
    req.env.counters.auth_cmds.add(1);
    req.state.deauthenticate(req.env.now_ms);
    let mut sasl = Box::new(SaslServer::new());
    let step = sasl.start(req.frame.key, req.frame.value, &req.env.server.access.users);
    req.state.user.begin_sasl(sasl);
    advance_sasl(req, step)
}

/// SaslStep: continues an exchange.
pub(super) fn sasl_step<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    refuse_on_producer(req)?;
    let step = match req.state.user.sasl_mut() {
        Some(sasl) => sasl.step(req.frame.key, req.frame.value),
        None => SaslStep::Failed,
    };
    advance_sasl(req, step)
}

fn advance_sasl(req: &mut Request<'_>, step: SaslStep) -> Outcome<'static> {
    if let SaslStep::Slow(work) = step {
        return Ok(HandlerReply::Job(sasl_job(work)));
    }
    Ok(HandlerReply::AsLate(finish_sasl(req.state, req.env, step)))
}

/// The slow part of a SASL exchange.
pub(super) fn sasl_job(
    work: impl FnOnce() -> SaslStep + Send + 'static,
) -> BlockingJob<Environment> {
    let finish = |state: &mut ConnectionState, env: &mut Environment, _: RequestId, step| {
        Some(finish_sasl(state, env, step))
    };
    BlockingJob::new(Lane::Logins, move || work().run(), finish)
}

/// Takes the result of a computed step.
pub(super) fn finish_sasl(
    state: &mut ConnectionState,
    env: &mut Environment,
    step: SaslStep,
) -> LateOutcome {
    // The users may have changed while the step was computed.
    let step = match step {
        SaslStep::Success { identity, payload } => {
            match env.server.access.users.current(&identity.name) {
                Some(identity) => SaslStep::Success { identity, payload },
                None => SaslStep::Failed,
            }
        }
        step => step,
    };
    match step {
        SaslStep::Continue(value) => {
            Ok(LateReply { status: Status::AuthContinue, ..LateReply::value(value) })
        }
        SaslStep::Success { identity, .. }
            if !env.server.connections.admit_user(identity.access.is_admin()) =>
        {
            state.user.end_sasl();
            state.close(CloseReason::TooManyConnections);
            Err(Status::RateLimitedMaxConnections)
        }
        SaslStep::Success { identity, payload } => {
            state.user.end_sasl();
            state.authenticate(identity);
            if env.server.access.audit.is_on() {
                env.server.access.audit.record(state.actor(), Event::Authenticated);
            }
            Ok(LateReply::value(payload))
        }
        step @ (SaslStep::Failed | SaslStep::Malformed | SaslStep::Slow(_)) => {
            let sasl = state.user.end_sasl();
            env.counters.auth_errors.add(1);
            if env.audits_refusal() {
                let user = sasl.map_or_else(String::new, |sasl| sasl.claimed_name().to_owned());
                let actor = Actor { user, ..state.actor() };
                env.server.access.audit.record(actor, Event::AuthenticationFailed);
            }
            Err(match step {
                SaslStep::Malformed if state.features().is_negotiated() => Status::Einval,
                _ => Status::AuthError,
            })
        }
    }
}

/// SelectBucket. A missing bucket and a forbidden one get the same answer, for administrators too:
/// client libraries take "not found" for a bucket that is about to appear, and retry until they
/// time out.
pub(super) fn select_bucket<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    refuse_on_producer(req)?;
    if req.frame.key == NO_BUCKET {
        req.state.select_named(None);
        return Ok(HandlerReply::Success);
    }
    let name = std::str::from_utf8(req.frame.key).ok();
    let bucket = name.and_then(|name| req.env.server.buckets.get(name));
    let may_use = |bucket: &Arc<BucketHandle>| {
        req.state.identity().is_some_and(|user| user.access.reaches(bucket.name()))
    };
    match bucket {
        Some(bucket) if may_use(&bucket) => {
            req.state.select_named(Some(bucket));
            Ok(HandlerReply::Success)
        }
        _ => {
            let context = "no such bucket, or no right in it";
            Err(RuleRejection::Status(Status::Eaccess, context).into())
        }
    }
}

/// ListBuckets: names of the buckets in which the user has a right, separated by spaces.
pub(super) fn list_buckets<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let identity = req.state.identity().ok_or(Status::Eaccess)?;
    let buckets = req.env.server.buckets.list();
    let names: Vec<&str> = buckets
        .iter()
        .map(|bucket| bucket.name())
        .filter(|name| identity.access.reaches(name))
        .collect();
    Ok(HandlerReply::value(names.join(" ").into_bytes()))
}

/// GetClusterConfig, of the selected bucket or of the cluster. A client that names its version gets
/// an empty answer when there is nothing newer.
pub(super) fn get_cluster_config<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    let known = ConfigVersion::decode(req.frame.extras);
    let document = match req.state.bucket().filter(|bucket| !bucket.is_deleted()) {
        Some(bucket) => req.env.server.cluster.bucket_document(bucket),
        None => req.env.server.cluster.config.global_document(),
    };
    req.state.selection.note_config_sent(document.version);
    let current = document.version.to_wire();
    let is_current =
        |known: ConfigVersion| (known.epoch, known.revision) >= (current.epoch, current.revision);
    if known.is_some_and(is_current) {
        return Ok(HandlerReply::Success);
    }
    Ok(HandlerReply::Json(Arc::clone(&document.json)))
}

pub(super) fn version<'a>(_: &mut Request<'a>) -> Outcome<'a> {
    Ok(HandlerReply::text(VERSION))
}

/// Quit: everything before it is answered, then the connection ends.
pub(super) fn quit<'a>(req: &mut Request<'a>) -> Outcome<'a> {
    req.state.close(CloseReason::Quit);
    Ok(HandlerReply::Success)
}
