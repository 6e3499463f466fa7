//! `oribi watch`: one line of JSON for each change of a bucket.
//!
//! It owns the command line, when lines are written, and how the program ends. Lines go out when
//! nothing more has arrived, or a block is full. The position in a `--resume` file ([`state`])
//! covers only lines that were written before, so a second start repeats some and omits none.

mod line;
mod state;

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use futures_util::FutureExt;
use oribi_client::{ChangeToken, ClientError, DcpEvent, DcpStream, DcpStreamOptions, Rest};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::signal::unix::{SignalKind, signal};

use self::line::WatchExtent;
use self::state::{PositionFile, WatchScope};
use crate::stats::clean;
use crate::stats::output::StatsOutput;
use crate::target::{INTERRUPTED, Target};

/// How often an idle program looks whether its reader is still there.
const READER_CHECK: Duration = Duration::from_millis(500);

/// Print every change of a bucket as a line of JSON.
#[derive(Args, Debug)]
pub struct WatchArgs {
    /// Only this collection, as scope.collection; may be given several times.
    #[arg(long, value_name = "PATH")]
    collection: Vec<String>,
    /// Only the collections of this scope, later ones too.
    #[arg(long, value_name = "NAME", conflicts_with = "collection")]
    scope: Option<String>,
    /// Where to begin: now, beginning, or a token of a line.
    #[arg(long, value_name = "PLACE", default_value = "now", value_parser = parse_place)]
    from: ChangeToken,
    /// Keep the position in this file, and continue there if the file exists.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Print values too.
    #[arg(long)]
    with_values: bool,
    /// Print extended attributes too.
    #[arg(long)]
    with_xattrs: bool,
    /// Print a line at the end of each snapshot, where a copy of a vbucket is consistent.
    #[arg(long)]
    snapshots: bool,
    /// End after the changes that there are when it begins.
    #[arg(long)]
    until_now: bool,
    #[command(flatten)]
    target: Target,
}

fn parse_place(text: &str) -> Result<ChangeToken, String> {
    match text {
        "now" => Ok(ChangeToken::new(Rest::Now)),
        "beginning" => Ok(ChangeToken::new(Rest::Beginning)),
        token => token.parse().map_err(|error| format!("{error} (now, beginning or a token)")),
    }
}

/// Runs the subcommand to its end.
pub fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    runtime.block_on(watch(args))
}

async fn watch(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot register for Ctrl-C")?;
    let mut ends = signal(SignalKind::terminate()).context("cannot register for SIGTERM")?;
    let watched = WatchScope::new(&args.target.bucket, &args.collection, args.scope.as_deref());
    let state = args.resume.clone().map(|path| PositionFile::open(path, watched)).transpose()?;
    let from = state.as_ref().and_then(PositionFile::token).unwrap_or(&args.from).clone();
    let client = args.target.client(args.target.options()?).await?;
    let mut options = DcpStreamOptions::new()
        .resume(from)
        .until_now(args.until_now)
        // Attributes come compressed together with the body, or without their datatype.
        .values(args.with_values || args.with_xattrs)
        .attributes(args.with_xattrs)
        .name("oribi-watch");
    options.collections = args.collection;
    options.scope = args.scope;
    let changes =
        client.dcp_stream(&options).await.with_context(|| stream_error_context(&options))?;
    let output = StatsOutput::stdout().context("writing to standard output")?;
    let extent = WatchExtent { values: args.with_values, xattrs: args.with_xattrs };
    let (snapshots, lost) = (args.snapshots, HashSet::new());
    let mut watch = Watch { changes, state, output, extent, snapshots, lost };
    let outcome = tokio::select! {
        outcome = watch.run() => outcome,
        _ = interrupts.recv() => Ok(ExitCode::from(INTERRUPTED)),
        _ = ends.recv() => Ok(ExitCode::from(INTERRUPTED)),
    };
    let flushed = watch.flush().and_then(|()| watch.save());
    match (outcome, flushed) {
        (outcome, Err(error)) if is_closed_pipe(&error) => outcome.or(Ok(ExitCode::SUCCESS)),
        (Err(error), _) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        (outcome, flushed) => flushed.and(outcome),
    }
}

