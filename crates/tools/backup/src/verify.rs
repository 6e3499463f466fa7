//! Whether an archive is what was written: every file, every record, and that nothing is missing
//! between a backup and its parent.

use crate::archive::{Archive, ArchiveEntry, EntryState, is_text_of_finished, segment_name};
use crate::checker::BackupChecker;
use crate::error::ArchiveError;
use crate::manifest::BackupManifest;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub backups: u64,
    pub segments: u64,
    pub records: u64,
    /// Bytes of their segments.
    pub bytes: u64,
    /// Damage; each entry names the file or the backup.
    pub problems: Vec<String>,
    /// Notes about the archive that are no damage, such as an unfinished backup.
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
    let entries: Vec<ArchiveEntry> = match only {
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
            let of = |manifest: &BackupManifest| ArchiveEntry {
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
    manifest: &BackupManifest,
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
    let mut checker = match BackupChecker::new(manifest) {
        Ok(checker) => checker,
        Err(error) => {
            report.problems.push(error.to_string());
            return Ok(());
        }
    };
    // The wanted backup is the last one of its chain.
    let first = chain.segments() - manifest.segments.len();
    let mut memory = Vec::new();
    for segment in first..chain.segments() {
        let checked = chain.read(archive, segment, std::mem::take(&mut memory)).and_then(|bytes| {
            progress(bytes.len() as u64);
            memory = bytes;
            let footer = chain.check_segment(segment, &memory)?;
            report.records += footer.mutations + footer.removals;
            checker.append(chain.name(segment), &footer)
        });
        match checked {
            Ok(()) => {
                report.segments += 1;
                report.bytes += memory.len() as u64;
            }
            Err(error @ ArchiveError::Store { .. }) => return Err(error),
            Err(error) => {
                report.problems.push(error.to_string());
                checker.skip();
            }
        }
    }
    if let Err(error) = checker.finish() {
        report.problems.push(error.to_string());
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
