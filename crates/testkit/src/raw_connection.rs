//! A blocking connection that sends exactly the bytes a test wants and shows exactly what came
//! back.
//!
//! It routes a key to its vbucket and adds the collection prefix if collections were negotiated. It
//! does nothing else by itself: no retry, no reconnect, no look-up of collections. Reads have a
//! deadline, so that a server that does not answer fails a test instead of hanging it.

mod request;
mod response;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::Header;
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;

use crate::poll::PATIENCE;

pub use request::Request;
pub use response::{Mutation, Response};

/// Vbuckets of a bucket with default settings.
pub const DEFAULT_VBUCKETS: u16 = 64;

/// Name of the user that a server without users accepts.
pub const DEVELOPMENT_USER: &str = "Administrator";
pub const DEVELOPMENT_PASSWORD: &str = "password";

/// Features that [`RawConnection::login`] negotiates: all that the tests use.
const LOGIN_FEATURES: [Feature; 9] = [
    Feature::MutationSeqno,
    Feature::XError,
    Feature::SelectBucket,
    Feature::Json,
    Feature::AltRequest,
    Feature::SyncReplication,
    Feature::Collections,
    Feature::PreserveTtl,
    Feature::TcpNoDelay,
];

/// One connection to a server.
pub struct RawConnection {
    stream: TcpStream,
    collections: bool,
    next_opaque: u32,
}

impl RawConnection {
    /// Connects and sends nothing yet.
    pub fn connect(port: u16) -> Result<RawConnection> {
        RawConnection::connect_to(Ipv4Addr::LOCALHOST, port)
    }

    /// Connects to another host and sends nothing yet.
    pub fn connect_to(host: Ipv4Addr, port: u16) -> Result<RawConnection> {
        let stream = TcpStream::connect((host, port))
            .with_context(|| format!("cannot connect to {host}, port {port}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(RawConnection { stream, collections: false, next_opaque: 1 })
    }

    /// Connects as the development user with bucket `default` selected and collections negotiated.
    pub fn login(port: u16) -> Result<RawConnection> {
        RawConnection::login_to(Ipv4Addr::LOCALHOST, port)
    }

    /// As [`RawConnection::login`] to another host, which has a user of that name and password.
    pub fn login_to(host: Ipv4Addr, port: u16) -> Result<RawConnection> {
        let mut connection = RawConnection::connect_to(host, port)?;
        connection.hello(&LOGIN_FEATURES)?;
        let status = connection.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)?;
        if status != Status::Success {
            bail!("authentication: {status:?}");
        }
        let status = connection.select_bucket("default")?;
        if status != Status::Success {
            bail!("select bucket: {status:?}");
        }
        Ok(connection)
    }

    /// Limits how long one read may take.
    pub fn set_read_timeout(&mut self, timeout: Duration) -> Result<()> {
        self.stream.set_read_timeout(Some(timeout)).context("cannot set the read timeout")
    }

    /// The socket, for tests that work below frames.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Negotiates features; returns those that were granted.
    pub fn hello(&mut self, features: &[Feature]) -> Result<Vec<Feature>> {
        let list: Vec<u8> =
            features.iter().flat_map(|feature| feature.code().to_be_bytes()).collect();
        let response = self.call(&Request::new(Opcode::Hello).bare_key("testkit").value(&list))?;
        if response.status() != Status::Success {
            bail!("HELLO: {response:?}");
        }
        let granted: Vec<Feature> = response
            .value
            .chunks_exact(2)
            .filter_map(|code| Feature::from_u16(u16::from_be_bytes([code[0], code[1]])))
            .collect();
        self.collections = granted.contains(&Feature::Collections);
        Ok(granted)
    }

    /// Authenticates with the PLAIN mechanism; returns the status.
    pub fn sasl_plain(&mut self, user: &str, password: &str) -> Result<Status> {
        let payload = format!("\0{user}\0{password}");
        let request = Request::new(Opcode::SaslAuth).bare_key("PLAIN").value(payload.as_bytes());
        Ok(self.call(&request)?.status())
    }

    /// Selects a bucket; returns the status.
    pub fn select_bucket(&mut self, name: &str) -> Result<Status> {
        Ok(self.call(&Request::new(Opcode::SelectBucket).bare_key(name))?.status())
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: &Request) -> Result<Response> {
        let opaque = self.send(request)?;
        let response = self.receive()?;
        if response.opaque != opaque {
            bail!("the answer has opaque {}, the request had {opaque}", response.opaque);
        }
        Ok(response)
    }

    /// Sends a request; returns the opaque that its answer will have.
    pub fn send(&mut self, request: &Request) -> Result<u32> {
        let opaque = self.next_opaque;
        self.next_opaque = self.next_opaque.wrapping_add(1);
        let bytes = self.encode(request, opaque);
        self.send_bytes(&bytes)?;
        Ok(opaque)
    }

    /// Sends some requests at once; their answers come in order.
    pub fn send_all(&mut self, requests: &[&Request]) -> Result<()> {
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend(self.encode(request, self.next_opaque));
            self.next_opaque = self.next_opaque.wrapping_add(1);
        }
        self.send_bytes(&bytes)
    }

