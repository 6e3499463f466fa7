//! `dcp`, `dcpagg [SEPARATOR]` and `dcp-vbtakeover VBUCKET [NAME]`: connections that follow
//! changes.
//!
//! Names are those that monitoring tools of Couchbase know. Figures of streams are those that the
//! producer's worker published last, at most a second ago. The remaining items are computed anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_engine::dcp::{StreamFilter, StreamPhase};
use oribi_types::Vbid;

use crate::buckets::BucketHandle;
use crate::buckets::dcp_registry::{DcpProducerFigures, DcpProducerRecord, DcpStreamFigures};
use crate::connection::stat_cursor::{StatProducer, StatWriter};

/// Prefix of the names of connections.
const PREFIX: &str = "eq_dcpq:";

pub(super) struct Connections {
    bucket: Arc<BucketHandle>,
    rest: std::vec::IntoIter<Arc<DcpProducerRecord>>,
    /// The streams of the current connection that are still to be written.
    streams: (String, std::vec::IntoIter<DcpStreamFigures>),
    has_totals: bool,
}

impl Connections {
    /// All connections of a bucket.
    pub(super) fn new(bucket: &Arc<BucketHandle>) -> Connections {
        let rest = bucket.producers().list().into_iter();
        let streams = (String::new(), Vec::new().into_iter());
        Connections { bucket: Arc::clone(bucket), rest, streams, has_totals: false }
    }
}

impl StatProducer for Connections {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        if !std::mem::replace(&mut self.has_totals, true) {
            writer.prefix();
            write_totals(writer, &self.bucket);
        }
        while !writer.is_full() {
            if let Some(stream) = self.streams.1.next() {
                write_stream(writer, &self.bucket, &self.streams.0, &stream);
                continue;
            }
            let Some(record) = self.rest.next() else { return true };
            let published = record.published();
            let name = format!("{PREFIX}{}", record.name.escape_ascii());
            write_connection(writer, &self.bucket, &name, &record, &published);
            self.streams = (name, published.streams.into_iter());
        }
        false
    }
}

fn write_totals(writer: &mut StatWriter<'_>, bucket: &BucketHandle) {
    let producers = bucket.producers();
    let figures = producers.figures(bucket.bucket());
    let count = figures.connections;
    writer.number("ep_dcp_count", count);
    writer.number("ep_dcp_producer_count", count);
    writer.number("ep_dcp_consumer_count", 0_u8);
    writer.number("ep_dcp_dead_conn_count", 0_u8);
    writer.number("ep_dcp_items_sent", figures.items_sent);
    writer.number("ep_dcp_items_remaining", figures.items_remaining);
    writer.number("ep_dcp_total_bytes", figures.bytes_sent);
    writer.number("ep_dcp_queue_fill", figures.items_ready);
    writer.number("ep_dcp_num_running_backfills", figures.backfilling);
    writer.number("ep_dcp_backfill_disk", figures.backfill_sent);
    writer.number("ep_dcp_backfill_memory", 0_u8);
    writer.number("ep_dcp_backfill_scans", figures.scans.scans);
    writer.number("ep_dcp_backfill_scan_streams", figures.scans.streams);
    writer.number("ep_dcp_backfill_scan_failures", figures.scans.failures);
    writer.number("ep_dcp_backfill_left_behind", figures.scans.left_behind);
}

