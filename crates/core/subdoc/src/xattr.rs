//! Extended attributes: the block before a document's body.
//!
//! A value with attributes begins with a block and continues with the body. The block is the
//! big-endian length of the pairs, then for each attribute the big-endian length of its pair, its
//! key, a zero byte, its value (JSON) and a zero byte. A value without attributes has no block; its
//! datatype distinguishes the two.
//!
//! Keys that begin with an underscore are the system's, all others the user's. Both survive changes
//! of the body; a deletion keeps only the system's.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::limits::{XATTR_BYTES_MAX, XATTR_KEY_BYTES_MAX};

/// Bytes of a length.
const LENGTH_BYTES: usize = 4;
/// Overhead of a pair: its length and two zero bytes.
const PAIR_BYTES: usize = LENGTH_BYTES + 2;

/// A block that does not match its lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedBlock;

/// The attributes of one document, borrowed, with checked lengths.
#[derive(Clone, Copy, Default, Debug)]
pub struct Xattrs<'a> {
    /// The pairs, without the length prefix.
    pairs: &'a [u8],
}

/// True for keys of virtual attributes, which are computed on read.
pub fn is_virtual(key: &[u8]) -> bool {
    key.first() == Some(&b'$')
}

/// True for the system's keys.
pub fn is_system(key: &[u8]) -> bool {
    key.first() == Some(&b'_')
}

/// The body of a value whose datatype says that it has attributes. It reads only the block's
/// length.
///
/// # Errors
/// When the block is longer than the value.
pub fn body_of(value: &[u8]) -> Result<&[u8], MalformedBlock> {
    block_and_body(value).map(|(_, body)| body)
}

/// The attributes and the body of a value whose datatype says that it has attributes. It does not
/// check the attributes' content, see [`Xattrs::are_acceptable`].
///
/// # Errors
/// When a length does not fit, a zero byte is missing, or a key is empty or not UTF-8.
pub fn split(value: &[u8]) -> Result<(Xattrs<'_>, &[u8]), MalformedBlock> {
    let (pairs, body) = block_and_body(value)?;
    let mut rest = pairs;
    while !rest.is_empty() {
        let (key, _, behind) = first_pair(rest).ok_or(MalformedBlock)?;
        if key.is_empty() || std::str::from_utf8(key).is_err() {
            return Err(MalformedBlock);
        }
        rest = behind;
    }
    Ok((Xattrs { pairs }, body))
}

fn block_and_body(value: &[u8]) -> Result<(&[u8], &[u8]), MalformedBlock> {
    let (length, rest) = value.split_first_chunk().ok_or(MalformedBlock)?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or(MalformedBlock)
}

/// Key and value of the first pair, and the rest.
fn first_pair(pairs: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = pairs.split_first_chunk::<LENGTH_BYTES>()?;
    let (pair, behind) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let zero = pair.iter().position(|byte| *byte == 0)?;
    let value = pair[zero + 1..].strip_suffix(b"\0")?;
    Some((&pair[..zero], value, behind))
}

