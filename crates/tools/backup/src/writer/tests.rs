//! A small bucket is backed up again and again, by programs that are killed, while its history
//! grows and is lost; what a restore reads equals the bucket. Then every file is damaged.

use std::collections::BTreeMap;

use oribi_protocol::change_token::{ChangeToken, Position};
use oribi_types::{Seqno, VbUuid, Vbid};
use proptest::prelude::*;

use super::*;
use crate::chain::Chain;
use crate::record::RecordKind;
use crate::store::MemoryArchiveStore;
use crate::testing::{TestDocument, archive_of, begin};
use crate::verify::verify;

const VBUCKETS: u16 = 4;

/// Newest version of each key, deletions included: one vbucket.
#[derive(Clone, Default)]
struct Vbucket {
    history: u64,
    high: u64,
    documents: BTreeMap<Vec<u8>, TestDocument>,
}

#[derive(Clone, Debug)]
enum Step {
    /// Vbucket, key, collection, kind, value.
    Write(u16, u8, u32, RecordKind, Vec<u8>),
    /// The vbucket loses what it has after a part of its history.
    Crash(u16),
    /// A backup, full or incremental, killed after some changes of the store.
    Backup { full: bool, killed: Vec<usize>, cut_every: usize },
    /// A collection is dropped.
    Drop(u32),
}

struct Source {
    vbuckets: Vec<Vbucket>,
    dropped: Vec<u32>,
    manifest_uid: u64,
}

impl Source {
    fn begin(&self, id: String, parent: Option<&BackupManifest>) -> Begin {
        let from = parent.map_or(String::new(), |parent| parent.token.clone());
        let mut begin = begin(&id, parent.map(|parent| &*parent.begin.id), &from);
        begin.manifest_uid = self.manifest_uid;
        begin.places.retain(|place| !self.dropped.contains(&place.id));
        begin
    }

    /// Streams from where the writer is until now, odd and even vbuckets into their own segments;
    /// returns the token there.
    fn stream(
        &self,
        writer: &BackupWriter,
        segments: &mut [SegmentWriter; 2],
        cut_every: usize,
    ) -> Result<ChangeToken, ArchiveError> {
        let mut tokens = [ChangeToken::default(), ChangeToken::default()];
        let mut all = writer.token();
        for (vbid, vbucket) in (0..).map(Vbid).zip(&self.vbuckets) {
            let lane = usize::from(vbid.0 % 2);
            let (segment, token) = (&mut segments[lane], &mut tokens[lane]);
            let position = all.position(vbid).copied().unwrap_or(Position::beginning(vbid));
            let mut seqno = position.seqno.0;
            if seqno > 0 && position.vb_uuid != VbUuid(vbucket.history) {
                seqno = 0;
                token.set(Position::beginning(vbid));
                segment.reset(vbid);
                writer.cut(segment, token)?;
            }
            let mut documents: Vec<&TestDocument> = vbucket.documents.values().collect();
            documents.sort_by_key(|document| document.seqno);
            let mut pushed = 0;
            for document in documents.into_iter().filter(|document| document.seqno > seqno) {
                segment.push(&document.as_record())?;
                token.set(Position::at(vbid, VbUuid(vbucket.history), Seqno(document.seqno)));
                pushed += 1;
                if pushed % cut_every == 0 {
                    writer.cut(segment, token)?;
                }
            }
            let end = Position::at(vbid, VbUuid(vbucket.history), Seqno(vbucket.high));
            token.set(end);
            all.set(end);
        }
        for (segment, token) in segments.iter_mut().zip(&tokens).rev() {
            writer.cut(segment, token)?;
        }
        Ok(all)
    }

    fn table(&self) -> BTreeMap<(u32, Vec<u8>), TestDocument> {
        let all = self.vbuckets.iter().flat_map(|vbucket| vbucket.documents.values());
        let alive = all.filter(|document| !self.dropped.contains(&document.collection));
        alive
            .map(|document| ((document.collection, document.key.clone()), document.clone()))
            .collect()
    }
}

