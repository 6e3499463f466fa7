//! Whether an archive is what was written: every file, every record, and that nothing is missing
//! between a backup and its parent.

use std::collections::HashMap;

use oribi_protocol::change_token::ChangeToken;
use oribi_types::{Seqno, Vbid};

use crate::archive::{Archive, Entry, EntryState, is_text_of_finished, segment_name};
use crate::error::ArchiveError;
use crate::manifest::Manifest;
use crate::segment::Segment;

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Finished backups.
    pub backups: u64,
    /// Their segments.
    pub segments: u64,
    /// Their records.
    pub records: u64,
    /// Bytes of their segments.
    pub bytes: u64,
    /// What is wrong; each names the file or the backup.
    pub problems: Vec<String>,
    /// What is no damage but worth knowing, such as an unfinished backup.
    pub notices: Vec<String>,
}

/// Reads the backup `only`, or all; `progress` gets the bytes of each segment.
///
/// # Errors
/// When the store fails. Damage is no error but a problem in the report.
pub fn verify(
    archive: &Archive,
    only: Option<&str>,
    mut progress: impl FnMut(u64),
) -> Result<Report, ArchiveError> {
    let mut report = Report::default();
    let entries: Vec<Entry> = match only {
        None => archive.entries()?,
        Some(id) => {
            // What it builds on is part of it.
            let chain = match archive.chain(id) {
                Err(error @ (ArchiveError::Store { .. } | ArchiveError::Unknown(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    report.problems.push(error.to_string());
                    return Ok(report);
                }
                Ok(chain) => chain,
            };
            let of = |manifest: &Manifest| Entry {
                id: manifest.begin.id.clone(),
                state: EntryState::Finished(Box::new(manifest.clone())),
            };
            chain.manifests().iter().map(of).collect()
        }
    };
    for entry in entries {
        match &entry.state {
            EntryState::Finished(manifest) => {
                check_backup(archive, manifest, &mut report, &mut progress)?;
            }
            EntryState::Unfinished(begin) => {
                let notice = format!("{} of \"{}\" is unfinished", entry.id, begin.bucket);
                report.notices.push(notice);
            }
            EntryState::Damaged(error) => report.problems.push(error.to_string()),
        }
    }
    Ok(report)
}

fn check_backup(
    archive: &Archive,
    manifest: &Manifest,
    report: &mut Report,
    progress: &mut impl FnMut(u64),
) -> Result<(), ArchiveError> {
    let id = &manifest.begin.id;
    report.backups += 1;
    let chain = match archive.chain(id) {
        Ok(chain) => chain,
        Err(error @ ArchiveError::Store { .. }) => return Err(error),
        Err(error) => {
            let parent = manifest.begin.parent.as_deref().unwrap_or(id);
            report.problems.push(format!("{id} cannot be restored, it needs {parent}: {error}"));
            return Ok(());
        }
    };
    let first = chain.segments() - manifest.segments.len();
    let mut history = match History::new(manifest) {
        Ok(history) => history,
        Err(reason) => {
            report.problems.push(format!("{id}: {reason}"));
            return Ok(());
        }
    };
    let mut memory = Vec::new();
    for (number, entry) in manifest.segments.iter().enumerate() {
        let file = chain.read(archive, first + number, std::mem::take(&mut memory));
        let outcome = file.and_then(|bytes| {
            progress(bytes.len() as u64);
            let opened = chain.open(first + number, &bytes);
            let outcome = opened.and_then(|segment| history.take(&segment));
            memory = bytes;
            outcome
        });
        match outcome {
            Ok(()) => {
                report.segments += 1;
                report.bytes += entry.bytes;
            }
            Err(error @ ArchiveError::Store { .. }) => return Err(error),
            Err(error) => {
                report.problems.push(error.to_string());
                // What follows cannot be judged without it.
                history.is_whole = false;
            }
        }
    }
    report.records += history.records;
    if history.is_whole
        && let Err(reason) = history.finish(manifest)
    {
        report.problems.push(format!("{id}: {reason}"));
    }
    let known = |name: &String| {
        is_text_of_finished(name)
            || (0..manifest.segments.len()).any(|at| *name == segment_name(id, at))
    };
    for name in archive.files(id)?.iter().filter(|name| !known(name)) {
        report.notices.push(format!("{name} belongs to no backup"));
    }
    Ok(())
}

/// How far each vbucket has come.
struct History {
    /// Last seqno.
    last: HashMap<u16, u64>,
    records: u64,
    mutations: u64,
    removals: u64,
    is_whole: bool,
}

impl History {
    fn new(manifest: &Manifest) -> Result<History, String> {
        let from: ChangeToken = manifest.begin.from.parse().map_err(no_token)?;
        let last = from.positions().iter().map(|place| (place.vbid.0, place.seqno.0)).collect();
        Ok(History { last, records: 0, mutations: 0, removals: 0, is_whole: true })
    }

    fn take(&mut self, segment: &Segment<'_>) -> Result<(), ArchiveError> {
        let damaged = |reason: String| segment.damaged(reason);
        let footer = segment.footer();
        let mut counts: HashMap<u16, (u64, u64, u64)> = HashMap::new();
        segment.for_each(|record| {
            let (Vbid(vbid), Seqno(seqno)) = (record.vbid, record.seqno);
            let last = self.last.entry(vbid).or_default();
            if seqno <= *last && self.is_whole {
                return Err(damaged(format!("seqno {seqno} of vbucket {vbid} comes after {last}")));
            }
            *last = seqno;
            let count = counts.entry(vbid).or_insert((seqno, seqno, 0));
            (count.1, count.2) = (seqno, count.2 + 1);
            self.records += 1;
            match record.kind {
                crate::RecordKind::Mutation => self.mutations += 1,
                _ => self.removals += 1,
            }
            Ok(())
        })?;
        for range in &footer.vbuckets {
            let said = (range.first, range.last, range.records);
            if counts.remove(&range.vbucket) != Some(said) {
                return Err(damaged(format!("its index is wrong about vbucket {}", range.vbucket)));
            }
        }
        if let Some(vbid) = counts.keys().next() {
            return Err(damaged(format!("its index lacks vbucket {vbid}")));
        }
        for vbid in &footer.resets {
            self.last.insert(*vbid, 0);
        }
        Ok(())
    }

    fn finish(&self, manifest: &Manifest) -> Result<(), String> {
        let said = (manifest.mutations, manifest.removals);
        let found = (self.mutations, self.removals);
        if said != found {
            let said = said.0 + said.1;
            return Err(format!("it has {} records, not {said}", self.records));
        }
        let token: ChangeToken = manifest.token.parse().map_err(no_token)?;
        for (&vbid, &last) in &self.last {
            let end = token.position(Vbid(vbid)).map_or(0, |place| place.seqno.0);
            if last > end {
                return Err(format!("vbucket {vbid} ends at seqno {end}, but has {last}"));
            }
        }
        Ok(())
    }
}

fn no_token(error: oribi_protocol::change_token::InvalidToken) -> String {
    error.to_string()
}