impl<'a> Xattrs<'a> {
    /// Keys and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.pairs;
        std::iter::from_fn(move || {
            let (key, value, behind) = first_pair(rest)?;
            rest = behind;
            Some((key, value))
        })
    }

    /// The value of a key; of equal keys the first counts.
    pub fn get(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// True when every value is JSON, and every key is valid for a document and unique. Call it for
    /// a block from outside.
    pub fn are_acceptable(&self) -> bool {
        let is_sound = |(key, value): (&[u8], &[u8])| {
            key.len() <= XATTR_KEY_BYTES_MAX && !is_virtual(key) && crate::json::is_json(value)
        };
        if !self.iter().all(is_sound) {
            return false;
        }
        let mut keys: Vec<&[u8]> = self.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// One attribute of a draft.
type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Attributes in the process of change.
#[derive(Clone, Default, Debug)]
pub struct XattrDraft<'a> {
    pairs: SmallVec<[Pair<'a>; 4]>,
}

impl<'a> XattrDraft<'a> {
    /// Starts with the attributes of a document.
    pub fn new(xattrs: Xattrs<'a>) -> XattrDraft<'a> {
        XattrDraft { pairs: xattrs.iter().map(|(key, value)| (key.into(), value.into())).collect() }
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    /// Sets the value of a key, at its position or at the end.
    pub fn set(&mut self, key: &[u8], value: Vec<u8>) {
        match self.pairs.iter_mut().find(|(name, _)| **name == *key) {
            Some((_, old)) => *old = value.into(),
            None => self.pairs.push((key.to_vec().into(), value.into())),
        }
    }

    pub fn remove(&mut self, key: &[u8]) {
        self.retain(|name| name != key);
    }

    /// Removes the keys that `keep` refuses; with [`is_system`] this is the effect of a deletion.
    pub fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        self.pairs.retain(|(key, _)| keep(key));
    }

    /// True when there are none, and the value has no block.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Length of the whole block.
    pub fn byte_count(&self) -> usize {
        let pairs = self.pairs.iter().map(|(key, value)| PAIR_BYTES + key.len() + value.len());
        if self.is_empty() { 0 } else { LENGTH_BYTES + pairs.sum::<usize>() }
    }

    /// True when the block is larger than the protocol allows.
    pub fn is_too_large(&self) -> bool {
        self.byte_count() > XATTR_BYTES_MAX
    }

    /// Appends the block, or nothing without attributes. Reports to `place` the offset of each
    /// attribute's value in `out`, for later patches.
    ///
    /// # Panics
    /// When the block is 4 GiB long; callers check [`XattrDraft::is_too_large`] first.
    pub fn write_with(&self, out: &mut Vec<u8>, mut place: impl FnMut(&[u8], usize)) {
        if self.is_empty() {
            return;
        }
        put_length(out, self.byte_count() - LENGTH_BYTES);
        for (key, value) in &self.pairs {
            put_length(out, key.len() + value.len() + 2);
            out.extend_from_slice(key);
            out.push(0);
            place(key, out.len());
            out.extend_from_slice(value);
            out.push(0);
        }
    }

    /// As [`XattrDraft::write_with`], without places.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_with(out, |_, _| {});
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).expect("callers keep to the limit of a block");
    out.extend_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::{MalformedBlock, XattrDraft, Xattrs, body_of, is_system, split};

    /// A pair whose length field is one byte too long for its value.
    const VALUE: &[u8] = b"\0\0\0\x18\0\0\0\x09_sync\0{}\0\0\0\0\x07k\0\"v\"\0\0body";

    #[test]
    fn a_block_is_read_as_it_is_laid_out() {
        assert!(!split(VALUE).unwrap().0.are_acceptable(), "a value may not end in two zero bytes");
        let value = b"\0\0\0\x17\0\0\0\x09_sync\0{}\0\0\0\0\x06k\0\"v\"\0body";
        let (xattrs, body) = split(value).unwrap();
        assert!(xattrs.are_acceptable());
        assert_eq!(body, b"body");
        assert_eq!(body_of(value), Ok(&b"body"[..]));
        let pairs: Vec<_> = xattrs.iter().collect();
        assert_eq!(pairs, [(&b"_sync"[..], &b"{}"[..]), (b"k", b"\"v\"")]);
        assert_eq!(xattrs.get(b"k"), Some(&b"\"v\""[..]));
        assert_eq!(xattrs.get(b"v"), None);
        assert!(is_system(b"_sync") && !is_system(b"k"));
        let mut written = Vec::new();
        XattrDraft::new(xattrs).write(&mut written);
        assert_eq!(written, value[..value.len() - 4]);
    }

    #[test]
    fn lengths_are_checked() {
        let value = b"\0\0\0\x0a\0\0\0\x06k\0\"v\"\0";
        assert!(split(value).is_ok());
        for cut in 0..value.len() {
            assert_eq!(split(&value[..cut]).unwrap_err(), MalformedBlock, "cut to {cut}");
        }
        for (at, byte) in [(3, 9), (3, 11), (7, 5), (7, 7), (8, 0), (8, 0xff), (13, 1)] {
            let mut bad = value.to_vec();
            bad[at] = byte;
            assert_eq!(split(&bad).unwrap_err(), MalformedBlock, "byte {at} is {byte}");
        }
        assert_eq!(split(b"\xff\xff\xff\xff").unwrap_err(), MalformedBlock);
        assert!(split(b"\0\0\0\0rest").unwrap().0.is_empty());
    }

    #[test]
    fn not_every_well_formed_block_is_acceptable() {
        let block = |pairs: &[(&str, &str)]| {
            let mut value = vec![0; 4];
            for (key, json) in pairs {
                value.extend((key.len() as u32 + json.len() as u32 + 2).to_be_bytes());
                value.extend([key.as_bytes(), b"\0", json.as_bytes(), b"\0"].concat());
            }
            let bytes = (value.len() as u32 - 4).to_be_bytes();
            value[..4].copy_from_slice(&bytes);
            value
        };
        for (pairs, expected) in [
            (&[][..], true),
            (&[("a", "1"), ("_a", "{}"), ("a_key_of_16_byte", "[]")], true),
            (&[("a_key_of_17_bytes", "1")], false),
            (&[("$document", "1")], false),
            (&[("a", "nope")], false),
            (&[("a", "")], false),
            (&[("a", "1"), ("b", "1"), ("a", "1")], false),
        ] {
            let value = block(pairs);
            assert_eq!(split(&value).unwrap().0.are_acceptable(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_draft_keeps_order_and_tells_places() {
        let mut draft = XattrDraft::new(Xattrs::default());
        assert_eq!(draft.byte_count(), 0);
        draft.set(b"a", b"1".to_vec());
        draft.set(b"_b", b"2".to_vec());
        draft.set(b"a", b"33".to_vec());
        assert_eq!(draft.get(b"a"), Some(&b"33"[..]));
        let mut out = b"before".to_vec();
        let mut places = Vec::new();
        draft.write_with(&mut out, |key, at| places.push((key.to_vec(), at)));
        assert_eq!(out.len(), 6 + draft.byte_count());
        assert_eq!(&out[places[0].1..][..2], b"33");
        assert_eq!(&out[places[1].1..][..1], b"2");
        draft.retain(is_system);
        assert_eq!((draft.get(b"a"), draft.get(b"_b")), (None, Some(&b"2"[..])));
        draft.remove(b"_b");
        assert!(draft.is_empty() && !draft.is_too_large());
        let mut out = Vec::new();
        draft.write(&mut out);
        assert!(out.is_empty());
    }
}
