//! The binary request that a command of the text protocol means.
//!
//! Owns: the translation of arguments into opcode, extras and CAS. Nothing is copied but numbers.

use oribi_protocol::frame::{Frame, Header};
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{COUNTER_DO_NOT_CREATE, CounterExtras, ExpiryExtras, SetExtras};
use oribi_protocol::text::{Command, Keys, Meta, Store, StoreMode};

/// Most bytes of a command's extras.
const EXTRAS_BYTES_MAX: usize = CounterExtras::BYTES;

/// The binary request that a command means. Its parts are borrowed from the command.
#[derive(Clone, Copy)]
pub(crate) struct Meant<'a> {
    pub opcode: Opcode,
    extras: [u8; EXTRAS_BYTES_MAX],
    extras_bytes: usize,
    pub key: &'a [u8],
    value: &'a [u8],
    cas: u64,
    /// The client wants no answer. A request that is answered late keeps this in its opaque.
    quiet: bool,
}

impl<'a> Meant<'a> {
    pub(super) fn new(opcode: Opcode, key: &'a [u8]) -> Meant<'a> {
        let extras = [0; EXTRAS_BYTES_MAX];
        Meant { opcode, extras, extras_bytes: 0, key, value: &[], cas: 0, quiet: false }
    }

    pub(super) fn with_extras<const N: usize>(mut self, extras: [u8; N]) -> Meant<'a> {
        self.extras[..N].copy_from_slice(&extras);
        Meant { extras_bytes: N, ..self }
    }

    /// The request with a CAS, 0 for none.
    pub(super) fn with_cas(self, cas: u64) -> Meant<'a> {
        Meant { cas, ..self }
    }

    /// The request of a client that may want no answer.
    pub(super) fn quiet_if(self, quiet: bool) -> Meant<'a> {
        Meant { quiet, ..self }
    }

    /// The request for one key of a `get`.
    pub fn get(key: &'a [u8], keys: Keys) -> Meant<'a> {
        match keys.expiry {
            None => Meant::new(Opcode::Get, key),
            Some(expiry) => {
                Meant::new(Opcode::Gat, key).with_extras(ExpiryExtras { expiry }.encode())
            }
        }
    }

    /// The request of a store command about `key`.
    pub fn store(store: &Store<'a>, key: &'a [u8]) -> Meant<'a> {
        let extras = SetExtras { flags: store.flags, expiry: store.expiry }.encode();
        let meant = match store.mode {
            StoreMode::Append => Meant::new(Opcode::Append, key),
            StoreMode::Prepend => Meant::new(Opcode::Prepend, key),
            StoreMode::Set | StoreMode::Cas => Meant::new(Opcode::Set, key).with_extras(extras),
            StoreMode::Add => Meant::new(Opcode::Add, key).with_extras(extras),
            StoreMode::Replace => Meant::new(Opcode::Replace, key).with_extras(extras),
        };
        // No version has the CAS 0, and in the binary protocol it means any.
        // A document that is added has no CAS to compare, and an `ms` that appends with the CAS 0
        // wants none compared.
        let compared = store.cas.filter(|cas| match store.mode {
            StoreMode::Add => false,
            StoreMode::Append | StoreMode::Prepend => *cas != 0,
            _ => true,
        });
        let cas = compared.map_or(0, |cas| if cas == 0 { u64::MAX } else { cas });
        Meant { value: store.value, cas, ..meant }
    }

    pub(super) fn count(key: &'a [u8], delta: u64, decrement: bool) -> Meant<'a> {
        let opcode = if decrement { Opcode::Decrement } else { Opcode::Increment };
        let extras = CounterExtras { delta, initial: 0, expiry: COUNTER_DO_NOT_CREATE };
        Meant::new(opcode, key).with_extras(extras.encode())
    }

    /// The request as a frame; its value may still be on its way.
    pub fn frame(&self) -> Frame<'_> {
        let (extras, key, value) = (&self.extras[..self.extras_bytes], self.key, self.value);
        let header = Header {
            magic: Magic::ClientRequest,
            opcode: self.opcode as u8,
            framing_bytes: 0,
            key_bytes: key.len() as u16,
            extras_bytes: extras.len() as u8,
            datatype: 0,
            vbucket_or_status: 0,
            body_bytes: (extras.len() + key.len() + value.len()) as u32,
            opaque: u32::from(self.quiet),
            cas: self.cas,
        };
        Frame { header, framing: &[], extras, key, value }
    }
}

/// The request of a command about one document; `None` for any other command. Meta commands are
/// read as the request that they resemble most, which is enough to look ahead and to fetch.
pub(crate) fn meant_by<'a>(command: &Command<'a>, room: &'a mut [u8]) -> Option<Meant<'a>> {
    let of_meta = |opcode, meta: &Meta<'a>, room| Some(Meant::new(opcode, key_of(meta, room)));
    match *command {
        Command::Get { key, keys, .. } => Some(Meant::get(key, keys)),
        Command::Store(store) => match &store.meta {
            Some(meta) => Some(Meant::store(&store, key_of(meta, room))),
            None => Some(Meant::store(&store, store.key)),
        },
        Command::Delete { key, .. } => Some(Meant::new(Opcode::Delete, key)),
        Command::Count { key, .. } => Some(Meant::new(Opcode::Increment, key)),
        Command::Touch { key, .. } => Some(Meant::new(Opcode::Touch, key)),
        Command::MetaGet(ref meta) | Command::MetaDebug(ref meta) => {
            of_meta(Opcode::Get, meta, room)
        }
        Command::MetaDelete(ref meta) => of_meta(Opcode::Delete, meta, room),
        Command::MetaCount(ref meta) => of_meta(Opcode::Increment, meta, room),
        _ => None,
    }
}

/// The document's key, decoded into `room` if it was sent in base64.
pub(super) fn key_of<'a>(meta: &Meta<'a>, room: &'a mut [u8]) -> &'a [u8] {
    meta.decoded_key(room)
}
