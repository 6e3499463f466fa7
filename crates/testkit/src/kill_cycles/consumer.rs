//! Consumers concurrent with the writers: they hear all vbuckets of one life and report to a stream
//! oracle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use oribi_protocol::dcp::stream_request::StreamValue;
use oribi_protocol::status::Status;
use oribi_types::Vbid;

use crate::ack_log::VbucketReport;
use crate::raw_connection::DEFAULT_VBUCKETS;
use crate::stream_connection::{MessageKind, SMALL_WINDOW_BYTES, StreamConnection, StreamMessage};
use crate::stream_log::StreamLog;

/// Pause before a request that was refused for the moment is sent again.
const BACK_OFF: Duration = Duration::from_millis(5);

/// Hears everything until the connection ends, which has to be the server's end.
pub(super) fn follow(port: u16, name: &str, log: &mut StreamLog, is_ending: &AtomicBool) {
    let ended = try_follow(port, name, log, |_| false);
    if let (Err(error), false) = (ended, is_ending.load(Ordering::SeqCst)) {
        log.complain(Vbid(0), &format!("ended before the server did: {error:#}"));
    }
    log.disconnected();
}

/// Hears everything up to these seqnos.
pub(super) fn catch_up(
    port: u16,
    log: &mut StreamLog,
    seqnos: &BTreeMap<Vbid, VbucketReport>,
) -> Result<()> {
    try_follow(port, "catch-up", log, |log| log.has_reached(seqnos))?;
    log.disconnected();
    Ok(())
}

fn try_follow(
    port: u16,
    name: &str,
    log: &mut StreamLog,
    is_enough: impl Fn(&StreamLog) -> bool,
) -> Result<()> {
    let mut connection = StreamConnection::open(port, name, SMALL_WINDOW_BYTES)?;
    for vbid in (0..DEFAULT_VBUCKETS).map(Vbid) {
        connection.request(vbid, &log.request(vbid), &StreamValue::default())?;
    }
    let mut opening = DEFAULT_VBUCKETS;
    while opening > 0 || !is_enough(log) {
        let StreamMessage { vbid, what } = connection.hear()?;
        match what {
            MessageKind::Opened(histories) => {
                opening -= 1;
                log.opened(vbid, &histories);
            }
            MessageKind::Rollback(to) => {
                log.rolled_back(vbid, to);
                connection.request(vbid, &log.request(vbid), &StreamValue::default())?;
            }
            // The vbucket still loads, or memory is above the threshold for backfills.
            MessageKind::Refused(Status::Etmpfail | Status::Enomem) => {
                thread::sleep(BACK_OFF);
                connection.request(vbid, &log.request(vbid), &StreamValue::default())?;
            }
            MessageKind::Refused(status) => bail!("{vbid} is refused: {status:?}"),
            MessageKind::Marker(marker) => log.marker(vbid, marker.start, marker.end),
            MessageKind::Document(it) => {
                log.change(vbid, &it.key, it.value.as_deref(), it.seqno, it.cas);
            }
            MessageKind::Event { seqno, .. } | MessageKind::Advanced(seqno) => {
                log.advanced(vbid, seqno)
            }
            MessageKind::End(reason) => bail!("the stream of {vbid} ended: {reason:?}"),
        }
    }
    Ok(())
}
