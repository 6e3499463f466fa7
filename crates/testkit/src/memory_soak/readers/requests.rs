//! What readers of the soak ask for: the documents, and requests of all of them.

use anyhow::{Result, bail};
use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras, StreamValue};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::{Datatype, Seqno, Vbid};

use crate::http::HttpClient;
use crate::memory_soak::shared::SoakShared;
use crate::raw_connection::{
    DEFAULT_VBUCKETS, DEVELOPMENT_PASSWORD, DEVELOPMENT_USER, RawConnection, Request,
};
use crate::stream_connection::StreamConnection;

/// Sizes of the documents, one for each.
pub(super) const DOCUMENT_BYTES: [usize; 7] = [0, 100, 10_000, 300_000, 1 << 20, 8 << 20, 20 << 20];
/// A window of DCP that holds the largest document.
const WINDOW_BYTES: u32 = 32 << 20;
/// The request of all changes so far as events.
pub(super) const EVENTS: &str =
    "/pools/default/buckets/default/changes?from=beginning&until-now&with-values";

/// How a reader gets documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    Get,
    /// GET over TLS, by the client command.
    Tls,
    Text,
    Scan,
    Dcp,
    Events,
    Http,
    Query,
    Backup,
}

pub(super) fn key(number: usize) -> String {
    format!("sized {number}")
}

pub(super) fn keys() -> impl Iterator<Item = String> {
    (0..DOCUMENT_BYTES.len()).map(key)
}

/// The vbuckets of the documents.
pub(super) fn vbuckets() -> Vec<Vbid> {
    let mut all: Vec<Vbid> =
        keys().map(|key| vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub(super) fn admin(shared: &SoakShared<'_>) -> HttpClient {
    HttpClient::new(shared.server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)
}

pub(super) fn consumer(shared: &SoakShared<'_>, name: &str) -> Result<StreamConnection> {
    let mut connection = StreamConnection::open(shared.server.port(), name, WINDOW_BYTES)?;
    let everything = StreamRequestExtras {
        flags: StreamFlags::ACTIVE_ONLY,
        end: Seqno(u64::MAX),
        ..StreamRequestExtras::default()
    };
    for vbid in vbuckets() {
        connection.request(vbid, &everything, &StreamValue::default())?;
    }
    Ok(connection)
}

/// Creates a range scan of a vbucket. Returns the extras of a request that continues it without
/// limits; `None` when the server refuses for now, or the vbucket is empty.
pub(super) fn begin_scan(client: &mut RawConnection, vbid: Vbid) -> Result<Option<Vec<u8>>> {
    let create = Request::new(Opcode::RangeScanCreate).vbucket(vbid).datatype(Datatype::JSON.0);
    let created = client.call(&create.value(r#"{"range":{}}"#))?;
    match created.status() {
        Status::Success => Ok(Some([&created.value[..], &[0; 12]].concat())),
        Status::KeyEnoent | Status::Etmpfail | Status::Ebusy => Ok(None),
        status => bail!("a scan is answered {status:?}"),
    }
}
