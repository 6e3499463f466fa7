//! One case: rounds of commands, each of which is sent at once.
//!
//! Owns: the mix of text, meta and senseless commands.

use super::command::TextCommand;
use super::parts::{end_of_line, line_end, pick};
use super::{meta_commands, text_commands};
use crate::random::Random;

/// Rounds of a case, and commands of a round.
const ROUNDS_MAX: u64 = 6;
const COMMANDS_MAX: u64 = 12;

/// Which commands the cases consist of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commands {
    Text,
    Meta,
    /// Both, on the same documents.
    Both,
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) rounds: Vec<Vec<TextCommand>>,
    /// Some command announces other data than it has, so data may be missing at the end of a round.
    pub(super) may_swallow: bool,
    /// Times to live change, so CAS values are not compared.
    pub(super) touches: bool,
}

impl Case {
    pub(super) fn random(random: &mut Random, kinds: Commands) -> Case {
        let mut rounds: Vec<Vec<TextCommand>> = Vec::new();
        for _ in 0..=random.below(ROUNDS_MAX) {
            let count = 1 + random.below(COMMANDS_MAX);
            rounds.push((0..count).map(|_| command(random, kinds)).collect());
        }
        if random.one_in(20) {
            let last = rounds.last_mut().expect("there is a round");
            last.push(TextCommand { is_last: true, ..text_commands::quit(random) });
        }
        let touches = random.one_in(3);
        for round in &mut rounds {
            round.retain(|command| touches || !command.touches);
            if touches {
                *round = std::mem::take(round).into_iter().map(TextCommand::without_cas).collect();
            }
        }
        let may_swallow = rounds.iter().flatten().any(|command| command.may_swallow);
        if may_swallow {
            // What is swallowed has to be of one length on both servers.
            for round in &mut rounds {
                *round = std::mem::take(round).into_iter().map(TextCommand::without_cas).collect();
            }
        }
        // The first byte says which protocol it is.
        rounds[0].insert(0, TextCommand::new(line_end(b"mn", "\r\n")));
        if kinds == Commands::Text {
            rounds[0][0] = TextCommand::new(line_end(b"delete nothing", "\r\n"));
        }
        Case { rounds, may_swallow, touches }
    }

    pub(super) fn len(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }

    /// The case without `count` of its commands, from the one at `at` on. Rounds stay.
    pub(super) fn without(&self, at: usize, count: usize) -> Case {
        let mut rest = self.clone();
        let mut number = 0;
        for round in &mut rest.rounds {
            round.retain(|_| {
                number += 1;
                !(at + 1..=at + count).contains(&number)
            });
        }
        rest
    }
}

fn command(random: &mut Random, kinds: Commands) -> TextCommand {
    if random.one_in(25) {
        return garbage(random);
    }
    match kinds {
        Commands::Text => text_commands::random(random),
        Commands::Meta => meta_commands::random(random),
        Commands::Both if random.one_in(2) => text_commands::random(random),
        Commands::Both => meta_commands::random(random),
    }
}

/// A line that is no command.
fn garbage(random: &mut Random) -> TextCommand {
    let words: [&[u8]; 12] = [
        b"",
        b" ",
        b"GET a",
        b"nonsense",
        b"get\ta",
        b"gett a",
        b"m",
        b"mx a",
        b"MN",
        b"se a 0 0 1",
        b"\x00\x01\xff",
        b"sets a 0 0 1",
    ];
    let mut line = pick(random, &words).to_vec();
    if random.one_in(3) {
        let bytes = random.below(60);
        line.extend((0..bytes).map(|_| random.below(256) as u8).filter(|byte| *byte != b'\n'));
    }
    TextCommand::new(line_end(&line, end_of_line(random)))
}
