//! The queries of requests for documents.
//!
//! Owns: their names, bounds and defaults. Invariant: a number out of range or an unknown name is
//! refused, never ignored. Caller: `documents`.

use std::ops::Bound;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hyper::StatusCode;
use oribi_auth::Privilege;
use oribi_engine::StoreCondition;
use oribi_types::Cas;

use super::super::message::{FormFields, HttpRejection, error, field_error};

/// Rows of a page at most.
pub(super) const ROWS_MAX: usize = 1000;

/// Rows of a page when the request names no number.
const ROWS_DEFAULT: i64 = 50;

/// Bytes of a value in an answer at most.
pub(super) const BYTES_SHOWN_MAX: i64 = 1 << 20;

/// Bytes of a value in an answer when the request names no number.
const BYTES_SHOWN_DEFAULT: i64 = 1 << 18;
const _: () = assert!(0 < ROWS_DEFAULT && ROWS_DEFAULT <= ROWS_MAX as i64);
const _: () = assert!(0 < BYTES_SHOWN_DEFAULT && BYTES_SHOWN_DEFAULT <= BYTES_SHOWN_MAX);

/// How a path writes a key.
pub(super) struct KeyName {
    is_base64: bool,
}

pub(super) struct ReadParameters {
    pub key: KeyName,
    /// Bytes of the value to show.
    pub bytes_max: usize,
    /// The answer is the value itself, whole.
    pub is_raw: bool,
}

/// Of `PUT` and `DELETE .../docs/KEY`.
pub(super) struct WriteParameters {
    pub key: KeyName,
    pub cas: Cas,
    pub flags: u32,
    /// As on the wire; `None` keeps the document's.
    pub expiry: Option<u32>,
    pub mode: StoreCondition,
}

#[derive(Debug)]
pub(super) struct PageParameters {
    pub from: Bound<Vec<u8>>,
    pub until: Bound<Vec<u8>>,
    pub rows_max: usize,
}

fn form(query: &str, known: &[&str]) -> Result<FormFields, HttpRejection> {
    let form = FormFields::parse(query)
        .ok_or_else(|| error(StatusCode::BAD_REQUEST, "the query is not URL-encoded"))?;
    form.only(known)?;
    Ok(form)
}

fn bounded(
    form: &FormFields,
    name: &str,
    (default, max): (i64, i64),
) -> Result<usize, HttpRejection> {
    let number = form.number(name)?.unwrap_or(default);
    let in_range = Some(number).filter(|number| (1..=max).contains(number));
    let in_range = in_range.and_then(|number| usize::try_from(number).ok());
    in_range.ok_or_else(|| field_error(name, &format!("The value must be 1 to {max}")).into())
}

fn decode(name: &str, text: &str) -> Result<Vec<u8>, HttpRejection> {
    let decoded = BASE64.decode(text).ok();
    decoded.ok_or_else(|| field_error(name, "This is not base64url without padding").into())
}

impl KeyName {
    fn of(form: &FormFields) -> Result<KeyName, HttpRejection> {
        match form.get("encoding") {
            None => Ok(KeyName { is_base64: false }),
            Some("base64url") => Ok(KeyName { is_base64: true }),
            Some(_) => Err(field_error("encoding", "The value must be base64url").into()),
        }
    }

    /// The key that the path names, of at most so many bytes.
    pub(super) fn decode(&self, text: &str, bytes_max: usize) -> Result<Vec<u8>, HttpRejection> {
        let key = match self.is_base64 {
            true => decode("key", text)?,
            false => text.as_bytes().to_vec(),
        };
        match (1..=bytes_max).contains(&key.len()) {
            true => Ok(key),
            false => {
                let message = format!("A key has 1 to {bytes_max} bytes");
                Err(field_error("key", &message).into())
            }
        }
    }
}

impl ReadParameters {
    pub(super) fn parse(query: &str) -> Result<ReadParameters, HttpRejection> {
        let form = form(query, &["encoding", "bytes", "raw"])?;
        let bytes_max = bounded(&form, "bytes", (BYTES_SHOWN_DEFAULT, BYTES_SHOWN_MAX))?;
        let is_raw = form.flag("raw")?.unwrap_or(false);
        if is_raw && form.get("bytes").is_some() {
            return Err(field_error("bytes", "With raw the value is whole").into());
        }
        Ok(ReadParameters { key: KeyName::of(&form)?, bytes_max, is_raw })
    }
}

