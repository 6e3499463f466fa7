//! With damage accepted, everything that is whole is there, and whatever is not is accounted for.

use std::collections::BTreeMap;

use super::super::layout::{
    FRAME_HEADER_BYTES, FRAME_MAGIC, FRAME_NUMBER_AT, SEGMENT_HEADER_BYTES,
};
use super::super::planted::Bug;
use super::super::sim_files::SimDirectory;
use super::super::{LogLosses, LogOptions, LogStore};
use super::damage::{COMMITS, VB, filled, kept, logs, reopen, shown, unhinted};
use super::driver::options;
use crate::conformance::fixture::{commit, scan_keys, states};
use crate::{FailoverEntry, KvStore, SeededRandom, StoreMaintenance, VbucketState, unlimited};
use oribi_types::{CollectionId, Seqno, Vbid};

fn accepting() -> LogOptions {
    LogOptions { accepts_damage: true, ..options() }
}

fn salvage(files: &SimDirectory) -> LogStore {
    reopen(files, &accepting()).expect("what is whole is salvaged")
}

/// Overwrites a part of a file.
fn spoil(files: &SimDirectory, name: &str, at: usize, bytes: usize) {
    let mut content = files.content(name);
    let end = (at + bytes).min(content.len());
    content[at..end].iter_mut().for_each(|byte| *byte ^= 0xa5);
    files.replace(name, &content);
}

/// Offsets of all frames of a file.
fn frames_of(content: &[u8]) -> Vec<usize> {
    let is_frame = |at: &usize| content[*at..].starts_with(&FRAME_MAGIC);
    (SEGMENT_HEADER_BYTES..content.len()).step_by(8).filter(is_frame).collect()
}

fn lost(places: u64, frames: u64, bytes: u64) -> LogLosses {
    LogLosses { places, frames, bytes, seqnos: BTreeMap::new() }
}

#[test]
fn a_damaged_root_is_rebuilt_from_earlier_ones() {
    let files = filled();
    let newest = logs(&files).pop().expect("a segment");
    let frames = frames_of(&files.content(&newest));
    let original = reopen(&files.copy(), &unhinted()).expect("it is whole");
    for at in [0, 20, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 60] {
        let files = files.copy();
        spoil(&files, &newest, at, 1);
        reopen(&files, &unhinted()).err().expect("damage is refused");
        let store = salvage(&files);
        assert_eq!(shown(&store) as u64, COMMITS, "damage at {at}");
        assert_eq!(histories(&store), histories(&original));
        let expected = match at < SEGMENT_HEADER_BYTES {
            true => lost(1, 0, SEGMENT_HEADER_BYTES as u64),
            false => lost(1, 1, (frames[1] - frames[0]) as u64),
        };
        assert_eq!(store.losses(), Some(expected), "damage at {at}");
        assert!(!store.properties().ended_in_order, "every vbucket begins a new history");
        drop(store);
        let again = reopen(&files, &unhinted()).expect("the damage is gone");
        assert_eq!((shown(&again) as u64, again.losses()), (COMMITS, None));
    }
}

/// Highest seqno and failover table of each vbucket.
fn histories(store: &LogStore) -> Vec<(Vbid, Seqno, Vec<FailoverEntry>)> {
    let parts =
        |(vbid, state): (Vbid, VbucketState)| (vbid, state.high_seqno, state.failover_table);
    states(store).into_iter().map(parts).collect()
}

/// Bounds and local documents come back as well.
#[test]
fn a_rebuilt_root_keeps_what_was_removed() {
    let files = SimDirectory::new(1);
    let store = LogStore::open_simulated(&files, false, &options(), Bug::None).expect("a store");
    store.put_local("list", b"value").expect("it is written");
    let gone = Vbid(2);
    commit(&store, gone, &[kept(1)]);
    commit(&store, VB, &[kept(1).in_collection(9)]);
    store.drop_vbucket(gone, None).expect("it is dropped");
    store.purge_collection(VB, CollectionId(9)).expect("it is purged");
    for seqno in 2..=COMMITS {
        commit(&store, VB, &[kept(seqno)]);
    }
    drop(store);
    let newest = logs(&files).pop().expect("a segment");
    spoil(&files, &newest, SEGMENT_HEADER_BYTES, FRAME_HEADER_BYTES);
    let store = salvage(&files);
    assert_eq!(shown(&store) as u64, COMMITS - 1);
    assert_eq!(scan_keys(&store, gone), []);
    assert_eq!(store.get_local("list").expect("it is read"), Some(b"value".to_vec()));
    assert_eq!(states(&store).len(), 1, "a dropped vbucket has no state");
}

/// Without any root, later commits say what they know.
#[test]
fn the_only_segment_is_salvaged_without_its_root() {
    let large = LogOptions { segment_bytes: 1 << 20, ..options() };
    let files = SimDirectory::new(1);
    let store = LogStore::open_simulated(&files, false, &large, Bug::None).expect("a store");
    for seqno in 1..=COMMITS {
        commit(&store, VB, &[kept(seqno)]);
    }
    drop(store);
    let names = logs(&files);
    assert_eq!(names.len(), 1);
    // The magic of the header and the root; the store's seed is between them.
    spoil(&files, &names[0], 0, 1);
    spoil(&files, &names[0], SEGMENT_HEADER_BYTES, 1);
    let store = salvage(&files);
    assert_eq!(shown(&store) as u64, COMMITS);
    let found = states(&store);
    assert_eq!((found.len(), found[0].0, found[0].1.high_seqno.0), (1, VB, COMMITS));
    assert_eq!(store.losses().map(|losses| losses.places), Some(2));
}

