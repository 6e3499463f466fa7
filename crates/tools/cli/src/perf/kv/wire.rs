//! A connection of the load, in the protocol that was asked for.
//!
//! Both kinds queue requests, send them together, and hand out one [`KvAnswer`] per operation. The
//! load above them is the same: it generates, retries, verifies and counts without knowing the
//! protocol. [`text`] has both text protocols.

pub mod answer;
pub mod answer_line;
pub mod read_buffer;
pub mod socket;
pub mod text;

use oribi_client::Connection;
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_types::Datatype;

use super::operation::OperationKind;
use answer::KvAnswer;
use text::TextWire;

/// See the module text.
pub enum Wire {
    Binary(Box<Connection>),
    /// The text protocol or its meta commands.
    Text(Box<TextWire>),
}

impl Wire {
    /// Sends everything that is queued.
    pub async fn flush(&mut self) -> anyhow::Result<()> {
        match self {
            Wire::Binary(connection) => Ok(connection.flush().await?),
            Wire::Text(text) => text.flush().await,
        }
    }

    /// The next answer. Its borrows end with the next call of any method.
    #[inline]
    pub async fn next(&mut self) -> anyhow::Result<KvAnswer<'_>> {
        match self {
            Wire::Binary(connection) => Ok(of_frame(&connection.next().await?)),
            Wire::Text(text) => text.next().await,
        }
    }

    /// The next answer, if it has been received already.
    #[inline]
    pub fn try_next(&mut self) -> anyhow::Result<Option<KvAnswer<'_>>> {
        match self {
            Wire::Binary(connection) => Ok(connection.try_next()?.as_ref().map(of_frame)),
            Wire::Text(text) => text.try_next(),
        }
    }

    /// The error for an answer that makes no sense; the connection is given up.
    pub fn protocol_error(&mut self, reason: String) -> anyhow::Error {
        match self {
            Wire::Binary(connection) => connection.protocol_error("answer", reason).into(),
            Wire::Text(text) => text.protocol_error(&reason),
        }
    }
}

#[inline]
fn of_frame<'a>(frame: &Frame<'a>) -> KvAnswer<'a> {
    const GET: u8 = Opcode::Get as u8;
    const SET: u8 = Opcode::Set as u8;
    KvAnswer {
        opaque: frame.header.opaque,
        kind: match frame.header.opcode {
            GET => Some(OperationKind::Get),
            SET => Some(OperationKind::Set),
            _ => None,
        },
        status: frame.header.vbucket_or_status,
        value: frame.value,
        is_compressed: Datatype(frame.header.datatype).contains(Datatype::SNAPPY),
        line: b"",
    }
}
