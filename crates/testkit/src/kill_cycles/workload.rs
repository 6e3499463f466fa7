//! One writer: its operations on its documents, and the answers it expects.
//!
//! The writer sends requests in small pipelined groups, with each document at most once in a group.
//! It must know a document's state to append to it or to predict an answer. If an attempt of an
//! earlier life is in doubt, the writer reads the document first. It ends when its connection does.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, DurabilityLevel, Seqno, VbUuid, Vbid};

use super::options::KillOptions;
use crate::Random;
use crate::ack_log::{AckLog, Acknowledgement, AttemptId};
use crate::raw_connection::{DEFAULT_VBUCKETS, RawConnection, Request, Response};

/// Most requests in one group.
const GROUP_MAX: u64 = 24;

/// Documents beyond this length are replaced instead of appended to.
const APPEND_BYTES_MAX: usize = 8 << 10;

/// A CAS that no document has.
const WRONG_CAS: Cas = Cas(0x5157);

/// Pause after the server was out of memory or too busy.
const BACK_OFF: Duration = Duration::from_millis(1);

/// The task of a writer in one life.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriterPlan {
    /// Read one in this many documents before anything else.
    pub(super) reads_first: Option<u64>,
    /// Then write until the server is gone.
    pub(super) writes: bool,
}

/// One thread's documents and its choices.
pub(super) struct KillCycleWriter<'a> {
    number: u64,
    documents: u64,
    value_bytes_max: u64,
    collection: CollectionId,
    random: Random,
    log: &'a Mutex<AckLog>,
    /// Acknowledged writes of all writers in this life.
    done: &'a AtomicU64,
}

/// One request in flight and the expected answer.
struct Pending {
    vbid: Vbid,
    name: Vec<u8>,
    request: Request,
    expected: Expected,
}

enum Expected {
    /// A read, checked by the oracle.
    Document,
    /// The persisted seqno of the vbucket.
    Progress,
    /// A write that succeeds, with or without a promise of persistence.
    Success(AttemptId, bool),
    /// A write that its condition refuses.
    Refusal(Status),
}

