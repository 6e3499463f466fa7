//! A client of Server-Sent Events that behaves as browsers do.
//!
//! Owns: the connection, the chunks of its answer, and the events made of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::{ADMIN, Fixture, PATH, PATIENCE};

/// An event as a browser dispatches it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StreamEvent {
    pub(super) kind: String,
    /// The last id that came, with this event or before it.
    pub(super) id: String,
    pub(super) data: Value,
}

/// A client as browsers are: it takes whole events and remembers the last id.
pub(super) struct EventSource {
    pub(super) stream: TcpStream,
    pub(super) status: u16,
    pub(super) head: String,
    /// Bytes of the body that belong to no event yet.
    pub(super) pending: Vec<u8>,
    pub(super) looked_through: usize,
    /// Bytes as they came, from the size of a chunk on, or from within a chunk.
    pub(super) chunks: Vec<u8>,
    /// Bytes of that chunk, with its line end, that are still to come.
    pub(super) chunk_left: usize,
    pub(super) id: String,
    pub(super) comments: usize,
    pub(super) is_over: bool,
}

impl EventSource {
    pub(super) fn open(
        fixture: &Fixture,
        query: &str,
        credentials: &str,
        last_id: &str,
    ) -> EventSource {
        let mut stream = TcpStream::connect(fixture.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let login = BASE64.encode(credentials);
        let last = match last_id {
            "" => String::new(),
            id => format!("Last-Event-ID: {id}\r\n"),
        };
        write!(
            stream,
            "GET {PATH}?{query} HTTP/1.1\r\nHost: localhost:8091\r\nAccept: text/event-stream\r\n\
             Authorization: Basic {login}\r\n{last}\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        EventSource {
            stream,
            status,
            head,
            pending: Vec::new(),
            looked_through: 0,
            chunks: Vec::new(),
            chunk_left: 0,
            id: last_id.to_owned(),
            comments: 0,
            is_over: false,
        }
    }

    pub(super) fn begin(fixture: &Fixture, query: &str) -> EventSource {
        let source = EventSource::open(fixture, query, ADMIN, "");
        assert_eq!(source.status, 200, "{}", source.head);
        source
    }

    /// Reads some bytes, at most `most`.
    pub(super) fn read(&mut self, most: usize) {
        let mut piece = vec![0; most];
        let length = self.stream.read(&mut piece).expect("the server sends");
        assert!(length > 0, "the body ended without its last chunk");
        self.chunks.extend_from_slice(&piece[..length]);
        self.decode_chunks();
    }

    /// Takes the parts of chunks as they come, so that a cut in a chunk loses nothing.
    pub(super) fn decode_chunks(&mut self) {
        loop {
            if self.chunk_left > 0 {
                let length = self.chunk_left.min(self.chunks.len());
                let data = length.min(self.chunk_left.saturating_sub(2));
                self.pending.extend_from_slice(&self.chunks[..data]);
                self.chunks.drain(..length);
                self.chunk_left -= length;
            }
            let size = self.chunks.windows(2).position(|pair| pair == b"\r\n");
            let Some(end) = size.filter(|_| self.chunk_left == 0) else { return };
            let size = std::str::from_utf8(&self.chunks[..end]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            self.is_over = size == 0;
            self.chunk_left = size + 2;
            self.chunks.drain(..end + 2);
        }
    }

    /// The next whole block of what was read.
    pub(super) fn take_block(&mut self) -> Option<Option<StreamEvent>> {
        // What was looked through before holds no end, but perhaps its first half.
        let from = self.looked_through.saturating_sub(1);
        let end = self.pending[from..].windows(2).position(|pair| pair == b"\n\n");
        self.looked_through = if end.is_some() { 0 } else { self.pending.len() };
        let end = from + end?;
        let block = String::from_utf8(self.pending.drain(..end + 2).collect()).unwrap();
        let (mut kind, mut data) = ("message".to_owned(), String::new());
        for line in block.lines() {
            match line.split_once(':') {
                Some(("", _)) => self.comments += 1,
                Some(("id", id)) => id.trim_start().clone_into(&mut self.id),
                Some(("event", name)) => name.trim_start().clone_into(&mut kind),
                Some(("data", text)) => text.trim_start().clone_into(&mut data),
                Some(("retry", _)) | None => {}
                other => panic!("{other:?}"),
            }
        }
        if data.is_empty() {
            return Some(None);
        }
        let data = serde_json::from_str(&data).expect("a line of JSON");
        Some(Some(StreamEvent { kind, id: self.id.clone(), data }))
    }

    /// The next event; `None` when the stream is over.
    pub(super) fn next(&mut self) -> Option<StreamEvent> {
        // Heartbeats come for ever.
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no event");
            match self.take_block() {
                Some(Some(event)) => return Some(event),
                Some(None) => {}
                None if self.is_over => return None,
                None => self.read(64 * 1024),
            }
        }
    }

    /// Reads until the client knows where it began.
    pub(super) fn wait_for_id(&mut self) {
        while self.id.is_empty() {
            if self.take_block().is_none() {
                self.read(1024);
            }
        }
    }

    /// The next event that is wanted.
    pub(super) fn find(&mut self, mut is_wanted: impl FnMut(&Value) -> bool) -> StreamEvent {
        loop {
            let event = self.next().expect("the stream goes on");
            if is_wanted(&event.data) {
                return event;
            }
        }
    }

    pub(super) fn find_key(&mut self, key: &str) -> StreamEvent {
        self.find(|line| line["key"] == key)
    }

    /// All events up to the end, and its reason.
    pub(super) fn rest(&mut self) -> (Vec<StreamEvent>, String) {
        let mut events = Vec::new();
        while let Some(event) = self.next() {
            if event.kind == "end" {
                assert_eq!(event.data["type"], "end");
                let reason = event.data["reason"].as_str().unwrap().to_owned();
                assert_eq!(self.next(), None, "nothing follows the end");
                return (events, reason);
            }
            events.push(event);
        }
        panic!("the stream ended without a word");
    }
}
