//! Random meta commands.
//!
//! Owns: what a valid one looks like, and the ways in which one can be wrong. Flags and modes are
//! those of memcached 1.6.18, which Debian ships: newer ones it refuses.
//!
//! What is left out, because memcached does what no client can want:
//! - It answers a key as the document was stored, not as the client sent it: in base64 to a client
//!   that sent it plain, or with any byte, a line end too. Here a key that is stored in base64
//!   is always sent so, and a key that is not is never answered to base64.
//! - It sees that an opaque is too long when it answers: the counter has been changed by then, the
//!   document created. Here such an opaque is only with commands that change nothing before.
//! - A counter that it cannot change in place loses its marks and its new time to live: when it
//!   gets longer, or when a reader holds it. Here counters have no marks, and `ma` has no flag T.

use super::command::{CommandPiece, TextCommand};
use super::parts::{
    announced, cas, counter, end_of_line, exptime, flags, key_name, number, pick, text_key, value,
    with_data,
};
use crate::random::Random;

/// A command, mostly a valid one.
pub(super) fn random(random: &mut Random) -> TextCommand {
    let command = match random.below(100) {
        0..36 => get(random),
        36..64 => return set(random),
        64..78 => delete(random),
        78..93 => arithmetic(random),
        93..95 => TextCommand::new("me").piece(text_key(random)),
        95..98 => TextCommand::new(pick(random, &["mn", "mn", "mn x"])),
        _ => TextCommand::new(pick(random, &["mg", "ms", "md", "ma", "me", "mg  ", "md b"])),
    };
    command.and(end_of_line(random))
}

/// The name and a key in base64, with its flag.
fn in_base64(name: &str, key: Vec<u8>) -> TextCommand {
    TextCommand::new(name).piece(CommandPiece::KeyBase64(key)).token("b")
}

/// A key that is only ever sent in base64; few, so that commands meet.
fn binary_key(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => vec![0xff],
        1 => vec![0, b'\r', b'\n', b' '],
        2 => (128..=255).collect(),
        _ => (0..1 + random.below(30)).map(|_| 128 | random.below(256) as u8).collect(),
    }
}

fn get(random: &mut Random) -> TextCommand {
    const CREATING: &[u8] = b"cfhklqstvvvkONRT";
    const READING: &[u8] = b"cfhklqstvvvkO";
    let (command, known) = match random.below(24) {
        0 => (in_base64("mg", key_name(random)), b"cfhlqstvvvONRT".as_slice()),
        1 => (in_base64("mg", binary_key(random)), b"cfhklqstvvvkORT".as_slice()),
        // The flag is forgotten.
        2 => {
            let command = TextCommand::new("mg").piece(CommandPiece::KeyBase64(binary_key(random)));
            (command, b"cfhlqstvvvO".as_slice())
        }
        3..9 => (TextCommand::new("mg").piece(counter(random)), b"cfklqtvvvvkOT".as_slice()),
        9..12 => (TextCommand::new("mg").piece(text_key(random)), READING),
        _ => (TextCommand::new("mg").piece(text_key(random)), CREATING),
    };
    with_flags(random, command, known)
}

fn set(random: &mut Random) -> TextCommand {
    let value = value(random);
    let (length, is_wrong) = announced(random, value.len());
    let is_blank = value.iter().all(u8::is_ascii_whitespace);
    let (command, known) = match random.below(8) {
        0 => (in_base64("ms", binary_key(random)), true),
        1 | 2 if !is_blank => (TextCommand::new("ms").piece(counter(random)), false),
        _ => (TextCommand::new("ms").piece(text_key(random)), true),
    };
    let command = if random.one_in(80) { command } else { command.token(length) };
    let known = if known { b"cCCFIkOqTMMM".as_slice() } else { b"cCCFkOqT" };
    let command = with_flags(random, command, known);
    with_data(random, command, value, is_wrong)
}

fn delete(random: &mut Random) -> TextCommand {
    let command = match random.below(16) {
        0 => in_base64("md", key_name(random)),
        1 => in_base64("md", binary_key(random)),
        2..6 => {
            let command = TextCommand::new("md").piece(counter(random));
            return with_flags(random, command, b"CkOq");
        }
        _ => TextCommand::new("md").piece(text_key(random)),
    };
    let command = with_flags(random, command, b"CIIkOqT");
    // A reader may win the stale document. That of an `ms` with flag I is as stale, but a case
    // whose CAS values are not compared would have none to be too old.
    let marks = |piece: &CommandPiece| matches!(piece, CommandPiece::Bytes(bytes) if bytes == b"I");
    if command.pieces.iter().any(marks) { command.touching() } else { command }
}

fn arithmetic(random: &mut Random) -> TextCommand {
    let command = TextCommand::new("ma").piece(counter(random));
    with_flags(random, command, b"CNNJDMMqtcvvvkO")
}

/// A few of these flags, with tokens; now and then one twice, without its token, or unknown.
fn with_flags(random: &mut Random, mut command: TextCommand, known: &[u8]) -> TextCommand {
    let count = random.below(5);
    let mut used = Vec::new();
    for _ in 0..count {
        let flag = known[random.below(known.len() as u64) as usize];
        if used.contains(&flag) && !random.one_in(20) {
            continue;
        }
        used.push(flag);
        command = flagged(random, command, flag, !known.iter().any(|one| b"JNRT".contains(one)));
    }
    match random.below(60) {
        0 => command.token(pick(random, &["!", "@", "Y", "z", "1", "=", "\x7f"])),
        1 => command.and(pick(random, &["  ", " b", " b b"])),
        _ => command,
    }
}

fn flagged(
    random: &mut Random,
    command: TextCommand,
    flag: u8,
    may_have_long_opaque: bool,
) -> TextCommand {
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
        b'O' => opaque(random, may_have_long_opaque),
        b'M' => mode(random),
        _ => String::new(),
    };
    let command = command.token([&[flag], token.as_bytes()].concat());
    // A reader who wins changes the CAS in Oribi.
    if matches!(flag, b'T' | b'R') { command.touching() } else { command }
}

/// With its letter, 32 bytes are the longest.
fn opaque(random: &mut Random, may_be_too_long: bool) -> String {
    let length = pick(random, &[&1_usize, &4, &30, &31, &32]);
    "o".repeat(if may_be_too_long { *length } else { (*length).min(31) })
}

/// Modes of `ms` and `ma`; those of the other are invalid.
fn mode(random: &mut Random) -> String {
    let modes = [
        "S", "A", "P", "E", "R", "s", "a", "p", "e", "r", "I", "+", "D", "-", "i", "d", "incr",
        "set", "append", "X", "1",
    ];
    pick(random, &modes).to_owned()
}
