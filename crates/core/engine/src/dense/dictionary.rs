//! Dictionaries of dense values: their slots, the counts of their values, and inflation.
//!
//! Owns: the process's table of dictionaries and the count of blocks that name each. Invariants:
//! 1. A block of a dense value names its dictionary by slot. It is counted before it can be found,
//!    and until the last reference to it is given up. So whoever has a reference finds the
//!    dictionary in its slot.
//! 2. Only the owner of a dictionary makes new values with it. When it has stopped, the count only
//!    falls, and a slot whose count is zero is free.
//! 3. Nothing longer than the stated length is ever written, and a frame that does not inflate to
//!    exactly that length is an error.
//!
//! Frames are Zstandard's without the four bytes that say so. They name the dictionary by one byte,
//! which the decoder compares, so another dictionary in the slot is an error as well.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use oribi_types::CollectionId;
use parking_lot::Mutex;
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, DParameter, FrameFormat};

use crate::block_arena;
use crate::cache_padded::CachePadded;
use crate::limits::{DENSE_DICTIONARIES_MAX, DENSE_PLAIN_BYTES_MAX};

/// Zstandard's level: the fastest, and its ratio with a dictionary is within some per cent of the
/// best.
const LEVEL: i32 = 1;

/// First bytes of every frame, which are not kept.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A dictionary has its number after its magic.
const NUMBER_AT: std::ops::Range<usize> = 4..8;

/// Numbers that a frame names in one byte; 0 names nothing.
const NUMBERS: u32 = 255;
const _: () = assert!(NUMBERS <= u8::MAX as u32, "a frame has one byte for the number");
const _: () = assert!(NUMBER_AT.end - NUMBER_AT.start == size_of::<u32>());
const _: () = assert!(DENSE_DICTIONARIES_MAX <= 1 << u16::BITS, "a slot's number has 16 bits");

static SLOTS: [ArcSwapOption<Dictionary>; DENSE_DICTIONARIES_MAX] =
    [const { ArcSwapOption::const_empty() }; DENSE_DICTIONARIES_MAX];

/// Held while a slot is taken or given back.
static ALLOCATION: Mutex<()> = Mutex::new(());

/// Dictionaries made by this process.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A dictionary as messages name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DictionaryName {
    pub collection: CollectionId,
    /// 1 is the first of the collection since the bucket was opened.
    pub version: u32,
}

impl fmt::Display for DictionaryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dictionary {} of collection {:#x}", self.version, self.collection.0)
    }
}

/// Why a dense value cannot be shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DenseError {
    #[error("a dense value names the dictionary in slot {slot}, which is missing")]
    Missing { slot: u16 },
    #[error("a dense value of {dictionary} does not inflate to its {plain_bytes} bytes")]
    Damaged { dictionary: DictionaryName, plain_bytes: usize },
}

/// Counters of inflations, each on its cache line: threads that read share few of them.
const STRIPES: usize = 8;

/// Threads that have inflated something.
static INFLATERS: AtomicU64 = AtomicU64::new(0);

/// Bytes of a thread's working buffers that count in the process's bound.
struct WorkingBytes(u64);

impl WorkingBytes {
    fn take(bytes: usize) -> WorkingBytes {
        let mut taken = WorkingBytes(0);
        taken.grow_to(bytes);
        taken
    }

    /// Nothing is counted when the process has no memory left: a read must not fail for it.
    fn grow_to(&mut self, bytes: usize) {
        let grown = (bytes as u64).saturating_sub(self.0);
        if grown > 0 && block_arena::take_outside(grown) {
            self.0 += grown;
        }
    }
}

impl Drop for WorkingBytes {
    fn drop(&mut self) {
        block_arena::return_outside(self.0);
    }
}

/// Bytes outside the arena that count in a bucket's quota and in the process's bound.
struct CountedBytes {
    account: Arc<AtomicU64>,
    bytes: u64,
}

impl CountedBytes {
    /// `None`, and nothing is counted, when the process has no memory left.
    fn take(account: &Arc<AtomicU64>, bytes: usize) -> Option<CountedBytes> {
        let bytes = bytes as u64;
        block_arena::take_outside(bytes).then(|| {
            account.fetch_add(bytes, Ordering::Relaxed);
            CountedBytes { account: Arc::clone(account), bytes }
        })
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        let before = self.account.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(before >= self.bytes, "a dictionary releases the bytes that it counted");
        block_arena::return_outside(self.bytes);
    }
}

/// Inflates the values of one training.
pub(crate) struct Dictionary {
    name: DictionaryName,
    slot: u16,
    decoder: DDict<'static>,
    /// Blocks that name it, and the sums of their values' lengths.
    values: AtomicU64,
    plain_bytes: AtomicU64,
    dense_bytes: AtomicU64,
    inflations: [CachePadded<AtomicU64>; STRIPES],
    /// Its bucket is gone; the last value gives the slot back.
    is_orphan: AtomicBool,
    #[cfg(test)]
    fault: std::sync::atomic::AtomicU8,
    _memory: CountedBytes,
}

