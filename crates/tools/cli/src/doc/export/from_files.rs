//! Documents from the data directory of a stopped server, in the order of collection, vbucket and
//! key.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use indicatif::{HumanCount, ProgressBar};
use oribi_server::buckets::offline::{OfflineBucket, StoredDocument};
use oribi_types::{CollectionId, Vbid};
use signal_hook::consts::SIGINT;

use super::lines::{DEFAULT_PATH, ExportArgs, ExportLines, ExportOutcome, parts_of};
use crate::backup::progress::with_rate_and_left;
use crate::doc::expiry::now_s;
use crate::doc::place::named;
use crate::doc::row::attributes::attributes_of;
use crate::doc::row::write::WriteMeta;

/// Exports them. It returns an error only before the output begins; the outcome has later failures.
pub fn run(args: &ExportArgs, data_dir: &Path) -> anyhow::Result<(ExportLines, ExportOutcome)> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))
        .context("cannot register for Ctrl-C")?;
    let bucket = OfflineBucket::open(data_dir, &args.target.bucket)?;
    let paths = match (args.all_collections, args.collections.is_empty()) {
        (true, _) => bucket.collections(),
        (false, true) => vec![DEFAULT_PATH.to_owned()],
        (false, false) => args.collections.clone(),
    };
    let mut collections = Vec::with_capacity(paths.len());
    for path in &paths {
        collections.push((bucket.collection(path)?, path.as_str()));
    }
    let vbids = bucket.vbuckets()?;
    let mut lines = args.lines()?;
    let progress = progress_bar((vbids.len() * collections.len()) as u64);
    let mut scan = Scan {
        bucket: &bucket,
        // One instant for all: a document that expires during it existed when the export began.
        now_s: now_s(),
        args,
        interrupted: &interrupted,
        lines: &mut lines,
    };
    let outcome = scan.run(&collections, &vbids, &progress);
    progress.finish_and_clear();
    Ok((lines, outcome))
}

struct Scan<'a> {
    bucket: &'a OfflineBucket,
    now_s: u32,
    args: &'a ExportArgs,
    interrupted: &'a AtomicBool,
    lines: &'a mut ExportLines,
}

impl Scan<'_> {
    fn run(
        &mut self,
        collections: &[(CollectionId, &str)],
        vbids: &[Vbid],
        progress: &ProgressBar,
    ) -> ExportOutcome {
        for collection in collections {
            for vbid in vbids {
                let at = || format!("{vbid} of collection {}", collection.1);
                if !self.vbucket(*vbid, *collection).with_context(at)? {
                    return Ok(false);
                }
                progress.inc(1);
                progress.set_message(format!("{} docs", HumanCount(self.lines.documents)));
            }
        }
        Ok(true)
    }

    fn vbucket(&mut self, vbid: Vbid, (collection, path): (CollectionId, &str)) -> ExportOutcome {
        let Scan { args, interrupted, .. } = *self;
        let lines = &mut *self.lines;
        let place = args.has_places().then(|| parts_of(path));
        let mut written = Ok(());
        self.bucket.visit(vbid, collection, self.now_s, &mut |document| {
            written = line(lines, &document, args.meta, place);
            match written.is_err() || interrupted.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        written?;
        Ok(!interrupted.load(Ordering::Relaxed))
    }
}

fn line(
    lines: &mut ExportLines,
    document: &StoredDocument<'_>,
    with_meta: bool,
    place: Option<(&str, &str)>,
) -> anyhow::Result<()> {
    if !with_meta {
        return lines.add(document.key, document.value, None);
    }
    let (flags, expiry) = (document.flags, document.expiry);
    let has_attributes = !document.attributes.is_empty();
    let (attributes, _) =
        attributes_of(document.attributes, has_attributes).with_context(|| named(document.key))?;
    let meta = WriteMeta { cas: document.cas.0, flags, expiry, attributes, place };
    lines.add(document.key, document.value, Some(&meta))
}

fn progress_bar(vbuckets: u64) -> ProgressBar {
    let style = with_rate_and_left("{wide_bar} {pos}/{len} vbuckets  {msg}  {left}");
    ProgressBar::new(vbuckets).with_style(style)
}
