//! Scans over the documents of one vbucket.
//!
//! Owns: bounds and columns of a scan, and resuming after the last whole document when Kudu was
//! unreachable in between. A scan without bodies leaves their column out: Kudu stores columns
//! apart. Invariants: rows come from the leading replicas, in order of key and from one snapshot of
//! the tablet, so the pieces of a document belong together; a document is shown once, however often
//! a scan was interrupted.

use std::ops::ControlFlow;

use oribi_kudu::{
    Error, Operand, Predicate, ReadMode, ReplicaSelection, Row, ScanBatch, Scanner, ScannerBuilder,
};
use oribi_storage::{Record, StoreError};
use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use crate::failure::{of_cell, of_kudu, passes};
use crate::layout::{
    COLUMNS, LOCAL_COLLECTION, LOCAL_VBUCKET, STATE_COLLECTION, column, vbucket_cell,
};
use crate::patience::Attempts;
use crate::pieces::{Assembler, Piece, corrupt, metadata_of};
use crate::shared::StoreState;

/// Columns of scans for documents: the key without its vbucket, then all others.
const COLUMN_FIRST: usize = column::COLLECTION;
const KEY_AT: usize = column::KEY - COLUMN_FIRST;
const CHUNK_AT: usize = column::CHUNK - COLUMN_FIRST;
const CAS_AT: usize = column::CAS - COLUMN_FIRST;

#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    /// Least primary key; a prefix of its columns.
    pub(crate) lower: Vec<Operand>,
    /// First primary key beyond the range.
    pub(crate) upper: Vec<Operand>,
    /// The hybrid time to read at; the current one when none is given.
    snapshot: Option<u64>,
    /// Whether the next answer may arrive while the last one is in memory.
    prefetch: bool,
}

impl Bounds {
    /// From one key to another one, as of now.
    pub(crate) fn new(lower: Vec<Operand>, upper: Vec<Operand>) -> Bounds {
        Bounds { lower, upper, snapshot: None, prefetch: true }
    }

    /// The same at a hybrid time.
    pub(crate) fn at(self, snapshot: Option<u64>) -> Bounds {
        Bounds { snapshot, ..self }
    }

    /// The same with or without the next answer ahead.
    pub(crate) fn prefetching(self, prefetch: bool) -> Bounds {
        Bounds { prefetch, ..self }
    }

    /// All documents of a vbucket.
    pub(crate) fn documents(vbid: Vbid) -> Bounds {
        let vbucket = vbucket_cell(vbid);
        Bounds::new(vec![vbucket.into(), 0_i64.into()], vec![(vbucket + 1).into()])
    }

    /// The state of a vbucket.
    pub(crate) fn state(vbid: Vbid) -> Bounds {
        let vbucket = vbucket_cell(vbid);
        let collection = |collection: i64| vec![vbucket.into(), collection.into()];
        Bounds::new(collection(STATE_COLLECTION), collection(STATE_COLLECTION + 1))
    }

    /// Those of one collection.
    pub(crate) fn collection(vbid: Vbid, collection: CollectionId) -> Bounds {
        let (vbucket, collection) = (vbucket_cell(vbid), i64::from(collection.0));
        Bounds::new(
            vec![vbucket.into(), collection.into()],
            vec![vbucket.into(), (collection + 1).into()],
        )
    }

    /// The same without the documents before `from`.
    pub(crate) fn collection_from(vbid: Vbid, from: DocKey<'_>) -> Bounds {
        let mut lower = key_operands(vbid, from, 0);
        lower.truncate(3);
        Bounds { lower, ..Bounds::collection(vbid, from.collection) }
    }

    /// The rows of one document.
    pub(crate) fn document(vbid: Vbid, key: DocKey<'_>) -> Bounds {
        Bounds::documents_between(vbid, key, key).prefetching(false)
    }

    /// The documents from the first one to the last one.
    pub(crate) fn documents_between(vbid: Vbid, first: DocKey<'_>, last: DocKey<'_>) -> Bounds {
        Bounds::new(key_operands(vbid, first, 0), key_operands(vbid, last, i16::MAX))
    }

    /// The rows of a local document.
    pub(crate) fn local(name: &str) -> Bounds {
        let chunk = |chunk: i16| {
            vec![LOCAL_VBUCKET.into(), LOCAL_COLLECTION.into(), name.into(), chunk.into()]
        };
        Bounds::new(chunk(0), chunk(i16::MAX))
    }

