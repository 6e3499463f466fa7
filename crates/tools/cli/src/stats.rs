//! `oribi stats`: a server's figures, for people and for programs.
//!
//! It owns the command line, the nodes to ask, and how often. One module each writes figures:
//! [`stream`] for programs (`--raw` in the form of `mcstat`, `--json`), [`view`] for people,
//! [`watch`] for rounds with rates. A single thread does all of it: reading and formatting
//! alternate, which costs less than moving millions of figures between threads.
//!
//! It shows a server's text unchanged, except for terminal commands ([`text`]). If the output is
//! incomplete, the exit status says so and JSON stays unclosed, so that a part never passes for the
//! whole.

mod figures;
mod filter;
mod groups;
mod histogram;
pub mod output;
mod refusal;
mod stream;
pub mod text;
mod view;
mod watch;

use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use oribi_client::Connection;
use tokio::time::MissedTickBehavior;

pub use stream::for_each;
pub use text::{clean, push_clean};

use self::filter::StatFilter;
use self::output::StatsOutput;
use self::refusal::StatsRejection;
use self::stream::{JsonWriter, RawWriter};
use self::view::StatsView;
use self::watch::Watch;
use crate::target::{INTERRUPTED, Target, parse_interval};

/// Columns to lay out for when the output is no terminal.
const WIDTH: usize = 120;

/// Clears the terminal and goes to its top.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Show the figures of a running server.
#[derive(Args, Debug)]
pub struct StatsArgs {
    /// Group of figures, see --list [default: the general ones].
    #[arg(default_value = "", hide_default_value = true)]
    group: String,
    /// Arguments of the group, such as the number of a vbucket or the path of a collection.
    arguments: Vec<String>,
    /// List the groups.
    #[arg(long)]
    list: bool,
    /// Print lines of "name: value", as mcstat does.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print one JSON object; with --watch, one line of JSON a round.
    #[arg(long)]
    json: bool,
    /// Repeat after this time (1s, 500ms), and show rates.
    #[arg(long, value_name = "INTERVAL", value_parser = parse_interval)]
    watch: Option<Duration>,
    /// End after this many rounds.
    #[arg(long, value_name = "ROUNDS", requires = "watch")]
    count: Option<u64>,
    /// Show only figures whose names contain this text, or match it if it has * or ?.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Ask every node of the cluster map instead of --host alone.
    #[arg(long)]
    all_nodes: bool,
    #[command(flatten)]
    target: Target,
}

/// Runs the subcommand to its end.
pub fn run(args: StatsArgs) -> anyhow::Result<ExitCode> {
    let mut out = StatsOutput::stdout().context("opening the standard output")?;
    if args.list {
        out.block.extend_from_slice(groups::list().as_bytes());
        return status_of(out.flush().map_err(Into::into));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = show(&args, &mut out) => outcome.map(|()| ExitCode::SUCCESS),
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(INTERRUPTED)),
        }
    });
    // Figures before an error are still useful.
    let flushed = out.flush().map_err(anyhow::Error::from);
    match outcome {
        Ok(status) if status != ExitCode::SUCCESS => Ok(status),
        Ok(_) => status_of(flushed),
        Err(error) => status_of(Err(error)),
    }
}

/// The exit status of an outcome. A reader that has gone is a success.
fn status_of(outcome: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    let Err(error) = outcome else { return Ok(ExitCode::SUCCESS) };
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    {
        return Ok(ExitCode::SUCCESS);
    }
    match error.downcast_ref::<StatsRejection>() {
        Some(refusal) if refusal.is_usage => {
            eprintln!("oribi: {refusal}");
            Ok(ExitCode::from(2))
        }
        _ => Err(error),
    }
}

async fn show(args: &StatsArgs, out: &mut StatsOutput) -> anyhow::Result<()> {
    let mut nodes = open(args).await?;
    let mut argument = args.arguments.join(" ");
    if let ("key" | "vkey", [key]) = (&*args.group, &*args.arguments) {
        let config = nodes[0].cluster_config().await.context("fetching the cluster map")?;
        argument = format!("{key} {}", config.vbucket_of(key.as_bytes()).0);
    }
    let query = Query {
        group: &args.group,
        request: format!("{} {argument}", args.group).trim_end().to_owned(),
        argument,
        filter: args.filter.as_deref().map(StatFilter::new),
        is_labelled: args.all_nodes,
    };
    match args.watch {
        Some(interval) => query.watch(args, &mut nodes, interval, out).await,
        None if args.raw => query.raw(&mut nodes, out).await,
        None if args.json => query.json(&mut nodes, out).await,
        None => query.view(&mut nodes, out).await,
    }
}

/// A connection to the node that is named, or to all there are.
async fn open(args: &StatsArgs) -> anyhow::Result<Vec<Connection>> {
    let options = args.target.options()?;
    let mut named = args.target.connection(&options).await?;
    if !args.all_nodes {
        return Ok(vec![named]);
    }
    let config = named.cluster_config().await.context("fetching the cluster map")?;
    let mut nodes = Vec::with_capacity(config.nodes.len());
    for node in config.nodes {
        let options = options.clone().node(&node);
        let connection = Connection::open(&options).await;
        nodes.push(connection.with_context(|| {
            format!("cannot open a node of the cluster map, {}:{}", options.host, options.port)
        })?);
    }
    Ok(nodes)
}

