//! Parses one command line.
//!
//! Owns: which arguments each command has, and the words for wrong ones, which are memcached's.

use super::command::{Command, Fault, Store, StoreMode};
use super::meta::Meta;
use super::number;
use super::tokens::Tokens;
use crate::limits::KEY_BYTES_MAX;

/// Bytes after a data block.
pub(super) const END_BYTES: usize = 2;

pub(super) const UNKNOWN: &str = "ERROR";
pub(super) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
pub(super) const BAD_EXPIRY: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const BAD_DELETE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";

/// The store command of this name.
pub(super) fn store_mode(verb: &[u8]) -> Option<StoreMode> {
    Some(match verb {
        b"set" => StoreMode::Set,
        b"add" => StoreMode::Add,
        b"replace" => StoreMode::Replace,
        b"append" => StoreMode::Append,
        b"prepend" => StoreMode::Prepend,
        b"cas" => StoreMode::Cas,
        _ => return None,
    })
}

/// A store command and the bytes of its value, or the answer to a wrong one.
pub(super) type ParsedStore<'a> = Result<(Store<'a>, usize), Fault>;

/// A length that a command line names; memcached's limit.
fn length(token: &[u8]) -> Option<usize> {
    const LENGTH_MAX: i32 = i32::MAX - END_BYTES as i32;
    let length = number::signed(token).filter(|length| *length <= LENGTH_MAX)?;
    usize::try_from(length).ok()
}

/// Parses `set` and its like after the verb.
pub(super) fn parse_store<'a>(mode: StoreMode, mut tokens: Tokens<'a>) -> ParsedStore<'a> {
    let (arguments, cas, quiet) = match mode {
        StoreMode::Cas => {
            let (arguments, quiet) = tokens.take_some::<5>().ok_or(Fault::new(UNKNOWN))?;
            let [key, flags, expiry, bytes, cas] = arguments;
            ([key, flags, expiry, bytes], Some(cas), quiet)
        }
        _ => {
            let (arguments, quiet) = tokens.take_some::<4>().ok_or(Fault::new(UNKNOWN))?;
            (arguments, None, quiet)
        }
    };
    let [key, flags, expiry, bytes] = arguments;
    let parse = || {
        let cas = match cas {
            Some(token) => Some(number::unsigned(token)?),
            None => None,
        };
        let store = Store {
            mode,
            key,
            flags: number::flags(flags)?,
            expiry: number::expiry(expiry)?,
            cas,
            quiet,
            meta: None,
            value: &[],
            is_terminated: false,
        };
        Some((store, length(bytes)?)).filter(|_| key.len() <= KEY_BYTES_MAX)
    };
    parse().ok_or(Fault { answer: BAD_FORMAT, quiet, skip_bytes: 0 })
}

/// Parses the arguments of `ms`.
pub(super) fn parse_meta_set<'a>(mut tokens: Tokens<'a>) -> ParsedStore<'a> {
    let key = tokens.next().ok_or(Fault::new(UNKNOWN))?;
    let bytes = tokens.next().filter(|_| key.len() <= KEY_BYTES_MAX);
    let is_long = Meta::has_too_many(tokens) && bytes.is_some();
    if is_long {
        return Err(Fault::new("CLIENT_ERROR options flags too long"));
    }
    let value_bytes = bytes.and_then(length).ok_or(Fault::new(BAD_FORMAT))?;
    let skip_bytes = value_bytes + END_BYTES;
    let refuse = |answer| Fault { answer, quiet: false, skip_bytes };
    let meta = Meta::parse(key, tokens).map_err(refuse)?;
    let mode = match (meta.mode, meta.cas) {
        (0 | b'S' | b'R', Some(_)) => StoreMode::Cas,
        (0 | b'S', None) => StoreMode::Set,
        (b'R', None) => StoreMode::Replace,
        (b'E', _) => StoreMode::Add,
        (b'A', _) => StoreMode::Append,
        (b'P', _) => StoreMode::Prepend,
        _ => return Err(refuse("CLIENT_ERROR invalid mode for ms M token")),
    };
    let meta = meta.with_short_opaque().map_err(refuse)?;
    let store = Store {
        mode,
        key,
        flags: meta.client_flags,
        expiry: meta.expiry.unwrap_or(0),
        cas: meta.cas,
        quiet: meta.quiet,
        meta: Some(meta),
        value: &[],
        is_terminated: false,
    };
    Ok((store, value_bytes))
}

