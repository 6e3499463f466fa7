//! Documents of the initial state.
//!
//! Owns: the forms of documents in the file and in files of JSON lines, their writing, and the file
//! `init.json`, which says which of them a bucket has had. Invariants: a document that exists is
//! never replaced; documents that a bucket has had are not written again, so one that was deleted
//! stays deleted; `init.json` counts them only after they are on disk. Caller: [`super::Init`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, mpsc::Sender};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_config::CollectionPath;
use oribi_engine::{
    Bucket, FetchOutcome, FetchSink, MutationOutcome, OperationRejection, PersistOutcome,
    PersistenceSink, StoreCondition, StoreRequest,
};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::limits::{COLLECTION_KEY_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use oribi_subdoc::{Draft, Mutation, Path as SubdocPath, SubdocError, lookup};
use oribi_system::clock::wall_clock;
use oribi_system::data_file::DataFileError;
use oribi_system::data_file::write_atomically;
use oribi_types::{CollectionId, DocKey, Seqno, Vbid};
use ring::digest::{Context, SHA256};
use serde_json::Value;

use super::error::{InitError, invalid};
use super::file::FileDocuments;
use crate::buckets::BucketHandle;

const FILE_NAME: &str = "init.json";
const FILE_MODE: u32 = 0o600;
/// Flags by which the SDKs know JSON, and other bytes.
pub(super) const FLAGS_JSON: u32 = 0x0200_0000;
pub(super) const FLAGS_RAW: u32 = 0x0300_0000;
/// Bytes of a line: the largest value in base64, and its key.
const LINE_BYTES_MAX: u64 = (VALUE_BYTES_MAX as u64) * 2;
/// How long temporary failures of one document are retried.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before a refused document is tried again.
const PAUSE: Duration = Duration::from_millis(5);
const _: () = assert!(PAUSE.as_millis() < PATIENCE.as_millis(), "a write is tried again");

/// Documents of one collection.
pub(super) struct Seed {
    collection: CollectionPath,
    source: Source,
}

enum Source {
    Document { key: String, value: Vec<u8> },
    Lines(PathBuf),
}

/// A document to write.
pub(super) struct SeedRow {
    key: Vec<u8>,
    value: Vec<u8>,
    flags: u32,
}

impl Seed {
    pub(super) fn of(entry: FileDocuments, directory: &Path) -> Result<Seed, String> {
        let path = entry.collection.as_deref().unwrap_or("_default._default");
        let collection = path.parse()?;
        let source = match (entry.key, entry.value, entry.file) {
            (Some(key), Some(value), None) => {
                let value = serde_json::to_vec(&value)
                    .map_err(|error| format!("document {key:?}: {error}"))?;
                Source::Document { key, value }
            }
            (None, None, Some(file)) => Source::Lines(directory.join(file)),
            _ => return Err("documents have key and value, or a file".to_owned()),
        };
        Ok(Seed { collection, source })
    }

    /// Calls `each` for every document.
    fn rows(
        &self,
        mut each: impl FnMut(SeedRow) -> Result<(), InitError>,
    ) -> Result<(), InitError> {
        match &self.source {
            Source::Document { key, value } => {
                each(SeedRow { key: key.clone().into(), value: value.clone(), flags: FLAGS_JSON })
            }
            Source::Lines(path) => rows_of(path, each),
        }
    }

    /// Adds the definition of the documents to the digest.
    fn note(&self, digest: &mut Context) -> Result<(), InitError> {
        digest.update(self.collection.to_string().as_bytes());
        self.rows(|row| {
            for part in [&row.key, &row.value] {
                digest.update(&(part.len() as u64).to_le_bytes());
                digest.update(part);
            }
            Ok(())
        })
    }
}

pub(super) fn rows_of(
    path: &Path,
    mut each: impl FnMut(SeedRow) -> Result<(), InitError>,
) -> Result<(), InitError> {
    let failed = |error| DataFileError::io("read", path, error);
    let mut lines = BufReader::new(File::open(path).map_err(failed)?);
    for number in 1_u64.. {
        let mut line = Vec::new();
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(failed)? == 0 {
            return Ok(());
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            let row = row_of(text).map_err(|why| invalid(path, format!("line {number}: {why}")))?;
            each(row)?;
        }
    }
    Ok(())
}

/// The document of a line, in the forms that `oribi doc export` writes.
fn row_of(line: &[u8]) -> Result<SeedRow, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let Value::Object(members) = value else { return Err("it is not an object".to_owned()) };
    let key = match (members.get("_key"), members.get("_key_base64")) {
        (Some(Value::String(key)), None) => key.clone().into_bytes(),
        (None, Some(Value::String(key))) => decoded(key)?,
        _ => return Err("it has no key: a string in _key".to_owned()),
    };
    if members.len() == 2 {
        if members.contains_key("_json") {
            let span = lookup::get(line, &path("_json")?).map_err(unusable)?;
            return Ok(SeedRow { key, value: line[span].to_vec(), flags: FLAGS_JSON });
        }
        if let Some(Value::String(value)) = members.get("_base64") {
            return Ok(SeedRow { key, value: decoded(value)?, flags: FLAGS_RAW });
        }
    }
    let key_field = if members.contains_key("_key") { "_key" } else { "_key_base64" };
    let mut document = Draft::new(line);
    let removed = document.apply(Mutation::Delete, &path(key_field)?, b"", false);
    removed.map_err(unusable)?;
    Ok(SeedRow { key, value: document.text().to_vec(), flags: FLAGS_JSON })
}