fn write_connection(
    writer: &mut StatWriter<'_>,
    bucket: &BucketHandle,
    name: &str,
    record: &DcpProducerRecord,
    published: &DcpProducerFigures,
) {
    let _ = writer.prefix().text(name).text(":");
    let streams = &published.streams;
    let count = |phase| streams.iter().filter(|one| one.stats.phase == phase).count();
    let sum = |of: fn(&DcpStreamFigures) -> u64| streams.iter().map(of).sum::<u64>();
    let (is_on, interval_ms, is_waiting) = published.noop;
    let (window_bytes, unacked, acked) = published.window;
    writer.text("type", "producer");
    writer.number("created", record.created.unix_s());
    writer.text("user", &record.user);
    writer.number("socket", record.connection);
    writer.flag("pending_disconnect", record.is_replaced());
    writer.flag("supports_ack", window_bytes != 0);
    writer.flag("paused", window_bytes != 0 && unacked >= u64::from(window_bytes));
    writer.number("items_sent", record.items_sent.get());
    writer.number(
        "items_remaining",
        streams.iter().map(|one| one.remaining(bucket.bucket())).sum::<u64>(),
    );
    writer.number("total_bytes_sent", record.bytes_sent.get());
    writer.flag("noop_enabled", is_on);
    writer.display("noop_tx_interval", interval_ms as f64 / 1000.0);
    writer.flag("noop_wait", is_waiting);
    writer.flag("force_value_compression", published.options.compresses);
    writer.flag("cursor_dropping", true);
    let ends_closed = published.options.ends_closed_streams;
    writer.flag("send_stream_end_on_client_close_stream", ends_closed);
    writer.flag("enable_expiry_opcode", published.options.expirations);
    writer.flag("enable_stream_id", published.options.stream_ids);
    writer.flag("synchronous_replication", published.options.feeds_replicas);
    writer.flag("synchronous_writes", false);
    writer.flag("flatbuffers_system_events", false);
    writer.flag("change_streams_enabled", false);
    writer.text("max_marker_version", if published.options.purge_seqnos { "2.2" } else { "1.0" });
    writer.number("backfill_buffer_bytes_read", sum(|one| one.stats.backfill_buffer_bytes));
    writer.number("backfill_num_active", count(StreamPhase::Backfilling));
    writer.text("flow_control", if window_bytes == 0 { "disabled" } else { "enabled" });
    if window_bytes != 0 {
        writer.number("max_buffer_bytes", window_bytes);
        writer.number("unacked_bytes", unacked);
        writer.number("total_acked_bytes", acked);
    }
    writer.number("num_streams", streams.len());
    writer.number("num_dead_streams", count(StreamPhase::Dead));
}

fn write_stream(
    writer: &mut StatWriter<'_>,
    bucket: &BucketHandle,
    name: &str,
    stream: &DcpStreamFigures,
) {
    let DcpStreamFigures { head, request, filter, stats, acknowledged_seqno } = stream;
    let vbid = itoa::Buffer::new().format(head.vbid.0).to_owned();
    let prefix = writer.prefix().text(name).text(":stream_").text(&vbid).text("_");
    if let Some(id) = head.stream_id {
        let _ = prefix.text("sid:").text(itoa::Buffer::new().format(id)).text("_");
    }
    writer.number("flags", request.flags.0);
    writer.number("opaque", head.opaque);
    writer.number("start_seqno", stats.start_seqno.0);
    writer.number("end_seqno", stats.end_seqno.0);
    writer.number("vb_uuid", request.vb_uuid.0);
    writer.number("snap_start_seqno", request.snapshot_start.0);
    writer.number("snap_end_seqno", request.snapshot_end.0);
    writer.text("state", phase_name(stats.phase));
    writer.number("items_ready", stats.items_ready);
    writer.number("items_remaining", stream.remaining(bucket.bucket()));
    writer.number("backfill_sent", stats.backfill_sent);
    writer.number("backfill_buffer_bytes", stats.backfill_buffer_bytes);
    writer.number("backfill_buffer_items", stats.backfill_buffer_items);
    writer.number("backfill_count", stats.backfills);
    writer.number("memory_phase", stats.memory_sent);
    writer.number("cursors_dropped", stats.cursors_dropped);
    writer.number("last_sent_seqno", stats.last_sent_seqno.0);
    writer.number("last_sent_seqno_advance", stats.last_sent_seqno_advance.0);
    writer.number("last_sent_snap_end_seqno", stats.last_sent_snap_end_seqno.0);
    writer.number("last_read_seqno", stats.last_read_seqno.0);
    if let (Some(seqno), Some(lag)) = (acknowledged_seqno, stream.replica_lag(bucket.bucket())) {
        writer.number("acknowledged_seqno", seqno.0);
        writer.number("replica_lag", lag);
    }
    writer.flag("cursor_registered", stats.cursor_registered);
    writer.flag("change_streams_enabled", false);
    let (kind, ids) = match filter {
        StreamFilter::All | StreamFilter::Replica => ("passthrough", String::new()),
        StreamFilter::Default => ("legacy", String::new()),
        StreamFilter::Scope(scope) => ("scope", format!("{:x}", scope.0)),
        StreamFilter::Collections(ids) => {
            let ids: Vec<String> = ids.iter().map(|id| format!("{:x}", id.0)).collect();
            ("collections", ids.join(","))
        }
    };
    writer.text("filter_type", kind);
    writer.text("filter_cids", &ids);
}

