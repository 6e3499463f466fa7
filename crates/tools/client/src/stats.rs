//! Statistics: one request, any number of answers, each borrowed from the receive buffer.
//!
//! A group may have millions of entries. They are handed out as they arrive and nothing is kept, so
//! memory does not grow with their number and the server is not read faster than its figures are
//! used.

use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;

use crate::connection::Connection;
use crate::error::{ClientError, RejectionKind};

/// Marks the answers to this stream's request; nothing else is in flight.
const OPAQUE: u32 = 0x5354_4154;

/// One figure. Servers send text, but nothing forces them to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

/// A figure that owns its text; bytes that are no UTF-8 are replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NamedStat {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
}

/// Statistics in the order in which the server sends them. Dropped before its end, a stream leaves
/// answers on the connection, which then refuses further requests.
#[derive(Debug)]
pub struct StatStream<'c> {
    connection: &'c mut Connection,
    has_ended: bool,
}

impl Connection {
    /// Asks for a group of statistics, for instance `vbucket-details 12`; empty for the general
    /// ones. Nothing else may be in flight until the stream has ended.
    pub async fn stats(&mut self, group: &str) -> Result<StatStream<'_>, ClientError> {
        let parts = RequestParts {
            key: group.as_bytes(),
            opaque: OPAQUE,
            ..RequestParts::new(Opcode::Stat)
        };
        self.push(&parts);
        self.flush().await.map_err(|error| error.named(Opcode::Stat.name()))?;
        Ok(StatStream { connection: self, has_ended: false })
    }
}

impl StatStream<'_> {
    /// The next figure, once it is there; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<Stat<'_>>, ClientError> {
        let mut deadline = None;
        while !self.has_ended && !self.connection.advance()? {
            self.connection.receive(&mut deadline, Opcode::Stat.name()).await?;
        }
        self.present()
    }

    /// The next figure, if it has been received already; `None` also when more has to be waited
    /// for. Draining these before [`StatStream::next`] saves most of what waiting costs.
    pub fn try_next(&mut self) -> Result<Option<Stat<'_>>, ClientError> {
        match !self.has_ended && self.connection.advance()? {
            true => self.present(),
            false => Ok(None),
        }
    }

    /// The figure in the present frame, unless the stream has ended or ends with it.
    fn present(&mut self) -> Result<Option<Stat<'_>>, ClientError> {
        if self.has_ended {
            return Ok(None);
        }
        let is_ours =
            |header: &Header| header.opaque == OPAQUE && header.opcode == Opcode::Stat as u8;
        let Some(header) = self.connection.header().filter(is_ours) else {
            return Err(self
                .connection
                .protocol_error(Opcode::Stat.name(), "an answer to another request"));
        };
        let outcome = RejectionKind::from_status(header.vbucket_or_status);
        let is_terminator = header.key_bytes == 0 && header.value_bytes() == Some(0);
        self.has_ended = outcome.is_err() || is_terminator;
        outcome?;
        if is_terminator {
            return Ok(None);
        }
        let Frame { key: name, value, .. } = self.connection.present()?;
        Ok(Some(Stat { name, value }))
    }
}

impl Drop for StatStream<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.connection.fail("a stream of statistics was not read to its end");
        }
    }
}
