//! Range scans: the documents of a collection in one vbucket, as they are on disk, in the order of
//! their keys.
//!
//! A scan occupies its connection, because pages come as fast as they are taken. All pages show one
//! moment. Servers end scans that take long; a caller that keeps the last key begins another scan
//! behind it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oribi_protocol::leb128;
use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_types::{Cas, CollectionId, Datatype, Seqno, Vbid};

use crate::connection::Connection;
use crate::error::{ClientError, MalformedResponse, RejectionKind};
use crate::reply::MutationToken;
use crate::response::Response;

/// Marks the answers to a scan's requests; nothing else is in flight.
const OPAQUE: u32 = 0x5343_414e;

/// Length of the name that the server gives a scan.
const NAME_BYTES: usize = 16;

/// Extras of a page of keys, and of one of documents.
const KEYS: [u8; 4] = [0, 0, 0, 0];
const DOCUMENTS: [u8; 4] = [0, 0, 0, 1];

/// Bytes of a document's figures: flags, expiry, seqno, CAS, datatype.
const FIGURES_BYTES: usize = 25;

/// Error of a page that ends within a document.
const CUT_OFF: &str = "a document in a page of a range scan is cut off";

/// Which documents a scan shows.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ScanRange<'a> {
    /// Their vbucket.
    pub vbid: Vbid,
    /// Their collection.
    pub collection: CollectionId,
    /// Only those with this key and greater ones; `behind` goes before it.
    pub from: Option<&'a [u8]>,
    /// Only those with greater keys.
    pub behind: Option<&'a [u8]>,
    /// Only those with this key and lesser ones.
    pub to: Option<&'a [u8]>,
    /// Mutation that has to be on disk before the scan begins, one of the same vbucket; see
    /// [`crate::Client::last_mutation`].
    pub persisted: Option<MutationToken>,
    /// How long the server may wait for that.
    pub patience: Duration,
    /// Attributes are wanted, too, which needs the right to read those of the system.
    pub attributes: bool,
    /// Keys alone are wanted.
    pub only_keys: bool,
    /// Documents may come in any order, so that an Oribi server need not sort them. Other servers
    /// know only the order of keys.
    pub unordered: bool,
}