    /// At this hybrid time unless it has one already.
    fn at_or(self, snapshot: Option<u64>) -> Bounds {
        Bounds { snapshot: self.snapshot.or(snapshot), ..self }
    }

    /// Moves the lower bound after a document.
    pub(crate) fn begin_behind(&mut self, vbid: Vbid, key: DocKey<'_>) {
        self.lower = key_operands(vbid, key, i16::MAX);
    }
}

fn key_operands(vbid: Vbid, key: DocKey<'_>, chunk: i16) -> Vec<Operand> {
    let collection = i64::from(key.collection.0);
    vec![vbucket_cell(vbid).into(), collection.into(), key.key.into(), chunk.into()]
}

/// The key of a row that a scan for documents returned.
fn key_of<'a>(row: &Row<'a>) -> Result<DocKey<'a>, StoreError> {
    let collection: i64 = row.get(0).map_err(of_cell)?;
    let collection = u32::try_from(collection).map_err(|_| corrupt("an unknown collection"))?;
    Ok(DocKey { collection: CollectionId(collection), key: row.get(KEY_AT).map_err(of_cell)? })
}

/// Columns of scans for metadata: the same without the body's. Attributes are needed for their
/// length.
const METADATA_COLUMNS: std::ops::Range<usize> = COLUMN_FIRST..column::JSON;

/// The last document that an attempt of a scan has shown.
type LastShown = Option<(CollectionId, Vec<u8>)>;

fn owned(key: DocKey<'_>) -> (CollectionId, Vec<u8>) {
    (key.collection, key.key.to_vec())
}

/// Why one attempt of a scan ended early.
pub(crate) enum ScanInterruption {
    Kudu(Error),
    Store(StoreError),
}

impl From<StoreError> for ScanInterruption {
    fn from(error: StoreError) -> ScanInterruption {
        ScanInterruption::Store(error)
    }
}

impl StoreState {
    /// A scan in order of keys over the leading replicas.
    pub(crate) fn scanner(
        &self,
        bounds: &Bounds,
        predicates: &[Predicate],
        columns: &[&str],
    ) -> Result<Scanner, Error> {
        self.described(bounds, predicates, columns).build()
    }

    fn described(
        &self,
        bounds: &Bounds,
        predicates: &[Predicate],
        columns: &[&str],
    ) -> ScannerBuilder {
        let scan = self.table.scan().columns(columns.iter().copied());
        let scan = predicates.iter().cloned().fold(scan, |scan, predicate| scan.filter(predicate));
        scan.lower_bound(bounds.lower.iter().cloned())
            .upper_bound(bounds.upper.iter().cloned())
            .fault_tolerant(true)
            .read_mode(ReadMode::AtSnapshot(bounds.snapshot))
            .replica_selection(ReplicaSelection::Leader)
            .prefetch(bounds.prefetch)
    }

    /// Waits after a scan was interrupted, or returns why there is no sense in another attempt.
    pub(crate) async fn pause_scan(
        &self,
        attempts: &mut Attempts,
        interrupted: ScanInterruption,
    ) -> Result<(), StoreError> {
        match interrupted {
            ScanInterruption::Kudu(error) if passes(&error) => {
                self.patience.pause(attempts, "a vbucket is to be read", &error).await
            }
            ScanInterruption::Kudu(error) => Err(of_kudu(&error)),
            ScanInterruption::Store(error) => Err(error),
        }
    }

    /// Scans, and resumes after the last shown document, until a scan reaches its end. Waits for as
    /// long as Kudu is unreachable.
    async fn scan_on(
        &self,
        vbid: Vbid,
        bounds: Bounds,
        mut scan: impl AsyncFnMut(&Bounds) -> (Result<(), ScanInterruption>, LastShown),
    ) -> Result<(), StoreError> {
        let mut bounds = bounds.at_or(self.readable.snapshot(vbid));
        let mut attempts = Attempts::default();
        loop {
            let (scanned, shown) = scan(&bounds).await;
            if let Some((collection, key)) = &shown {
                bounds.begin_behind(vbid, DocKey { collection: *collection, key });
                attempts = Attempts::default();
            }
            match scanned {
                Ok(()) => {
                    self.patience.succeeded("a vbucket was read");
                    return Ok(());
                }
                Err(interrupted) => self.pause_scan(&mut attempts, interrupted).await?,
            }
        }
    }