impl<'a> KillCycleWriter<'a> {
    pub(super) fn new(
        number: u64,
        options: &KillOptions,
        collection: CollectionId,
        random: Random,
        log: &'a Mutex<AckLog>,
        done: &'a AtomicU64,
    ) -> KillCycleWriter<'a> {
        KillCycleWriter {
            number,
            documents: options.documents_per_writer,
            value_bytes_max: options.value_bytes_max,
            collection,
            random,
            log,
            done,
        }
    }

    /// Follows the plan as long as the server lives.
    pub(super) fn run(mut self, port: u16, plan: WriterPlan) {
        let ended = self.try_run(port, plan);
        if let (Err(error), false) = (ended, plan.writes) {
            // The server does not end while documents are only read.
            self.lock().complain(Vbid(0), b"-", &format!("reading back: {error:#}"));
        }
    }

    fn try_run(&mut self, port: u16, plan: WriterPlan) -> Result<()> {
        let mut connection = RawConnection::login(port)?;
        if let Some(one_in) = plan.reads_first {
            let wanted: Vec<u64> =
                (0..self.documents).filter(|_| self.random.one_in(one_in)).collect();
            for group in wanted.chunks(64) {
                let pending = group.iter().map(|document| self.read(*document)).collect();
                self.exchange(&mut connection, pending)?;
            }
        }
        if !plan.writes {
            return Ok(());
        }
        loop {
            let group = self.group();
            self.exchange(&mut connection, group)?;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'a, AckLog> {
        self.log.lock().expect("no writer panics while it holds the log")
    }

    /// Some requests, with each document at most once.
    fn group(&mut self) -> Vec<Pending> {
        let wanted = 1 + self.random.below(GROUP_MAX);
        // Some documents are written much more often than others.
        let documents: BTreeSet<u64> = (0..wanted)
            .map(|_| match self.random.below(3) {
                0 => self.random.below(self.documents.div_ceil(16)),
                _ => self.random.below(self.documents),
            })
            .collect();
        let mut group: Vec<Pending> =
            documents.into_iter().map(|document| self.step(document)).collect();
        if self.random.one_in(8) {
            group.push(self.progress());
        }
        group
    }

    /// Sends a group, receives its answers in order, and reports each to the oracle.
    fn exchange(&mut self, connection: &mut RawConnection, group: Vec<Pending>) -> Result<()> {
        let requests: Vec<&Request> = group.iter().map(|pending| &pending.request).collect();
        connection.send_all(&requests)?;
        let mut is_busy = false;
        for pending in group {
            let response = connection.receive()?;
            is_busy |= self.take_in(&pending, response);
        }
        if is_busy {
            thread::sleep(BACK_OFF);
        }
        Ok(())
    }

    /// Reports an answer to the oracle; true when the server was too busy.
    fn take_in(&self, pending: &Pending, response: Response) -> bool {
        let status = response.status();
        let mut log = self.lock();
        // A write that took too long stays pending until the store has decided.
        let is_busy =
            matches!(status, Status::Etmpfail | Status::Enomem | Status::SyncWriteInProgress);
        match (&pending.expected, status) {
            (Expected::Success(attempt, persisted), Status::Success) => {
                match acknowledgement(&response, *persisted) {
                    Ok(ack) => log.acknowledged(attempt, ack),
                    Err(error) => log.complain(pending.vbid, &pending.name, &format!("{error:#}")),
                }
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            // The attempt stays in doubt, and the document is read before it is written again.
            (Expected::Success(..), Status::SyncWriteAmbiguous) => {}
            (Expected::Success(attempt, _), _) if is_busy => log.refused(attempt),
            (Expected::Document, Status::Success) => {
                log.read(pending.vbid, &pending.name, &Some((response.value, response.cas)));
            }
            (Expected::Document, Status::KeyEnoent) => {
                log.read(pending.vbid, &pending.name, &None);
            }
            (Expected::Progress, Status::Success) => match progress(&response.value) {
                Some(persisted) => log.shown_as_persisted(pending.vbid, persisted),
                None => log.complain(pending.vbid, b"-", "OBSERVE_SEQNO contradicts itself"),
            },
            // The writer does not know the identity of the vbucket's first life.
            (Expected::Progress, Status::KeyEnoent) => {}
            (Expected::Refusal(expected), status) if status == *expected => {}
            (Expected::Refusal(_) | Expected::Document | Expected::Progress, _) if is_busy => {}
            (expected, status) => {
                let wanted = match expected {
                    Expected::Success(attempt, _) => {
                        log.refused(attempt);
                        Status::Success
                    }
                    Expected::Refusal(status) => *status,
                    Expected::Document | Expected::Progress => Status::Success,
                };
                let request = &pending.request;
                let text = format!("answered {status:?} instead of {wanted:?}: {request:?}");
                log.complain(pending.vbid, &pending.name, &text[..text.len().min(400)]);
            }
        }
        is_busy
    }

    fn key(&self, document: u64) -> String {
        format!("writer-{}-document-{document}", self.number)
    }

    fn collection(&self, document: u64) -> CollectionId {
        if document.is_multiple_of(2) { CollectionId::DEFAULT } else { self.collection }
    }

    fn pending(&self, document: u64, request: Request, expected: Expected) -> Pending {
        let (vbid, name) = self.place(document);
        let request = request.collection(self.collection(document));
        Pending { vbid, name, request, expected }
    }

    /// Vbucket and name of a document.
    fn place(&self, document: u64) -> (Vbid, Vec<u8>) {
        let key = self.key(document);
        (vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS), key.into_bytes())
    }

    fn read(&self, document: u64) -> Pending {
        self.pending(document, Request::get(self.key(document)), Expected::Document)
    }

    fn progress(&mut self) -> Pending {
        let vbid = Vbid(self.random.below(u64::from(DEFAULT_VBUCKETS)) as u16);
        let uuid = self.lock().vb_uuid(vbid).unwrap_or(VbUuid(0));
        let request = Request::new(Opcode::ObserveSeqno).vbucket(vbid).value(uuid.0.to_be_bytes());
        Pending { vbid, name: Vec::new(), request, expected: Expected::Progress }
    }

    /// One operation on a document, chosen by the document's state.
    fn step(&mut self, document: u64) -> Pending {
        let (vbid, name) = self.place(document);
        let known = self.lock().certain(vbid, &name).map(|value| value.map(<[u8]>::to_vec));
        let Some(value) = known else { return self.read(document) };
        let is_counter = document % 8 == 3;
        match (self.random.below(20), value) {
            (0..2, _) => self.read(document),
            (2..5, Some(_)) => self.write(document, Request::delete(self.key(document)), None),
            (2, None) => {
                let request = Request::delete(self.key(document));
                self.pending(document, request, Expected::Refusal(Status::KeyEnoent))
            }
            (5, Some(_)) => {
                let request = Request::set(self.key(document), "never").cas(WRONG_CAS);
                self.pending(document, request, Expected::Refusal(Status::KeyEexists))
            }
            (5, None) => {
                let request = Request::about(Opcode::Append, self.key(document)).value("never");
                self.pending(document, request, Expected::Refusal(Status::NotStored))
            }
            (6, Some(_)) => self.conditional(document, Opcode::Add, Status::KeyEexists),
            (6, None) => self.conditional(document, Opcode::Replace, Status::KeyEnoent),
            (_, value) if is_counter => self.count(document, value),
            (7..10, Some(value)) if value.len() < APPEND_BYTES_MAX => self.concat(document, value),
            (kind, value) => {
                let opcode = match (kind % 3, value) {
                    (0, None) => Opcode::Add,
                    (0, Some(_)) => Opcode::Replace,
                    _ => Opcode::Set,
                };
                let value = self.value();
                let request = Request::store(opcode, self.key(document), &value);
                self.write(document, request, Some(value))
            }
        }
    }

    fn conditional(&mut self, document: u64, opcode: Opcode, status: Status) -> Pending {
        let request = Request::store(opcode, self.key(document), "never");
        self.pending(document, request, Expected::Refusal(status))
    }

    fn count(&mut self, document: u64, value: Option<Vec<u8>>) -> Pending {
        let before = value
            .as_deref()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| digits.parse::<u64>().ok());
        let (delta, initial) = (1 + self.random.below(1000), self.random.below(1 << 40));
        let after = before.map_or(initial, |before| before.wrapping_add(delta));
        let request = Request::counter(Opcode::Increment, self.key(document), delta, initial);
        self.write(document, request, Some(after.to_string().into_bytes()))
    }

    fn concat(&mut self, document: u64, before: Vec<u8>) -> Pending {
        let piece = self.value();
        let (opcode, parts) = match self.random.one_in(2) {
            true => (Opcode::Append, [before, piece.clone()]),
            false => (Opcode::Prepend, [piece.clone(), before]),
        };
        let request = Request::about(opcode, self.key(document)).value(&piece);
        self.write(document, request, Some(parts.concat()))
    }

    /// A write that succeeds; one in four is durable. `value` is the document's value afterwards.
    fn write(&mut self, document: u64, request: Request, value: Option<Vec<u8>>) -> Pending {
        let level = match self.random.below(8) {
            0 => DurabilityLevel::PersistToMajority,
            1 => DurabilityLevel::MajorityAndPersistOnMaster,
            2 => DurabilityLevel::Majority,
            _ => DurabilityLevel::None,
        };
        let request = match level {
            DurabilityLevel::None => request,
            level => request.durable(level),
        };
        let (vbid, name) = self.place(document);
        let attempt = self.lock().attempt(vbid, &name, value.as_deref());
        let expected = Expected::Success(attempt, level.needs_persistence());
        self.pending(document, request, expected)
    }

    /// A value that no other write has.
    fn value(&mut self) -> Vec<u8> {
        let length = self.random.below(self.value_bytes_max) as usize;
        let (a, b) = (self.random.below(1 << 40), self.random.below(1 << 40));
        let mut value = format!("{}/{a:x}{b:x} ", self.number).into_bytes();
        value.extend((0..length).map(|at| b'a' + (at as u64 ^ a) as u8 % 23));
        value
    }
}

fn acknowledgement(response: &Response, persisted: bool) -> Result<Acknowledgement> {
    // A counter's answer carries its value after the same extras.
    let mutation = response.mutation()?;
    let (cas, seqno, vb_uuid) = (mutation.cas, mutation.seqno, mutation.vb_uuid);
    Ok(Acknowledgement { cas, seqno, vb_uuid, persisted })
}

/// The persisted seqno of an answer to OBSERVE_SEQNO, if it is valid.
fn progress(value: &[u8]) -> Option<Seqno> {
    let field = |at: usize| Some(u64::from_be_bytes(*value.get(at..)?.first_chunk::<8>()?));
    let (persisted, current) = (field(11)?, field(19)?);
    (persisted <= current).then_some(Seqno(persisted))
}