impl<'a> ScanRange<'a> {
    /// All documents of a collection in a vbucket that are on disk.
    pub fn new(vbid: Vbid, collection: CollectionId) -> ScanRange<'a> {
        let patience = Duration::from_secs(5);
        ScanRange {
            vbid,
            collection,
            from: None,
            behind: None,
            to: None,
            persisted: None,
            patience,
            attributes: false,
            only_keys: false,
            unordered: false,
        }
    }

    /// Only documents with these keys, both ends included.
    pub fn between(mut self, from: Option<&'a [u8]>, to: Option<&'a [u8]>) -> ScanRange<'a> {
        self.from = from;
        self.to = to;
        self
    }

    /// Only documents with greater keys than this.
    pub fn behind(mut self, key: &'a [u8]) -> ScanRange<'a> {
        self.behind = Some(key);
        self
    }

    /// Waits up to `patience` until a mutation of the same vbucket is on disk.
    pub fn persisted(mut self, mutation: MutationToken, patience: Duration) -> ScanRange<'a> {
        self.persisted = Some(mutation);
        self.patience = patience;
        self
    }

    /// Values come after their attributes, or without.
    pub fn attributes(mut self, are_wanted: bool) -> ScanRange<'a> {
        self.attributes = are_wanted;
        self
    }

    /// Documents come as their keys, or whole.
    pub fn only_keys(mut self, are_wanted: bool) -> ScanRange<'a> {
        self.only_keys = are_wanted;
        self
    }

    /// Documents may come in any order, or come in that of their keys. A scan in any order that was
    /// cut off cannot be continued after a key.
    pub fn unordered(mut self, is_enough: bool) -> ScanRange<'a> {
        self.unordered = is_enough;
        self
    }

    /// The request. Some servers insist on both ends, so that the least and the greatest key are
    /// named.
    fn json(&self) -> String {
        let start = match self.behind {
            Some(key) => format!(r#""excl_start":"{}""#, STANDARD.encode(key)),
            None => format!(r#""start":"{}""#, STANDARD.encode(self.from.unwrap_or(&[0]))),
        };
        let end = STANDARD.encode(self.to.unwrap_or(&[0xff; KEY_BYTES_MAX]));
        let snapshot = self.persisted.map_or_else(String::new, |mutation| {
            let MutationToken { vb_uuid, seqno, .. } = mutation;
            let timeout_ms = self.patience.as_millis();
            format!(
                r#","snapshot_requirements":{{"vb_uuid":"{}","seqno":{},"timeout_ms":{timeout_ms}}}"#,
                vb_uuid.0, seqno.0
            )
        });
        let collection = self.collection.0;
        let attributes = if self.attributes { r#","include_xattrs":true"# } else { "" };
        let keys = if self.only_keys { r#","key_only":true"# } else { "" };
        let order = if self.unordered { r#","unordered":true"# } else { "" };
        format!(
            r#"{{"collection":"{collection:x}","range":{{{start},"end":"{end}"}}{snapshot}{attributes}{keys}{order}}}"#
        )
    }
}

/// A document in a page of a scan. Of a page of keys, all else is zero or empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ScannedDocument<'a> {
    /// Key.
    pub key: &'a [u8],
    /// Value, after its attributes if the range has them and the datatype says so; compressed only
    /// on a connection that asked for such.
    pub value: &'a [u8],
    /// Flags that the writer set.
    pub flags: u32,
    /// Expiry as UNIX time; 0 for none.
    pub expiry: u32,
    /// Its place in the vbucket's history.
    pub seqno: Seqno,
    /// CAS.
    pub cas: Cas,
    /// Datatype that the server reports.
    pub datatype: Datatype,
}

/// Documents that came together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPage {
    bytes: Bytes,
    only_keys: bool,
}

impl ScanPage {
    /// The document at a position, and the position of the next one; `None` at the end. The first
    /// one is at 0.
    pub fn document_at(
        &self,
        position: usize,
    ) -> Option<Result<(ScannedDocument<'_>, usize), MalformedResponse>> {
        let rest = self.bytes.get(position..).filter(|rest| !rest.is_empty())?;
        let next =
            self.first(rest).map(|(document, rest)| (document, self.bytes.len() - rest.len()));
        Some(next.ok_or_else(|| MalformedResponse::new(CUT_OFF)))
    }

    /// The documents. An error is the last item.
    pub fn documents(
        &self,
    ) -> impl Iterator<Item = Result<ScannedDocument<'_>, MalformedResponse>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let next = self.first(rest);
            rest = next.map_or(&[], |(_, rest)| rest);
            Some(next.map(|(document, _)| document).ok_or_else(|| MalformedResponse::new(CUT_OFF)))
        })
    }

    /// The first document of a part of the page, and what follows it.
    fn first<'p>(&self, part: &'p [u8]) -> Option<(ScannedDocument<'p>, &'p [u8])> {
        match self.only_keys {
            false => next_document(part),
            true => next_key(part),
        }
    }
}

/// The first document of a page of keys, and what follows it.
fn next_key(page: &[u8]) -> Option<(ScannedDocument<'_>, &[u8])> {
    let (key, rest) = next_bytes(page)?;
    let document = ScannedDocument {
        key,
        value: &[],
        flags: 0,
        expiry: 0,
        seqno: Seqno(0),
        cas: Cas(0),
        datatype: Datatype::RAW,
    };
    Some((document, rest))
}

/// The first document of a page, and what follows it.
fn next_document(page: &[u8]) -> Option<(ScannedDocument<'_>, &[u8])> {
    let (figures, rest) = page.split_first_chunk::<FIGURES_BYTES>()?;
    let word = |at: usize| {
        u32::from_be_bytes([figures[at], figures[at + 1], figures[at + 2], figures[at + 3]])
    };
    let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    let (key, rest) = next_bytes(rest)?;
    let (value, rest) = next_bytes(rest)?;
    let document = ScannedDocument {
        key,
        value,
        flags: word(0),
        expiry: word(4),
        seqno: Seqno(long(8)),
        cas: Cas(long(16)),
        datatype: Datatype(figures[24]),
    };
    Some((document, rest))
}

