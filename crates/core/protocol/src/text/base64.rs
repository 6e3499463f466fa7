//! Keys that are sent in base64, because they hold bytes that a command line cannot. Answers repeat
//! them as they were sent.

/// The alphabet of RFC 4648.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Value of each byte as a digit; 0xff for any other byte.
const VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut digit = 0;
    while digit < DIGITS.len() {
        values[DIGITS[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// Decodes `text` into the beginning of `out`; `None` when it is not base64, empty, or too long.
pub(super) fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let (groups, rest) = text.as_chunks::<4>();
    let (last, groups) = groups.split_last().filter(|_| rest.is_empty())?;
    let mut len = 0;
    for group in groups {
        put(out, &mut len, group, 3)?;
    }
    let padding = last.iter().rev().take_while(|byte| **byte == b'=').count();
    let mut filled = *last;
    filled[4 - padding.min(2)..].fill(b'A');
    put(out, &mut len, &filled, 3 - padding.min(3))?;
    (padding <= 2).then_some(&out[..len])
}

fn put(out: &mut [u8], len: &mut usize, group: &[u8; 4], count: usize) -> Option<()> {
    let mut bits = 0_u32;
    for byte in group {
        let value = VALUES[usize::from(*byte)];
        if value == 0xff {
            return None;
        }
        bits = bits << 6 | u32::from(value);
    }
    let bytes = &bits.to_be_bytes()[1..][..count];
    out.get_mut(*len..*len + count)?.copy_from_slice(bytes);
    *len += count;
    Some(())
}

/// Appends `bytes` in base64.
#[cfg(test)]
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(padded);
        for index in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * index) & 63) as usize];
            out.push(if index <= group.len() { digit } else { b'=' });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{decode, encode};

    #[test]
    fn known_texts() {
        for (plain, text) in
            [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            encode(&mut out, plain.as_bytes());
            assert_eq!(out, text.as_bytes());
        }
        for bad in ["", "b", "Zg=", "Z===", "====", "Zm9v=", "Zg==Zg==", "Zm!v", "Zm9vY"] {
            assert_eq!(decode(bad.as_bytes(), &mut [0; 16]), None, "{bad}");
        }
        assert_eq!(decode(b"Zm9vYmFy", &mut [0; 5]), None, "it does not fit");
    }

    proptest! {
        #[test]
        fn round_trip(bytes in proptest::collection::vec(any::<u8>(), 1..100)) {
            let (mut text, mut room) = (Vec::new(), [0; 128]);
            encode(&mut text, &bytes);
            prop_assert_eq!(decode(&text, &mut room), Some(&bytes[..]));
        }
    }
}