/// One run of the program; it dies when the store does.
fn run(
    source: &Source,
    store: &MemoryArchiveStore,
    full: bool,
    cut_every: usize,
) -> Result<(), ArchiveError> {
    let archive = archive_of(store);
    let plain = source.begin("0".to_owned(), None);
    let archive = Arc::new(archive);
    let entries = archive.entries()?;
    let writer = match Archive::unfinished_for(&entries, &plain) {
        Some(begin) => BackupWriter::resume(archive, begin.clone(), 1)?,
        None => {
            let parent = if full { None } else { archive.parent_for(&entries, &plain) };
            let id = format!("{:04}", entries.len() + 1);
            BackupWriter::begin(archive, source.begin(id, parent), 1)?
        }
    };
    let mut segments = [writer.segment()?, writer.segment()?];
    // What the stream tells of lists that are newer than the backup's beginning, in each of them.
    for (&id, manifest_uid) in source.dropped.iter().zip(2..) {
        let change = crate::manifest::CollectionChange::Dropped { id };
        for segment in &mut segments {
            segment.event(CollectionEvent { manifest_uid, change: change.clone() });
        }
    }
    let token = source.stream(&writer, &mut segments, cut_every)?;
    writer.finish(&token, 2_000)?;
    Ok(())
}

fn restored(archive: &Archive, chain: &Chain) -> BTreeMap<(u32, Vec<u8>), TestDocument> {
    let mut table = BTreeMap::new();
    for segment in 0..chain.segments() {
        let bytes = chain.read(archive, segment, Vec::new()).unwrap();
        let visited = chain.open(segment, &bytes).unwrap().for_each(|record| {
            if chain.counts(segment, record) {
                table.insert((record.collection.0, record.key.to_vec()), TestDocument::of(record));
            }
            Ok::<(), ArchiveError>(())
        });
        visited.unwrap();
    }
    table
}

