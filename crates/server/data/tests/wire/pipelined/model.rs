//! What the server ought to answer: a map of documents, and the rules of memcached's binary
//! protocol.
//!
//! Owns: the documents. A CAS is the server's choice, so the model learns it from the first answer
//! that shows it, and from then on insists: one version has one CAS, and a newer version of a key a
//! higher one. The clock does not advance, so a lock ends only by an unlock.

use std::collections::BTreeMap;

use oribi_protocol::status::Status;

use crate::pipelined::request::{Key, Request, key_name};

struct Document {
    value: Vec<u8>,
    flags: u32,
    /// It was touched, so it has an expiry; touching it again changes nothing.
    expires: bool,
    /// Its CAS, once an answer has shown it.
    cas: Option<u64>,
    /// The newest lock that this version had.
    lock: Option<Lock>,
}

#[derive(Clone, Copy)]
struct Lock {
    /// Known as soon as it is there: only a loud answer gives it.
    cas: u64,
    holds: bool,
}

/// The documents of a bucket.
#[derive(Default)]
pub struct Model {
    documents: BTreeMap<Key, Document>,
    /// The highest CAS that was seen of each key.
    newest: BTreeMap<Key, u64>,
}

/// Expected CAS field of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnsweredCas {
    Zero,
    /// The CAS of this key's document.
    Of(Key),
    /// The CAS of the lock of this key's document.
    OfLock(Key),
    /// The visible part of a locked document.
    Hidden,
}

/// An answer, but for opcode and opaque, which are the request's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: Status,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    /// `None` for a value that the model does not know.
    pub value: Option<Vec<u8>>,
    pub cas: AnsweredCas,
}

impl Answer {
    fn bare(status: Status) -> Answer {
        let (extras, key, value) = (Vec::new(), Vec::new(), Some(Vec::new()));
        Answer { status, extras, key, value, cas: AnsweredCas::Zero }
    }
}

impl Model {
    /// The CAS of a document as far as it is known.
    pub fn known_cas(&self, key: Key) -> Option<u64> {
        let document = self.documents.get(&key)?;
        document.lock.map(|lock| lock.cas).or(document.cas)
    }

    /// Takes note of the CAS in an answer that shows it.
    pub fn learn(&mut self, key: Key, cas: u64) {
        let document = self.documents.get_mut(&key).expect("the answer was about a document");
        if let Some(known) = document.cas {
            return assert_eq!(cas, known, "a version keeps its CAS");
        }
        let newest = self.newest.entry(key).or_default();
        document.cas = Some(cas);
        if document.lock.is_some() {
            return assert!(cas < *newest, "a lock has a higher CAS than what it locks");
        }
        assert!(cas > *newest, "a newer version has a higher CAS");
        *newest = cas;
    }

    /// Takes note of the CAS of a lock that was just given.
    pub fn learn_lock(&mut self, key: Key, cas: u64) {
        let newest = self.newest.entry(key).or_default();
        assert!(cas > *newest, "a lock has a higher CAS than everything before it");
        *newest = cas;
        let document = self.documents.get_mut(&key).expect("the answer was about a document");
        document.lock = Some(Lock { cas, holds: true });
    }

    fn is_locked(&self, key: Key) -> bool {
        self.documents.get(&key).and_then(|document| document.lock).is_some_and(|lock| lock.holds)
    }

