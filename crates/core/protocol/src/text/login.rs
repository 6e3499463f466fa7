//! The login of memcached's text protocol: a `set` whose data block is a user and a password.
//!
//! Owns: everything that a connection may send before it is logged in. Key, flags and expiry of the
//! command are ignored. Invariant: no more than [`LINE_BYTES_MAX`] and [`CREDENTIALS_BYTES_MAX`]
//! are received for it.

use memchr::memchr;

use super::LINE_BYTES_MAX;
use super::foreign::ForeignProtocol;
use super::number;
use super::tokens::Tokens;

/// Longest user and password together, with the space between them.
pub const CREDENTIALS_BYTES_MAX: usize = 1024;

/// The answer to a client that has to log in first.
pub const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";

/// Input of a client that is not logged in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Login<'a> {
    /// More bytes are needed.
    Incomplete,
    /// A login.
    Credentials {
        /// The user.
        user: &'a [u8],
        /// The password.
        password: &'a [u8],
        /// Bytes that it occupied.
        consumed: usize,
    },
    /// Something else.
    Refused {
        /// The answer.
        answer: &'static str,
        /// Bytes that it occupied.
        consumed: usize,
    },
    /// The line or the data block is too long: the connection ends.
    TooLong,
    /// A line that another protocol begins with: the connection ends.
    Foreign(ForeignProtocol),
}

/// Decodes the input of a client before its login.
pub fn decode(bytes: &[u8]) -> Login<'_> {
    let Some(end) = memchr(b'\n', bytes) else {
        return if bytes.len() > LINE_BYTES_MAX { Login::TooLong } else { Login::Incomplete };
    };
    if end > LINE_BYTES_MAX {
        return Login::TooLong;
    }
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    if let Some(protocol) = ForeignProtocol::of_line(line) {
        return Login::Foreign(protocol);
    }
    let mut tokens = Tokens::new(line);
    let is_set = tokens.next() == Some(b"set");
    let size = tokens.nth(3).and_then(number::unsigned).filter(|_| is_set);
    let Some(size) = size else {
        return Login::Refused { answer: UNAUTHENTICATED, consumed: end + 1 };
    };
    let Some(size) = usize::try_from(size).ok().filter(|size| *size <= CREDENTIALS_BYTES_MAX)
    else {
        return Login::TooLong;
    };
    let consumed = end + 1 + size + 2;
    let Some(block) = bytes.get(end + 1..consumed) else { return Login::Incomplete };
    let Some(block) = block.strip_suffix(b"\r\n") else {
        let answer = "CLIENT_ERROR bad command line termination";
        return Login::Refused { answer, consumed };
    };
    let mut tokens = Tokens::new(block);
    match (tokens.next(), tokens.next()) {
        (Some(user), Some(password)) => Login::Credentials { user, password, consumed },
        _ => Login::Refused { answer: "CLIENT_ERROR bad authentication token format", consumed },
    }
}

#[cfg(test)]
mod tests {
    use super::{Login, decode};

    #[test]
    fn a_login_is_a_set_with_user_and_password() {
        let text = b"set any 0 0 10\r\nann secret\r\n";
        for cut in 0..text.len() {
            assert_eq!(decode(&text[..cut]), Login::Incomplete, "{cut}");
        }
        let login = Login::Credentials { user: b"ann", password: b"secret", consumed: text.len() };
        assert_eq!(decode(text), login);
    }

    #[test]
    fn all_else_is_refused_or_ends_the_connection() {
        let answer = |bytes: &[u8]| match decode(bytes) {
            Login::Refused { answer, consumed } => {
                assert_eq!(consumed, bytes.len());
                answer
            }
            other => panic!("{other:?}"),
        };
        for bytes in [&b"get a\r\n"[..], b"\n", b"set a 0 0\r\n", b"set a 0 0 x\r\n"] {
            assert_eq!(answer(bytes), "CLIENT_ERROR unauthenticated");
        }
        assert_eq!(
            answer(b"set a 0 0 3\r\nann\r\n"),
            "CLIENT_ERROR bad authentication token format"
        );
        assert_eq!(
            answer(b"set a 0 0 7\r\nann bobXX"),
            "CLIENT_ERROR bad command line termination"
        );
        assert_eq!(decode(b"set a 0 0 1025\r\n"), Login::TooLong);
        assert_eq!(decode(b"set a 0 0 18446744073709551615\r\n"), Login::TooLong);
        assert_eq!(decode(&[b'x'; 3000]), Login::TooLong);
    }
}
