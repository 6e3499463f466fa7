//! Values compressed with Snappy: which are accepted, when compressing pays, and how they are
//! inflated.
//!
//! Owns: the checks of clients' values, and the bucket's mode. In a stored value only the body is
//! compressed; extended attributes stand before it as they are, so that they can be read and
//! changed, and the body sent, without inflating anything.
//!
//! Invariant: no memory is taken for a stream before the length that it announces was compared with
//! the limit and with the most that its bytes could become, so a small input cannot make a large
//! allocation.
//!
//! In mode `active` the server compresses when it stores, not in the background. Memory, queue and
//! disk then hold the smaller form only, and one block is allocated instead of two; a background
//! pass would come after the flusher has written the plain form. It costs a worker some two
//! microseconds per KiB written; reads do not pay. Callers: the vbuckets' operations, and the
//! server for what it sends and receives.

mod inflating;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering};

use oribi_types::Datatype;
use parking_lot::{Mutex, MutexGuard};
use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use crate::item::Item;

pub use inflating::Inflater;
pub use oribi_types::policy::CompressionMode;

/// Values below this size are not worth the attempt: the block of an item has classes of 16 bytes
/// and more, and Snappy saves next to nothing on texts this short.
pub const COMPRESS_BYTES_MIN: usize = 128;

/// A value is kept compressed when its plain form is at least this many per cent of the compressed
/// one: Couchbase's ratio of 1.2.
pub const RATIO_MIN_PERCENT: usize = 120;

/// A long value is compressed only if its first bytes compress well, so that pictures and archives
/// cost an attempt at this many bytes.
const SAMPLE_BYTES: usize = 4 << 10;

/// Snappy's densest element copies 64 bytes and takes 3. Source: its format description.
const ELEMENT_BYTES_MAX: usize = 64;
const ELEMENT_BYTES: usize = 3;

/// Scratch that a thread keeps; larger ones are given back after use.
const SCRATCH_KEPT_BYTES_MAX: usize = 256 << 10;

/// Scratch above this size is for one thread at a time: some milliseconds of work.
const SHARED_SCRATCH_BYTES_MIN: usize = 2 << 20;

/// A mode that may change while the bucket is used.
#[derive(Debug)]
pub(crate) struct CompressionSwitch(AtomicU8);

impl Default for CompressionSwitch {
    fn default() -> CompressionSwitch {
        CompressionSwitch(AtomicU8::new(CompressionMode::default() as u8))
    }
}

impl CompressionSwitch {
    pub(crate) fn get(&self) -> CompressionMode {
        match self.0.load(Ordering::Relaxed) {
            mode if mode == CompressionMode::Off as u8 => CompressionMode::Off,
            mode if mode == CompressionMode::Active as u8 => CompressionMode::Active,
            _ => CompressionMode::Passive,
        }
    }

    pub(crate) fn set(&self, mode: CompressionMode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }
}

/// Why a compressed value is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InflateError {
    /// It is not a Snappy stream.
    #[error("not a Snappy stream")]
    Corrupt,
    /// It would be larger than allowed.
    #[error("larger than the limit when inflated")]
    TooLarge,
}

/// The inflated length that a stream announces, if it is at most `bytes_max` and its bytes can
/// become that many.
///
/// # Errors
/// [`InflateError`]; nothing was allocated.
pub fn inflated_bytes(compressed: &[u8], bytes_max: usize) -> Result<usize, InflateError> {
    if compressed.is_empty() {
        // The library accepts no bytes as the stream of no bytes, which is one byte long.
        return Err(InflateError::Corrupt);
    }
    let bytes = decompress_len(compressed).map_err(|_| InflateError::Corrupt)?;
    if bytes > bytes_max {
        return Err(InflateError::TooLarge);
    }
    // The limit of 20 MiB keeps both products far from overflow.
    match bytes.saturating_mul(ELEMENT_BYTES) > compressed.len().saturating_mul(ELEMENT_BYTES_MAX) {
        true => Err(InflateError::Corrupt),
        false => Ok(bytes),
    }
}

/// Appends the inflated form of a stream to `out`, which is left as it was on failure.
///
/// # Errors
/// [`InflateError`].
pub fn inflate_into(
    compressed: &[u8],
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), InflateError> {
    let bytes = inflated_bytes(compressed, bytes_max)?;
    let begin = out.len();
    debug_assert!(bytes <= bytes_max, "a stream is as long as it may be, inflated");
    out.resize(begin + bytes, 0);
    match Decoder::new().decompress(compressed, &mut out[begin..]) {
        Ok(written) if written == bytes => Ok(()),
        _ => {
            out.truncate(begin);
            Err(InflateError::Corrupt)
        }
    }
}

/// The inflated form of a stream.
///
/// # Errors
/// [`InflateError`].
pub fn inflate(compressed: &[u8], bytes_max: usize) -> Result<Vec<u8>, InflateError> {
    let mut plain = Vec::new();
    inflate_into(compressed, bytes_max, &mut plain).map(|()| plain)
}

thread_local! {
    static INFLATED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static COMPRESSED: RefCell<(Encoder, Vec<u8>)> = RefCell::new((Encoder::new(), Vec::new()));
}

