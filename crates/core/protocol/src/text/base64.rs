//! Keys that are sent in base64, because they hold bytes that a command line cannot. Answers repeat
//! them as they were sent.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// As memcached decodes: the last digit's unused bits may have any value, padding is required.
const KEYS: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes `text` into the beginning of `out`; `None` when it is not base64, empty, or too long.
pub(super) fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let len = KEYS.decode_slice(text, out).ok().filter(|len| *len > 0)?;
    Some(&out[..len])
}

/// Appends `bytes` in base64.
#[cfg(test)]
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(KEYS.encode(bytes).as_bytes());
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
        for bad in ["", "b", "Zg=", "Z===", "====", "Zm9v=", "Zg==Zg==", "Zm!v", "Zm9vY", "Zg"] {
            assert_eq!(decode(bad.as_bytes(), &mut [0; 16]), None, "{bad}");
        }
        assert_eq!(decode(b"Zh==", &mut [0; 1]), Some(&b"f"[..]), "unused bits do not count");
        assert_eq!(decode(b"Zm9vYmFy", &mut [0; 6]), Some(&b"foobar"[..]), "it just fits");
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
