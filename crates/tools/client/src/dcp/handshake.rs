//! Opening a producer: a connection that a server sends changes over.
//!
//! One request waits for the answer of the one before, because servers want them in order. Options
//! that a server does not know are left out; what the stream cannot do without them is in
//! [`ProducerConnection`].

use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::dcp::control;
use oribi_protocol::dcp::open::{OpenExtras, OpenFlags};
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;

use crate::connection::Connection;
use crate::error::{ClientError, RejectionKind};
use crate::options::ConnectOptions;

/// Longest name that servers take.
const NAME_BYTES_MAX: usize = 200;

/// Request of all connections of a stream.
#[derive(Clone, Debug)]
pub(super) struct ProducerOptions {
    pub name: String,
    pub values: bool,
    pub attributes: bool,
    pub window_bytes: u32,
    pub noop_interval: Duration,
}

impl ProducerOptions {
    fn flags(&self) -> OpenFlags {
        let mut flags = OpenFlags::PRODUCER.0 | OpenFlags::INCLUDE_DELETE_TIMES.0;
        if self.attributes {
            flags |= OpenFlags::INCLUDE_XATTRS.0;
        }
        if !self.values {
            flags |= OpenFlags::NO_VALUE_WITH_DATATYPE.0;
        }
        OpenFlags(flags)
    }

    fn controls(&self) -> [(&'static [u8], String); 3] {
        [
            (control::ENABLE_EXPIRY_OPCODE, "true".to_owned()),
            (control::SET_NOOP_INTERVAL, self.noop_interval.as_secs().max(1).to_string()),
            (control::SUPPORTS_CURSOR_DROPPING_VULCAN, "true".to_owned()),
        ]
    }
}

/// A connection that is ready for stream requests.
pub(super) struct ProducerConnection {
    pub connection: Connection,
    /// Keys have collections.
    pub has_collections: bool,
    /// The server waits for acknowledgements.
    pub has_window: bool,
    /// The server asks whether the client lives, so its silence means something.
    pub has_noops: bool,
}

impl ProducerConnection {
    /// Connects and opens one.
    pub async fn open(
        connect: &ConnectOptions,
        options: &ProducerOptions,
    ) -> Result<ProducerConnection, ClientError> {
        let mut connection = Connection::open(connect).await?;
        let mut name = options.name.clone();
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
        let extras = OpenExtras { flags: options.flags() }.encode();
        let open = RequestParts::new(Opcode::DcpOpen);
        let open = RequestParts { extras: &extras, key: name.as_bytes(), ..open };
        match connection.call(&open, &Bytes::new()).await?.outcome() {
            Err(RejectionKind::NotSupported) => {
                return Err(ClientError::NotOffered("change streams"));
            }
            outcome => outcome?,
        }
        for (key, value) in options.controls() {
            set(&mut connection, key, &value).await?;
        }
        let window = options.window_bytes.to_string();
        let has_window = set(&mut connection, control::CONNECTION_BUFFER_SIZE, &window).await?;
        // The last one: from here on the server may speak first.
        let has_noops = set(&mut connection, control::ENABLE_NOOP, "true").await?;
        let has_collections = connection.has(Feature::Collections);
        Ok(ProducerConnection { connection, has_collections, has_window, has_noops })
    }
}

/// Sets an option; false when the server does not know it.
async fn set(connection: &mut Connection, key: &[u8], value: &str) -> Result<bool, ClientError> {
    let parts = RequestParts { key, ..RequestParts::new(Opcode::DcpControl) };
    let value = Bytes::copy_from_slice(value.as_bytes());
    Ok(connection.call(&parts, &value).await?.outcome().is_ok())
}
