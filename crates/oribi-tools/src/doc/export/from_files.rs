//! Documents from the data directory of a stopped server, in the order of vbucket and key.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use oribi_server::offline::OfflineBucket;
use oribi_types::{CollectionId, Vbid};
use signal_hook::consts::SIGINT;

use super::lines::{ExportArgs, Lines, Outcome};
use crate::doc::expiry::now_s;
use crate::doc::row::write::Meta;

/// Exports them. It returns an error only before the output begins; the outcome has later failures.
pub fn run(args: &ExportArgs, data_dir: &Path) -> anyhow::Result<(Lines, Outcome)> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))
        .context("cannot register for Ctrl-C")?;
    let bucket = OfflineBucket::open(data_dir, &args.place.target.bucket)?;
    let path = args.place.collection.as_deref().unwrap_or("_default._default");
    let collection = bucket.collection(path)?;
    let vbids = bucket.vbuckets()?;
    let mut lines = args.lines()?;
    let progress = progress_bar(vbids.len() as u64);
    let mut scan = Scan {
        bucket: &bucket,
        collection,
        // One instant for all: a document that expires meanwhile existed when the export began.
        now_s: now_s(),
        with_meta: args.meta,
        interrupted: &interrupted,
        lines: &mut lines,
    };
    let outcome = scan.run(&vbids, &progress);
    progress.finish_and_clear();
    Ok((lines, outcome))
}

struct Scan<'a> {
    bucket: &'a OfflineBucket,
    collection: CollectionId,
    now_s: u32,
    with_meta: bool,
    interrupted: &'a AtomicBool,
    lines: &'a mut Lines,
}

impl Scan<'_> {
    fn run(&mut self, vbids: &[Vbid], progress: &ProgressBar) -> Outcome {
        for vbid in vbids {
            if !self.vbucket(*vbid).with_context(|| format!("{vbid}"))? {
                return Ok(false);
            }
            progress.inc(1);
            progress.set_message(format!("{} docs", HumanCount(self.lines.documents)));
        }
        Ok(true)
    }

    fn vbucket(&mut self, vbid: Vbid) -> Outcome {
        let Scan { with_meta, interrupted, .. } = *self;
        let lines = &mut *self.lines;
        let mut written = Ok(());
        self.bucket.visit(vbid, self.collection, self.now_s, &mut |document| {
            let (flags, expiry) = (document.flags, document.expiry);
            let meta = Meta { cas: document.cas.0, flags, expiry };
            written = lines.add(document.key, document.value, with_meta.then_some(&meta));
            match written.is_err() || interrupted.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        written?;
        Ok(!interrupted.load(Ordering::Relaxed))
    }
}

fn progress_bar(vbuckets: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} vbuckets  {msg}  {eta}");
    ProgressBar::new(vbuckets).with_style(style.expect("the template is valid"))
}