/// Bytes after their length.
fn next_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = leb128::decode_u32(bytes)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// A scan under way. Dropped before its end, it leaves answers on the connection, which then
/// refuses further requests.
#[derive(Debug)]
pub struct RangeScan<'c> {
    connection: &'c mut Connection,
    vbid: Vbid,
    name: [u8; NAME_BYTES],
    only_keys: bool,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing is in flight.
    Idle,
    /// Pages are to come.
    Asked,
    Ended,
}

impl Connection {
    /// Begins to scan; `None` when there is no document. Nothing else may be in flight until the
    /// scan has ended.
    ///
    /// Refused with [`RejectionKind::TemporaryFailure`] when the mutation is not on disk in time,
    /// or when the server has too many scans already, and with [`RejectionKind::NotSupported`] by
    /// buckets that have nothing on disk.
    pub async fn scan(
        &mut self,
        range: &ScanRange<'_>,
    ) -> Result<Option<RangeScan<'_>>, ClientError> {
        let vbid = range.vbid;
        if range.persisted.is_some_and(|mutation| mutation.vbid != vbid) {
            return Err(ClientError::InvalidArgument(
                "a mutation of another vbucket than is scanned",
            ));
        }
        let parts = RequestParts {
            vbid,
            opaque: OPAQUE,
            datatype: Datatype::JSON.0,
            ..RequestParts::new(Opcode::RangeScanCreate)
        };
        let response = self.call(&parts, &Bytes::from(range.json())).await?;
        match response.outcome() {
            Err(RejectionKind::NotFound) => return Ok(None),
            outcome => outcome?,
        }
        match <[u8; NAME_BYTES]>::try_from(&response.value()[..]) {
            Ok(name) => {
                let (only_keys, stage) = (range.only_keys, Stage::Idle);
                Ok(Some(RangeScan { connection: self, vbid, name, only_keys, stage }))
            }
            Err(_) => Err(self.protocol_error(parts.opcode.name(), "a scan's name has 16 bytes")),
        }
    }
}

impl RangeScan<'_> {
    /// The next documents, once they are there; `None` behind the last ones. After an error the
    /// scan has ended.
    pub async fn next_page(&mut self) -> Result<Option<ScanPage>, ClientError> {
        while self.stage != Stage::Ended {
            if self.stage == Stage::Idle {
                self.ask().await?;
            }
            let answer = self.connection.answer_to(Opcode::RangeScanContinue, OPAQUE).await?;
            let page = self.take(&answer)?;
            if !page.bytes.is_empty() {
                return Ok(Some(page));
            }
        }
        Ok(None)
    }

    /// Asks for all documents. The server sends them in pages, each when the one before has been
    /// taken.
    async fn ask(&mut self) -> Result<(), ClientError> {
        let opcode = Opcode::RangeScanContinue;
        // No limit of documents, time or bytes.
        let extras = [&self.name[..], &[0; 12]].concat();
        let parts = RequestParts {
            vbid: self.vbid,
            opaque: OPAQUE,
            extras: &extras,
            ..RequestParts::new(opcode)
        };
        self.connection.push(&parts);
        self.connection.flush().await.map_err(|error| error.named(opcode.name()))?;
        self.stage = Stage::Asked;
        Ok(())
    }

    fn take(&mut self, answer: &Response) -> Result<ScanPage, ClientError> {
        let code = answer.header.vbucket_or_status;
        self.stage = match Status::from_u16(code) {
            Some(Status::Success) => Stage::Asked,
            Some(Status::RangeScanMore) => Stage::Idle,
            _ => Stage::Ended,
        };
        if self.stage == Stage::Ended && code != Status::RangeScanComplete.code() {
            RejectionKind::from_status(code)?;
        }
        let page = answer.value();
        let (wanted, mistake) = match self.only_keys {
            false => (DOCUMENTS, "documents were asked for, not keys"),
            true => (KEYS, "keys were asked for, not documents"),
        };
        if !page.is_empty() && answer.extras() != wanted {
            let operation = Opcode::RangeScanContinue.name();
            return Err(self.connection.protocol_error(operation, mistake));
        }
        Ok(ScanPage { bytes: page, only_keys: self.only_keys })
    }
}

impl Drop for RangeScan<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Asked {
            self.connection.fail("a range scan was not read to its end");
        }
    }
}

#[cfg(test)]
mod tests {
    //! Requests and pages as bytes.

    use oribi_types::VbUuid;

    use super::*;

