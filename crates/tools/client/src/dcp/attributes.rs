//! Extended attributes in front of a document's body.
//!
//! Layout: the length of the section as u32, then each attribute as its length in u32, its name, a
//! zero, its JSON value, a zero. The body follows.

use bytes::{Buf, Bytes};

use crate::error::MalformedResponse;

/// One extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Attribute {
    /// Name; the server's own begin with an underscore.
    pub name: Bytes,
    /// JSON value.
    pub value: Bytes,
}

/// The body after the attributes of an inflated value.
pub(super) fn body(value: &Bytes) -> Result<Bytes, MalformedResponse> {
    split(value).map(|(_, body)| body)
}

/// The attributes in front of the body of an inflated value.
pub(super) fn decode(value: &Bytes) -> Result<Vec<Attribute>, MalformedResponse> {
    let (mut section, _) = split(value)?;
    let mut attributes = Vec::new();
    while !section.is_empty() {
        attributes.push(next(&mut section).ok_or_else(damaged)?);
    }
    Ok(attributes)
}

fn split(value: &Bytes) -> Result<(Bytes, Bytes), MalformedResponse> {
    let mut section = value.clone();
    let bytes = section.try_get_u32().map_err(|_| damaged())? as usize;
    if bytes > section.len() {
        return Err(damaged());
    }
    let body = section.split_off(bytes);
    Ok((section, body))
}

fn next(section: &mut Bytes) -> Option<Attribute> {
    let bytes = section.try_get_u32().ok()? as usize;
    if bytes > section.len() {
        return None;
    }
    let mut pair = section.split_to(bytes);
    let name = until_zero(&mut pair)?;
    let value = until_zero(&mut pair)?;
    pair.is_empty().then_some(Attribute { name, value })
}

fn until_zero(bytes: &mut Bytes) -> Option<Bytes> {
    let zero = bytes.iter().position(|byte| *byte == 0)?;
    let text = bytes.split_to(zero);
    bytes.advance(1);
    Some(text)
}

fn damaged() -> MalformedResponse {
    MalformedResponse::new("the extended attributes are damaged")
}

#[cfg(test)]
mod tests {
    //! Sections that servers send, and damaged ones.

    use proptest::prelude::*;

    use super::*;

    /// `{"a":1}` and `_s` in front of `body`.
    fn section() -> Vec<u8> {
        let mut section = Vec::new();
        for pair in [&b"a\x001\x00"[..], b"_s\0{}\0"] {
            section.extend_from_slice(&(pair.len() as u32).to_be_bytes());
            section.extend_from_slice(pair);
        }
        let mut value = (section.len() as u32).to_be_bytes().to_vec();
        value.extend_from_slice(&section);
        value.extend_from_slice(b"body");
        value
    }

    #[test]
    fn attributes_and_body_come_apart() {
        let value = Bytes::from(section());
        let pair = |name: &'static str, value: &'static str| Attribute {
            name: Bytes::from_static(name.as_bytes()),
            value: Bytes::from_static(value.as_bytes()),
        };
        assert_eq!(decode(&value), Ok(vec![pair("a", "1"), pair("_s", "{}")]));
        assert_eq!(body(&value).unwrap(), "body");
    }

    #[test]
    fn a_section_that_is_cut_off_is_damaged() {
        let whole = section();
        for length in 0..whole.len() - b"body".len() {
            decode(&Bytes::copy_from_slice(&whole[..length])).expect_err("cut off");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            at in 0..20_usize,
            byte in any::<u8>(),
            noise in proptest::collection::vec(any::<u8>(), 0..30),
        ) {
            let mut damaged = section();
            damaged[at] = byte;
            for value in [Bytes::from(damaged), Bytes::from(noise)] {
                if let Ok(attributes) = decode(&value) {
                    let bytes: usize =
                        attributes.iter().map(|pair| pair.name.len() + pair.value.len() + 6).sum();
                    prop_assert_eq!(bytes + 4 + body(&value).unwrap().len(), value.len());
                }
            }
        }
    }
}
