//! Virtual attributes, which no document stores: `$document`, `$vbucket` and `$XTOC` are made when
//! they are read.
//!
//! Each is made as an object that holds it under its own key, so a path leads into it as into any
//! other. Names and formats are Couchbase's. Only the part of `$document` at the path is made,
//! because one member depends on every byte of the body. A request for the others pays neither for
//! that nor for inflation.

use std::borrow::Cow;
use std::cell::OnceCell;

use oribi_engine::ItemRef;
use oribi_protocol::status::Status;
use oribi_subdoc::Path;
use oribi_subdoc::path::Component;
use oribi_subdoc::xattr;
use oribi_types::{Cas, Datatype, Timestamp, VbUuid};
use serde_json::{Map, Value, json};

use super::crc32c::crc32c;
use super::view::View;

/// The member of `$document` that is computed from the body itself.
const CHECKSUM: &str = "value_crc32c";

/// All members, in the order of the answer.
const MEMBERS: [&str; 11] = [
    "CAS",
    "datatype",
    "deleted",
    "exptime",
    "flags",
    "last_modified",
    "revid",
    "seqno",
    "value_bytes",
    CHECKSUM,
    "vbucket_uuid",
];

/// The version that `$document` describes; without one, all members are zero.
pub(super) struct AttributeSource<'a> {
    item: Option<&'a ItemRef>,
    /// The CAS that the user may see.
    cas: Cas,
    view: View<'a>,
    vb_uuid: VbUuid,
    checksum: OnceCell<u32>,
}

impl<'a> AttributeSource<'a> {
    pub(super) fn new(
        item: Option<&'a ItemRef>,
        cas: Cas,
        view: View<'a>,
        vb_uuid: VbUuid,
    ) -> AttributeSource<'a> {
        AttributeSource { item, cas, view, vb_uuid, checksum: OnceCell::new() }
    }

    /// The JSON object with `$document`, complete enough to follow `path`.
    pub(super) fn text(&self, path: &Path<'_>) -> Result<Vec<u8>, Status> {
        let wanted = wanted(path);
        let names =
            MEMBERS.iter().filter(|name| wanted.is_none_or(|wanted| wanted == name.as_bytes()));
        let members = names.map(|name| Ok(((*name).to_owned(), self.member(name)?)));
        Ok(object("$document", Value::Object(members.collect::<Result<_, Status>>()?)))
    }

    /// The JSON object with the attribute `key`, complete enough to follow `path`.
    pub(super) fn attribute(
        &self,
        key: &[u8],
        path: &Path<'_>,
        now: Timestamp,
        sees_system: bool,
    ) -> Result<Vec<u8>, Status> {
        match key {
            b"$document" => self.text(path),
            b"$vbucket" => {
                let now_s = now.unix_s().to_string();
                Ok(object("$vbucket", json!({"HLC": {"now": now_s, "mode": "real"}})))
            }
            b"$XTOC" => {
                let keys = self.view.xattrs.iter().map(|(key, _)| key);
                let shown = keys.filter(|key| sees_system || !xattr::is_system(key));
                let names = shown.map(String::from_utf8_lossy).map(Cow::into_owned);
                Ok(object("$XTOC", names.collect()))
            }
            _ => Err(Status::SubdocXattrUnknownVattr),
        }
    }

    fn member(&self, name: &str) -> Result<Value, Status> {
        let item = self.item;
        Ok(match name {
            "CAS" => hexadecimal(self.cas.0),
            "datatype" => names_of(item.map_or(Datatype::RAW, |item| item.datatype())),
            "deleted" => item.is_some_and(|item| item.is_deleted()).into(),
            "exptime" => item.map_or(0, |item| item.expiry()).into(),
            "flags" => item.map_or(0, |item| item.flags()).into(),
            "last_modified" => {
                // The upper 48 bits of a CAS are the wall clock.
                let cas = item.map_or(0, |item| item.cas().0);
                let modified = Timestamp { unix_ns: cas & !0xffff };
                modified.unix_s().to_string().into()
            }
            "revid" => item.map_or(0, |item| item.rev_seqno().0).to_string().into(),
            "seqno" => hexadecimal(item.map_or(0, |item| item.seqno().0)),
            "value_bytes" => {
                let bytes = item.map_or(Ok(0), |item| item.plain_body_bytes());
                // A damaged body is answered like a document that cannot be read from disk.
                bytes.map_err(|_| Status::Etmpfail)?.into()
            }
            CHECKSUM => {
                debug_assert!(!self.view.is_compressed, "see is_of_body");
                let checksum = self.checksum.get_or_init(|| crc32c(&[self.view.body]));
                format!("{checksum:#010x}").into()
            }
            _ => hexadecimal(self.vb_uuid.0),
        })
    }
}