/// Held while a thread has large scratch, so that there is scratch for one large value in the
/// process and not for one in each worker. Nothing is waited for under it, and no other lock is
/// taken.
static LARGE_SCRATCH: Mutex<()> = Mutex::new(());

/// Takes the turn at large scratch, if `bytes` are a large value.
fn turn_at_scratch(bytes: usize) -> Option<MutexGuard<'static, ()>> {
    (bytes > SHARED_SCRATCH_BYTES_MIN).then(|| LARGE_SCRATCH.lock())
}

/// Shows the inflated form of a stream, which lies in scratch of this thread.
pub(crate) fn with_inflated<R>(
    compressed: &[u8],
    bytes_max: usize,
    show: impl FnOnce(&[u8]) -> R,
) -> Result<R, InflateError> {
    let bytes = inflated_bytes(compressed, bytes_max)?;
    let _turn = turn_at_scratch(bytes);
    debug_assert!(bytes <= bytes_max, "a stream is as long as it may be, inflated");
    INFLATED.with_borrow_mut(|scratch| {
        if scratch.len() < bytes {
            scratch.resize(bytes, 0);
        }
        let written = Decoder::new().decompress(compressed, &mut scratch[..bytes]);
        let shown = match written {
            Ok(written) if written == bytes => Ok(show(&scratch[..bytes])),
            _ => Err(InflateError::Corrupt),
        };
        if scratch.len() > SCRATCH_KEPT_BYTES_MAX {
            *scratch = Vec::new();
        }
        shown
    })
}

/// Makes something of the compressed form of `plain`, if that is enough smaller; the form lies in
/// scratch of this thread. `None` when it is not.
pub fn with_compressed<R>(plain: &[u8], take: impl FnOnce(&[u8]) -> R) -> Option<R> {
    if plain.len() < COMPRESS_BYTES_MIN {
        return None;
    }
    let _turn = turn_at_scratch(plain.len());
    COMPRESSED.with_borrow_mut(|(encoder, scratch)| {
        let mut attempt = |bytes: &[u8], scratch: &mut Vec<u8>| {
            let room = max_compress_len(bytes.len());
            if scratch.len() < room {
                scratch.resize(room, 0);
            }
            let written = encoder.compress(bytes, scratch).ok()?;
            debug_assert!(written <= room, "compressed bytes fit the room that was made for them");
            (written * RATIO_MIN_PERCENT <= bytes.len() * 100).then_some(written)
        };
        if plain.len() > 2 * SAMPLE_BYTES {
            attempt(&plain[..SAMPLE_BYTES], scratch)?;
        }
        let taken = attempt(plain, scratch).map(|written| take(&scratch[..written]));
        if scratch.len() > SCRATCH_KEPT_BYTES_MAX {
            *scratch = Vec::new();
        }
        taken
    })
}

impl Item {
    /// True when the body is compressed.
    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.datatype().contains(Datatype::SNAPPY)
    }

    /// Length of the body for a client that does not read compressed ones.
    ///
    /// # Errors
    /// [`InflateError`] when the stored value is damaged.
    pub fn plain_body_bytes(&self) -> Result<usize, InflateError> {
        match self.is_compressed() {
            true => inflated_bytes(self.body(), crate::limits::VALUE_BYTES_MAX),
            false => Ok(self.body().len()),
        }
    }

    /// The body, inflated into `scratch` when it is compressed.
    ///
    /// # Errors
    /// [`InflateError`] when the stored value is damaged.
    pub fn plain_body<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Result<&'a [u8], InflateError> {
        if !self.is_compressed() {
            return Ok(self.body());
        }
        scratch.clear();
        inflate_into(self.body(), crate::limits::VALUE_BYTES_MAX, scratch)?;
        Ok(scratch)
    }
}

/// The check that the fuzz target and the tests share: arbitrary bytes are refused or inflated
/// within the limit, in all ways alike, and what was inflated survives being compressed again.
#[doc(hidden)]
pub fn check(input: &[u8]) {
    const LIMIT: usize = 1 << 20;
    let announced = inflated_bytes(input, LIMIT);
    let mut out = b"before".to_vec();
    let inflated = inflate_into(input, LIMIT, &mut out);
    let shown = with_inflated(input, LIMIT, <[u8]>::to_vec);
    match &inflated {
        Ok(()) => {
            assert_eq!(announced, Ok(out.len() - 6), "the length is the announced one");
            assert_eq!(shown.as_deref(), Ok(&out[6..]), "scratch and vector agree");
        }
        Err(error) => {
            assert_eq!(out, b"before", "a failure leaves nothing behind");
            assert_eq!(shown, Err(*error));
            assert!(announced.is_ok() || announced == Err(*error));
        }
    }
    // The input as a plain value.
    if let Some(compressed) = with_compressed(input, <[u8]>::to_vec) {
        assert!(compressed.len() < input.len());
        assert_eq!(inflate(&compressed, input.len()).as_deref(), Ok(input));
        if !input.is_empty() {
            assert_eq!(inflate(&compressed, input.len() - 1), Err(InflateError::TooLarge));
        }
    }
}

#[cfg(test)]
mod tests;