fn any_step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        3 => Just(RecordKind::Mutation),
        1 => Just(RecordKind::Deletion),
        1 => Just(RecordKind::Expiration)
    ];
    let value = prop::collection::vec(any::<u8>(), 0..30);
    prop_oneof![
        12 => (0..VBUCKETS, 0..6_u8, 0..3_u32, kind, value)
            .prop_map(|(vbid, key, collection, kind, value)| Step::Write(vbid, key, collection, kind, value)),
        1 => (0..VBUCKETS).prop_map(Step::Crash),
        4 => (prop::bool::weighted(0.2), prop::collection::vec(0..5_usize, 0..3), 1..6_usize)
            .prop_map(|(full, killed, cut_every)| Step::Backup { full, killed, cut_every }),
        1 => (1..3_u32).prop_map(Step::Drop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Invariant: A backup counts once its manifest is durable, and the manifest is written last.
    #[test]
    fn a_restore_reads_the_bucket_after_each_fault(steps in prop::collection::vec(any_step(), 1..60)) {
        let store = MemoryArchiveStore::default();
        archive_of(&store);
        let vbuckets = vec![Vbucket { history: 1, ..Default::default() }; usize::from(VBUCKETS)];
        let mut source = Source { vbuckets, dropped: Vec::new(), manifest_uid: 1 };
        for step in steps {
            match step {
                Step::Write(vbid, key, collection, kind, value) => {
                    let vbucket = &mut source.vbuckets[usize::from(vbid)];
                    vbucket.high += 1;
                    let key = vec![collection as u8, vbid as u8, key];
                    let document = TestDocument { kind, vbid, seqno: vbucket.high, collection, key, value, ..Default::default() };
                    // Nothing is written to a collection that is gone.
                    if !source.dropped.contains(&collection) {
                        vbucket.documents.insert(document.key.clone(), document);
                    }
                }
                Step::Crash(vbid) => {
                    let vbucket = &mut source.vbuckets[usize::from(vbid)];
                    vbucket.history += 1;
                    vbucket.high /= 2;
                    let high = vbucket.high;
                    vbucket.documents.retain(|_, document| document.seqno <= high);
                }
                Step::Drop(id) => {
                    if !source.dropped.contains(&id) {
                        source.dropped.push(id);
                        source.manifest_uid += 1;
                    }
                }
                Step::Backup { full, killed, cut_every } => {
                    for changes in killed {
                        *store.changes_left.lock().unwrap() = Some(changes);
                        let _ = run(&source, &store, full, cut_every);
                        *store.changes_left.lock().unwrap() = None;
                        let archive = archive_of(&store);
                        prop_assert_eq!(verify(&archive, None, |_| {}).unwrap().problems, Vec::<String>::new());
                    }
                    run(&source, &store, full, cut_every).unwrap();
                    let archive = archive_of(&store);
                    let report = verify(&archive, None, |_| {}).unwrap();
                    prop_assert_eq!((report.problems, report.notices), (vec![], vec![]));
                    let last = archive.find(Some("default"), None).unwrap();
                    let chain = archive.chain(&last.begin.id).unwrap();
                    prop_assert_eq!(restored(&archive, &chain), source.table());
                }
            }
        }
    }
}

/// A full backup and an incremental one, each with two segments.
fn two_backups() -> MemoryArchiveStore {
    let store = MemoryArchiveStore::default();
    let mut source = Source { vbuckets: Vec::new(), dropped: Vec::new(), manifest_uid: 1 };
    source.vbuckets = vec![Vbucket { history: 1, ..Default::default() }; usize::from(VBUCKETS)];
    for round in 0..2 {
        for seqno in round * 4 + 1..round * 4 + 5 {
            let document = TestDocument { seqno, key: vec![seqno as u8], ..Default::default() };
            source.vbuckets[0].high = seqno;
            source.vbuckets[0].documents.insert(document.key.clone(), document);
        }
        run(&source, &store, false, 2).unwrap();
    }
    store
}

// Invariant: Any damage of any file of an archive is named, and nothing is restored from it.
#[test]
fn every_damage_of_every_file_is_named_and_refused() {
    let whole = two_backups();
    let files = whole.files.lock().unwrap().clone();
    assert_eq!(files.len(), 1 + 2 * 3, "{:?}", files.keys());
    let damages: [fn(&mut Vec<u8>); 3] = [
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x20;
        },
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes.push(0),
    ];
    for name in files.keys() {
        for damage in damages.iter().map(Some).chain([None]) {
            let store = MemoryArchiveStore::default();
            *store.files.lock().unwrap() = files.clone();
            match damage {
                Some(damage) => damage(store.files.lock().unwrap().get_mut(name).unwrap()),
                None => drop(store.files.lock().unwrap().remove(name)),
            }
            let archive = match Archive::open(Box::new(store.clone()), None) {
                Ok(archive) => archive,
                Err(error) => {
                    assert!(name == "archive.json" && error.to_string().contains(name), "{error}");
                    Archive::open_or_create(Box::new(store.clone()), None).err().expect("refused");
                    continue;
                }
            };
            assert_ne!(name, "archive.json");
            let report = verify(&archive, None, |_| {}).unwrap();
            let id = name.split('/').nth(1).unwrap();
            assert!(
                report.problems.iter().any(|problem| problem.contains(id)),
                "{name}: {report:?}"
            );
            let names_it = report.problems.iter().any(|problem| problem.contains(name.as_str()));
            assert!(names_it, "{name}: {report:?}");
            let readable = archive.chain("0002").and_then(|chain| {
                (0..chain.segments()).try_for_each(|at| {
                    let bytes = chain.read(&archive, at, Vec::new())?;
                    chain.open(at, &bytes)?.check()
                })
            });
            readable.expect_err("a restore is refused");
        }
    }
}

#[test]
fn a_backup_without_its_parent_is_no_parent() {
    let store = two_backups();
    store.files.lock().unwrap().retain(|name, _| !name.starts_with("backups/0001/"));
    let archive = archive_of(&store);
    let entries = archive.entries().unwrap();
    assert_eq!(archive.parent_for(&entries, &begin("x", None, "")), None);
    let report = verify(&archive, None, |_| {}).unwrap();
    assert!(report.problems[0].contains("0002 cannot be restored, it needs 0001"), "{report:?}");
}

