//! Scans of one collection in order of keys, for clients that may pause them for minutes.
//!
//! Owns: the division of the collection into windows. A scan of keys and lengths comes first, so
//! the bytes of a window are known before its documents are read. Invariants: all scans read one
//! snapshot; memory holds one window, or one longer document for which the reader has found space
//! before. Without windows, one answer of Kudu could bring a hundred rows of any length.

use std::ops::ControlFlow;

use oribi_kudu::{Predicate, Row};
use oribi_storage::{LARGE_RECORD_BYTES, Record, ReserveMemory, StoreError};
use oribi_types::{CollectionId, Datatype, DocKey, Vbid};

use crate::failure::of_cell;
use crate::layout::{COLUMNS, column};
use crate::patience::Attempts;
use crate::pieces::corrupt;
use crate::rows::PIECE_BYTES_MAX;
use crate::scan::Bounds;
use crate::shared::StoreState;

/// Documents whose lengths are read at a time.
const LENGTHS_MAX: usize = if cfg!(test) { 3 } else { 512 };
/// Approximate size of a row besides key and value.
const ROW_BYTES: usize = 128;
/// Most bytes of an answer of a scan (`--scanner_max_batch_size_bytes` of Kudu).
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// The space to ask for before a document of `bytes` bytes is read. The reader finds twice as much,
/// for the document and for its own copy. In addition there is the last answer with rows of it.
pub(crate) fn room_bytes(bytes: usize) -> usize {
    bytes.saturating_add(bytes.min(ANSWER_BYTES_MAX) / 2)
}

/// The key of a document, and most bytes of its rows.
#[derive(Debug)]
struct Length {
    key: Vec<u8>,
    bytes: usize,
}

/// The number of the first documents, at least one, that form a window.
fn documents_of_window(lengths: &[Length]) -> usize {
    let mut bytes = 0;
    let fits = |length: &&Length| {
        bytes += length.bytes;
        bytes <= LARGE_RECORD_BYTES
    };
    lengths.iter().take_while(fits).count().max(1)
}

impl StoreState {
    /// Visits the documents of a collection from a key on. Waits for as long as Kudu is
    /// unreachable.
    pub(crate) async fn scan_windows(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let (_, snapshot) = self.seqnos_now(vbid).await?;
        let mut bounds = Bounds::collection_from(vbid, from).at(snapshot);
        loop {
            let lengths = self.lengths(&bounds).await?;
            let Some(last) = lengths.last() else { return Ok(()) };
            bounds.begin_behind(vbid, DocKey { collection: from.collection, key: &last.key });
            let mut left = &lengths[..];
            while !left.is_empty() {
                let (window, rest) = left.split_at(documents_of_window(left));
                left = rest;
                if let [Length { bytes, .. }] = window
                    && *bytes > LARGE_RECORD_BYTES
                    && reserve(room_bytes(*bytes)).is_break()
                {
                    return Ok(());
                }
                let window = (from.collection, window);
                if self.scan_window(vbid, window, snapshot, visit).await?.is_break() {
                    return Ok(());
                }
            }
        }
    }

    async fn scan_window(
        &self,
        vbid: Vbid,
        (collection, window): (CollectionId, &[Length]),
        snapshot: Option<u64>,
        visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let mut flow = ControlFlow::Continue(());
        let ([first, .., last] | [first @ last]) = window else { return Ok(flow) };
        let [first, last] = [first, last].map(|length| DocKey { collection, key: &length.key });
        let bounds = Bounds::documents_between(vbid, first, last).prefetching(false).at(snapshot);
        let mut show = |record: Record<'_>| {
            flow = visit(record);
            flow
        };
        self.scan_documents(vbid, bounds, &[], &mut show).await?;
        Ok(flow)
    }

    /// The next documents and their lengths.
    async fn lengths(&self, bounds: &Bounds) -> Result<Vec<Length>, StoreError> {
        let columns = [column::KEY, column::DATATYPE, column::BODY_BYTES];
        let columns = columns.map(|place| COLUMNS[place]);
        let first_rows = [Predicate::equal(COLUMNS[column::CHUNK], 0_i16)];
        let read = |row: &Row<'_>| {
            let key: &[u8] = row.get(0).map_err(of_cell)?;
            let datatype: i16 = row.get(1).map_err(of_cell)?;
            let body_bytes: i64 = row.get(2).map_err(of_cell)?;
            let body_bytes =
                usize::try_from(body_bytes).map_err(|_| corrupt("a negative length"))?;
            // Their column is not read for its length: it may be as long as a body.
            let has_xattrs = datatype & i16::from(Datatype::XATTR.0) != 0;
            let xattrs_bytes = if has_xattrs { PIECE_BYTES_MAX } else { 0 };
            let rows_bytes = (1 + body_bytes / PIECE_BYTES_MAX) * (key.len() + ROW_BYTES);
            let bytes = body_bytes.saturating_add(xattrs_bytes).saturating_add(rows_bytes);
            Ok(Length { key: key.to_vec(), bytes })
        };
        let limits = (LENGTHS_MAX, Attempts::default());
        self.scan_rows(bounds, &first_rows, &columns, limits, read).await
    }
}
