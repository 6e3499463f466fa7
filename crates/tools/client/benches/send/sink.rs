//! A server that takes SETs, looks at them as little as it can, and answers each with a bare
//! header.
//!
//! Values are not kept and not gone through. Their last byte is compared with the request's flags,
//! which says that nothing was lost, doubled or taken from elsewhere on the way.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::{Result, bail, ensure};
use oribi_protocol::frame::Header;
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::SetExtras;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

const READ_BYTES: usize = 256 * 1024;

/// Header and extras: all that is looked at.
const HEAD_BYTES: usize = HEADER_BYTES + SetExtras::BYTES;

#[derive(Default)]
struct Sink {
    /// As much of the present request's head as has arrived.
    head: Vec<u8>,
    /// Bytes of the present request that are still to come; 0 while the head is incomplete.
    rest_bytes: usize,
    opaque: u32,
    flags: u32,
    answers: Vec<u8>,
}

/// Serves one connection until the client closes it, and says how many requests there were.
pub fn serve_one() -> Result<(SocketAddr, JoinHandle<Result<u64>>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || {
        let (peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        serve(peer)
    });
    Ok((address, server))
}

fn serve(mut peer: TcpStream) -> Result<u64> {
    let mut sink = Sink::default();
    let mut block = vec![0; READ_BYTES];
    let mut requests = 0;
    loop {
        let received = match peer.read(&mut block) {
            Ok(0) => break,
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        requests += sink.take(&block[..received])?;
        peer.write_all(&sink.answers)?;
        sink.answers.clear();
    }
    ensure!(sink.head.is_empty(), "the client closed within a request");
    Ok(requests)
}

impl Sink {
    /// Goes through received bytes; returns how many requests ended in them.
    fn take(&mut self, mut bytes: &[u8]) -> Result<u64> {
        let mut requests = 0;
        while !bytes.is_empty() {
            if self.rest_bytes == 0 {
                let missing = HEAD_BYTES - self.head.len();
                let (head, rest) = bytes.split_at(missing.min(bytes.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                self.begin()?;
                continue;
            }
            let (passed, rest) = bytes.split_at(self.rest_bytes.min(bytes.len()));
            self.rest_bytes -= passed.len();
            bytes = rest;
            if self.rest_bytes == 0 {
                self.end(passed)?;
                requests += 1;
            }
        }
        Ok(requests)
    }

    /// Looks at the head, once it is complete.
    fn begin(&mut self) -> Result<()> {
        let Some((header, extras)) = self.head.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(());
        };
        let Some(extras) = SetExtras::decode(extras) else { return Ok(()) };
        let header = Header::decode(header)?;
        if header.opcode != Opcode::Set as u8
            || usize::from(header.extras_bytes) != SetExtras::BYTES
        {
            bail!("not a SET: {header:?}");
        }
        self.opaque = header.opaque;
        self.flags = extras.flags;
        self.rest_bytes = header.frame_bytes() - HEAD_BYTES;
        ensure!(self.rest_bytes > 0, "a SET without key and value");
        Ok(())
    }

    /// Answers the request whose last bytes are `tail`.
    fn end(&mut self, tail: &[u8]) -> Result<()> {
        let last = tail.last().copied().map(u32::from);
        ensure!(
            last == Some(self.flags),
            "a value ends with {last:?} where {} was sent",
            self.flags
        );
        let parts = ResponseParts::new(Opcode::Set as u8, Status::Success, self.opaque);
        write_response(&mut self.answers, &parts);
        self.head.clear();
        Ok(())
    }
}