    /// Names and values of a group of statistics.
    pub fn stat(&mut self, group: &str) -> Result<Vec<(String, String)>> {
        self.send(&Request::new(Opcode::Stat).bare_key(group))?;
        let mut entries = Vec::new();
        loop {
            let response = self.receive()?;
            if response.status() != Status::Success {
                bail!("stat {group}: {:?}", response.status());
            }
            if response.key.is_empty() {
                return Ok(entries);
            }
            let name = String::from_utf8_lossy(&response.key).into_owned();
            entries.push((name, response.text()));
        }
    }

    /// The bytes of a request as this connection would send it.
    pub fn encode(&self, request: &Request, opaque: u32) -> Vec<u8> {
        request.encode(opaque, DEFAULT_VBUCKETS, self.collections)
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("cannot send")
    }

    pub fn receive(&mut self) -> Result<Response> {
        let (header, bytes) = self.receive_header()?;
        Response::from_parts(&header, &bytes[HEADER_BYTES..])
    }

    /// Receives the bytes of one frame, whoever it is from.
    pub fn receive_frame(&mut self) -> Result<Vec<u8>> {
        Ok(self.receive_header()?.1)
    }

    /// Receives one frame; returns its header and all its bytes.
    fn receive_header(&mut self) -> Result<(Header, Vec<u8>)> {
        let mut head = [0u8; HEADER_BYTES];
        self.stream.read_exact(&mut head).context("cannot read the header of a frame")?;
        let header = Header::decode(&head).context("the server sent a bad header")?;
        let mut bytes = head.to_vec();
        bytes.resize(header.frame_bytes(), 0);
        self.stream
            .read_exact(&mut bytes[HEADER_BYTES..])
            .context("cannot read the body of a frame")?;
        Ok((header, bytes))
    }

    /// Waits until the server closes the connection; responses that come before are returned.
    ///
    /// A reset counts as closed: a server that disconnects with unread input causes one.
    pub fn read_until_closed(&mut self) -> Result<Vec<Response>> {
        let mut received = Vec::new();
        let ended = self.stream.read_to_end(&mut received);
        if let Err(error) = ended
            && error.kind() != io::ErrorKind::ConnectionReset
        {
            return Err(error).context("the server did not close the connection");
        }
        let mut responses = Vec::new();
        let mut rest = received.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let header = Header::decode(head).context("the server sent a bad header")?;
            let Some(body) = after.get(..header.body_bytes as usize) else { break };
            responses.push(Response::from_parts(&header, body)?);
            rest = &after[body.len()..];
        }
        Ok(responses)
    }
}
