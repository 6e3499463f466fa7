//! `oribi top`: a server's activity, live.
//!
//! It owns the command line, the keys and the terminal. One thread samples the server
//! ([`sampler`]); this one draws ([`screen`]) the model ([`model`]). However the program ends (a
//! key, an error, a signal or a panic), it restores the terminal. `--once` and `--batch` print
//! plain text.

mod model;
mod sample;
mod sampler;
mod screen;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::model::{SortKey, TopModel};
use self::sampler::SampleReport;
use crate::target::{INTERRUPTED, Target, parse_interval};

/// Longest wait for a key before the next check of reports and signals.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// Longest wait for a report before the next check of signals, where no key can come.
const REPORT_WAIT: Duration = Duration::from_millis(50);

/// Rows that a page key moves.
const PAGE_ROWS: isize = 10;

/// Watch what a server is doing.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Time between two updates (1s, 500ms).
    #[arg(long, default_value = "1s", value_parser = parse_interval)]
    interval: Duration,
    /// Sort tables by this.
    #[arg(long, value_enum, default_value_t = SortKey::default())]
    sort: SortKey,
    /// Print one snapshot as plain text, with the rates of one interval, and exit.
    #[arg(long)]
    once: bool,
    /// Print a snapshot as plain text at every interval, until Ctrl-C.
    #[arg(long, conflicts_with = "once")]
    batch: bool,
    #[command(flatten)]
    target: Target,
}

/// Runs the subcommand to its end.
pub fn run(args: TopArgs) -> anyhow::Result<ExitCode> {
    let is_plain = args.once || args.batch;
    let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !is_plain && !has_terminal {
        bail!(
            "the live view needs a terminal; --once prints one snapshot, --batch one after another"
        );
    }
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, end.clone()).context("watching for signals")?;
    }
    let (host, port) = (args.target.host(), args.target.port());
    let mut model = TopModel::new(format!("{host}:{port}"), args.sort);
    let reports = sampler::start(args.target.clone(), args.interval)?;
    if is_plain {
        return print_plain(&mut model, &reports, args.once, &end);
    }
    // An error before there is anything to see belongs to the terminal as it was.
    let Some(first) = wait(&reports, &end)? else { return Ok(ExitCode::from(INTERRUPTED)) };
    take(&mut model, first)?;
    let terminal = ratatui::try_init().context("preparing the terminal")?;
    let outcome = show(&mut model, &reports, terminal, &end);
    ratatui::try_restore().context("giving the terminal back")?;
    outcome
}

/// The next report; `None` when a signal came instead.
fn wait(
    reports: &Receiver<SampleReport>,
    end: &AtomicBool,
) -> anyhow::Result<Option<SampleReport>> {
    while !end.load(Ordering::Relaxed) {
        match reports.recv_timeout(REPORT_WAIT) {
            Ok(report) => return Ok(Some(report)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("the sampler has ended"),
        }
    }
    Ok(None)
}

/// Takes a report into account.
fn take(model: &mut TopModel, report: SampleReport) -> anyhow::Result<()> {
    match report {
        SampleReport::Sample(sample) => model.update(*sample),
        SampleReport::Lost(reason) => model.lose(crate::stats::clean(reason.as_bytes())),
        SampleReport::Failed(error) => return Err(error),
    }
    Ok(())
}

fn show(
    model: &mut TopModel,
    reports: &Receiver<SampleReport>,
    mut terminal: DefaultTerminal,
    end: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    while !end.load(Ordering::Relaxed) {
        let draw = |frame: &mut ratatui::Frame<'_>| {
            screen::draw(model, frame.area(), frame.buffer_mut());
        };
        terminal.draw(draw).context("drawing")?;
        let mut is_changed = false;
        while !is_changed && !end.load(Ordering::Relaxed) {
            if event::poll(KEY_WAIT).context("waiting for a key")? {
                match event::read().context("reading a key")? {
                    Event::Key(key) if key.kind != KeyEventKind::Release && press(model, key) => {
                        return Ok(ExitCode::SUCCESS);
                    }
                    _ => is_changed = true,
                }
            }
            loop {
                match reports.try_recv() {
                    Ok(report) => take(model, report)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => bail!("the sampler has ended"),
                }
                is_changed = true;
            }
        }
    }
    Ok(ExitCode::from(INTERRUPTED))
}

/// Runs the command of a key; true when that is to quit.
fn press(model: &mut TopModel, key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => return true,
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('s') => model.sort_by(model.sort.next()),
        KeyCode::Char('o') => model.sort_by(SortKey::Ops),
        KeyCode::Char('i') => model.sort_by(SortKey::Items),
        KeyCode::Char('m') => model.sort_by(SortKey::Memory),
        KeyCode::Char('n') => model.sort_by(SortKey::Name),
        KeyCode::Up => model.scroll(-1),
        KeyCode::Down => model.scroll(1),
        KeyCode::PageUp => model.scroll(-PAGE_ROWS),
        KeyCode::PageDown => model.scroll(PAGE_ROWS),
        KeyCode::Home => model.scroll(isize::MIN),
        KeyCode::End => model.scroll(isize::MAX),
        _ => {}
    }
    false
}

/// Prints snapshots once there are rates: one, or until a signal comes or the reader is gone.
fn print_plain(
    model: &mut TopModel,
    reports: &Receiver<SampleReport>,
    is_once: bool,
    end: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    while let Some(report) = wait(reports, end)? {
        take(model, report)?;
        if !model.has_rates() && model.lost.is_none() {
            continue;
        }
        let gap = if is_once { "" } else { "\n" };
        let text = format!("{}{gap}", screen::plain(model));
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            printed => printed.context("printing a snapshot")?,
        }
        if is_once && model.lost.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
    Ok(ExitCode::from(INTERRUPTED))
}

#[cfg(test)]
mod tests {
    //! What keys do.

    use super::*;

    #[test]
    fn keys_quit_and_sort() {
        let mut model = TopModel::new("db:11210".to_owned(), SortKey::Ops);
        let plain = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(press(&mut model, control_c));
        for code in [KeyCode::Char('q'), KeyCode::Esc] {
            assert!(press(&mut model, plain(code)));
        }
        for (code, sort) in [
            (KeyCode::Char('s'), SortKey::Items),
            (KeyCode::Char('n'), SortKey::Name),
            (KeyCode::Char('m'), SortKey::Memory),
            (KeyCode::Char('o'), SortKey::Ops),
            (KeyCode::Char('c'), SortKey::Ops),
            (KeyCode::End, SortKey::Ops),
        ] {
            assert!(!press(&mut model, plain(code)));
            assert_eq!(model.sort, sort);
        }
        assert_eq!(model.scrolled, 0);
    }
}
