//! A server that answers one request for statistics after the other with as many as are asked for.
//!
//! The packets are made before anything is measured and written in pieces of a megabyte, so the
//! stream comes as fast as the socket takes it. Names and values are those of
//! `collections-details`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail};
use oribi_protocol::frame::{self, Decoded};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

/// Packets before the stream repeats: about a megabyte.
const BLOCK_STATS: usize = 16 * 1024;

/// Figures of one collection in one vbucket.
const NAMES: [&str; 9] = [
    "name",
    "scope",
    "start_seqno",
    "high_seqno",
    "persisted_high_seqno",
    "items",
    "disk_size",
    "history",
    "flush_uid",
];

/// What a client found in a stream, for comparison with what was sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Figures, the terminator not counted.
    pub stats: u64,
    /// Over all figures: lengths and last bytes of name and value. Cheap enough to be part of what
    /// is measured, and every frame boundary and every packet has a part in it.
    pub digest: u64,
}

impl Tally {
    /// Counts one figure.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let last = |part: &[u8]| u64::from(part.last().copied().unwrap_or(0));
        let lengths = name.len() as u64 + ((value.len() as u64) << 8);
        let digest = lengths + (last(name) << 16) + (last(value) << 24);
        self.stats += 1;
        self.digest = self.digest.wrapping_add(digest);
    }
}

/// Packets that are sent over and over.
#[derive(Debug)]
pub struct StatBlock {
    packets: Vec<u8>,
    /// End of each packet.
    ends: Vec<usize>,
    /// What the packets up to and including each one amount to.
    tallies: Vec<Tally>,
}

/// How one stream is made from the block.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Whole blocks.
    blocks: usize,
    /// Packets after them.
    packets: usize,
}

impl StatBlock {
    /// The packets that answer a request with `opaque`.
    pub fn new(opaque: u32) -> StatBlock {
        let mut block = StatBlock { packets: Vec::new(), ends: Vec::new(), tallies: Vec::new() };
        let mut tally = Tally::default();
        for index in 0..BLOCK_STATS {
            let (collection, stat) = (8 + index / NAMES.len(), index % NAMES.len());
            let name = format!("vb_{}:{collection:#x}:{}", 512 + index / 9000, NAMES[stat]);
            let value = match stat {
                0 => format!("collection-{collection:04}"),
                1 => "_default".to_owned(),
                _ => (index * stat * 7919 % 1_000_003).to_string(),
            };
            let parts = ResponseParts {
                key: name.as_bytes(),
                value: value.as_bytes(),
                ..ResponseParts::new(Opcode::Stat as u8, Status::Success, opaque)
            };
            write_response(&mut block.packets, &parts);
            tally.add(name.as_bytes(), value.as_bytes());
            block.ends.push(block.packets.len());
            block.tallies.push(tally);
        }
        block
    }

    /// The shortest stream of at least `bytes`.
    pub fn stream(&self, bytes: usize) -> Stream {
        let rest = bytes % self.packets.len();
        let packets = match rest {
            0 => 0,
            _ => self.ends.partition_point(|end| *end < rest) + 1,
        };
        Stream { blocks: bytes / self.packets.len(), packets }
    }

    /// Bytes of a stream, terminator included.
    pub fn stream_bytes(&self, stream: Stream) -> usize {
        stream.blocks * self.packets.len() + self.rest(stream).len() + frame_bytes_of_terminator()
    }

    /// What a client must find in a stream.
    pub fn tally(&self, stream: Stream) -> Tally {
        let whole = self.tallies[BLOCK_STATS - 1];
        let rest = stream.packets.checked_sub(1).map(|last| self.tallies[last]);
        let rest = rest.unwrap_or_default();
        Tally {
            stats: whole.stats * stream.blocks as u64 + rest.stats,
            digest: whole.digest.wrapping_mul(stream.blocks as u64).wrapping_add(rest.digest),
        }
    }

    fn rest(&self, stream: Stream) -> &[u8] {
        match stream.packets.checked_sub(1) {
            Some(last) => &self.packets[..self.ends[last]],
            None => &[],
        }
    }

    fn send(&self, stream: Stream, opaque: u32, peer: &mut TcpStream) -> Result<()> {
        for _ in 0..stream.blocks {
            peer.write_all(&self.packets)?;
        }
        peer.write_all(self.rest(stream))?;
        let mut terminator = Vec::new();
        let parts = ResponseParts::new(Opcode::Stat as u8, Status::Success, opaque);
        write_response(&mut terminator, &parts);
        peer.write_all(&terminator)?;
        Ok(())
    }
}

fn frame_bytes_of_terminator() -> usize {
    oribi_protocol::limits::HEADER_BYTES
}

/// Serves one connection until the client closes it. The key of a request is how many bytes to
/// send; the packets are made at the first request, with its opaque, and serve all later ones.
pub fn serve_one() -> Result<(SocketAddr, JoinHandle<Result<()>>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut block = None;
        while let Some((bytes, opaque)) = receive(&mut peer)? {
            let block = block.get_or_insert_with(|| StatBlock::new(opaque));
            block.send(block.stream(bytes), opaque, &mut peer)?;
        }
        Ok(())
    });
    Ok((address, server))
}

/// One request: how many bytes to send, and its opaque. `None` once the client has closed.
fn receive(peer: &mut TcpStream) -> Result<Option<(usize, u32)>> {
    let mut received = Vec::new();
    loop {
        if let Decoded::Complete { frame, .. } = frame::decode(&received)? {
            let bytes = std::str::from_utf8(frame.key)?.parse().context("bytes to send")?;
            return Ok(Some((bytes, frame.header.opaque)));
        }
        let mut chunk = [0; 256];
        match peer.read(&mut chunk)? {
            0 if received.is_empty() => return Ok(None),
            0 => bail!("the client closed within a request"),
            bytes => received.extend_from_slice(&chunk[..bytes]),
        }
    }
}