/// The line is JSON, so only its nesting may be too deep.
fn unusable(error: SubdocError) -> String {
    format!("it cannot be taken apart: {error:?}")
}

fn path(field: &str) -> Result<SubdocPath<'_>, String> {
    SubdocPath::parse(field.as_bytes()).map_err(unusable)
}

fn decoded(text: &str) -> Result<Vec<u8>, String> {
    BASE64.decode(text).map_err(|_| "this is not base64".to_owned())
}

/// Writes the documents that a bucket has not had yet.
pub(super) fn apply(
    seeds: &[Seed],
    handle: &BucketHandle,
    data_dir: &Path,
) -> Result<(), InitError> {
    if seeds.is_empty() {
        return Ok(());
    }
    let mut digest = Context::new(&SHA256);
    for seed in seeds {
        seed.note(&mut digest)?;
    }
    let digest = BASE64.encode(digest.finish());
    let mut had = SeedLedger::read(data_dir)?;
    let uuid = handle.bucket().config().uuid.clone();
    // A bucket in memory begins empty at each start.
    if !handle.is_in_memory() && had.0.get(&uuid) == Some(&digest) {
        return Ok(());
    }
    let mut writer = Writer::new(handle);
    for seed in seeds {
        writer.write_all(seed)?;
    }
    writer.persist()?;
    let (bucket, written) = (handle.name(), writer.written);
    tracing::info!(bucket, written, "wrote the documents of the initial state");
    had.0.insert(uuid, digest);
    had.write(data_dir)
}

/// Seeds that were written already: a digest by the bucket's uuid.
struct SeedLedger(BTreeMap<String, String>);

impl SeedLedger {
    fn read(data_dir: &Path) -> Result<SeedLedger, InitError> {
        let path = data_dir.join(FILE_NAME);
        match std::fs::read(&path) {
            Ok(json) => match serde_json::from_slice(&json) {
                Ok(had) => Ok(SeedLedger(had)),
                Err(error) => Err(DataFileError::corrupt(&path, error.to_string()).into()),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(SeedLedger(BTreeMap::new()))
            }
            Err(error) => Err(DataFileError::io("read", &path, error).into()),
        }
    }

    fn write(&self, data_dir: &Path) -> Result<(), InitError> {
        let path = data_dir.join(FILE_NAME);
        let json = serde_json::to_vec_pretty(&self.0).expect("a map of strings");
        write_atomically(&path, &json, FILE_MODE)
            .map_err(|error| DataFileError::io("write", &path, error).into())
    }
}

/// Writes documents into one bucket.
struct Writer<'a> {
    name: &'a str,
    bucket: &'a Arc<Bucket>,
    vbuckets: u16,
    is_in_memory: bool,
    /// The last change of each vbucket.
    last: BTreeMap<Vbid, Seqno>,
    written: u64,
}

