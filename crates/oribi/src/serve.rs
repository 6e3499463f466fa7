//! `oribi serve`: runs a server until a signal ends it.
//!
//! Owns: logging, the ready file, signals and the exit status. Invariants: SIGTERM and SIGINT stop the
//! server in order, with everything acknowledged on disk, and the status is 0 if that succeeded; a
//! second signal, or one while a start still waits for Kudu, ends the process at once, which the next start treats as a crash; SIGHUP makes a server
//! with TLS read its certificates again, and means to any other what it means to every process; nothing is
//! printed to standard output.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::{ArgMatches, Command};
use oribi_server::config::{Settings, arguments};
use oribi_server::data_dir::write_atomically;
use oribi_server::{Addresses, Server};
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;

use crate::config::resolve_here;

/// Libraries whose news are the operator's only when something is wrong; `--log` can say otherwise.
const QUIET_MODULES: &str = "fjall=warn,lsm_tree=warn";

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
    let settings = resolve_here(matches)?.settings;
    start_logging(&settings)?;
    // Registered before the start, so that a signal in between is not lost but ends what was started.
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot register for signals")?;
    if settings.tls_options().is_some() {
        signals.add_signal(SIGHUP).context("cannot register for SIGHUP")?;
    }
    raise_file_limit();
    // A start that waits for a store behind a network can be ended at once: nothing was served yet.
    let waits = Arc::new(AtomicBool::new(settings.storage.remote().is_some()));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&waits))
            .context("cannot register for signals")?;
    }

    let server = Server::start(&settings)?;
    waits.store(false, Ordering::Release);
    let addresses = server.addresses();
    if let Err(error) = write_ready_file(&settings, addresses) {
        // Whoever waits for the file would wait for ever.
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
    tracing::info!(signal, "stopping; a second signal ends the process at once");
    std::thread::spawn(move || {
        if signals.forever().any(|signal| signal != SIGHUP) {
            tracing::error!("second signal: ended without flushing");
            std::process::exit(1);
        }
    });
    let stopped = server.shutdown();
    if let Some(path) = &settings.ready_file {
        // Best effort: the file says that a server serves, and none does.
        let _ = std::fs::remove_file(path);
    }
    stopped.context("not everything could be flushed")?;
    Ok(ExitCode::SUCCESS)
}

/// Reads certificates again at each SIGHUP, and returns the signal that ends the server.
fn await_end(signals: &mut Signals, server: &Server) -> i32 {
    for signal in signals.forever() {
        match server.context().tls() {
            // Why they are not used, if so, is in the log.
            Some(tls) if signal == SIGHUP => drop(tls.reload()),
            _ => return signal,
        }
    }
    SIGTERM
}

fn start_logging(settings: &Settings) -> anyhow::Result<()> {
    let directives = format!("{QUIET_MODULES},{}", settings.log);
    let filter = EnvFilter::try_new(directives)
        .with_context(|| format!("log: {:?} is not a log filter", settings.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .init();
    Ok(())
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
