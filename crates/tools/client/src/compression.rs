//! Values compressed with Snappy.
//!
//! Owns when compressing pays, and the check of how large a server's value may become. Pure
//! computation.

use bytes::Bytes;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use crate::error::MalformedResponse;

/// Values up to this size are not worth the attempt; Couchbase SDKs use the same figure.
const VALUE_BYTES_MIN: usize = 33;

/// A compressed value is sent when it has at most this much of the plain one's size, in percent:
/// again what Couchbase SDKs do.
const RATIO_MAX_PERCENT: usize = 83;

/// The compressed value, if it is enough smaller.
pub(crate) fn compress(value: &[u8]) -> Option<Bytes> {
    if value.len() < VALUE_BYTES_MIN {
        return None;
    }
    let mut compressed = vec![0; max_compress_len(value.len())];
    let bytes = Encoder::new().compress(value, &mut compressed).ok()?;
    if bytes * 100 > value.len() * RATIO_MAX_PERCENT {
        return None;
    }
    compressed.truncate(bytes);
    Some(compressed.into())
}

/// The plain value. Its size is announced in front of it and checked before memory is taken for it.
pub(crate) fn decompress(value: &[u8]) -> Result<Bytes, MalformedResponse> {
    let malformed = |_| MalformedResponse::new("a compressed value is damaged");
    let bytes = decompress_len(value).map_err(malformed)?;
    if bytes > VALUE_BYTES_MAX {
        let reason = format!("a compressed value of {bytes} bytes, the limit is {VALUE_BYTES_MAX}");
        return Err(MalformedResponse::new(reason));
    }
    let mut plain = vec![0; bytes];
    let written = Decoder::new().decompress(value, &mut plain).map_err(malformed)?;
    plain.truncate(written);
    Ok(plain.into())
}

#[cfg(test)]
mod tests {
    //! There and back, what does not pay, and what is refused.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_shrinks_enough_is_compressed() {
        assert_eq!(compress(&[b'x'; VALUE_BYTES_MIN - 1]), None);
        assert!(compress(&[b'x'; VALUE_BYTES_MIN]).is_some_and(|small| small.len() < 20));
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let random: Vec<u8> = (0..1000).map(|_| random()).collect();
        let mut mixed = random.clone();
        assert_eq!(compress(&random), None);
        mixed.extend_from_slice(&[b'x'; 1000]);
        assert!(compress(&mixed).is_some());
    }

    #[test]
    fn a_small_value_cannot_become_a_huge_one() {
        // The length comes first, as a varint: 4 GiB minus one, one byte over the limit, the limit.
        for (value, reason) in [
            (&[0xff, 0xff, 0xff, 0xff, 0x0f, 0][..], "the limit is"),
            (&[0x81, 0x80, 0x80, 0x0a, 0], "the limit is"),
            (&[0x80, 0x80, 0x80, 0x0a, 0], "damaged"),
            (&[], "damaged"),
        ] {
            let error = decompress(value).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    proptest! {
        #[test]
        fn comes_back_as_it_was(run in proptest::collection::vec(any::<u8>(), 1..20), times in 1..50_usize) {
            let value = run.repeat(times);
            if let Some(compressed) = compress(&value) {
                prop_assert!(compressed.len() * 100 <= value.len() * RATIO_MAX_PERCENT);
                prop_assert_eq!(decompress(&compressed).unwrap(), value);
            }
        }

        #[test]
        fn any_bytes_are_decompressed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(plain) = decompress(&bytes) {
                prop_assert!(plain.len() <= VALUE_BYTES_MAX);
            }
        }
    }
}
