//! The JSON value of a stream request.
//!
//! Owns: what each member means, and which texts are refused. Invariants: ids are hexadecimal
//! digits without a prefix; an object without any known member is refused. The dispatcher calls
//! this and checks the ids.

use std::collections::BTreeSet;

use oribi_engine::dcp::StreamFilter;
use oribi_types::{CollectionId, CopiesEpoch, CopyId, ScopeId, Seqno};
use serde_json::{Map, Value};

/// Contents of the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamRequestJson {
    /// The documents of the stream.
    pub filter: StreamFilter,
    /// The number given as the stream's id.
    pub stream_id: Option<u64>,
    /// The purge seqno that the consumer saw.
    pub purge_seqno: Option<Seqno>,
    /// The epoch in which the vbucket has to be active, for a replica.
    pub copies_epoch: Option<CopiesEpoch>,
    /// Which copy of the vbucket a replica is.
    pub copy: Option<CopyId>,
}

/// Longest value that is parsed: some 6000 collections, and less than a turn's work.
const VALUE_BYTES_MAX: usize = 64 * 1024;

const MEMBERS: [&str; 6] = ["uid", "collections", "scope", "sid", "purge_seqno", "copies_epoch"];

impl StreamRequestJson {
    /// Everything, without an id: what an empty value means.
    pub fn all() -> StreamRequestJson {
        StreamRequestJson {
            filter: StreamFilter::All,
            stream_id: None,
            purge_seqno: None,
            copies_epoch: None,
            copy: None,
        }
    }

    /// Parses a value that is not empty; `None` when it is refused.
    pub fn parse(value: &[u8]) -> Option<StreamRequestJson> {
        if value.len() > VALUE_BYTES_MAX {
            return None;
        }
        let object: Map<String, Value> = serde_json::from_slice(value).ok()?;
        if !MEMBERS.iter().any(|name| object.contains_key(*name)) {
            return None;
        }
        if object.get("uid").is_some_and(|uid| !uid.is_string()) {
            return None;
        }
        let filter = match (object.get("scope"), object.get("collections")) {
            (None, None) => StreamFilter::All,
            (Some(scope), None) => StreamFilter::Scope(ScopeId(hexadecimal(scope)?)),
            (None, Some(ids)) => StreamFilter::Collections(collections(ids)?),
            (Some(_), Some(_)) => return None,
        };
        let stream_id = match object.get("sid") {
            None => None,
            Some(id) => Some(id.as_u64()?),
        };
        let number = |name: &str| match object.get(name) {
            None => Some(None),
            Some(number) => Some(Some(number.as_str()?.parse::<u64>().ok()?)),
        };
        let purge_seqno = number("purge_seqno")?.map(Seqno);
        let copies_epoch = number("copies_epoch")?.map(CopiesEpoch);
        let copy = match object.get("copy") {
            None => None,
            Some(copy) => {
                let (node, copy) = copy.as_str()?.split_once('.')?;
                Some(CopyId { node: node.parse().ok()?, copy: copy.parse().ok()? })
            }
        };
        Some(StreamRequestJson { filter, stream_id, purge_seqno, copies_epoch, copy })
    }
}

fn collections(ids: &Value) -> Option<Vec<CollectionId>> {
    let mut wanted = Vec::new();
    let mut seen = BTreeSet::new();
    for id in ids.as_array()? {
        let id = CollectionId(hexadecimal(id)?);
        if !seen.insert(id) {
            return None;
        }
        wanted.push(id);
    }
    debug_assert_eq!(wanted.len(), seen.len(), "a collection is named once");
    Some(wanted)
}

fn hexadecimal(id: &Value) -> Option<u32> {
    let digits = id.as_str()?;
    // The standard library would accept a sign.
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(digits, 16).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_understood() {
        let parse = |text: &str| StreamRequestJson::parse(text.as_bytes());
        let all = StreamRequestJson::all();
        assert_eq!(parse(r#"{"uid":"0"}"#), Some(all.clone()));
        assert_eq!(parse(r#"{"uid":"0x1","other":[1]}"#), Some(all.clone()));
        let filter = StreamFilter::Scope(ScopeId(0x1f));
        assert_eq!(parse(r#"{"scope":"1F"}"#), Some(StreamRequestJson { filter, ..all.clone() }));
        let filter = StreamFilter::Collections(vec![CollectionId(8), CollectionId(0)]);
        let full = concat!(
            r#"{"collections":["8","0"],"sid":7,"purge_seqno":"12","#,
            r#""copies_epoch":"3","copy":"2.7"}"#
        );
        let (stream_id, purge_seqno) = (Some(7), Some(Seqno(12)));
        let copies_epoch = Some(CopiesEpoch(3));
        let copy = Some(CopyId { node: 2, copy: 7 });
        let expected = StreamRequestJson { filter, stream_id, purge_seqno, copies_epoch, copy };
        assert_eq!(parse(full), Some(expected));
        let none = StreamFilter::Collections(Vec::new());
        assert_eq!(parse(r#"{"collections":[]}"#).unwrap().filter, none);
        for refused in [
            "",
            "{",
            "[]",
            "{}",
            "null",
            r#"{"other":1}"#,
            r#"{"uid":1}"#,
            r#"{"scope":8}"#,
            r#"{"scope":"8","collections":[]}"#,
            r#"{"collections":["0x9"]}"#,
            r#"{"collections":[9]}"#,
            r#"{"collections":["+9"]}"#,
            r#"{"collections":[""]}"#,
            r#"{"collections":null}"#,
            r#"{"collections":["9","9"]}"#,
            r#"{"sid":"1"}"#,
            r#"{"sid":-1}"#,
            r#"{"purge_seqno":1}"#,
            r#"{"purge_seqno":"x"}"#,
            r#"{"copies_epoch":3}"#,
            r#"{"copies_epoch":"3","copy":7}"#,
            r#"{"copies_epoch":"3","copy":"7"}"#,
            r#"{"copies_epoch":"3","copy":"70000.1"}"#,
            r#"{"collections":["100000000"]}"#,
        ] {
            assert_eq!(parse(refused), None, "{refused}");
        }
        let long = format!(r#"{{"uid":"{}"}}"#, "0".repeat(VALUE_BYTES_MAX));
        assert_eq!(parse(&long), None, "a long value is not parsed");
    }
}