#[test]
fn a_foreign_segment_of_equal_length_is_detected() {
    let store = two_backups();
    let name = "backups/0001/00000.seg";
    let changed = {
        let mut files = store.files.lock().unwrap();
        let file = files.get_mut(name).unwrap();
        // The footer alone says another number, with the right checksum.
        let end = file.len() - 16;
        let footer_bytes = u32::from_be_bytes(file[end..end + 4].try_into().unwrap()) as usize;
        let footer = end - footer_bytes..end;
        let text = String::from_utf8(file[footer.clone()].to_vec()).unwrap();
        let other = text.replacen("\"number\":0", "\"number\":1", 1);
        assert_ne!(text, other);
        file[footer].copy_from_slice(other.as_bytes());
        let checksum = crc32fast::hash(other.as_bytes()).to_be_bytes();
        file[end + 4..end + 8].copy_from_slice(&checksum);
        file.clone()
    };
    ArchiveSegment::open(name, &changed).unwrap().check().unwrap();
    let archive = archive_of(&store);
    let report = verify(&archive, None, |_| {}).unwrap();
    assert!(report.problems[0].contains("is not the one that its manifest names"), "{report:?}");
    archive.chain("0002").unwrap().open(0, &changed).err().expect("a restore is refused");
}

#[test]
fn a_time_or_an_id_names_a_backup() {
    let archive = archive_of(&two_backups());
    let found =
        |at: Option<&str>| archive.find(Some("default"), at).map(|manifest| manifest.begin.id);
    assert_eq!(found(None).unwrap(), "0002");
    assert_eq!(found(Some("0001")).unwrap(), "0001");
    assert_eq!(found(Some("1970-01-01T00:33:20Z")).unwrap(), "0002");
    found(Some("1970-01-01T00:33:19Z")).expect_err("none was finished by then");
    archive.find(Some("other"), None).expect_err("of another bucket");
    assert_eq!(archive.find(None, None).unwrap().begin.id, "0002");
    assert_eq!(
        archive.find(None, Some("../x")).unwrap_err().to_string(),
        "there is no backup ../x"
    );
}

/// Segments that are cut at the same time may become durable in any order.
#[test]
fn a_backup_resumes_before_the_first_missing_segment() {
    let store = MemoryArchiveStore::default();
    let begun = begin("0001", None, "");
    let archive = Arc::new(archive_of(&store));
    let writer = BackupWriter::begin(archive.clone(), begun.clone(), 1).unwrap();
    let mut segment = writer.segment().unwrap();
    let position = |vbid: u16| Position::at(Vbid(vbid), VbUuid(1), Seqno(1));
    for vbid in 0..3 {
        segment.push(&TestDocument { vbid, ..Default::default() }.as_record()).unwrap();
        let mut token = ChangeToken::default();
        token.set(position(vbid));
        writer.cut(&mut segment, &token).unwrap();
    }
    assert_eq!(writer.token().positions(), [position(0), position(1), position(2)]);
    store.files.lock().unwrap().remove("backups/0001/00001.seg").expect("it was written");
    let writer = BackupWriter::resume(archive, begun, 1).unwrap();
    assert_eq!(writer.token().positions(), [position(0)]);
    let files = store.files.lock().unwrap();
    let segments = files.keys().filter(|name| name.ends_with(".seg"));
    assert_eq!(segments.collect::<Vec<_>>(), ["backups/0001/00000.seg"]);
}

/// A manifest never names what could not be written.
#[test]
fn a_backup_with_a_failed_segment_is_not_finished() {
    let store = MemoryArchiveStore::default();
    let writer = BackupWriter::begin(Arc::new(archive_of(&store)), begin("0001", None, ""), 1);
    let writer = writer.unwrap();
    let mut segment = writer.segment().unwrap();
    segment.push(&TestDocument::default().as_record()).unwrap();
    *store.changes_left.lock().unwrap() = Some(0);
    writer.cut(&mut segment, &ChangeToken::default()).expect_err("the store fails");
    *store.changes_left.lock().unwrap() = None;
    let error = writer.finish(&ChangeToken::default(), 1).expect_err("a segment is missing");
    assert!(error.to_string().contains("00000.seg"), "{error}");
}
