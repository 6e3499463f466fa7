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
pub(crate) struct TranslatedRequest<'a> {
    pub opcode: Opcode,
    extras: [u8; EXTRAS_BYTES_MAX],
    extras_bytes: usize,
    pub key: &'a [u8],
    value: &'a [u8],
    cas: u64,
    /// The client wants no answer. A request that is answered late keeps this in its opaque.
    quiet: bool,
}

impl<'a> TranslatedRequest<'a> {
    pub(super) fn new(opcode: Opcode, key: &'a [u8]) -> TranslatedRequest<'a> {
        let extras = [0; EXTRAS_BYTES_MAX];
        TranslatedRequest { opcode, extras, extras_bytes: 0, key, value: &[], cas: 0, quiet: false }
    }

    pub(super) fn with_extras<const N: usize>(mut self, extras: [u8; N]) -> TranslatedRequest<'a> {
        const { assert!(N <= EXTRAS_BYTES_MAX, "extras fit into their place") };
        self.extras[..N].copy_from_slice(&extras);
        TranslatedRequest { extras_bytes: N, ..self }
    }

    /// The request with a CAS, 0 for none.
    pub(super) fn with_cas(self, cas: u64) -> TranslatedRequest<'a> {
        TranslatedRequest { cas, ..self }
    }

    /// The request of a client that may want no answer.
    pub(super) fn quiet_if(self, quiet: bool) -> TranslatedRequest<'a> {
        TranslatedRequest { quiet, ..self }
    }

    /// The request for one key of a `get`.
    pub fn get(key: &'a [u8], keys: Keys) -> TranslatedRequest<'a> {
        match keys.expiry {
            None => TranslatedRequest::new(Opcode::Get, key),
            Some(expiry) => TranslatedRequest::new(Opcode::Gat, key)
                .with_extras(ExpiryExtras { expiry }.encode()),
        }
    }

    /// The request of a store command about `key`.
    pub fn store(store: &Store<'a>, key: &'a [u8]) -> TranslatedRequest<'a> {
        let extras = SetExtras { flags: store.flags, expiry: store.expiry }.encode();
        let meant = match store.mode {
            StoreMode::Append => TranslatedRequest::new(Opcode::Append, key),
            StoreMode::Prepend => TranslatedRequest::new(Opcode::Prepend, key),
            StoreMode::Set | StoreMode::Cas => {
                TranslatedRequest::new(Opcode::Set, key).with_extras(extras)
            }
            StoreMode::Add => TranslatedRequest::new(Opcode::Add, key).with_extras(extras),
            StoreMode::Replace => TranslatedRequest::new(Opcode::Replace, key).with_extras(extras),
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
        TranslatedRequest { value: store.value, cas, ..meant }
    }

    pub(super) fn count(key: &'a [u8], delta: u64, decrement: bool) -> TranslatedRequest<'a> {
        let opcode = if decrement { Opcode::Decrement } else { Opcode::Increment };
        let extras = CounterExtras { delta, initial: 0, expiry: COUNTER_DO_NOT_CREATE };
        TranslatedRequest::new(opcode, key).with_extras(extras.encode())
    }

    /// The request as a frame; its value may still be on its way.
    pub fn frame(&self) -> Frame<'_> {
        let (extras, key, value) = (&self.extras[..self.extras_bytes], self.key, self.value);
        debug_assert!(key.len() <= usize::from(u16::MAX), "a line is shorter than the longest key");
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
pub(crate) fn translate<'a>(
    command: &Command<'a>,
    room: &'a mut [u8],
) -> Option<TranslatedRequest<'a>> {
    let of_meta =
        |opcode, meta: &Meta<'a>, room| Some(TranslatedRequest::new(opcode, key_of(meta, room)));
    match *command {
        Command::Get { key, keys, .. } => Some(TranslatedRequest::get(key, keys)),
        Command::Store(store) => match &store.meta {
            Some(meta) => Some(TranslatedRequest::store(&store, key_of(meta, room))),
            None => Some(TranslatedRequest::store(&store, store.key)),
        },
        Command::Delete { key, .. } => Some(TranslatedRequest::new(Opcode::Delete, key)),
        Command::Count { key, .. } => Some(TranslatedRequest::new(Opcode::Increment, key)),
        Command::Touch { key, .. } => Some(TranslatedRequest::new(Opcode::Touch, key)),
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
