//! `oribi serve`: runs a server until a signal ends it.
//!
//! It owns logging, the ready file, signals and the exit status. Invariants: SIGTERM and SIGINT
//! stop the server in order, with every acknowledged write on disk, and the status is 0 if that
//! succeeded. The same signal again within [`SAME_REQUEST`] changes nothing. A later signal, or one
//! while a start still waits for Kudu, ends the process at once; the next start treats that as a
//! crash. SIGHUP makes a server with TLS reload its certificates; for a server without TLS it has
//! its usual meaning. The command prints nothing to standard output.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{ArgMatches, Command};
use oribi_server::config::{Settings, arguments};
use oribi_server::data_dir::write_atomically;
use oribi_server::{Addresses, Server};
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::resolve_here;

/// Signals this soon after the first are the same request. `timeout` signals the process and then
/// its group, and a terminal and a supervisor may both pass on one Ctrl-C. A server then gets two
/// in a row and must still end in order.
const SAME_REQUEST: Duration = Duration::from_secs(2);

/// The subcommand.
pub fn command() -> Command {
    Command::new("serve")
        .about("Run the server")
        .after_help(
            "Every setting has one name in three places: the flag --workers 2, the environment \
             variable ORIBI_WORKERS=2 and the key workers = 2 in the configuration file. A flag \
             wins over a variable, a variable over the file. `oribi config` prints the outcome.",
        )
        .args(arguments())
}

/// Serves until a signal.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    crate::system_allocator::configure();
    let settings = resolve_here(matches)?.settings;
    start_logging(&settings)?;
    // Registered before the start, so that a signal in between is not lost but ends the server.
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot register for signals")?;
    if settings.tls_options().is_some() {
        signals.add_signal(SIGHUP).context("cannot register for SIGHUP")?;
    }
    raise_file_limit();
    // A start that waits for a remote store can end at once: the server has served no request yet.
    let waits = Arc::new(AtomicBool::new(settings.storage.remote().is_some()));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&waits))
            .context("cannot register for signals")?;
    }

    let server = Server::start(&settings)?;
    waits.store(false, Ordering::Release);
    let addresses = server.addresses();
    if let Err(error) = write_ready_file(&settings, addresses) {
        // Otherwise a process that waits for the file would wait forever.
        server.shutdown()?;
        return Err(error);
    }
    let ready_ms = began.elapsed().as_secs_f64() * 1000.0;
    tracing::info!(
        "listening on {} (memcached binary protocol) and http://{} (admin), ready in {ready_ms:.1} ms",
        addresses.kv,
        addresses.admin
    );

    if let Some(tls) = addresses.tls {
        tracing::info!("listening with TLS on {} and https://{} (admin)", tls.kv, tls.admin);
    }
    let signal = await_end(&mut signals, &server);
    tracing::info!(
        signal,
        "stopping; a signal later than two seconds from now ends the process at once"
    );
    let first = Instant::now();
    // Registered above, so without this thread the server ignores further signals and ends in
    // order.
    let watched =
        oribi_supervisor::spawn("oribi-signals", move || end_at_once(&mut signals, first));
    if let Err(error) = watched {
        tracing::warn!(%error, "no thread for signals; the server ends in order whatever comes");
    }
    let stopped = server.shutdown();
    if let Some(path) = &settings.ready_file {
        // Best effort: the file claims a running server, and there is none.
        let _ = std::fs::remove_file(path);
    }
    stopped.context("not everything could be flushed")?;
    Ok(ExitCode::SUCCESS)
}

/// Reloads certificates at each SIGHUP, and returns the signal that ends the server.
fn await_end(signals: &mut Signals, server: &Server) -> i32 {
    for signal in signals.forever() {
        match server.context().tls() {
            // If they are not used, the log says why.
            Some(tls) if signal == SIGHUP => drop(tls.reload()),
            _ => return signal,
        }
    }
    SIGTERM
}

/// Ends the process at a later signal, without waiting for the flush. Signals that came in the
/// meantime are handled at once, however many they are.
fn end_at_once(signals: &mut Signals, first: Instant) {
    for signal in signals.forever() {
        if signal == SIGHUP {
            continue;
        }
        if first.elapsed() >= SAME_REQUEST {
            tracing::error!(signal, "another signal: ended without flushing");
            std::process::exit(1);
        }
        tracing::info!(signal, "stopping already; what is acknowledged is being flushed");
    }
}

fn start_logging(settings: &Settings) -> anyhow::Result<()> {
    let lines =
        tracing_subscriber::fmt::layer().with_writer(stderr).with_ansi(stderr().is_terminal());
    tracing_subscriber::registry().with(lines).with(log_filter(&settings.log)?).init();
    Ok(())
}

/// The log filter: a level for everything, and levels of single targets, separated by commas.
fn log_filter(text: &str) -> anyhow::Result<Targets> {
    let levels: Vec<&str> =
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if levels.is_empty() {
        return Ok(Targets::new().with_default(LevelFilter::ERROR));
    }
    levels.join(",").parse().with_context(|| format!("log: {text:?} is not a log filter"))
}

/// Each client costs a file descriptor, and the usual soft limit of 1024 is for programs that use
/// `select`, which this one does not.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::info!(%error, "the limit of open files stays as it is");
    }
}

fn write_ready_file(settings: &Settings, addresses: Addresses) -> anyhow::Result<()> {
    let Some(path) = &settings.ready_file else { return Ok(()) };
    let mut content = serde_json::json!({
        "pid": std::process::id(),
        "port": addresses.kv.port(),
        "admin_port": addresses.admin.port(),
    });
    if let Some(tls) = addresses.tls {
        content["tls_port"] = tls.kv.port().into();
        content["tls_admin_port"] = tls.admin.port().into();
    }
    write_atomically(path, content.to_string().as_bytes(), 0o644)
        .with_context(|| format!("cannot write the ready file {}", path.display()))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_log_is_filtered_by_target() {
        let filter = log_filter("info, slow_operation=off,oribi_engine=debug,").unwrap();
        assert!(filter.would_enable("oribi_server::worker", &Level::INFO));
        assert!(!filter.would_enable("oribi_server::worker", &Level::DEBUG));
        assert!(filter.would_enable("oribi_engine::flusher", &Level::DEBUG));
        assert!(!filter.would_enable("slow_operation", &Level::ERROR));
        assert!(log_filter("").unwrap().would_enable("oribi", &Level::ERROR));
        let error = log_filter("info,oribi=loud").unwrap_err().to_string();
        assert!(error.contains("is not a log filter"), "{error}");
    }
}
