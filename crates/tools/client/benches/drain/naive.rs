//! The read buffer that [`oribi_client::frame_reader`] is compared with.
//!
//! One growable block. Receiving appends to it; a frame is taken from its front, and then
//! everything behind the frame is moved to the front. This is what the published fix replaced. The
//! cost of a frame is that of moving what lies behind it, so it grows with the bytes in flight.
//!
//! How much is in flight depends on how much arrives while the client works, which is a race that a
//! measurement must not depend on: here the client receives until a given number of bytes is there,
//! or the whole stream, before it takes the first frame. It is told the length of the stream, which
//! stands for "receive whatever has arrived"; everything else favours it: blocking reads straight
//! into the block, no runtime, and the block is kept between streams.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, ensure};
use oribi_protocol::frame::{self, Decoded};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};

use super::source::Tally;

/// See the module text.
#[derive(Debug)]
pub struct NaiveClient {
    peer: TcpStream,
    held: Vec<u8>,
    in_flight_bytes_max: usize,
    /// Bytes moved to the front so far.
    pub moved_bytes: u64,
}

impl NaiveClient {
    /// Connects. `in_flight_bytes_max` is how much is received before frames are taken.
    pub fn connect(address: SocketAddr, in_flight_bytes_max: usize) -> Result<NaiveClient> {
        let peer = TcpStream::connect(address)?;
        peer.set_nodelay(true)?;
        Ok(NaiveClient { peer, held: Vec::new(), in_flight_bytes_max, moved_bytes: 0 })
    }

    /// Asks for a stream of `bytes`, of which `stream_bytes` will arrive, and drains it.
    pub fn drain(&mut self, bytes: usize, stream_bytes: usize, opaque: u32) -> Result<Tally> {
        let key = bytes.to_string();
        let parts = RequestParts { key: key.as_bytes(), opaque, ..RequestParts::new(Opcode::Stat) };
        let mut request = Vec::new();
        encode_request(&mut request, &parts);
        self.peer.write_all(&request)?;

        let mut tally = Tally::default();
        let mut missing_bytes = stream_bytes;
        while missing_bytes > 0 {
            let room_bytes = self.in_flight_bytes_max - self.held.len();
            let wanted_bytes = missing_bytes.min(room_bytes);
            let received = (&self.peer).take(wanted_bytes as u64).read_to_end(&mut self.held)?;
            ensure!(received == wanted_bytes, "the server closed within a stream");
            missing_bytes -= wanted_bytes;
            self.take_frames(&mut tally)?;
        }
        ensure!(self.held.is_empty(), "the stream ended within a packet");
        Ok(tally)
    }

    fn take_frames(&mut self, tally: &mut Tally) -> Result<()> {
        while let Decoded::Complete { frame, consumed } = frame::decode(&self.held)? {
            if !frame.key.is_empty() {
                tally.add(frame.key, frame.value);
            }
            self.moved_bytes += (self.held.len() - consumed) as u64;
            self.held.drain(..consumed);
        }
        Ok(())
    }
}