    /// Visits documents in order of collection and key. Waits for as long as Kudu is unreachable.
    pub(crate) async fn scan_documents(
        &self,
        vbid: Vbid,
        bounds: Bounds,
        predicates: &[Predicate],
        visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let scan = async |bounds: &Bounds| {
            let mut assembler = Assembler::default();
            let scanned = self.scan_once(vbid, bounds, predicates, &mut assembler, visit).await;
            (scanned, assembler.last_shown().map(owned))
        };
        self.scan_on(vbid, bounds, scan).await
    }

    async fn scan_once(
        &self,
        vbid: Vbid,
        bounds: &Bounds,
        predicates: &[Predicate],
        assembler: &mut Assembler,
        visit: &mut dyn FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), ScanInterruption> {
        let columns = &COLUMNS[COLUMN_FIRST..];
        let mut scanner =
            self.scanner(bounds, predicates, columns).map_err(ScanInterruption::Kudu)?;
        while let Some(batch) = scanner.next_batch().await.map_err(ScanInterruption::Kudu)? {
            for row in batch.rows() {
                let chunk: i16 = row.get(CHUNK_AT).map_err(of_cell)?;
                let piece = Piece::of(row, CAS_AT)?;
                self.readable.check(vbid, Seqno(piece.seqno))?;
                if assembler.take(key_of(&row)?, chunk, &piece, visit)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(assembler.end()?)
    }

    /// Visits documents in order of collection and key without their values, but with the sizes of
    /// these in bytes. Waits for as long as Kudu is unreachable.
    pub(crate) async fn scan_metadata(
        &self,
        vbid: Vbid,
        visit: &mut dyn FnMut(Record<'_>, usize) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let scan = async |bounds: &Bounds| {
            let mut last = None;
            let scanned = self.scan_metadata_once(vbid, bounds, &mut last, visit).await;
            (scanned, last)
        };
        self.scan_on(vbid, Bounds::documents(vbid), scan).await
    }

    /// When the scan is interrupted, `last` becomes the last shown document.
    async fn scan_metadata_once(
        &self,
        vbid: Vbid,
        bounds: &Bounds,
        last: &mut LastShown,
        visit: &mut dyn FnMut(Record<'_>, usize) -> ControlFlow<()>,
    ) -> Result<(), ScanInterruption> {
        let first_rows = [Predicate::equal(COLUMNS[column::CHUNK], 0_i16)];
        let columns = &COLUMNS[METADATA_COLUMNS];
        let mut scanner =
            self.scanner(bounds, &first_rows, columns).map_err(ScanInterruption::Kudu)?;
        let mut shown: Option<ScanBatch> = None;
        loop {
            let batch = match scanner.next_batch().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let row = shown.as_ref().and_then(|batch| batch.rows().last());
                    *last = row.map(|row| key_of(&row)).transpose()?.map(owned);
                    return Err(ScanInterruption::Kudu(error));
                }
            };
            for row in batch.rows() {
                let (head, value_bytes) = metadata_of(row, CAS_AT)?;
                let record = head.record(key_of(&row)?, &[]);
                self.readable.check(vbid, record.seqno)?;
                if visit(record, value_bytes).is_break() {
                    return Ok(());
                }
            }
            shown = Some(batch);
        }
    }

    /// All rows of a scan of a few columns, within `limit`. While Kudu is unreachable it waits like
    /// `attempts`, and then starts again.
    pub(crate) async fn scan_rows<T>(
        &self,
        bounds: &Bounds,
        predicates: &[Predicate],
        columns: &[&str],
        (limit, mut attempts): (usize, Attempts),
        read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        loop {
            let error = match self.scan_rows_once(bounds, predicates, columns, limit, &read).await {
                Ok(found) => return Ok(found),
                Err(ScanInterruption::Store(error)) => return Err(error),
                Err(ScanInterruption::Kudu(error)) if !passes(&error) => {
                    return Err(of_kudu(&error));
                }
                Err(ScanInterruption::Kudu(error)) => error,
            };
            self.patience.pause(&mut attempts, "rows are to be read", &error).await?;
        }
    }

    async fn scan_rows_once<T>(
        &self,
        bounds: &Bounds,
        predicates: &[Predicate],
        columns: &[&str],
        limit: usize,
        read: &impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, ScanInterruption> {
        let mut found = Vec::new();
        let scan = self.described(bounds, predicates, columns);
        let scan = if limit == usize::MAX { scan } else { scan.limit(limit as u64) };
        let mut scanner = scan.build().map_err(ScanInterruption::Kudu)?;
        while let Some(batch) = scanner.next_batch().await.map_err(ScanInterruption::Kudu)? {
            for row in batch.rows() {
                found.push(read(&row)?);
            }
        }
        Ok(found)
    }
}
