//! Random commands of the text protocol.
//!
//! Owns: what a valid one looks like, and the ways in which one can be wrong.

use super::command::TextCommand;
use super::parts::{
    announced, cas, counter, end_of_line, exptime, flags, key, key_for, key_that_fits, number,
    pick, text_key, value, with_data,
};
use crate::random::Random;

/// A command, mostly a valid one.
pub(super) fn random(random: &mut Random) -> TextCommand {
    let command = match random.below(100) {
        0..36 => return storage(random),
        36..56 => {
            let name = pick(random, &["get", "gets", "get", "gets", "get "]);
            keys(random, TextCommand::new(name))
        }
        56..62 => {
            let command = TextCommand::new(pick(random, &["gat", "gats"])).token(exptime(random));
            keys(random, command).touching()
        }
        62..80 => arithmetic(random),
        80..88 => delete(random),
        88..94 => {
            let command = TextCommand::new("touch").piece(key(random)).token(exptime(random));
            noreply(random, command).touching()
        }
        _ => return other(random),
    };
    let command = if random.one_in(40) { surplus(random, command) } else { command };
    command.and(end_of_line(random))
}

pub(super) fn quit(random: &mut Random) -> TextCommand {
    TextCommand::new("quit").and(end_of_line(random))
}

fn storage(random: &mut Random) -> TextCommand {
    let name = pick(random, &["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
    let value = value(random);
    let (length, is_wrong) = announced(random, value.len());
    let key = match name {
        // What follows a padded counter differs, too.
        "append" | "prepend" => text_key(random),
        _ => key_for(random, &value),
    };
    let mut command =
        TextCommand::new(name).piece(key).token(flags(random)).token(exptime(random)).token(length);
    if name == "cas" && !random.one_in(40) {
        command = command.piece(cas(random));
    }
    command = noreply(random, command);
    if random.one_in(60) {
        command = surplus(random, command);
    }
    with_data(random, command, value, is_wrong)
}

fn keys(random: &mut Random, mut command: TextCommand) -> TextCommand {
    let count = match random.below(30) {
        0 => 0,
        1 => 22 + random.below(30),
        _ => 1 + random.below(4),
    };
    for _ in 0..count {
        // After a key that is too long, memcached drops answers of earlier commands at will.
        let key = if count > 8 { counter(random) } else { key_that_fits(random) };
        command = command.piece(key);
    }
    command
}

fn arithmetic(random: &mut Random) -> TextCommand {
    let command = TextCommand::new(pick(random, &["incr", "decr"])).piece(counter(random));
    let command = if random.one_in(30) { command } else { command.token(number(random)) };
    noreply(random, command)
}

fn delete(random: &mut Random) -> TextCommand {
    let mut command = TextCommand::new("delete").piece(key(random));
    if random.one_in(6) {
        command = command.token(pick(random, &["0", "1", "x", "0 noreply", "0 x"]));
    }
    noreply(random, command)
}

fn other(random: &mut Random) -> TextCommand {
    let command = pick(
        random,
        &[
            "version",
            "verbosity 0",
            "verbosity 1",
            "verbosity",
            "verbosity x",
            "verbosity 0 noreply",
            "verbosity 1 2 3",
            "flush_all",
            "flush_all 0",
            "flush_all noreply",
            "flush_all x",
            "flush_all 0 noreply",
            "flush_all 1 2 3",
            "version x",
        ],
    );
    TextCommand::new(command).and(end_of_line(random))
}

fn noreply(random: &mut Random, command: TextCommand) -> TextCommand {
    match random.below(24) {
        0 | 1 => command.token("noreply"),
        2 => command.token("noreplyx"),
        _ => command,
    }
}

/// More spaces or words than the command wants.
fn surplus(random: &mut Random, command: TextCommand) -> TextCommand {
    command.and(pick(random, &["  ", " x", " 1 2 3 4 5 6 7 8", " noreply noreply"]))
}
