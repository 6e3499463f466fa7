//! A server of the memcached binary protocol that answers as a test wants.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use oribi_protocol::frame::Header;
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;

/// How a request is answered: the status, and what is added to the opaque.
pub type Answer = fn(&Header) -> (Status, u32);

/// Starts a server; it ends with the test's process. Returns its port.
pub fn start(answer: Answer) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(stream, answer));
        }
    });
    port
}

/// Answers until the client goes away. NOOP always succeeds.
fn serve(mut stream: TcpStream, answer: Answer) {
    let mut bytes = [0; HEADER_BYTES];
    while stream.read_exact(&mut bytes).is_ok() {
        let request = Header::decode(&bytes).unwrap();
        let mut body = vec![0; request.body_bytes as usize];
        stream.read_exact(&mut body).unwrap();
        let (status, shift) = match request.opcode == Opcode::Noop as u8 {
            true => (Status::Success, 0),
            false => answer(&request),
        };
        let response = Header {
            magic: Magic::ClientResponse,
            framing_bytes: 0,
            key_bytes: 0,
            extras_bytes: 0,
            datatype: 0,
            vbucket_or_status: status.code(),
            body_bytes: 0,
            opaque: request.opaque.wrapping_add(shift),
            ..request
        };
        if stream.write_all(&response.encode()).is_err() {
            return;
        }
    }
}
