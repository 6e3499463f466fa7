//! DCP control: names of options, which are the keys of the request; the value is text.

/// `true` starts the noop keep-alive; other texts stop it.
pub const ENABLE_NOOP: &[u8] = b"enable_noop";
/// Seconds between two noops, fractions allowed.
pub const SET_NOOP_INTERVAL: &[u8] = b"set_noop_interval";
/// Bytes that may be sent without an acknowledgement; 0 for no limit.
pub const CONNECTION_BUFFER_SIZE: &[u8] = b"connection_buffer_size";
/// `high`, `medium` or `low`.
pub const SET_PRIORITY: &[u8] = b"set_priority";
/// `true` compresses every value.
pub const FORCE_VALUE_COMPRESSION: &[u8] = b"force_value_compression";
/// `true` lets a slow stream go back to the disk.
pub const SUPPORTS_CURSOR_DROPPING: &[u8] = b"supports_cursor_dropping";
/// The same, under its later name.
pub const SUPPORTS_CURSOR_DROPPING_VULCAN: &[u8] = b"supports_cursor_dropping_vulcan";
/// `true` asks for a document's frequency counter.
pub const SUPPORTS_HIFI_MFU: &[u8] = b"supports_hifi_MFU";
/// `true` sends an end for a stream that the consumer closes.
pub const SEND_STREAM_END_ON_CLIENT_CLOSE_STREAM: &[u8] = b"send_stream_end_on_client_close_stream";
/// `true` sends expirations under their own opcode.
pub const ENABLE_EXPIRY_OPCODE: &[u8] = b"enable_expiry_opcode";
/// `true` allows several streams of a vbucket.
pub const ENABLE_STREAM_ID: &[u8] = b"enable_stream_id";
/// `true` asks for undecided durable writes.
pub const ENABLE_SYNC_WRITES: &[u8] = b"enable_sync_writes";
/// Name of the consumer that acknowledges durable writes.
pub const CONSUMER_NAME: &[u8] = b"consumer_name";
/// `round-robin` or `sequential`.
pub const BACKFILL_ORDER: &[u8] = b"backfill_order";
/// `true` asks for user attributes of deleted documents.
pub const INCLUDE_DELETED_USER_XATTRS: &[u8] = b"include_deleted_user_xattrs";
/// `true` or `true_with_seqno_advanced` allows snapshots in key order.
pub const ENABLE_OUT_OF_ORDER_SNAPSHOTS: &[u8] = b"enable_out_of_order_snapshots";
/// `true` lets a consumer answer with later statuses.
pub const V7_DCP_STATUS_CODES: &[u8] = b"v7_dcp_status_codes";
/// `true` sends system events as FlatBuffers.
pub const FLATBUFFERS_SYSTEM_EVENTS: &[u8] = b"flatbuffers_system_events";
/// `true` asks for retained versions.
pub const CHANGE_STREAMS: &[u8] = b"change_streams";
/// `2.2` allows the marker with a purge seqno.
pub const MAX_MARKER_VERSION: &[u8] = b"max_marker_version";
/// Withdrawn.
pub const STREAM_BUFFER_SIZE: &[u8] = b"stream_buffer_size";