    fn range<'a>() -> ScanRange<'a> {
        let range = ScanRange::new(Vbid(3), CollectionId(0x1f));
        ScanRange { patience: Duration::from_secs(2), ..range }
    }

    #[test]
    fn a_request_names_both_ends() {
        let json: serde_json::Value = serde_json::from_str(&range().json()).unwrap();
        assert_eq!(json["collection"], "1f");
        assert_eq!(json["range"]["start"], "AA==");
        let end = STANDARD.decode(json["range"]["end"].as_str().unwrap()).unwrap();
        assert_eq!(end, [0xff; KEY_BYTES_MAX]);
        assert_eq!(json.get("snapshot_requirements"), None);
        assert_eq!(json.get("include_xattrs"), None);
        let json: serde_json::Value =
            serde_json::from_str(&range().attributes(true).json()).unwrap();
        assert_eq!((&json["include_xattrs"], json.get("key_only")), (&true.into(), None));
        let json: serde_json::Value =
            serde_json::from_str(&range().only_keys(true).json()).unwrap();
        assert_eq!((json.get("include_xattrs"), &json["key_only"]), (None, &true.into()));
        assert_eq!(json.get("unordered"), None);
        let json: serde_json::Value =
            serde_json::from_str(&range().unordered(true).json()).unwrap();
        assert_eq!(json["unordered"], true);

        let persisted =
            Some(MutationToken { vbid: Vbid(3), vb_uuid: VbUuid(u64::MAX), seqno: Seqno(9) });
        let json = ScanRange { behind: Some(b"\xff\""), persisted, ..range() }.json();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["range"]["excl_start"], "/yI=");
        assert_eq!(json["range"].get("start"), None);
        let some = range().between(Some(b"a"), Some(b"b")).json();
        let some: serde_json::Value = serde_json::from_str(&some).unwrap();
        assert_eq!(
            (&some["range"]["start"], &some["range"]["end"]),
            (&"YQ==".into(), &"Yg==".into())
        );
        let snapshot = &json["snapshot_requirements"];
        assert_eq!(snapshot["vb_uuid"], "18446744073709551615");
        assert_eq!((&snapshot["seqno"], &snapshot["timeout_ms"]), (&9.into(), &2000.into()));
    }

    #[test]
    fn a_page_is_read_to_its_end_and_not_beyond() {
        let mut page = Vec::new();
        for number in [1u8, 2] {
            page.extend([0, 0, 0, number, 0, 0, 1, 0]);
            page.extend([0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 0, 0, 0, 0, 0, 9, 1]);
            page.extend([1, b'k', 3, b'[', b'0' + number, b']']);
        }
        let of = |bytes, only_keys| ScanPage { bytes, only_keys };
        let whole = of(Bytes::from(page.clone()), false);
        let documents: Result<Vec<_>, _> = whole.documents().collect();
        let documents = documents.unwrap();
        assert_eq!(documents.len(), 2);
        let (first, next) = whole.document_at(0).unwrap().unwrap();
        let (second, end) = whole.document_at(next).unwrap().unwrap();
        assert_eq!([first, second], [documents[0], documents[1]]);
        assert!(whole.document_at(end).is_none() && whole.document_at(end - 1).unwrap().is_err());
        assert_eq!((documents[1].key, documents[1].value), (&b"k"[..], &b"[2]"[..]));
        assert_eq!((documents[1].flags, documents[1].expiry), (2, 256));
        assert_eq!((documents[1].seqno, documents[1].cas), (Seqno(7), Cas(1 << 56 | 9)));
        assert_eq!(documents[1].datatype, Datatype::JSON);
        for length in 1..page.len() {
            let cut = of(Bytes::copy_from_slice(&page[..length]), false);
            let is_whole = length == page.len() / 2;
            assert_eq!(cut.documents().last().is_some_and(|last| last.is_ok()), is_whole);
            assert!(cut.documents().count() <= 2);
        }
        let keys = of(Bytes::from_static(b"\x01a\x02bc"), true);
        let keys: Result<Vec<_>, _> = keys.documents().collect();
        let keys = keys.unwrap();
        assert_eq!(keys.iter().map(|one| one.key).collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
        assert!(of(Bytes::from_static(b"\x02a"), true).documents().any(|one| one.is_err()));
    }
}
