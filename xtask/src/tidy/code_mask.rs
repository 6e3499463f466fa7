//! Blanks out comments and literals of a Rust source, so that a rule sees code only.
//!
//! The result has the same lines and the same byte offsets as the input: masked bytes become
//! spaces, line ends stay. It is a lexer for exactly what can hide a keyword (line and nested block
//! comments, strings, raw strings, byte and C strings, characters), not a parser; lifetimes are
//! told from character literals by the missing closing quote.

/// Returns `source` with comments and the insides of literals replaced by spaces.
pub(super) fn code_only(source: &str) -> String {
    mask(source, |_, is_hidden| !is_hidden)
}

/// Returns `source` with all but its comments replaced by spaces.
pub(super) fn comments_only(source: &str) -> String {
    mask(source, |start, is_hidden| is_hidden && start == b'/')
}

/// Keeps the parts that `is_kept`, from their first byte and whether they are comments or literals.
fn mask(source: &str, is_kept: impl Fn(u8, bool) -> bool) -> String {
    let bytes = source.as_bytes();
    let mut masked = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hidden = hidden_length(&bytes[at..], bytes[..at].last().copied());
        let part = &bytes[at..at + hidden.max(1)];
        let is_kept = is_kept(part[0], hidden > 0);
        masked.extend(part.iter().map(|byte| match byte {
            b'\n' => b'\n',
            byte if is_kept => *byte,
            _ => b' ',
        }));
        at += part.len();
    }
    // Parts begin and end at ASCII bytes, or are replaced whole.
    String::from_utf8_lossy(&masked).into_owned()
}

/// Length of the comment or literal that starts here; 0 when plain code starts here.
fn hidden_length(rest: &[u8], previous: Option<u8>) -> usize {
    let after_identifier =
        previous.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if rest.starts_with(b"//") {
        return rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_length(rest);
    }
    match rest[0] {
        b'"' => string_length(rest),
        b'\'' => character_length(rest),
        b'r' | b'b' | b'c' if !after_identifier => raw_string_length(rest),
        _ => 0,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal, or 0 for a lifetime.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        // The escaped byte may itself be a quote, so the search for the end starts after it.
        let close = rest.iter().skip(3).position(|byte| *byte == b'\'');
        return close.map_or(0, |offset| offset + 4);
    }
    // One character of at most four UTF-8 bytes, then the quote.
    let close = rest.iter().skip(2).take(4).position(|byte| *byte == b'\'');
    match close {
        Some(0) => 3,
        Some(offset) if !rest[1].is_ascii() => offset + 3,
        _ => 0,
    }
}

/// A raw string with any of the prefixes `r`, `br` and `cr`, or 0. Plain `b".."` and `c".."` are
/// found at their quote.
fn raw_string_length(rest: &[u8]) -> usize {
    let prefix = match rest {
        [b'r', ..] => 1,
        [b'b' | b'c', b'r', ..] => 2,
        _ => return 0,
    };
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return 0;
    }
    let mut at = open + 1;
    while at < rest.len() {
        let closing = rest[at + 1..].iter().take(hashes).filter(|byte| **byte == b'#').count();
        if rest[at] == b'"' && closing == hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    rest.len()
}
