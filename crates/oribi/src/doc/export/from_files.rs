//! Documents from the data directory of a stopped server, in the order of vbucket and key.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use oribi_server::offline::OfflineBucket;
use signal_hook::consts::SIGINT;

use super::{ExportArgs, Lines};
use crate::doc::expiry::now_s;
use crate::doc::row::write::Meta;

/// Exports them; false when Ctrl-C ended it before all were.
pub fn run(args: &ExportArgs, data_dir: &Path) -> anyhow::Result<(Lines, bool)> {
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))
        .context("cannot register for Ctrl-C")?;
    let bucket = OfflineBucket::open(data_dir, &args.place.target.bucket)?;
    let path = args.place.collection.as_deref().unwrap_or("_default._default");
    let collection = bucket.collection(path)?;
    let mut lines = args.lines()?;
    let vbids = bucket.vbuckets()?;
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} vbuckets  {msg}  {eta}");
    let progress =
        ProgressBar::new(vbids.len() as u64).with_style(style.expect("the template is valid"));
    // One instant for all: what expires meanwhile was there when the export began.
    let now_s = now_s();
    for vbid in vbids {
        let mut written = Ok(());
        bucket.visit(vbid, collection, now_s, &mut |document| {
            let (flags, expiry) = (document.flags, document.expiry);
            let meta = Meta { cas: document.cas.0, flags, expiry };
            written = lines.add(document.key, document.value, args.meta.then_some(&meta));
            match written.is_err() || interrupted.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        written?;
        if interrupted.load(Ordering::Relaxed) {
            progress.finish_and_clear();
            return Ok((lines, false));
        }
        progress.inc(1);
        progress.set_message(format!("{} docs", HumanCount(lines.documents)));
    }
    progress.finish_and_clear();
    Ok((lines, true))
}
