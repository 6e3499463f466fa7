//! Random meta commands.
//!
//! Owns: what a valid one looks like, and the ways in which one can be wrong. Flags and modes are
//! those of memcached 1.6.18, which Debian ships: newer ones it refuses.

use super::command::{Command, Piece};
use super::parts::{
    announced, cas, counter, end_of_line, exptime, flags, key, key_name, number, pick, text_key,
    value, with_data,
};
use crate::random::Random;

/// A command, mostly a valid one.
pub(super) fn random(random: &mut Random) -> Command {
    let command = match random.below(100) {
        0..36 => get(random),
        36..64 => return set(random),
        64..78 => delete(random),
        78..93 => arithmetic(random),
        93..95 => Command::new("me").piece(text_key(random)),
        95..98 => Command::new(pick(random, &["mn", "mn", "mn x"])),
        _ => Command::new(pick(random, &["mg", "ms", "md", "ma", "me", "mg  ", "md b"])),
    };
    command.and(end_of_line(random))
}

/// The name and a key in base64, with its flag unless that is forgotten.
fn in_base64(random: &mut Random, name: &str) -> Command {
    let name_bytes = match random.one_in(2) {
        true => key_name(random),
        false => (0..random.below(30)).map(|_| random.below(256) as u8).collect(),
    };
    let command = Command::new(name).piece(Piece::KeyBase64(name_bytes));
    if random.one_in(30) { command } else { command.token("b") }
}

fn get(random: &mut Random) -> Command {
    let (command, known) = match random.below(8) {
        0 => (in_base64(random, "mg"), b"cfhklqstvvvkONRT".as_slice()),
        1 | 2 => (Command::new("mg").piece(counter(random)), b"cfklqtvvvvkORT".as_slice()),
        _ => (Command::new("mg").piece(text_key(random)), b"cfhklqstvvvkONRT".as_slice()),
    };
    with_flags(random, command, known)
}

fn set(random: &mut Random) -> Command {
    let value = value(random);
    let (length, is_wrong) = announced(random, value.len());
    let is_blank = value.iter().all(u8::is_ascii_whitespace);
    let (command, known) = match random.below(8) {
        0 => (in_base64(random, "ms"), true),
        1 | 2 if !is_blank => (Command::new("ms").piece(counter(random)), false),
        _ => (Command::new("ms").piece(text_key(random)), true),
    };
    let command = if random.one_in(80) { command } else { command.token(length) };
    let known = if known { b"cCCFIkOqTMMM".as_slice() } else { b"cCCFIkOqT" };
    let command = with_flags(random, command, known);
    with_data(random, command, value, is_wrong)
}

fn delete(random: &mut Random) -> Command {
    let command = match random.one_in(8) {
        true => in_base64(random, "md"),
        false => Command::new("md").piece(key(random)),
    };
    with_flags(random, command, b"CIIkOqT")
}

fn arithmetic(random: &mut Random) -> Command {
    let command = Command::new("ma").piece(counter(random));
    with_flags(random, command, b"CNNJDTMMqtcvvvkO")
}

/// A few of these flags, with tokens; now and then one twice, without its token, or unknown.
fn with_flags(random: &mut Random, mut command: Command, known: &[u8]) -> Command {
    let count = random.below(5);
    let mut used = Vec::new();
    for _ in 0..count {
        let flag = known[random.below(known.len() as u64) as usize];
        if used.contains(&flag) && !random.one_in(20) {
            continue;
        }
        used.push(flag);
        command = flagged(random, command, flag);
    }
    match random.below(60) {
        0 => command.token(pick(random, &["!", "@", "Y", "z", "1", "=", "\x7f"])),
        1 => command.and(pick(random, &["  ", " b", " b b"])),
        _ => command,
    }
}

fn flagged(random: &mut Random, command: Command, flag: u8) -> Command {
    let without_token = random.one_in(50);
    let token = match flag {
        _ if without_token => String::new(),
        b'C' => {
            let mut command = command.and(" C");
            command.pieces.push(cas(random));
            return command;
        }
        b'F' => flags(random).to_owned(),
        b'T' => exptime(random).to_owned(),
        b'N' => pick(random, &["0", "100", "1000", "x"]).to_owned(),
        b'R' => pick(random, &["0", "30", "500", "100000", "x"]).to_owned(),
        b'J' | b'D' => number(random),
        b'O' => opaque(random),
        b'M' => mode(random),
        _ => String::new(),
    };
    let command = command.token([&[flag], token.as_bytes()].concat());
    if flag == b'T' { command.touching() } else { command }
}

fn opaque(random: &mut Random) -> String {
    let length = pick(random, &[&1_usize, &4, &31, &32, &33]);
    "o".repeat(*length)
}

/// Modes of `ms` and `ma`; those of the other are invalid.
fn mode(random: &mut Random) -> String {
    let modes = [
        "S", "A", "P", "E", "R", "s", "a", "p", "e", "r", "I", "+", "D", "-", "i", "d", "incr",
        "set", "append", "X", "1",
    ];
    pick(random, &modes).to_owned()
}