fn phase_name(phase: StreamPhase) -> &'static str {
    match phase {
        StreamPhase::Backfilling => "backfilling",
        StreamPhase::InMemory => "in-memory",
        StreamPhase::Dead => "dead",
    }
}

/// Sums over connections whose names begin alike.
#[derive(Default)]
struct Sums {
    connections: u64,
    streams: u64,
    items_sent: u64,
    items_remaining: u64,
    backfilled: u64,
    bytes: u64,
    ready_bytes: u64,
}

/// Writes the sums of connections whose names begin alike, and of all.
pub(super) fn write_sums(writer: &mut StatWriter<'_>, bucket: &BucketHandle, separator: &str) {
    let mut by_prefix: BTreeMap<String, Sums> = BTreeMap::new();
    for record in bucket.producers().list() {
        let name = record.name.escape_ascii().to_string();
        let prefix = match name.split_once(separator) {
            Some((prefix, _)) if !separator.is_empty() => prefix.to_owned(),
            _ => "_unknown".to_owned(),
        };
        let published = record.published();
        for key in [prefix, ":total".to_owned()] {
            let sums = by_prefix.entry(key).or_default();
            sums.connections += 1;
            sums.items_sent += record.items_sent.get();
            sums.bytes += record.bytes_sent.get();
            for stream in &published.streams {
                sums.streams += u64::from(stream.stats.phase != StreamPhase::Dead);
                sums.items_remaining += stream.remaining(bucket.bucket());
                sums.backfilled += stream.stats.backfill_sent;
                sums.ready_bytes += stream.stats.backfill_buffer_bytes;
            }
        }
    }
    by_prefix.entry(":total".to_owned()).or_default();
    for (prefix, sums) in by_prefix {
        let _ = writer.prefix().text(&prefix).text(":");
        writer.number("count", sums.connections);
        writer.number("producer_count", sums.connections);
        writer.number("activestream_count", sums.streams);
        writer.number("items_sent", sums.items_sent);
        writer.number("items_remaining", sums.items_remaining);
        writer.number("items_backfilled_disk", sums.backfilled);
        writer.number("items_backfilled_memory", 0_u8);
        writer.number("total_bytes", sums.bytes);
        writer.number("backoff", 0_u8);
        writer.number("ready_queue_bytes", sums.ready_bytes);
    }
}

/// How far a connection is with one vbucket.
pub(super) fn write_takeover(
    writer: &mut StatWriter<'_>,
    bucket: &BucketHandle,
    vbid: Vbid,
    name: &str,
) {
    let producers = bucket.producers().list();
    let record = producers.iter().find(|record| *record.name == *name.as_bytes());
    let stats = bucket.bucket().vbucket(vbid).map(|vbucket| vbucket.stats());
    let high = stats.map_or(0, |stats| stats.high_seqno.0);
    let streams = record.map(|record| record.published().streams);
    let stream = streams.as_ref().and_then(|all| all.iter().find(|one| one.head.vbid == vbid));
    let (status, estimate) = match (record, stream) {
        (None, _) => ("connection_does_not_exist", high),
        (Some(_), None) => ("stream_does_not_exist", high),
        (Some(_), Some(stream)) => {
            let status = match stream.stats.phase {
                StreamPhase::Dead => "stream_is_dead",
                phase => phase_name(phase),
            };
            (status, stream.remaining(bucket.bucket()))
        }
    };
    let is_backfilling = status == phase_name(StreamPhase::Backfilling);
    writer.prefix();
    writer.text("status", status);
    writer.number("estimate", estimate);
    writer.number("backfillRemaining", if is_backfilling { estimate } else { 0 });
    if !name.is_empty() {
        writer.display("name", format_args!("{PREFIX}{name}"));
    }
}