/// Parses any other command. A wrong line is a command, too: its answer.
pub(super) fn parse_other<'a>(verb: &[u8], tokens: Tokens<'a>) -> Command<'a> {
    const LONG: &str = "CLIENT_ERROR options flags are too long";
    let parsed = match verb {
        b"mn" => Ok(Command::MetaNoop),
        b"mg" => meta(tokens, LONG).and_then(short_opaque).map(Command::MetaGet),
        b"md" => terse_meta(tokens).and_then(short_opaque).map(Command::MetaDelete),
        b"ma" => terse_meta(tokens).and_then(|meta| match meta.mode {
            0 | b'I' | b'+' | b'D' | b'-' => short_opaque(meta).map(Command::MetaCount),
            _ => Err(Fault::new("CLIENT_ERROR invalid mode for ma M token")),
        }),
        b"me" => debug(tokens),
        b"delete" => delete(tokens),
        b"incr" => count(tokens, false),
        b"decr" => count(tokens, true),
        b"touch" => touch(tokens),
        b"flush_all" => flush_all(tokens),
        b"verbosity" => verbosity(tokens),
        b"version" => Ok(Command::Version),
        b"quit" => Ok(Command::Quit),
        b"shutdown" => Err(Fault::new("ERROR: shutdown not enabled")),
        b"stats" => stats(tokens),
        b"lru_crawler" => lru_crawler(tokens),
        _ => Err(Fault::new(UNKNOWN)),
    };
    parsed.unwrap_or_else(Command::Invalid)
}

type ParseResult<'a> = Result<Command<'a>, Fault>;

fn refuse(answer: &'static str, quiet: bool) -> Fault {
    Fault { answer, quiet, skip_bytes: 0 }
}

/// A key and its flags.
fn meta<'a>(mut tokens: Tokens<'a>, long: &'static str) -> Result<Meta<'a>, Fault> {
    let key = tokens.next().ok_or(Fault::new(UNKNOWN))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(Fault::new(BAD_FORMAT));
    }
    if Meta::has_too_many(tokens) {
        return Err(Fault::new(long));
    }
    Meta::parse(key, tokens).map_err(Fault::new)
}

fn short_opaque(meta: Meta<'_>) -> Result<Meta<'_>, Fault> {
    meta.with_short_opaque().map_err(Fault::new)
}

/// As [`meta`], with fewer words for wrong flags.
fn terse_meta<'a>(tokens: Tokens<'a>) -> Result<Meta<'a>, Fault> {
    const LONG: &str = "CLIENT_ERROR options flags too long";
    meta(tokens, LONG).map_err(|refused| match refused {
        Fault { answer, .. } if ![UNKNOWN, BAD_FORMAT, LONG].contains(&answer) => {
            Fault::new("CLIENT_ERROR invalid or duplicate flag")
        }
        refused => refused,
    })
}

fn debug<'a>(mut tokens: Tokens<'a>) -> ParseResult<'a> {
    let key =
        tokens.next().filter(|key| key.len() <= KEY_BYTES_MAX).ok_or(Fault::new(BAD_FORMAT))?;
    let flags = if tokens.clone().next() == Some(b"b") { tokens } else { Tokens::new(b"") };
    let meta = Meta::parse(key, flags).map_err(|_| Fault::new(BAD_FORMAT))?;
    Ok(Command::MetaDebug(meta))
}

fn delete<'a>(mut tokens: Tokens<'a>) -> ParseResult<'a> {
    let key = tokens.next().ok_or(Fault::new(UNKNOWN))?;
    let (first, second) = (tokens.next(), tokens.next());
    if tokens.next().is_some() {
        return Err(Fault::new(UNKNOWN));
    }
    let quiet = second.or(first) == Some(b"noreply");
    let is_right = match (first, second) {
        (None, _) => true,
        (Some(b"0"), None) => true,
        (Some(first), second) => quiet && (second.is_none() || first == b"0"),
    };
    match is_right {
        false => Err(refuse(BAD_DELETE, quiet)),
        true if key.len() > KEY_BYTES_MAX => Err(refuse(BAD_FORMAT, quiet)),
        true => Ok(Command::Delete { key, quiet }),
    }
}

