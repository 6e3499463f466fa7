//! Random commands of memcached's text and meta protocols, sent to two servers whose answers must
//! be equal.
//!
//! Owns the loop over cases, and the report of a difference. A case is a connection to each server
//! with a few rounds of pipelined commands, all of which follow from a seed and the number of the
//! case. Its keys belong to it alone, so a case can be repeated by itself, and shortened: of the
//! commands of a failing case, those stay that the difference needs. Answers are compared byte by
//! byte, after [`answer`] has replaced what may differ.

mod answer;
mod case;
mod command;
mod meta_commands;
mod parts;
mod session;
mod text_commands;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;

use crate::random::Random;
use case::Case;
use command::TextCommand;
use session::TextSession;

pub use case::Commands;

/// Times that a failing case may be repeated to shorten it.
const REPEATS_MAX: usize = 400;
/// Longest wait for an answer. Passing it is a difference.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same for the repeats that shorten a case.
const PATIENCE_OF_REPEATS: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct TextDifferential {
    /// Ports of the two servers on the loopback interface; the second one is the reference.
    pub ports: [u16; 2],
    /// Every case follows from it and its number.
    pub seed: u64,
    /// Number of the first case.
    pub first_case: u64,
    /// Commands to send, more or less.
    pub commands: u64,
    pub kinds: Commands,
    /// Differences after which the comparison ends.
    pub differences_max: usize,
}

#[derive(Clone, Debug, Default)]
pub struct TextReport {
    pub cases: u64,
    /// Commands sent to each server.
    pub commands: u64,
    /// The differences, each described with its case.
    pub differences: Vec<String>,
}

impl TextDifferential {
    /// Runs the cases. `progress` gets the report so far now and then.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub fn run(&self, progress: &mut dyn FnMut(&TextReport)) -> Result<TextReport> {
        let mut report = TextReport::default();
        let mut repeats = 0;
        while report.commands < self.commands && report.differences.len() < self.differences_max {
            let number = self.first_case + report.cases;
            let case = self.case(number);
            report.cases += 1;
            report.commands += case.len() as u64;
            if let Some(found) = self.difference(&case, number, &mut repeats, PATIENCE)? {
                let (short, found) = self.shortened(case, found, number, &mut repeats)?;
                report.differences.push(self.describe(number, &short, &found));
            }
            progress(&report);
        }
        Ok(report)
    }

    fn case(&self, number: u64) -> Case {
        Case::random(&mut Random::new(self.seed.rotate_left(32) ^ number), self.kinds)
    }

    /// Runs a case on both servers; what differs, if anything does. Every run of a
    /// case has its own keys.
    fn difference(
        &self,
        case: &Case,
        number: u64,
        runs: &mut usize,
        patience: Duration,
    ) -> Result<Option<String>> {
        *runs += 1;
        let prefix = format!("{:06x}{:04x}", number & 0xff_ffff, *runs & 0xffff);
        let mut sessions = [
            TextSession::connect(self.ports[0], &prefix, case.touches, patience)?,
            TextSession::connect(self.ports[1], &prefix, case.touches, patience)?,
        ];
        let mut tearing = Random::new(number);
        for (round, commands) in case.rounds.iter().enumerate() {
            let cuts = tearing.fork();
            for session in &mut sessions {
                session.send(commands, case.may_swallow, cuts.clone());
            }
            let [first, second] = &mut sessions;
            let answers = [first.receive(), second.receive()];
            if answers[0] != answers[1] {
                return Ok(Some(show_difference(round, &answers)));
            }
        }
        Ok(None)
    }

    /// The case without the commands that the difference does not need, and what differs then.
    fn shortened(
        &self,
        mut case: Case,
        mut found: String,
        number: u64,
        runs: &mut usize,
    ) -> Result<(Case, String)> {
        let end = *runs + REPEATS_MAX;
        let mut chunk = case.len();
        while chunk > 0 {
            let mut at = 0;
            while at < case.len() && *runs < end {
                let candidate = case.without(at, chunk);
                let repeated = self.difference(&candidate, number, runs, PATIENCE_OF_REPEATS)?;
                // With this patience a slow answer looks like a missing one.
                let is_late = |text: &str| text.contains(session::NO_END);
                match repeated.filter(|text| is_late(&found) || !is_late(text)) {
                    Some(still) => (case, found) = (candidate, still),
                    None => at += chunk,
                }
            }
            chunk /= 2;
        }
        Ok((case, found))
    }

    fn describe(&self, number: u64, case: &Case, found: &str) -> String {
        let mut text = format!("seed {} case {number}:\n", self.seed);
        for (round, commands) in case.rounds.iter().enumerate() {
            for command in commands {
                let _ = writeln!(text, "  round {round}: {}", show_command(command));
            }
        }
        text + found
    }
}

fn show_command(command: &TextCommand) -> String {
    shown(&command.rendered("KEY-", |_| &[]))
}

fn show_difference(round: usize, answers: &[Vec<u8>; 2]) -> String {
    let equal = answers[0].iter().zip(&answers[1]).take_while(|(a, b)| a == b).count();
    let line = answers[0][..equal].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let [found, expected] =
        answers.each_ref().map(|answer| shown(&answer[line.min(answer.len())..]));
    format!("  round {round}, after {line} equal bytes:\n  found    {found}\n  expected {expected}")
}

/// Bytes as text, in one line, and not too many.
fn shown(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 600;
    let rest = bytes.len().saturating_sub(SHOWN_MAX);
    let more = if rest > 0 { format!("... and {rest} bytes") } else { String::new() };
    format!("{}{more}", bytes[..bytes.len() - rest].escape_ascii())
}

#[cfg(test)]
mod tests;