/// What a simulation does to a dictionary.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DictionaryFault {
    None,
    Missing,
    /// Its content is another one's.
    Damaged,
}

impl Dictionary {
    pub(crate) fn name(&self) -> DictionaryName {
        self.name
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn values(&self) -> u64 {
        self.values.load(Ordering::Acquire)
    }

    pub(crate) fn plain_bytes(&self) -> u64 {
        self.plain_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn dense_bytes(&self) -> u64 {
        self.dense_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn inflations(&self) -> u64 {
        self.inflations.iter().map(|stripe| stripe.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of the decoder's dictionary; those of an encoder are its own.
    #[cfg(test)]
    pub(crate) fn decoder_bytes(&self) -> u64 {
        self._memory.bytes
    }

    #[cfg(test)]
    pub(crate) fn set_fault(&self, fault: DictionaryFault) {
        self.fault.store(fault as u8, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn has_fault(&self, fault: DictionaryFault) -> bool {
        self.fault.load(Ordering::Relaxed) == fault as u8
    }

    #[cfg(test)]
    fn inflate(&self, decoder: &mut DCtx<'_>, plain: &mut [u8], frame: &[u8]) -> Option<usize> {
        match self.has_fault(DictionaryFault::Damaged) {
            true => decoder.decompress(plain, frame).ok(),
            false => decoder.decompress_using_ddict(plain, frame, &self.decoder).ok(),
        }
    }

    #[cfg(not(test))]
    fn inflate(&self, decoder: &mut DCtx<'_>, plain: &mut [u8], frame: &[u8]) -> Option<usize> {
        decoder.decompress_using_ddict(plain, frame, &self.decoder).ok()
    }

    /// Gives the slot back if no block names it. The owner makes no values with it any more.
    pub(crate) fn retire_unused(&self) -> bool {
        let _one_at_a_time = ALLOCATION.lock();
        let is_unused = self.values.load(Ordering::SeqCst) == 0;
        let slot = &SLOTS[usize::from(self.slot)];
        // An orphan may have been retired by its last value.
        if is_unused && slot.load().as_ref().is_some_and(|it| std::ptr::eq(Arc::as_ptr(it), self)) {
            slot.store(None);
        }
        is_unused
    }

    /// The owner is gone: the slot is given back when no block names it any more.
    pub(crate) fn orphan(&self) {
        self.is_orphan.store(true, Ordering::SeqCst);
        self.retire_unused();
    }
}

/// Counts one more block that names the dictionary.
///
/// # Panics
/// When there is no such dictionary: the maker of a block has it, or has a block that names it.
pub(crate) fn count_value(slot: u16, plain_bytes: usize, dense_bytes: usize) {
    let found = SLOTS.get(usize::from(slot)).map(ArcSwapOption::load);
    let dictionary = found.as_deref().and_then(Option::as_ref);
    let dictionary = dictionary.expect("a new block's dictionary is in its slot (1)");
    dictionary.values.fetch_add(1, Ordering::Relaxed);
    dictionary.plain_bytes.fetch_add(plain_bytes as u64, Ordering::Relaxed);
    dictionary.dense_bytes.fetch_add(dense_bytes as u64, Ordering::Relaxed);
}

/// The last reference to a block that names the dictionary was given up.
#[cold]
pub(crate) fn release_value(slot: u16, plain_bytes: usize, dense_bytes: usize) {
    let Some(slot) = SLOTS.get(usize::from(slot)) else { return };
    if let Some(dictionary) = slot.load().as_ref() {
        let plain = dictionary.plain_bytes.fetch_sub(plain_bytes as u64, Ordering::Relaxed);
        debug_assert!(plain >= plain_bytes as u64, "a value's bytes were counted (1)");
        let dense = dictionary.dense_bytes.fetch_sub(dense_bytes as u64, Ordering::Relaxed);
        debug_assert!(dense >= dense_bytes as u64, "a value's dense bytes were counted (1)");
        let before = dictionary.values.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a block is counted once (1)");
        if before == 1 && dictionary.is_orphan.load(Ordering::SeqCst) {
            dictionary.retire_unused();
        }
    }
}

/// A thread's decoder and the place for one value.
struct Inflation {
    decoder: DCtx<'static>,
    plain: Box<[u8; DENSE_PLAIN_BYTES_MAX]>,
    /// Where the thread counts.
    stripe: usize,
    _memory: WorkingBytes,
}

impl Inflation {
    fn new() -> Inflation {
        let mut decoder = DCtx::create();
        let set = decoder.set_parameter(DParameter::Format(FrameFormat::Magicless));
        debug_assert!(set.is_ok(), "the decoder reads frames without their magic");
        let plain = Box::new([0; DENSE_PLAIN_BYTES_MAX]);
        let stripe = INFLATERS.fetch_add(1, Ordering::Relaxed) as usize % STRIPES;
        assert!(stripe < STRIPES, "a thread has a stripe");
        let memory = WorkingBytes::take(decoder.sizeof() + plain.len());
        Inflation { decoder, plain, stripe, _memory: memory }
    }
}

/// A thread's encoder, whose memory grows with the values that it meets.
struct Compression {
    encoder: CCtx<'static>,
    memory: WorkingBytes,
}

impl Compression {
    fn new() -> Compression {
        Compression { encoder: CCtx::create(), memory: WorkingBytes(0) }
    }
}

thread_local! {
    static INFLATION: RefCell<Option<Inflation>> = const { RefCell::new(None) };
    static COMPRESSION: RefCell<Option<Compression>> = const { RefCell::new(None) };
}

/// Shows a value inflated, in scratch of this thread.
///
/// # Errors
/// [`DenseError`].
pub(crate) fn with_inflated<R>(
    slot: u16,
    frame: &[u8],
    plain_bytes: usize,
    show: impl FnOnce(&[u8]) -> R,
) -> Result<R, DenseError> {
    let found = SLOTS.get(usize::from(slot)).map(ArcSwapOption::load);
    let Some(dictionary) = found.as_deref().and_then(Option::as_ref) else {
        return Err(DenseError::Missing { slot });
    };
    #[cfg(test)]
    if dictionary.has_fault(DictionaryFault::Missing) {
        return Err(DenseError::Missing { slot });
    }
    let damaged = DenseError::Damaged { dictionary: dictionary.name, plain_bytes };
    INFLATION.with_borrow_mut(|inflation| {
        let inflation = inflation.get_or_insert_with(Inflation::new);
        dictionary.inflations[inflation.stripe].fetch_add(1, Ordering::Relaxed);
        let plain = inflation.plain.get_mut(..plain_bytes).ok_or(damaged)?;
        match dictionary.inflate(&mut inflation.decoder, plain, frame) {
            Some(written) if written == plain_bytes => Ok(show(plain)),
            _ => Err(damaged),
        }
    })
}

/// Makes dense values of a collection, with its newest dictionary.
pub(crate) struct DictionaryEncoder {
    dictionary: Arc<Dictionary>,
    encoder: CDict<'static>,
    _memory: CountedBytes,
}

impl DictionaryEncoder {
    /// Publishes a trained dictionary; its memory counts in `account`. `None` when the process has
    /// no slot or no memory left.
    pub(crate) fn new(
        name: DictionaryName,
        trained: &mut [u8],
        account: &Arc<AtomicU64>,
    ) -> Option<DictionaryEncoder> {
        let number = 1 + (MADE.fetch_add(1, Ordering::Relaxed) % u64::from(NUMBERS)) as u32;
        trained.get_mut(NUMBER_AT)?.copy_from_slice(&number.to_le_bytes());
        let encoder = CDict::create(trained, LEVEL);
        let memory = CountedBytes::take(account, encoder.sizeof())?;
        let decoder = DDict::create(trained);
        let decoder_memory = CountedBytes::take(account, decoder.sizeof())?;
        let _one_at_a_time = ALLOCATION.lock();
        let slot = SLOTS.iter().position(|slot| slot.load().is_none())?;
        let dictionary = Arc::new(Dictionary {
            name,
            slot: u16::try_from(slot).ok()?,
            decoder,
            values: AtomicU64::new(0),
            plain_bytes: AtomicU64::new(0),
            dense_bytes: AtomicU64::new(0),
            inflations: [const { CachePadded(AtomicU64::new(0)) }; STRIPES],
            is_orphan: AtomicBool::new(false),
            #[cfg(test)]
            fault: std::sync::atomic::AtomicU8::new(DictionaryFault::None as u8),
            _memory: decoder_memory,
        });
        SLOTS[slot].store(Some(Arc::clone(&dictionary)));
        Some(DictionaryEncoder { dictionary, encoder, _memory: memory })
    }

    pub(crate) fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    /// The frame of a value in `scratch`; `None` when the value is too long.
    pub(crate) fn compress<'s>(&self, plain: &[u8], scratch: &'s mut Vec<u8>) -> Option<&'s [u8]> {
        if plain.len() > DENSE_PLAIN_BYTES_MAX {
            return None;
        }
        scratch.clear();
        scratch.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        COMPRESSION.with_borrow_mut(|compression| {
            let compression = compression.get_or_insert_with(Compression::new);
            let encoder = &mut compression.encoder;
            let written = encoder.compress_using_cdict(scratch, plain, &self.encoder).ok();
            compression.memory.grow_to(encoder.sizeof());
            written
        })?;
        scratch.strip_prefix(&FRAME_MAGIC)
    }
}

#[cfg(test)]
mod tests;
