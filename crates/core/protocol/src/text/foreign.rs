//! Openings of other protocols, whose clients have the wrong port.
//!
//! Owns: which lines are known as such. A line of memcached's protocol is none of them. The rest of
//! such a stream may look like commands: a web page chooses the body of a `POST`, so nothing after
//! the line may be served.

use std::fmt;

use super::tokens::Tokens;

/// Another protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignProtocol {
    /// HTTP: a request line.
    Http,
    /// SSH: an identification string.
    Ssh,
    /// Redis: an array of RESP.
    Redis,
}

impl ForeignProtocol {
    /// The protocol of a line that is no command. Like memcached, takes any line for HTTP whose
    /// last word names its version.
    pub(super) fn of_line(line: &[u8]) -> Option<ForeignProtocol> {
        let last = Tokens::new(line).last()?;
        match line {
            _ if last.starts_with(b"HTTP/") => Some(ForeignProtocol::Http),
            [b'S', b'S', b'H', b'-', ..] => Some(ForeignProtocol::Ssh),
            [b'*', count @ ..] if !count.is_empty() && count.iter().all(u8::is_ascii_digit) => {
                Some(ForeignProtocol::Redis)
            }
            _ => None,
        }
    }
}

impl fmt::Display for ForeignProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ForeignProtocol::Http => "HTTP",
            ForeignProtocol::Ssh => "SSH",
            ForeignProtocol::Redis => "Redis",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::login::{self, Login};
    use super::super::{Command, DecodedCommand, Decoder};
    use super::ForeignProtocol::{self, Http, Redis, Ssh};

    const OPENINGS: [(&str, ForeignProtocol); 7] = [
        ("POST / HTTP/1.1\r\n", Http),
        ("GET /get HTTP/1.0\n", Http),
        ("PRI * HTTP/2.0\r\n", Http),
        ("set / HTTP/1.1\r\n", Http),
        ("SSH-2.0-OpenSSH_9.2\r\n", Ssh),
        ("*1\r\n", Redis),
        ("*12\r\n", Redis),
    ];

    #[test]
    fn openings_of_other_protocols_are_known() {
        for (opening, protocol) in OPENINGS {
            let all = format!("{opening}set evil 0 0 1\r\nx\r\n");
            let decoded = Decoder::default().decode(all.as_bytes());
            assert_eq!(decoded, DecodedCommand::Foreign(protocol), "{opening}");
            assert_eq!(login::decode(all.as_bytes()), Login::Foreign(protocol), "{opening}");
            for cut in 0..opening.len() {
                let decoded = Decoder::default().decode(&all.as_bytes()[..cut]);
                assert_eq!(decoded, DecodedCommand::Incomplete, "{opening} {cut}");
            }
        }
    }

    #[test]
    fn commands_and_other_lines_are_not_foreign() {
        for line in
            ["get HTTP/1.1\r\n", "*\r\n", "*x\r\n", "$4\r\n", "HTTP\r\n", "ssh-2\r\n", "\r\n"]
        {
            let decoded = Decoder::default().decode(line.as_bytes());
            assert!(!matches!(decoded, DecodedCommand::Foreign(_)), "{line}");
        }
        let get = Decoder::default().decode(b"get HTTP/1.1\r\n");
        assert!(matches!(get, DecodedCommand::Complete { command: Command::Get { .. }, .. }));
    }
}