#[test]
fn losses_are_frames_bytes_and_seqnos() {
    let original = filled();
    let names = logs(&original);
    for name in &names {
        let content = original.content(name);
        let frames = frames_of(&content);
        // Behind the root, and before a last frame.
        let (at, next) = (frames[1], frames[2]);
        let number = u64::from_le_bytes(content[at + FRAME_NUMBER_AT..][..8].try_into().unwrap());
        let files = original.copy();
        spoil(&files, name, at + FRAME_HEADER_BYTES, 1);
        let store = salvage(&files);
        let missing: Vec<u64> = (1..=COMMITS).filter(|seqno| !has(&store, VB, *seqno)).collect();
        assert_eq!(missing.len(), 1, "frame {number} has one commit");
        let seqnos = BTreeMap::from([(VB, vec![missing[0]..=missing[0]])]);
        let expected = LogLosses { seqnos, ..lost(1, 1, (next - at) as u64) };
        assert_eq!(store.losses(), Some(expected));
    }
}

#[test]
fn a_missing_segment_is_lost_as_a_whole() {
    let files = filled();
    let names = logs(&files);
    let content = files.content(&names[1]);
    files.lose(&names[1]);
    let store = salvage(&files);
    let frames = frames_of(&content).len() as u64;
    let losses = store.losses().expect("a segment is lost");
    assert_eq!((losses.places, losses.frames), (1, frames));
    assert_eq!(losses.bytes, content.len() as u64);
    let lost_seqnos = losses.seqnos[&VB].iter().map(|range| range.end() - range.start() + 1);
    assert_eq!(lost_seqnos.sum::<u64>() + shown(&store) as u64, COMMITS);
}

fn has(store: &LogStore, vbid: Vbid, seqno: u64) -> bool {
    store.get(vbid, kept(seqno).doc_key(), &mut unlimited, &mut |_| {}).expect("it can be read")
}

/// Commits of three vbuckets in turn.
fn filled_by_turns() -> SimDirectory {
    let files = SimDirectory::new(1);
    let store = LogStore::open_simulated(&files, false, &options(), Bug::None).expect("a store");
    for seqno in 1..=COMMITS {
        for vbid in (0..3).map(Vbid) {
            commit(&store, vbid, &[kept(seqno)]);
        }
    }
    files
}

// Invariant: A log opened with accepted damage keeps every whole frame and accounts for the missing
// ones.
#[test]
fn missing_documents_are_among_the_losses() {
    let original = filled_by_turns();
    let names = logs(&original);
    let mut random = SeededRandom::new(0x5a1);
    let mut salvaged_with_gaps = 0;
    for round in 0..300 {
        let files = original.copy();
        for _ in 0..1 + random.below(3) {
            let name = &names[random.below(names.len() as u64) as usize];
            let is_newest = Some(name) == names.last();
            let length = files.names().contains(name).then(|| files.content(name).len());
            let Some(length) = length.filter(|length| *length > 200) else { continue };
            match random.below(4) {
                0 if !is_newest => files.lose(name),
                1 if !is_newest => {
                    let cut = random.below(length as u64) as usize;
                    files.replace(name, &files.content(name)[..cut]);
                }
                // The closing note vouches for the last commit.
                _ => spoil(&files, name, random.below(length as u64 - 170) as usize, 100),
            }
        }
        let store = salvage(&files);
        let losses = store.losses().unwrap_or_default();
        let mut missing = 0;
        for vbid in (0..3).map(Vbid) {
            let ranges = losses.seqnos.get(&vbid).cloned().unwrap_or_default();
            let highest = (1..=COMMITS).rfind(|seqno| has(&store, vbid, *seqno));
            for seqno in (1..=COMMITS).filter(|seqno| !has(&store, vbid, *seqno)) {
                let is_known = ranges.iter().any(|range| range.contains(&seqno));
                assert!(is_known, "round {round}: {vbid} lacks {seqno}: {losses:?}");
                missing += 1;
            }
            let state = states(&store).into_iter().find(|(found, _)| *found == vbid);
            let high_seqno = state.map_or(0, |(_, state)| state.high_seqno.0);
            assert!(high_seqno >= highest.unwrap_or(0), "round {round}: {vbid}");
        }
        // Files may be missing because they were removed, so there are at least so many.
        assert!(missing == 0 || losses.frames > 0, "round {round}");
        assert!(missing == 0 || !store.properties().ended_in_order, "round {round}");
        salvaged_with_gaps += u32::from(missing > 0);
        drop(store);
        let again = reopen(&files, &unhinted()).expect("the damage is gone");
        let left: usize = (0..3).map(|vbid| scan_keys(&again, Vbid(vbid)).len()).sum();
        assert_eq!(left as u64 + missing, 3 * COMMITS, "round {round}");
    }
    assert!(salvaged_with_gaps > 100, "{salvaged_with_gaps} rounds lost documents");
}