    /// Runs a request that names this CAS; `None` when nothing is to be answered.
    pub fn run(&mut self, request: &Request, cas: u64) -> Option<Answer> {
        match request {
            Request::Get { key, quiet, with_key } => self.get(*key, *quiet, *with_key),
            Request::GetAndTouch { key, .. } | Request::Touch { key } if self.is_locked(*key) => {
                Some(Answer::bare(Status::KeyEexists))
            }
            Request::Lock { key } => Some(self.lock(*key)),
            Request::Unlock { key, .. } => Some(Answer::bare(self.unlock(*key, cas))),
            Request::GetAndTouch { key, quiet } => {
                self.set_expiry(*key, false);
                self.get(*key, *quiet, false)
            }
            Request::Touch { key } => Some(self.touch(*key)),
            Request::Set { key, quiet, flags, value, .. } => {
                let condition = self.check_cas(*key, cas);
                self.store(*key, *quiet, condition, *flags, value)
            }
            Request::Add { key, quiet, flags, value } => {
                let exists = self.documents.contains_key(key);
                let condition = if exists { Err(Status::KeyEexists) } else { Ok(()) };
                self.store(*key, *quiet, condition, *flags, value)
            }
            Request::Replace { key, quiet, flags, value, .. } => {
                let condition = self.existing(*key, cas);
                self.store(*key, *quiet, condition, *flags, value)
            }
            Request::Concat { key, quiet, prepend, value, .. } => {
                let condition = self.existing(*key, cas);
                self.concat(*key, *quiet, condition, *prepend, value)
            }
            Request::Delete { key, quiet, .. } => match self.existing(*key, cas) {
                // Deleting what is locked was always a temporary failure.
                Err(Status::KeyEexists) if self.is_locked(*key) => {
                    Some(Answer::bare(Status::Etmpfail))
                }
                Err(status) => Some(Answer::bare(status)),
                Ok(()) => {
                    self.documents.remove(key);
                    (!quiet).then(|| Answer::bare(Status::Success))
                }
            },
            Request::Count { .. } => self.count(request, cas),
            Request::Noop | Request::Quit { quiet: false } => Some(Answer::bare(Status::Success)),
            Request::Quit { quiet: true } => None,
            Request::Malformed { .. } | Request::LongKey { .. } => {
                Some(Answer::bare(Status::Einval))
            }
            // The answer carries a map of the cluster.
            Request::Elsewhere { .. } => {
                Some(Answer { value: None, ..Answer::bare(Status::NotMyVbucket) })
            }
            Request::UnknownOpcode { .. } => Some(Answer::bare(Status::UnknownCommand)),
            Request::NotSupported => Some(Answer::bare(Status::NotSupported)),
        }
    }

    fn check_cas(&self, key: Key, cas: u64) -> Result<(), Status> {
        match self.documents.get(&key) {
            // The CAS of a lock is as good as that of the version, and while it holds better.
            Some(Document { lock: Some(lock), .. }) if lock.cas == cas => Ok(()),
            Some(Document { lock: Some(lock), .. }) if lock.holds => Err(Status::KeyEexists),
            _ if cas == 0 => Ok(()),
            None => Err(Status::KeyEnoent),
            // A CAS that was known when the request was encoded cannot be that of a version whose
            // CAS no answer has shown yet.
            Some(document) if document.cas == Some(cas) => Ok(()),
            Some(_) => Err(Status::KeyEexists),
        }
    }

    fn existing(&self, key: Key, cas: u64) -> Result<(), Status> {
        if self.documents.contains_key(&key) {
            self.check_cas(key, cas)
        } else {
            Err(Status::KeyEnoent)
        }
    }

    fn get(&self, key: Key, quiet: bool, with_key: bool) -> Option<Answer> {
        let name = if with_key { key_name(key) } else { Vec::new() };
        let answer = match self.documents.get(&key) {
            None if quiet => return None,
            None => Answer::bare(Status::KeyEnoent),
            Some(document) => Answer {
                extras: document.flags.to_be_bytes().to_vec(),
                value: Some(document.value.clone()),
                cas: if self.is_locked(key) { AnsweredCas::Hidden } else { AnsweredCas::Of(key) },
                ..Answer::bare(Status::Success)
            },
        };
        Some(Answer { key: name, ..answer })
    }

    fn lock(&mut self, key: Key) -> Answer {
        match self.documents.get(&key) {
            None => Answer::bare(Status::KeyEnoent),
            Some(_) if self.is_locked(key) => Answer::bare(Status::Etmpfail),
            Some(document) => Answer {
                extras: document.flags.to_be_bytes().to_vec(),
                value: Some(document.value.clone()),
                cas: AnsweredCas::OfLock(key),
                ..Answer::bare(Status::Success)
            },
        }
    }