/// The context of an error: a name of the command line may be wrong.
fn stream_error_context(options: &DcpStreamOptions) -> String {
    match &options.scope {
        Some(scope) => format!("cannot watch scope {scope:?}"),
        None if options.collections.is_empty() => "cannot watch the bucket".to_owned(),
        None => format!("cannot watch {}", options.collections.join(", ")),
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

struct Watch {
    changes: DcpStream,
    state: Option<PositionFile>,
    output: StatsOutput,
    extent: WatchExtent,
    snapshots: bool,
    /// Nodes whose connections ended, and nothing has come since.
    lost: HashSet<std::sync::Arc<str>>,
}

impl Watch {
    /// Prints until the stream or its reader ends.
    async fn run(&mut self) -> anyhow::Result<ExitCode> {
        loop {
            let event = match self.changes.next().now_or_never() {
                Some(event) => event,
                None => {
                    self.flush()?;
                    self.save_if_due()?;
                    match self.wait().await? {
                        Some(event) => event,
                        None => return Ok(ExitCode::SUCCESS),
                    }
                }
            };
            let Some(event) = event.context("watching")? else { return Ok(ExitCode::SUCCESS) };
            self.print(&event)?;
            // Signals are looked at only when this future waits.
            tokio::task::consume_budget().await;
        }
    }

    /// Waits for an event; `None` when the reader is gone.
    async fn wait(&mut self) -> anyhow::Result<Option<Result<Option<DcpEvent>, ClientError>>> {
        loop {
            match tokio::time::timeout(READER_CHECK, self.changes.next()).await {
                Ok(event) => return Ok(Some(event)),
                Err(_) if has_reader() => self.save_if_due()?,
                Err(_) => return Ok(None),
            }
        }
    }

    fn print(&mut self, event: &DcpEvent) -> anyhow::Result<()> {
        match event {
            DcpEvent::Disconnected(lost) => {
                if self.lost.insert(lost.peer.clone()) {
                    let reason = clean(lost.reason.as_bytes());
                    eprintln!("oribi: {reason}; connecting again");
                }
                return Ok(());
            }
            DcpEvent::SnapshotEnd(_) => {
                if let Some(state) = &mut self.state {
                    state.note_snapshot_end();
                }
                if !self.snapshots {
                    return Ok(());
                }
            }
            _ => {}
        }
        self.lost.clear();
        line::write(&mut self.output.block, event, self.extent)?;
        self.output.spill()?;
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.output.flush()?)
    }

    fn save_if_due(&mut self) -> anyhow::Result<()> {
        match self.state.as_ref().is_some_and(PositionFile::is_due) {
            true => self.save(),
            false => Ok(()),
        }
    }

    /// Everything that the token covers has been written.
    fn save(&mut self) -> anyhow::Result<()> {
        match &mut self.state {
            Some(state) => state.save(&self.changes.token()),
            None => Ok(()),
        }
    }
}

/// False when standard output is a pipe whose other end is closed.
fn has_reader() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = rustix::event::poll(&mut fds, Some(&at_once));
    polled.is_err() || !fds[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    //! Places as people type them.

    use super::*;

    #[test]
    fn places_are_words_or_tokens() {
        assert_eq!(parse_place("now"), Ok(ChangeToken::new(Rest::Now)));
        assert_eq!(parse_place("beginning"), Ok(ChangeToken::new(Rest::Beginning)));
        let token = parse_place("5:3fa2:1042").expect("a token of a line");
        assert_eq!(token.to_string(), "5:3fa2:1042");
        let error = parse_place("yesterday").expect_err("no token");
        assert!(error.contains("yesterday") && error.contains("beginning"), "{error}");
    }
}