/// The requested figures.
struct Query<'a> {
    group: &'a str,
    argument: String,
    /// Both together.
    request: String,
    filter: Option<StatFilter>,
    /// True when the node has to be named.
    is_labelled: bool,
}

impl Query<'_> {
    async fn for_each(
        &self,
        node: &mut Connection,
        each: impl FnMut(&oribi_client::Stat<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let outcome = stream::for_each(node, &self.request, self.filter.as_ref(), each).await;
        outcome.map_err(|error| refusal::explain(error, node.peer(), self.group, &self.argument))
    }

    fn label<'n>(&self, node: &'n str) -> Option<&'n str> {
        self.is_labelled.then_some(node)
    }

    async fn raw(&self, nodes: &mut [Connection], out: &mut StatsOutput) -> anyhow::Result<()> {
        for node in nodes {
            let writer = RawWriter::new(self.label(&node.peer().clone()));
            self.for_each(node, |stat| writer.write(out, stat)).await?;
        }
        Ok(())
    }

    async fn json(&self, nodes: &mut [Connection], out: &mut StatsOutput) -> anyhow::Result<()> {
        let repeats_names = groups::repeats_names(self.group);
        for (position, node) in nodes.iter_mut().enumerate() {
            if self.is_labelled {
                out.block.extend_from_slice(if position == 0 { b"{\n" } else { b",\n" });
                text::push_json_string(&mut out.block, node.peer().as_bytes());
                out.block.push(b':');
            }
            // The first figure decides whether there is anything to print, or a refusal.
            let mut writer = None;
            self.for_each(node, |stat| {
                let writer = writer.get_or_insert_with(|| JsonWriter::begin(out, repeats_names));
                writer.write(out, stat)
            })
            .await?;
            writer.unwrap_or_else(|| JsonWriter::begin(out, false)).end(out);
        }
        out.block.extend_from_slice(if self.is_labelled { b"\n}\n" } else { b"\n" });
        Ok(())
    }

    async fn view(&self, nodes: &mut [Connection], out: &mut StatsOutput) -> anyhow::Result<()> {
        let (width, _) = terminal_size().unwrap_or((WIDTH, 0));
        for (position, node) in nodes.iter_mut().enumerate() {
            let mut view = StatsView::default();
            self.for_each(node, |stat| {
                view.add(stat);
                Ok(())
            })
            .await?;
            if self.is_labelled {
                let gap = if position == 0 { "" } else { "\n" };
                out.block.extend_from_slice(format!("{gap}node {}\n\n", node.peer()).as_bytes());
            }
            out.block.extend_from_slice(view.draw(width).as_bytes());
            out.spill()?;
            if view.left_out() > 0 {
                let left_out = view.left_out();
                eprintln!("{left_out} more figures are not shown; --raw and --json have no limit");
            }
            if self.group == "reset" {
                eprintln!("the counters of {} count from 0 again", node.peer());
            }
        }
        Ok(())
    }

    async fn watch(
        &self,
        args: &StatsArgs,
        nodes: &mut [Connection],
        interval: Duration,
        out: &mut StatsOutput,
    ) -> anyhow::Result<()> {
        let mut watches: Vec<Watch> = nodes.iter().map(|_| Watch::default()).collect();
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut rounds = 0;
        while args.count.is_none_or(|count| rounds < count) {
            ticks.tick().await;
            let screen = terminal_size().filter(|_| !args.raw && !args.json);
            if rounds > 0 && screen.is_none() && !args.json {
                out.block.push(b'\n');
            }
            if screen.is_some() {
                out.block.extend_from_slice(CLEAR);
            }
            // Each node gets its part of the screen, less its heading.
            let lines = screen.map_or(usize::MAX, |(_, height)| {
                (height.saturating_sub(1) / nodes.len()).saturating_sub(1).max(2)
            });
            for (node, watch) in nodes.iter_mut().zip(&mut watches) {
                self.round(args, node, watch, lines, out).await?;
            }
            out.flush()?;
            rounds += 1;
        }
        Ok(())
    }

    /// One node's part of a round.
    async fn round(
        &self,
        args: &StatsArgs,
        node: &mut Connection,
        watch: &mut Watch,
        lines: usize,
        out: &mut StatsOutput,
    ) -> anyhow::Result<()> {
        let peer = node.peer().clone();
        if args.raw {
            let writer = RawWriter::new(self.label(&peer));
            return self.for_each(node, |stat| writer.write(out, stat)).await;
        }
        watch.clear();
        self.for_each(node, |stat| {
            watch.add(stat);
            Ok(())
        })
        .await?;
        watch.end_round(Instant::now());
        if args.json {
            watch.json_line(self.label(&peer), &mut out.block);
        } else {
            let group = if self.request.is_empty() { "general" } else { &self.request };
            out.block.extend_from_slice(format!("{peer}  {group}\n").as_bytes());
            out.block.extend_from_slice(watch.draw(lines).as_bytes());
        }
        Ok(())
    }
}

/// Columns and lines of the terminal, if the output is one.
fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then(|| (usize::from(size.ws_col), usize::from(size.ws_row)))
}