    fn unlock(&mut self, key: Key, cas: u64) -> Status {
        let document = self.documents.get_mut(&key);
        match document.map(|document| document.lock.as_mut().filter(|lock| lock.holds)) {
            _ if cas == 0 => Status::Einval,
            None => Status::KeyEnoent,
            Some(Some(lock)) if lock.cas == cas => {
                lock.holds = false;
                Status::Success
            }
            Some(_) => Status::Etmpfail,
        }
    }

    fn touch(&mut self, key: Key) -> Answer {
        if !self.documents.contains_key(&key) {
            return Answer::bare(Status::KeyEnoent);
        }
        self.set_expiry(key, true);
        Answer { cas: AnsweredCas::Of(key), ..Answer::bare(Status::Success) }
    }

    /// Another expiry is another version, the same one is not.
    fn set_expiry(&mut self, key: Key, expires: bool) {
        if let Some(document) = self.documents.get_mut(&key).filter(|one| one.expires != expires) {
            (document.expires, document.cas, document.lock) = (expires, None, None);
        }
    }

    /// Stores what takes the place of a document and keeps its expiry.
    fn change(&mut self, key: Key, quiet: bool, flags: u32, value: &[u8]) -> Option<Answer> {
        let expires = self.documents.get(&key).is_some_and(|document| document.expires);
        let answer = self.store(key, quiet, Ok(()), flags, value);
        self.documents.get_mut(&key).expect("it was stored").expires = expires;
        answer
    }

    fn store(
        &mut self,
        key: Key,
        quiet: bool,
        condition: Result<(), Status>,
        flags: u32,
        value: &[u8],
    ) -> Option<Answer> {
        if let Err(status) = condition {
            return Some(Answer::bare(status));
        }
        self.documents.insert(
            key,
            Document { value: value.to_vec(), flags, expires: false, cas: None, lock: None },
        );
        (!quiet).then(|| Answer { cas: AnsweredCas::Of(key), ..Answer::bare(Status::Success) })
    }

    fn concat(
        &mut self,
        key: Key,
        quiet: bool,
        condition: Result<(), Status>,
        prepend: bool,
        value: &[u8],
    ) -> Option<Answer> {
        let flags = self.documents.get(&key).map_or(0, |document| document.flags);
        let condition = match condition {
            Err(Status::KeyEnoent) => Err(Status::NotStored),
            condition => condition,
        };
        let before = self.documents.get(&key).map_or(&[][..], |document| &document.value);
        let joined = if prepend { [value, before].concat() } else { [before, value].concat() };
        match condition {
            Err(status) => Some(Answer::bare(status)),
            Ok(()) => self.change(key, quiet, flags, &joined),
        }
    }

    fn count(&mut self, request: &Request, cas: u64) -> Option<Answer> {
        let Request::Count { key, quiet, decrement, delta, initial, .. } = request else {
            unreachable!("the caller has looked");
        };
        let counted = match self.documents.get(key) {
            None if cas != 0 => Err(Status::KeyEnoent),
            None => initial.ok_or(Status::KeyEnoent).map(|initial| (initial, 0)),
            Some(document) => self.check_cas(*key, cas).and_then(|()| {
                let current = number(&document.value).ok_or(Status::DeltaBadval)?;
                let value = match decrement {
                    true => current.saturating_sub(*delta),
                    false => current.wrapping_add(*delta),
                };
                Ok((value, document.flags))
            }),
        };
        match counted {
            Err(status) => Some(Answer::bare(status)),
            Ok((value, flags)) => {
                let answer = self.change(*key, *quiet, flags, value.to_string().as_bytes())?;
                Some(Answer { value: Some(value.to_be_bytes().to_vec()), ..answer })
            }
        }
    }
}

/// A counter's value: decimal digits, at most 64 bits of them. Space around them and a plus sign
/// before them are passed over; a text of more than 64 bytes is no counter.
fn number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= 64)?;
    let text = text.trim_matches(['\t', '\n', '\x0b', '\x0c', '\r', ' ']);
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_decimal)
}
