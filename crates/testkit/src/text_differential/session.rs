//! One connection to one of the servers, in one run of a case.
//!
//! Owns: sending a round in pieces, finding the end of its answers, and the CAS values that this
//! server has shown. A round ends with a document of the run's own whose value tells the round. If
//! announced data may be missing, enough line ends come before it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use super::answer::{self, CasValues};
use super::command::TextCommand;
use super::parts::MISSING_BYTES_MAX;
use crate::random::Random;

/// Stands for the answers that did not come in time.
pub(super) const NO_END: &str = "[no end of the answers]";

pub(super) struct TextSession {
    stream: TcpStream,
    prefix: String,
    cas_values: CasValues,
    rounds: usize,
    is_closing: bool,
}

impl TextSession {
    pub(super) fn connect(
        port: u16,
        prefix: &str,
        touches: bool,
        patience: Duration,
    ) -> Result<TextSession> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("cannot connect to port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let prefix = prefix.to_owned();
        Ok(TextSession {
            stream,
            prefix,
            cas_values: CasValues::new(touches),
            rounds: 0,
            is_closing: false,
        })
    }

    /// Sends the commands and the round's end, cut at random places.
    pub(super) fn send(&mut self, commands: &[TextCommand], may_swallow: bool, mut cuts: Random) {
        self.rounds += 1;
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend(command.rendered(&self.prefix, |key| self.cas_values.of(key)));
            self.is_closing |= command.is_last;
        }
        if may_swallow {
            bytes.extend(b"\r\n".repeat(MISSING_BYTES_MAX / 2));
        }
        let (prefix, end) = (&self.prefix, self.end());
        let length = end.len();
        bytes.extend(format!("set {prefix}~ 0 0 {length}\r\n{end}\r\nget {prefix}~\r\n").bytes());
        let mut rest = bytes.as_slice();
        let is_torn = cuts.one_in(2);
        while !rest.is_empty() {
            let longest = rest.len() as u64;
            let part = if is_torn { 1 + cuts.below(longest.min(200)) } else { longest };
            let (now, later) = rest.split_at(part as usize);
            // A server that has closed the connection shows in the answer.
            if self.stream.write_all(now).is_err() {
                return;
            }
            rest = later;
        }
    }

    /// The round's answers, comparable with those of the other server.
    pub(super) fn receive(&mut self) -> Vec<u8> {
        let (prefix, end) = (&self.prefix, self.end());
        let last = format!("STORED\r\nVALUE {prefix}~ 0 {}\r\n{end}\r\nEND\r\n", end.len());
        let mut received = Vec::new();
        let mut buffer = [0; 16 * 1024];
        let how = loop {
            if received.ends_with(last.as_bytes()) {
                break "";
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => break "[closed]",
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    break "[closed]";
                }
                Err(_) => break NO_END,
            }
        };
        let mut comparable = answer::comparable(&received, &mut self.cas_values);
        comparable.extend_from_slice(how.as_bytes());
        comparable
    }

    /// Value of the document that ends the round.
    fn end(&self) -> String {
        format!("~end-of-round-{}~", self.rounds)
    }
}
