//! Clients of the world: one request at a time each, over real connections.
//!
//! Owns: requests, their answers, and what the oracle hears of both. A client may ask a node that
//! is not the active, that is paused, or that ends before it answers; it may stop to wait.

use std::collections::BTreeMap;

use oribi_auth::DEVELOPMENT_NAME;
use oribi_protocol::frame::{DecodedFrame, Frame, decode};
use oribi_protocol::frame_info::encode_durability;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_protocol::response::MutationTokenExtras;
use oribi_protocol::status::Status;
use oribi_types::{DurabilityLevel, Seqno};

use super::ClusterWorld;
use super::node::{BUCKET, VBUCKETS};
use super::oracle::{Content, Register, Violation};
use crate::harness::ConnectionHarness;

/// Mutation seqnos, attributes, errors, buckets, JSON, durability and its frames.
const FEATURES: [u16; 7] = [4, 6, 7, 8, 0x0b, 0x10, 0x11];

const LEVELS: [DurabilityLevel; 4] = [
    DurabilityLevel::None,
    DurabilityLevel::Majority,
    DurabilityLevel::MajorityAndPersistOnMaster,
    DurabilityLevel::PersistToMajority,
];

/// Documents that clients use at the same time.
const DOCUMENTS: usize = 6;

/// A connection, and requests that the node has not read yet.
struct ClientConnection {
    node: usize,
    life: u64,
    harness: ConnectionHarness,
    unread: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct ClientRequest {
    opaque: u32,
    register: usize,
    /// The write's name in the register.
    write: Option<u32>,
    level: DurabilityLevel,
    to: Content,
    /// The content that the write's CAS names.
    only_on: Option<Content>,
}

#[derive(Default)]
pub(super) struct WorldClient {
    connection: Option<ClientConnection>,
    request: Option<ClientRequest>,
}

/// What all clients know.
pub(super) struct Documents {
    pub(super) registers: Vec<Register>,
    /// CAS and content of the last answer about a document.
    seen: BTreeMap<usize, (u64, Content)>,
    next_write: u64,
    next_opaque: u32,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Documents {
    pub(super) fn new() -> Documents {
        let key = |number: usize| Register::new(format!("k{number}").into_bytes());
        Documents {
            registers: (0..DOCUMENTS).map(key).collect(),
            seen: BTreeMap::new(),
            next_write: 0,
            next_opaque: 1,
            counts: BTreeMap::new(),
        }
    }

    /// Uses another key in place of one with many writes whose outcome is unknown.
    fn renew(&mut self, register: usize) {
        let key = format!("{}'", String::from_utf8_lossy(&self.registers[register].key));
        self.registers[register] = Register::new(key.into_bytes());
        self.seen.remove(&register);
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl ClusterWorld {
    /// A client sends a request, or looks for the answer of its last one.
    pub(super) fn client_step(&mut self, client: usize) {
        if self.clients[client].request.is_some() {
            match self.below(40) {
                0 => self.give_up(client),
                _ => self.poll(client),
            }
            return;
        }
        let register = self.below(DOCUMENTS as u64) as usize;
        let is_used = |it: &WorldClient| it.request.is_some_and(|one| one.register == register);
        if self.documents.registers[register].is_crowded() {
            if !self.clients.iter().any(is_used) {
                self.documents.renew(register);
            }
            return;
        }
        let vbid = vbucket_of(&self.documents.registers[register].key, VBUCKETS);
        let serving = (0..self.nodes.len()).find(|at| self.serves(*at, vbid).is_some());
        let other = self.below(self.nodes.len() as u64) as usize;
        let node = serving.filter(|_| self.below(5) > 0).unwrap_or(other);
        if self.connect(client, node) {
            self.send(client, register);
        }
    }

    /// Reads every document, once.
    pub(super) fn read_all(&mut self) {
        for register in 0..DOCUMENTS {
            let vbid = vbucket_of(&self.documents.registers[register].key, VBUCKETS);
            let node = (0..self.nodes.len()).find(|at| self.serves(*at, vbid).is_some());
            let node = node.expect("a healed cluster serves every vbucket");
            assert!(self.connect(0, node));
            self.send_kind(0, register, Opcode::Get);
            for _ in 0..3 {
                self.fetch(node);
                self.poll(0);
            }
            assert!(self.clients[0].request.is_none(), "a read of a healed cluster is answered");
        }
    }

    pub(super) fn give_up(&mut self, client: usize) {
        let client = &mut self.clients[client];
        if client.request.take().is_some() {
            // The node may still read requests in flight.
            self.orphans.extend(client.connection.take().map(Orphan));
        }
    }

    /// Ends every request, whatever its outcome.
    pub(super) fn give_all_up(&mut self) {
        (0..self.clients.len()).for_each(|client| self.give_up(client));
    }

    /// Connections to the process of a node are gone.
    pub(super) fn disconnect(&mut self, node: usize) {
        self.orphans.retain(|orphan| orphan.0.node != node);
        for client in &mut self.clients {
            if client.connection.as_ref().is_some_and(|it| it.node == node) {
                *client = WorldClient::default();
            }
        }
    }

    /// A node reads what a client has sent that does not wait any more.
    pub(super) fn serve_orphan(&mut self) {
        let Some(at) = self.orphans.len().checked_sub(1) else { return };
        let node = self.orphans[at].0.node;
        if self.nodes[node].runs() {
            let mut orphan = self.orphans.remove(at);
            self.serve(&mut orphan.0);
        }
    }

    fn connect(&mut self, client: usize, node: usize) -> bool {
        let life = self.nodes[node].lives;
        let known = self.clients[client].connection.as_ref();
        if known.is_some_and(|it| it.node == node && it.life == life) {
            return true;
        }
        let Some(handle) = self.nodes[node].handle().filter(|_| self.nodes[node].runs()) else {
            return false;
        };
        let process = self.nodes[node].process().expect("it has a bucket");
        let now = (self.now(), self.now_ms());
        let mut harness = ConnectionHarness::without_threads(&process.server, &handle, now);
        let user = process.server.access.users.current(DEVELOPMENT_NAME).expect("a user");
        harness.log_in(user);
        let features: Vec<u8> = FEATURES.iter().flat_map(|code| code.to_be_bytes()).collect();
        let hello = RequestParts { value: &features, ..RequestParts::new(Opcode::Hello) };
        let select =
            RequestParts { key: BUCKET.as_bytes(), ..RequestParts::new(Opcode::SelectBucket) };
        let mut bytes = Vec::new();
        [hello, select].iter().for_each(|parts| encode_request(&mut bytes, parts));
        let mut connection = ClientConnection { node, life, harness, unread: bytes };
        let answers = self.serve(&mut connection);
        if answers.is_none() {
            return false;
        }
        self.clients[client].connection = Some(connection);
        true
    }

    /// The node reads and answers, unless it is paused. `None` when the connection has ended.
    fn serve(&self, connection: &mut ClientConnection) -> Option<Vec<u8>> {
        let node = &self.nodes[connection.node];
        if node.process.is_none() || node.lives != connection.life {
            return None;
        }
        if node.is_paused {
            return Some(Vec::new());
        }
        let now_ms = self.now_ms();
        self.enter(connection.node);
        let process = self.nodes[connection.node].process().expect("it runs");
        let (lease, session) = (process.agent.lease(), process.agent.lease().serving());
        let passed_ms = now_ms.saturating_sub(connection.harness.now_ms());
        let mut answers = connection.harness.advance_ms(passed_ms);
        let unread = std::mem::take(&mut connection.unread);
        connection.harness.feed_into(&unread, &mut answers);
        let (retried, _) = connection.harness.retry_writes();
        answers.extend(retried);
        let is_over = connection.harness.close_reason().is_some() || !lease.still_holds(session);
        (!is_over).then_some(answers)
    }

    fn send(&mut self, client: usize, register: usize) {
        let opcode = match self.below(10) {
            0..=3 => Opcode::Get,
            4 => Opcode::Delete,
            _ => Opcode::Set,
        };
        self.send_kind(client, register, opcode);
    }

    fn send_kind(&mut self, client: usize, register: usize, opcode: Opcode) {
        let level = match opcode {
            Opcode::Get => DurabilityLevel::None,
            _ => LEVELS[self.below(LEVELS.len() as u64) as usize],
        };
        let seen = self.documents.seen.get(&register).copied();
        let seen = seen.filter(|(_, content)| content.is_some() && self.below(3) == 0);
        let cas = seen.filter(|_| opcode == Opcode::Set);
        let documents = &mut self.documents;
        documents.next_opaque += 1;
        let (opaque, only_on) = (documents.next_opaque, cas.map(|(_, content)| content));
        let mut to = None;
        if opcode == Opcode::Set {
            documents.next_write += 1;
            to = Some(documents.next_write);
        }
        let write = (opcode != Opcode::Get)
            .then(|| documents.registers[register].begin((to, only_on), level));
        let request = ClientRequest { opaque, register, write, level, to, only_on };
        let value = to.map_or_else(Vec::new, |to| {
            value_of(to, self.random.below(self.setup.value_bytes_max))
        });
        let key = &self.documents.registers[register].key;
        let (mut framing, mut bytes) = (Vec::new(), Vec::new());
        let timeout_ms = u16::try_from(1_500 + self.random.below(3_000)).ok();
        encode_durability(level, timeout_ms, &mut framing);
        let extras: &[u8] = if opcode == Opcode::Set { &[0; 8] } else { &[] };
        let parts = RequestParts {
            framing: &framing,
            vbid: vbucket_of(key, VBUCKETS),
            opaque,
            cas: cas.map_or(0, |(cas, _)| cas),
            extras,
            key,
            value: &value,
            ..RequestParts::new(opcode)
        };
        encode_request(&mut bytes, &parts);
        let client_ref = &mut self.clients[client];
        client_ref.request = Some(request);
        client_ref.connection.as_mut().expect("it is connected").unread.extend(bytes);
        self.poll(client);
    }

    fn poll(&mut self, client: usize) {
        let Some(mut connection) = self.clients[client].connection.take() else {
            self.clients[client].request = None;
            return;
        };
        let Some(answers) = self.serve(&mut connection) else {
            self.clients[client] = WorldClient::default();
            return;
        };
        self.clients[client].connection = Some(connection);
        let mut rest = &answers[..];
        while !rest.is_empty() {
            let decoded = decode(rest).expect("a server sends frames");
            let DecodedFrame::Complete { frame, consumed } = decoded else {
                panic!("an answer without its end")
            };
            rest = &rest[consumed..];
            let request = self.clients[client].request;
            let Some(request) = request.filter(|it| it.opaque == frame.header.opaque) else {
                continue;
            };
            self.clients[client].request = None;
            if let Err(violation) = self.take_answer(&request, &frame) {
                panic!("{request:?} of {}: {violation}", self.describe());
            }
        }
    }

    fn take_answer(&mut self, request: &ClientRequest, frame: &Frame<'_>) -> Result<(), Violation> {
        let status = Status::from_u16(frame.header.vbucket_or_status).expect("a known status");
        let (documents, at) = (&mut self.documents, request.register);
        let register = &mut documents.registers[at];
        let Some(bit) = request.write else {
            return match status {
                Status::Success => {
                    let content = Some(number_of(frame.value));
                    documents.seen.insert(at, (frame.header.cas, content));
                    documents.count("reads");
                    documents.registers[at].read(content)
                }
                Status::KeyEnoent => register.read(None),
                _ => self.check_rejection(status),
            };
        };
        match status {
            Status::Success => {
                let token = MutationTokenExtras::decode(frame.extras).expect("a token");
                register.done(bit, (token.seqno, request.level))?;
                assert!(token.seqno > Seqno(0), "a write has a seqno");
                if request.to.is_some() {
                    documents.seen.insert(at, (frame.header.cas, request.to));
                }
                documents.count(match request.level {
                    DurabilityLevel::None => "plain writes",
                    _ => "durable writes",
                });
                Ok(())
            }
            // Its outcome is unknown: it stays open.
            Status::SyncWriteAmbiguous => {
                documents.count("ambiguous writes");
                Ok(())
            }
            Status::KeyEnoent => {
                register.rejected(bit)?;
                register.read(None)
            }
            Status::KeyEexists => {
                register.rejected(bit)?;
                register.differed(request.only_on.expect("a write with a CAS"))
            }
            _ => {
                register.rejected(bit)?;
                self.check_rejection(status)
            }
        }
    }

    fn check_rejection(&mut self, status: Status) -> Result<(), Violation> {
        let name = match status {
            Status::NotMyVbucket => "not my vbucket",
            Status::Etmpfail => "temporary failures",
            Status::Enomem => "out of memory",
            Status::DurabilityImpossible => "durability impossible",
            Status::SyncWriteInProgress => "in progress",
            Status::SyncWriteReCommitInProgress => "in recovery",
            other => return Err(format!("{other:?} is no answer to this")),
        };
        self.documents.count(name);
        Ok(())
    }
}

/// A connection whose client waits no longer.
pub(super) struct Orphan(ClientConnection);

fn value_of(number: u64, bytes: u64) -> Vec<u8> {
    let mut value = format!("{number:016x}").into_bytes();
    value.resize(value.len() + bytes as usize, b'.');
    value
}

fn number_of(value: &[u8]) -> u64 {
    let digits = value.get(..16).and_then(|digits| std::str::from_utf8(digits).ok());
    let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.unwrap_or_else(|| panic!("{value:?} was never written"))
}
