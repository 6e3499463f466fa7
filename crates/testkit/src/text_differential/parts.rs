//! Parts of random commands: keys, numbers, times, values, line ends.
//!
//! Owns: how often each kind occurs, and what is left out because memcached itself does not always
//! answer it alike.

use super::command::{CommandPiece, TextCommand, WRONG_CAS};
use crate::random::Random;

/// Names after the prefix: few, so that commands meet. Counters have their own names, because
/// memcached is at odds with itself over them: it reads one that is blank beyond its end. It
/// changes one in place and pads it with spaces, unless a reader holds it just then; that makes a
/// new document, not read yet.
const NAMES: [&str; 3] = ["a", "b", "c"];
const COUNTERS: [&str; 2] = ["n", "m"];
/// From here on a value is sent with a valid command only: memcached takes a long line that is no
/// command for an attack, and closes.
const VALUE_BYTES_LARGE: usize = 1500;
/// More than any command announces beyond its data.
pub(super) const MISSING_BYTES_MAX: usize = 100;
/// The longest key, and how much of it is the prefix.
const KEY_BYTES_MAX: usize = 250;
pub(super) const PREFIX_BYTES: usize = 10;

pub(super) fn pick<'a, T: ?Sized>(random: &mut Random, choices: &[&'a T]) -> &'a T {
    choices[random.below(choices.len() as u64) as usize]
}

/// A key that mostly is one of a few.
pub(super) fn key_name(random: &mut Random) -> Vec<u8> {
    match random.below(40) {
        0 => vec![b'k'; KEY_BYTES_MAX - PREFIX_BYTES],
        1 => vec![b'k'; KEY_BYTES_MAX - PREFIX_BYTES + 1],
        2 => vec![0xc3, 0xbc, 0xff, b'x'],
        3 => b"~!@#$%^&*(){}[]<>?/\\|'\"".to_vec(),
        4 => vec![1, 2, 127],
        _ => pick(random, &NAMES).as_bytes().to_vec(),
    }
}

pub(super) fn key(random: &mut Random) -> CommandPiece {
    if random.one_in(3) { counter(random) } else { text_key(random) }
}

/// A key that is no counter's.
pub(super) fn text_key(random: &mut Random) -> CommandPiece {
    CommandPiece::Key(key_name(random))
}

pub(super) fn counter(random: &mut Random) -> CommandPiece {
    CommandPiece::Key(pick(random, &COUNTERS).as_bytes().to_vec())
}

/// A key under which this value may be stored.
pub(super) fn key_for(random: &mut Random, value: &[u8]) -> CommandPiece {
    let is_blank = value.iter().all(u8::is_ascii_whitespace);
    if is_blank { text_key(random) } else { key(random) }
}

/// A key that is not too long.
pub(super) fn key_that_fits(random: &mut Random) -> CommandPiece {
    match key(random) {
        CommandPiece::Key(mut name) => {
            name.truncate(KEY_BYTES_MAX - PREFIX_BYTES);
            CommandPiece::Key(name)
        }
        other => other,
    }
}

/// An unsigned number, in decimal digits, that may be too large or none. Counters stay below 2^63:
/// from there on memcached looks for a sign after their end, too.
pub(super) fn number(random: &mut Random) -> String {
    let text = match random.below(24) {
        0 => "1000000000000000",
        1 => "99999999999999999999",
        2 => "9223372036854775808x",
        3 => "4294967295",
        4 => "18446744073709551616",
        5 => "-1",
        6 => "x",
        7 => "1x",
        8 => "007",
        9 => "99",
        _ => return random.below(12).to_string(),
    };
    text.to_owned()
}

/// A time to live: mostly none, seldom one that makes the document expire at once or is not
/// understood. None of them passes while a case runs.
pub(super) fn exptime(random: &mut Random) -> &'static str {
    let seldom = [
        "100",
        "1000",
        "20000",
        "2592000",
        "2592001",
        "-1",
        "-100",
        "2147483000",
        "2147483648",
        "4294967295",
        "4294977296",
        "x",
        "1x",
        "+5",
    ];
    match random.one_in(2) {
        true => "0",
        false => pick(random, &seldom),
    }
}

/// Flags of a document.
pub(super) fn flags(random: &mut Random) -> &'static str {
    match random.one_in(2) {
        true => "0",
        false => pick(random, &["1", "65536", "4294967295", "4294967296", "-1", "x", "007"]),
    }
}

/// CAS values that match, mostly.
pub(super) fn cas(random: &mut Random) -> CommandPiece {
    match random.below(12) {
        0 => CommandPiece::Bytes(WRONG_CAS.to_vec()),
        1 => CommandPiece::Bytes(b"0".to_vec()),
        2 => CommandPiece::Bytes(pick(random, &["x", "-1", "18446744073709551616"]).into()),
        _ => CommandPiece::Cas(random.below(3) as usize),
    }
}

/// A value: text, digits, bytes that look like commands, or any bytes.
pub(super) fn value(random: &mut Random) -> Vec<u8> {
    let bytes = match random.below(200) {
        0 => VALUE_BYTES_LARGE as u64 + random.below(30_000),
        1..10 => 100 + random.below(900),
        _ => random.below(40),
    };
    match random.below(8) {
        // No digit comes first: memcached counts up `1 and more` as 1.
        0 => (0..bytes).map(|at| random.below(256) as u8 | u8::from(at == 0) << 7).collect(),
        1 => {
            pick(random, &[b"get a\r\n".as_slice(), b"\r\n", b"END\r\n", b"\r", b"\n", b"0"]).into()
        }
        2..5 => number(random).into_bytes(),
        _ => (0..bytes).map(|_| b'a' + random.below(26) as u8).collect(),
    }
}

pub(super) fn end_of_line(random: &mut Random) -> &'static str {
    if random.one_in(12) { "\n" } else { "\r\n" }
}

/// The length that a command announces; true when it is not that of the data. Never more than 32
/// bits: memcached cuts such a number, and Oribi refuses it.
pub(super) fn announced(random: &mut Random, bytes: usize) -> (String, bool) {
    let other = match random.below(60) {
        0 => (bytes as u64 + 1 + random.below(40)).to_string(),
        1 => (bytes as u64).saturating_sub(1 + random.below(10)).to_string(),
        2 => pick(random, &["-1", "x"]).to_owned(),
        3 => format!("{bytes}x"),
        4 => format!("00{bytes}"),
        _ => return (bytes.to_string(), false),
    };
    (other, true)
}

/// Adds the end of the line and the data; now and then its own end is short of a byte.
pub(super) fn with_data(
    random: &mut Random,
    command: TextCommand,
    value: Vec<u8>,
    is_wrong: bool,
) -> TextCommand {
    let is_short = random.one_in(60);
    if value.len() >= VALUE_BYTES_LARGE {
        return large(&value);
    }
    let command = command.and(end_of_line(random)).and(value);
    let command = command.and(if is_short { "\n" } else { "\r\n" });
    // A stored document has a new CAS in any case.
    TextCommand { may_swallow: is_wrong || is_short, touches: false, ..command }
}

/// Stores a large value, whatever data an earlier command waits for.
fn large(value: &[u8]) -> TextCommand {
    TextCommand::new(b"\r\n".repeat(MISSING_BYTES_MAX / 2))
        .and("set")
        .piece(CommandPiece::Key(NAMES[0].into()))
        .token("0 0")
        .token(value.len().to_string())
        .and("\r\n")
        .and(value)
        .and("\r\n")
}

/// A line and its end.
pub(super) fn line_end(line: &[u8], end: &str) -> Vec<u8> {
    [line, end.as_bytes()].concat()
}