impl<'a> Writer<'a> {
    fn new(handle: &'a BucketHandle) -> Writer<'a> {
        Writer {
            name: handle.name(),
            bucket: handle.bucket(),
            vbuckets: handle.vbuckets(),
            is_in_memory: handle.is_in_memory(),
            last: BTreeMap::new(),
            written: 0,
        }
    }

    fn write_all(&mut self, seed: &Seed) -> Result<(), InitError> {
        let CollectionPath { scope, collection } = &seed.collection;
        let id = self.bucket.manifest().collection_id(scope, collection);
        let id = id
            .map_err(|_| self.failed(b"", format!("there is no collection {}", seed.collection)))?;
        seed.rows(|row| self.write(id, &row))
    }

    fn write(&mut self, collection: CollectionId, row: &SeedRow) -> Result<(), InitError> {
        let key_bytes_max = if collection == CollectionId::DEFAULT {
            KEY_BYTES_MAX
        } else {
            COLLECTION_KEY_BYTES_MAX
        };
        if row.key.is_empty() || row.key.len() > key_bytes_max {
            let detail = format!("a key has 1 to {key_bytes_max} bytes here");
            return Err(self.failed(&row.key, detail));
        }
        let vbid = vbucket_of(&row.key, self.vbuckets);
        let key = DocKey { collection, key: &row.key };
        let request = StoreRequest {
            mode: StoreCondition::Add,
            flags: row.flags,
            ..StoreRequest::set(&row.value)
        };
        let began = Instant::now();
        loop {
            let context = self.bucket.context(wall_clock());
            let vbucket = self.bucket.vbucket(vbid).expect("the key decides on a vbucket");
            match vbucket.store(&context, key, &request) {
                MutationOutcome::Done(mutation) => {
                    let before = self.last.insert(vbid, mutation.seqno);
                    debug_assert!(before < Some(mutation.seqno), "seqnos ascend");
                    self.written += 1;
                    return Ok(());
                }
                MutationOutcome::Exists => return Ok(()),
                MutationOutcome::Refused(OperationRejection::NeedsFetch)
                    if began.elapsed() < PATIENCE =>
                {
                    self.fetch(vbid, key);
                }
                MutationOutcome::Refused(OperationRejection::TemporaryFailure)
                    if began.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(PAUSE);
                }
                refused => return Err(self.failed(&row.key, format!("{refused:?}"))),
            }
        }
    }

    /// Waits until the store was asked for a document.
    fn fetch(&self, vbid: Vbid, key: DocKey<'_>) {
        let (sender, ended) = mpsc::channel();
        let sink: Arc<dyn FetchSink> = Arc::new(End(sender));
        self.bucket.fetch(vbid, key, &sink, 0);
        // If it takes longer, the document is tried again, until it was tried for long enough.
        let _ = ended.recv_timeout(PATIENCE);
    }

    /// Waits until everything written is on disk.
    fn persist(&self) -> Result<(), InitError> {
        if self.is_in_memory {
            return Ok(());
        }
        for (vbid, seqno) in &self.last {
            let (sender, ended) = mpsc::channel();
            let sink: Arc<dyn PersistenceSink> = Arc::new(End(sender));
            let is_persisted = self.bucket.when_persisted(*vbid, (*seqno, None), &sink, 0);
            if !is_persisted && ended.recv_timeout(PATIENCE) != Ok(true) {
                return Err(self.failed(b"", "the store does not take them".to_owned()));
            }
        }
        Ok(())
    }

    fn failed(&self, key: &[u8], detail: String) -> InitError {
        let key = String::from_utf8_lossy(key).into_owned();
        InitError::Document { bucket: self.name.to_owned(), key, detail }
    }
}

/// Passes on the end of a wait: true for success.
struct End(Sender<bool>);

impl FetchSink for End {
    fn fetched(&self, _: u64, outcome: FetchOutcome) {
        // The receiver is gone when it has waited for long enough.
        let _ = self.0.send(outcome == FetchOutcome::Ready);
    }
}

impl PersistenceSink for End {
    fn persisted(&self, _: u64, outcome: PersistOutcome) {
        // As above.
        let _ = self.0.send(outcome == PersistOutcome::Persisted);
    }
}
