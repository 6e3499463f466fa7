//! What may differ between the answers of two servers, and nothing else.
//!
//! Owns: the list of it. In answers to `gets`, CAS values become numbers in the order of their
//! first appearance, document by document: Oribi's are unique for a document, memcached's for the
//! server. A meta answer need not name its document, so its CAS is only known to be there. Times
//! that pass become rounded ones. Whether a document was read before (`h`, `fetch`) begins anew
//! with each version of memcached's, and not of Oribi's. The debug line of `me` and the version
//! describe the server.

use std::collections::BTreeMap;

/// Times to live are far apart, and a clock that ticks in between changes one by a second or two.
const TTL_STEP: i64 = 100;
/// Seconds since the last access that a case can take.
const ACCESS_SECONDS_MAX: i64 = 40;

/// The CAS values that one connection has seen.
pub(super) struct CasValues {
    of_documents: BTreeMap<Vec<u8>, Vec<u64>>,
    /// Equal ones and different ones are distinguished.
    are_compared: bool,
}

impl CasValues {
    pub(super) fn new(touches: bool) -> CasValues {
        CasValues { of_documents: BTreeMap::new(), are_compared: !touches }
    }

    /// Those of a document, in order of appearance.
    pub(super) fn of(&self, key: &[u8]) -> &[u64] {
        self.of_documents.get(key).map_or(&[], Vec::as_slice)
    }

    /// Placeholder for the value of a document.
    fn name(&mut self, key: &[u8], token: &[u8]) -> Option<String> {
        let value = shown(token)?;
        if !self.are_compared {
            return Some("#".to_owned());
        }
        let values = self.of_documents.entry(key.to_vec()).or_default();
        let at = values.iter().position(|seen| *seen == value).unwrap_or_else(|| {
            values.push(value);
            values.len() - 1
        });
        Some(format!("#{at}"))
    }
}

/// The answers of a round with everything replaced that may differ. `cas_values` are those that
/// this connection has seen, in order.
pub(super) fn comparable(received: &[u8], cas_values: &mut CasValues) -> Vec<u8> {
    let mut result = Vec::with_capacity(received.len());
    let mut rest = received;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(end);
        let (data, after) = after.split_at(data_bytes(line).min(after.len()));
        let line = comparable_line(line, cas_values);
        match padded_counter(data) {
            Some(digits) => result.extend(without_padding(&line, data, digits)),
            None => result.extend([&line, data].concat()),
        }
        rest = after;
    }
    result
}

/// The digits of a counter that is padded with spaces. memcached pads one that gets shorter, unless
/// a client reads it just then.
fn padded_counter(data: &[u8]) -> Option<&[u8]> {
    let digits = data.iter().position(|byte| !byte.is_ascii_digit())?;
    let spaces = data[digits..].iter().position(|byte| *byte != b' ')?;
    (digits > 0 && spaces > 0 && data[digits + spaces..] == *b"\r\n").then(|| &data[..digits])
}

/// Line and data of a counter as if it were not padded.
fn without_padding(line: &[u8], data: &[u8], digits: &[u8]) -> Vec<u8> {
    let (padded, bytes) = ((data.len() - 2).to_string(), digits.len().to_string());
    let length_at = if line.starts_with(b"VA ") { 1 } else { 3 };
    let mut result = each_token(line, |at, token| {
        (at == length_at && token == padded.as_bytes()).then(|| bytes.clone())
    });
    result.extend_from_slice(digits);
    result.extend_from_slice(b"\r\n");
    result
}

/// Bytes of data after this line, their line end included.
fn data_bytes(line: &[u8]) -> usize {
    let mut tokens = tokens(line);
    let length = match tokens.next() {
        Some(b"VALUE") => tokens.nth(2),
        Some(b"VA") => tokens.next(),
        _ => return 0,
    };
    number(length.unwrap_or_default())
        .and_then(|length| usize::try_from(length + 2).ok())
        .unwrap_or(0)
}

fn comparable_line(line: &[u8], cas_values: &mut CasValues) -> Vec<u8> {
    let first = tokens(line).next().unwrap_or_default();
    match first {
        b"VERSION" => b"VERSION\r\n".to_vec(),
        b"VALUE" => {
            let key = tokens(line).nth(1).unwrap_or_default().to_vec();
            each_token(line, |at, token| (at == 4).then(|| cas_values.name(&key, token))?)
        }
        b"HD" | b"VA" | b"EN" | b"NF" | b"NS" | b"EX" => each_token(line, |at, token| {
            let value = token.get(1..)?;
            match token[0] {
                _ if at == 0 || first == b"VA" && at == 1 => None,
                b'c' => shown(value).map(|_| "c#".to_owned()),
                b't' => {
                    number(value).filter(|ttl| *ttl > 0).map(|ttl| format!("t{}", rounded(ttl)))
                }
                b'h' => number(value).map(|_| "h#".to_owned()),
                b'l' => number(value).map(|seconds| format!("l{}", accessed(seconds))),
                _ => None,
            }
        }),
        b"ME" => each_token(line, |_, token| {
            let name = token.split(|byte| *byte == b'=').next()?;
            // What they hold is for those who debug memcached.
            [b"exp".as_slice(), b"la", b"cas", b"fetch", b"cls", b"size"]
                .contains(&name)
                .then(|| String::from_utf8_lossy(name).into_owned())
        }),
        _ => line.to_vec(),
    }
}

/// The line with those tokens replaced for which `replace` has something.
fn each_token(line: &[u8], mut replace: impl FnMut(usize, &[u8]) -> Option<String>) -> Vec<u8> {
    let end = line.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(line.len());
    let (text, line_end) = line.split_at(end);
    let parts = text
        .split(|byte| *byte == b' ')
        .enumerate()
        .map(|(at, token)| replace(at, token).map_or_else(|| token.to_vec(), String::into_bytes));
    let mut result = parts.collect::<Vec<_>>().join(&b' ');
    result.extend_from_slice(line_end);
    result
}

/// The value that an answer shows; none for 0, which says that there is none.
fn shown(token: &[u8]) -> Option<u64> {
    std::str::from_utf8(token).ok()?.parse().ok().filter(|cas| *cas != 0)
}

/// A time that has passed is negative, and memcached shows it without its sign.
fn rounded(ttl: i64) -> i64 {
    let ttl = if ttl > i64::from(i32::MAX) { 0 } else { ttl };
    (ttl + TTL_STEP / 2) / TTL_STEP * TTL_STEP
}

fn accessed(seconds: i64) -> i64 {
    if (0..=ACCESS_SECONDS_MAX).contains(&seconds) { 0 } else { seconds }
}

fn number(token: &[u8]) -> Option<i64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\r' | b'\n')).filter(|token| !token.is_empty())
}
