//! Versions that no server sends, and footers and manifests that say something else than their
//! records, are damage for `verify` and for a restore.

use std::sync::Arc;

use oribi_protocol::change_token::Position;
use oribi_protocol::limits::KEY_BYTES_MAX;
use oribi_types::{Seqno, VbUuid};
use proptest::prelude::*;

use super::*;
use crate::archive::Archive;
use crate::limits::SEGMENT_BYTES_MAX;
use crate::store::MemoryArchiveStore;
use crate::testing::{TestDocument, any_document, archive_of, begin};
use crate::verify::verify;
use crate::writer::BackupWriter;

/// A finished backup whose vbuckets end at seqno 10, with a segment for each of these lists.
fn backup_of(segments: &[&[TestDocument]]) -> MemoryArchiveStore {
    let store = MemoryArchiveStore::default();
    let archive = Arc::new(archive_of(&store));
    let writer = BackupWriter::begin(archive, begin("0001", None, ""), 1).unwrap();
    let mut segment = writer.segment().unwrap();
    let mut token = writer.token();
    for vbid in (0..4).map(Vbid) {
        token.set(Position::at(vbid, VbUuid(1), Seqno(10)));
    }
    for documents in segments {
        for document in *documents {
            segment.push(&document.as_record()).unwrap();
        }
        writer.cut(&mut segment, &token).unwrap();
    }
    writer.finish(&token, 2_000).unwrap();
    store
}

/// A restore's checks before it writes.
fn check(archive: &Archive) -> Result<(), ArchiveError> {
    let chain = archive.chain("0001")?;
    for backup in chain.backups() {
        let mut checker = BackupChecker::new(backup.manifest)?;
        for segment in backup.segments {
            let bytes = chain.read(archive, segment, Vec::new())?;
            checker.append(chain.name(segment), &chain.check_segment(segment, &bytes)?)?;
        }
        checker.finish()?;
    }
    Ok(())
}

/// The one problem that `verify` finds, and that ends a restore.
fn problem_of(store: &MemoryArchiveStore) -> String {
    let archive = archive_of(store);
    let found = verify(&archive, None, |_| {}).unwrap().problems;
    let error = check(&archive).expect_err("a restore is refused").to_string();
    assert_eq!(found, [error.as_str()]);
    error
}

fn at(seqno: u64) -> TestDocument {
    TestDocument { seqno, ..Default::default() }
}

#[test]
fn versions_that_no_server_sends_are_damage() {
    let numbers = |cas, rev| TestDocument { numbers: (cas, rev, 0, 0), ..at(1) };
    let documents = [
        (TestDocument { vbid: 4, ..at(1) }, "the bucket has no such vbucket"),
        (TestDocument { vbid: u16::MAX, ..at(1) }, "the bucket has no such vbucket"),
        (at(0), "no version has such a seqno"),
        (at(u64::MAX), "no version has such a seqno"),
        (numbers(0, 1), "no version has such a CAS"),
        (numbers(u64::MAX, 1), "no version has such a CAS"),
        (numbers(1, 0), "revisions begin at 1"),
        (TestDocument { key: Vec::new(), ..at(1) }, "the key is empty"),
        (TestDocument { key: vec![b'k'; KEY_BYTES_MAX + 1], ..at(1) }, "the key is long"),
        (TestDocument { datatype: 8, ..at(1) }, "the datatype is unknown"),
    ];
    for (document, reason) in documents {
        let problem = problem_of(&backup_of(&[&[document]]));
        assert!(problem.contains("00000.seg") && problem.contains(reason), "{problem}");
    }
    let longest = TestDocument { key: vec![b'k'; KEY_BYTES_MAX], ..at(10) };
    check(&archive_of(&backup_of(&[&[at(1)], &[longest]]))).unwrap();
}

#[test]
fn seqnos_rise_up_to_the_end_of_the_backup() {
    let cases: [(&[&[TestDocument]], _); 3] = [
        (&[&[at(2), at(2)]], "seqno 2 of vbucket 0 comes after 2"),
        (&[&[at(2)], &[at(1)]], "seqno 1 of vbucket 0 comes after 2"),
        (&[&[at(11)]], "vbucket 0 ends at seqno 10, but has 11"),
    ];
    for (segments, reason) in cases {
        let problem = problem_of(&backup_of(segments));
        assert!(problem.contains(reason), "{problem}");
    }
}

/// The manifest with other numbers, and the right checksum.
fn change_manifest(store: &MemoryArchiveStore, change: impl FnOnce(&mut BackupManifest)) {
    let mut manifest = archive_of(store).manifest("0001").unwrap();
    change(&mut manifest);
    let bytes = crate::checked_text::write(&manifest).unwrap();
    store.files.lock().unwrap().insert(manifest_name("0001"), bytes);
}

#[test]
fn manifests_that_count_other_records_are_damage() {
    let store = backup_of(&[&[at(1)]]);
    change_manifest(&store, |manifest| manifest.mutations = u64::MAX);
    let problem = problem_of(&store);
    assert!(problem.contains("the backup has 1 records, not 18446744073709551615"), "{problem}");
    change_manifest(&store, |manifest| (manifest.mutations, manifest.removals) = (0, 1));
    problem_of(&store);
}

#[test]
fn files_are_as_long_as_their_manifest_says() {
    let store = backup_of(&[&[at(1)]]);
    let name = "backups/0001/00000.seg";
    let bytes = store.files.lock().unwrap()[name].len();
    store.files.lock().unwrap().insert(name.to_owned(), vec![0; SEGMENT_BYTES_MAX / 64]);
    let problem = problem_of(&store);
    assert!(problem.contains(&format!("8388608 bytes, at most {bytes} ")), "{problem}");
}

proptest! {
    // Invariant: `verify` and a restore apply the same rules to every record of an archive.
    /// `verify` and a restore agree about any archive.
    #[test]
    fn a_restore_takes_what_verify_finds_whole(
        documents in prop::collection::vec((any_document(), 1..4_u64), 1..10),
        sums in prop::option::of(any::<(u64, u64)>()),
    ) {
        let mut seqno = 0;
        let documents: Vec<TestDocument> = documents.into_iter().map(|(document, step)| {
            seqno += step;
            TestDocument { seqno, ..document }
        }).collect();
        let store = backup_of(&[&documents]);
        if let Some((mutations, removals)) = sums {
            change_manifest(&store, |manifest| {
                (manifest.mutations, manifest.removals) = (mutations, removals);
            });
        }
        let archive = archive_of(&store);
        let is_whole = verify(&archive, None, |_| {}).unwrap().problems.is_empty();
        prop_assert_eq!(check(&archive).is_ok(), is_whole);
    }
}