impl WriteParameters {
    pub(super) fn parse(query: &str) -> Result<WriteParameters, HttpRejection> {
        let form = form(query, &["encoding", "cas", "flags", "expiry", "mode"])?;
        let number_u32 = |name: &str| match form.get(name).map(str::parse::<u32>) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => {
                let message = "The value must be an integer of 32 bits";
                Err(HttpRejection::from(field_error(name, message)))
            }
        };
        let cas = match form.get("cas").map(str::parse::<u64>) {
            None => Cas(0),
            Some(Ok(cas)) => Cas(cas),
            Some(Err(_)) => return Err(field_error("cas", "The value must be an integer").into()),
        };
        let mode = match form.get("mode") {
            None | Some("set") => StoreCondition::Set,
            Some("add") => StoreCondition::Add,
            Some("replace") => StoreCondition::Replace,
            Some(_) => {
                return Err(field_error("mode", "The value must be set, add or replace").into());
            }
        };
        if mode == StoreCondition::Add && cas != Cas(0) {
            return Err(field_error("cas", "A new document has none").into());
        }
        let (flags, expiry) = (number_u32("flags")?.unwrap_or(0), number_u32("expiry")?);
        Ok(WriteParameters { key: KeyName::of(&form)?, cas, flags, expiry, mode })
    }

    /// The right that the write needs.
    pub(super) fn needed(&self) -> Privilege {
        match self.mode {
            StoreCondition::Add => Privilege::Insert,
            StoreCondition::Set | StoreCondition::Replace => Privilege::Upsert,
        }
    }
}

impl PageParameters {
    pub(super) fn parse(query: &str) -> Result<PageParameters, HttpRejection> {
        let form = form(query, &["limit", "prefix", "from", "after", "until"])?;
        let key = |name: &str| form.get(name).map(|text| decode(name, text)).transpose();
        let limit = (ROWS_DEFAULT, ROWS_MAX as i64);
        let rows_max = bounded(&form, "limit", limit)?;
        let prefix = key("prefix")?;
        let start = match (key("from")?, key("after")?) {
            (Some(_), Some(_)) => {
                return Err(field_error("after", "Give one of from, after").into());
            }
            (Some(from), None) => Bound::Included(from),
            (None, Some(after)) => Bound::Excluded(after),
            (None, None) => Bound::Unbounded,
        };
        let until = key("until")?.map_or(Bound::Unbounded, Bound::Included);
        let Some(prefix) = prefix else {
            return Ok(PageParameters { from: start, until, rows_max });
        };
        let from = match start {
            Bound::Included(key) | Bound::Excluded(key) if key < prefix => {
                Bound::Included(prefix.clone())
            }
            Bound::Unbounded => Bound::Included(prefix.clone()),
            start => start,
        };
        let end = successor(prefix);
        let until = match (until, end) {
            (Bound::Included(until), Some(end)) if until < end => Bound::Included(until),
            (_, Some(end)) => Bound::Excluded(end),
            (until, None) => until,
        };
        Ok(PageParameters { from, until, rows_max })
    }
}

/// The first key after all keys with this prefix; `None` when there is no such key.
fn successor(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);

    fn page(query: &str) -> Option<Range> {
        PageParameters::parse(query).ok().map(|page| (page.from, page.until))
    }

    #[test]
    fn a_prefix_is_a_range_and_narrows_another() {
        let text = |text: &[u8]| BASE64.encode(text);
        let (a, ab, ac) = (text(b"a"), text(b"ab"), text(b"ac"));
        let included = |key: &[u8]| Bound::Included(key.to_vec());
        let excluded = |key: &[u8]| Bound::Excluded(key.to_vec());
        assert_eq!(page(&format!("prefix={ab}")), Some((included(b"ab"), excluded(b"ac"))));
        let narrowed = page(&format!("prefix={a}&after={ab}&until={ac}"));
        assert_eq!(narrowed, Some((excluded(b"ab"), included(b"ac"))));
        let widened = page(&format!("prefix={ab}&from={a}&until={}", text(b"z")));
        assert_eq!(widened, Some((included(b"ab"), excluded(b"ac"))));
        let last = page(&format!("prefix={}", text(&[0xff, 0xff])));
        assert_eq!(last, Some((included(&[0xff, 0xff]), Bound::Unbounded)));
        assert_eq!(successor(vec![b'a', 0xff]), Some(vec![b'b']));
        for query in ["limit=0", "limit=1001", "limit=x", "from=%21", "skip=1", "from=YQ&after=YQ"]
        {
            assert!(page(query).is_none(), "{query}");
        }
    }

    #[test]
    fn numbers_and_keys_out_of_range_are_refused() {
        for query in ["cas=-1", "cas=x", "flags=4294967296", "mode=upsert", "mode=add&cas=1", "x=1"]
        {
            assert!(WriteParameters::parse(query).is_err(), "{query}");
        }
        let written = WriteParameters::parse("cas=18446744073709551615&flags=7&expiry=0").unwrap();
        assert_eq!((written.cas, written.flags, written.expiry), (Cas(u64::MAX), 7, Some(0)));
        for query in ["bytes=1048577", "raw=2", "raw=1&bytes=1"] {
            assert!(ReadParameters::parse(query).is_err(), "{query}");
        }
        let plain = ReadParameters::parse("").unwrap().key;
        assert!(plain.decode("kkk", 3).is_ok());
        assert!(plain.decode("kkkk", 3).is_err());
        let encoded = ReadParameters::parse("encoding=base64url").unwrap().key;
        assert_eq!(encoded.decode("_w", 3).unwrap(), [0xff]);
        assert!(encoded.decode("", 3).is_err() && encoded.decode("%", 3).is_err());
    }
}
