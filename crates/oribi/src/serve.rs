//! `oribi serve`: runs a server until a signal ends it.
//!
//! It owns the ready file, the order of a start and an end, and the exit status; [`logging`],
//! [`signals`] and [`reloading`] own the rest. Invariants: SIGTERM and SIGINT stop the server in
//! order, with every acknowledged write on disk, and the status is 0 if that succeeded. A third
//! signal, one after five seconds, or one while a start still waits for Kudu ends the process at
//! once; the next start treats that as a crash. SIGHUP reloads certificates and configuration,
//! unless the server's terminal is gone. The command prints nothing to standard output.

mod logging;
mod reloading;
mod signals;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::{ArgMatches, Command};
#[cfg(feature = "admin")]
use oribi_admin::start_server;
use oribi_config::{ResolvedSettings, Settings, arguments};
use oribi_server::bucket_settings;
use oribi_server::{Addresses, Administrator, Server};
use oribi_system::data_file::write_atomically;
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::reloading::Reloader;
use crate::config::{misspelt_here, resolve_here};
use crate::notify::Notifier;

/// Environment variable with the password of the administrator that is there from the start.
const ADMIN_PASSWORD_VARIABLE: &str = "ORIBI_ADMIN_PASSWORD";

pub fn command() -> Command {
    Command::new("serve")
        .about("Run the server")
        .after_help(
            "Every setting has one name in three places: the flag --workers 2, the environment \
             variable ORIBI_WORKERS=2 and the key workers = 2 in the configuration file. A flag \
             wins over a variable, a variable over the file. `oribi config` prints the outcome.\n\n\
             Examples:\n  \
             oribi serve\n  \
             oribi serve --data-dir /var/lib/oribi --memory-quota-mib 4096 --buckets default,orders\n  \
             oribi serve --cache --memory-quota-mib 1024\n  \
             oribi serve --tls-certificate server.pem --tls-key server.key",
        )
        .args(arguments())
}

/// Serves until a signal.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    crate::system_allocator::configure();
    let resolved = resolve_here(matches)?;
    let settings = resolved.settings.clone();
    let filter = logging::start(&settings)?;
    let data_dir = std::path::absolute(&settings.data_dir).unwrap_or(settings.data_dir.clone());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data_dir = %data_dir.display(),
        "Oribi starts"
    );
    for (name, nearest) in misspelt_here() {
        tracing::warn!(%name, "nothing reads this environment variable; {nearest} resembles it");
    }
    // Registered before the start, so that a signal in between is not lost but ends the server.
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot register for signals")?;
    raise_file_limit();
    // A start that waits for a remote store can end at once: the server has served no request yet.
    let waits = Arc::new(AtomicBool::new(settings.storage.remote().is_some()));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&waits))
            .context("cannot register for signals")?;
    }

    let server = start_server(&settings, administrator())?;
    waits.store(false, Ordering::Release);
    let addresses = server.addresses();
    if let Err(error) = write_ready_file(&settings, addresses) {
        // Otherwise a process that waits for the file would wait forever.
        server.shutdown()?;
        return Err(error);
    }
    warn_of_ignored(&resolved, &server);
    let ready_ms = began.elapsed().as_secs_f64() * 1000.0;
    if cfg!(feature = "admin") {
        tracing::info!(
            "listening on {} (key-value) and http://{} (admin), ready in {ready_ms:.1} ms",
            addresses.kv,
            addresses.admin
        );
    } else {
        tracing::info!("listening on {} (key-value), ready in {ready_ms:.1} ms", addresses.kv);
        tracing::warn!("this build has no admin HTTP: build it with --features admin");
    }
    if let Some(tls) = addresses.tls {
        tracing::info!("listening with TLS on {} and https://{} (admin)", tls.kv, tls.admin);
    }
    if let Some(query) = addresses.query.filter(|query| *query != addresses.admin) {
        tracing::info!("listening for queries on http://{query}");
    }
    let mut reloader = Reloader { matches, in_force: resolved, filter };
    let notifier = Notifier::ready(server.progress());
    let signal = await_end(&mut signals, &server, &mut reloader, &notifier);
    notifier.stopping();
    tracing::info!(
        signal,
        "stopping; a third signal, or one after five seconds, ends the process without flushing"
    );
    let first = Instant::now();
    // Registered above, so without this thread the server ignores further signals and ends in
    // order.
    let watched =
        oribi_supervisor::spawn("oribi-signals", move || signals::end_at_once(&mut signals, first));
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

#[cfg(not(feature = "admin"))]
fn start_server(
    settings: &Settings,
    administrator: Option<Administrator>,
) -> Result<Server, oribi_server::StartError> {
    Server::start_with(settings, administrator, None)
}

/// The administrator's password in the environment. It is no setting, because settings are printed
/// and recorded.
fn administrator() -> Option<Administrator> {
    let password = std::env::var_os(ADMIN_PASSWORD_VARIABLE)?;
    Some(Administrator { password: std::os::unix::ffi::OsStringExt::into_vec(password) })
}

/// Reloads at each SIGHUP, and returns the signal that ends the server.
fn await_end(
    signals: &mut Signals,
    server: &Server,
    reloader: &mut Reloader<'_>,
    notifier: &Notifier,
) -> i32 {
    let had_terminal = stderr().is_terminal();
    for signal in signals.forever() {
        // A terminal that was closed sends SIGHUP, too, and then it is the end.
        let is_hung_up = had_terminal && !stderr().is_terminal();
        match signal == SIGHUP && !is_hung_up {
            true => notifier.reloading(|| reloader.reload(server)),
            false => return signal,
        }
    }
    SIGTERM
}

/// Warns of settings that the server cannot follow.
fn warn_of_ignored(resolved: &ResolvedSettings, server: &Server) {
    for ignored in bucket_settings::review(resolved, &server.context().buckets) {
        tracing::warn!("{ignored}");
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let wanted = resolved.settings.connections_max as u64;
    if resolved.explicit("connections_max").is_some() && wanted > files {
        tracing::warn!(
            "connections_max = {wanted} is impossible: this process may open {files} files; raise \
             its limit (LimitNOFILE, ulimit -n)"
        );
    }
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
    let queries = [("query_port", addresses.query), ("tls_query_port", addresses.query_tls)];
    for (name, address) in queries {
        if let Some(address) = address {
            content[name] = address.port().into();
        }
    }
    write_atomically(path, content.to_string().as_bytes(), 0o644)
        .with_context(|| format!("cannot write the ready file {}", path.display()))
}