fn count<'a>(mut tokens: Tokens<'a>, decrement: bool) -> ParseResult<'a> {
    let ([key, delta], quiet) = tokens.take_some::<2>().ok_or(Fault::new(UNKNOWN))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(refuse(BAD_FORMAT, quiet));
    }
    let delta = number::unsigned(delta);
    let delta = delta.ok_or(refuse(BAD_DELTA, quiet))?;
    Ok(Command::Count { key, delta, decrement, quiet })
}

fn touch<'a>(mut tokens: Tokens<'a>) -> ParseResult<'a> {
    let ([key, expiry], quiet) = tokens.take_some::<2>().ok_or(Fault::new(UNKNOWN))?;
    if key.len() > KEY_BYTES_MAX {
        return Err(refuse(BAD_FORMAT, quiet));
    }
    let expiry = number::expiry(expiry).ok_or(refuse(BAD_EXPIRY, quiet))?;
    Ok(Command::Touch { key, expiry, quiet })
}

fn flush_all<'a>(mut tokens: Tokens<'a>) -> ParseResult<'a> {
    let (first, second) = (tokens.next(), tokens.next());
    if tokens.next().is_some() {
        return Err(Fault::new(UNKNOWN));
    }
    let quiet = second.or(first) == Some(b"noreply");
    let delay = match first {
        Some(delay) if !quiet || second.is_some() => {
            number::time(delay).ok_or(refuse(BAD_EXPIRY, quiet))?
        }
        _ => 0,
    };
    // A time that has passed means now.
    Ok(Command::FlushAll { delay: u32::try_from(delay).unwrap_or(0), quiet })
}

/// Classes that memcached can have. Here all documents are in the first one.
const CLASSES: std::ops::RangeInclusive<u64> = 1..=63;

fn stats<'a>(mut tokens: Tokens<'a>) -> ParseResult<'a> {
    let group = tokens.rest().trim_ascii();
    match tokens.next() {
        Some(b"metadump") => Err(Fault::new(UNKNOWN)),
        Some(b"cachedump") => {
            let (Some(class), Some(limit)) = (tokens.next(), tokens.next()) else {
                return Err(Fault::new("CLIENT_ERROR bad command line"));
            };
            match (number::unsigned(class), number::unsigned(limit)) {
                (Some(1), Some(_)) => Ok(Command::Stats { group }),
                (Some(class), Some(_)) if CLASSES.contains(&class) => Ok(Command::End),
                (Some(_), Some(_)) => Err(Fault::new("CLIENT_ERROR Illegal slab id")),
                _ => Err(Fault::new(BAD_FORMAT)),
            }
        }
        _ => Ok(Command::Stats { group }),
    }
}

/// Of this command, only `metadump`: there is no crawler to control.
fn lru_crawler<'a>(mut tokens: Tokens<'a>) -> ParseResult<'a> {
    const DUMP: Command<'_> = Command::Stats { group: b"metadump" };
    match (tokens.next(), tokens.next(), tokens.next()) {
        (Some(b"metadump"), Some(b"all" | b"hash"), None) => Ok(DUMP),
        (Some(b"metadump"), Some(classes), None) => {
            let mut has_first = false;
            for class in classes.split(|byte| *byte == b',') {
                let class = number::unsigned(class).filter(|class| CLASSES.contains(class));
                has_first |= class.ok_or(Fault::new("BADCLASS invalid class id"))? == 1;
            }
            Ok(if has_first { DUMP } else { Command::End })
        }
        _ => Err(Fault::new(UNKNOWN)),
    }
}

fn verbosity<'a>(mut tokens: Tokens<'a>) -> ParseResult<'a> {
    let ([level], quiet) = tokens.take_some::<1>().ok_or(Fault::new(UNKNOWN))?;
    match number::unsigned(level) {
        Some(_) => Ok(Command::Verbosity { quiet }),
        None => Err(refuse(BAD_FORMAT, quiet)),
    }
}