fn hexadecimal(number: u64) -> Value {
    format!("{number:#018x}").into()
}

fn names_of(datatype: Datatype) -> Value {
    let all = [(Datatype::JSON, "json"), (Datatype::SNAPPY, "snappy"), (Datatype::XATTR, "xattr")];
    let names = all.iter().filter(|(bit, _)| datatype.contains(*bit)).map(|(_, name)| *name);
    let names: Vec<&str> = names.collect();
    if names.is_empty() { json!(["raw"]) } else { json!(names) }
}

/// The member that a path leads to; `None` for any or all of them.
fn wanted<'p>(path: &'p Path<'_>) -> Option<&'p [u8]> {
    match path.components() {
        // An escaped name is another spelling of the same name.
        [_, Component::Key(name), ..] if !name.contains(&b'\\') => Some(name),
        _ => None,
    }
}

/// True when a path that begins with a virtual attribute leads to a value computed from the
/// inflated body.
pub(super) fn is_of_body(path: &Path<'_>) -> bool {
    let is_document =
        |first: &Component<'_>| matches!(first, Component::Key(name) if **name == *b"$document");
    path.components().first().is_some_and(is_document)
        && wanted(path).is_none_or(|name| name == CHECKSUM.as_bytes())
}

fn object(name: &str, value: Value) -> Vec<u8> {
    let whole = Map::from_iter([(name.to_owned(), value)]);
    Value::Object(whole).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use oribi_subdoc::Path;
    use oribi_types::{Cas, VbUuid};

    use super::super::view::View;
    use super::{AttributeSource, CHECKSUM, MEMBERS, is_of_body};

    fn path(text: &str) -> Path<'_> {
        Path::parse(text.as_bytes()).unwrap()
    }

    fn document() -> AttributeSource<'static> {
        let view = View { body: b"123456789", ..View::default() };
        AttributeSource::new(None, Cas(0), view, VbUuid(7))
    }

    #[test]
    fn the_checksum_is_computed_only_on_request() {
        // Regression: all of `$document` was made, including the checksum, for each path that
        // begins with it.
        let document = document();
        for name in MEMBERS {
            let text = format!("$document.{name}");
            assert_eq!(is_of_body(&path(&text)), name == CHECKSUM, "{name}");
            if name != CHECKSUM {
                document.text(&path(&text)).unwrap();
                assert!(document.checksum.get().is_none(), "{name}");
            }
        }
        assert!(!is_of_body(&path("$vbucket")) && !is_of_body(&path("value_crc32c")));
        for text in ["$document", "$document.value_crc32c", r"$document.value\u005fcrc32c"] {
            assert!(is_of_body(&path(text)), "{text}");
            let made = String::from_utf8(document.text(&path(text)).unwrap()).unwrap();
            assert!(made.contains(r#""value_crc32c":"0xe3069283""#), "{made}");
        }
    }

    #[test]
    fn a_part_is_as_in_the_whole() {
        let document = document();
        let whole: serde_json::Value =
            serde_json::from_slice(&document.text(&path("$document")).unwrap()).unwrap();
        assert_eq!(whole["$document"].as_object().unwrap().len(), MEMBERS.len());
        for name in MEMBERS {
            let text = document.text(&path(&format!("$document.{name}"))).unwrap();
            let part: serde_json::Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(part["$document"].as_object().unwrap().len(), 1, "{name}");
            assert_eq!(part["$document"][name], whole["$document"][name], "{name}");
        }
        assert_eq!(document.text(&path("$document.nope")).unwrap(), b"{\"$document\":{}}");
    }
}
