//! DCP control: the options that a consumer sets.
//!
//! Owns: the names, their values, and which are refused. Invariant: an unknown name or value is
//! refused and changes nothing, so that a consumer may try. The dispatcher calls this.

use oribi_protocol::dcp::control;
use oribi_protocol::dcp::open::OpenFlags;
use oribi_protocol::feature::Feature;
use oribi_protocol::status::Status;

use super::noop::Noop;
use super::window::FlowWindow;
use crate::buckets::dcp_registry::DcpOptions;
use crate::connection::features::Features;

const NOOP_INTERVAL_MIN_S: f64 = 0.1;

/// Longest noop interval; longer ones mean never. Some 30 years.
const NOOP_INTERVAL_MAX_S: f64 = 1e9;
const _: () = assert!(NOOP_INTERVAL_MIN_S < NOOP_INTERVAL_MAX_S);

type ControlRejection = (Status, &'static str);

const BAD_VALUE: ControlRejection = (Status::Einval, "the option does not take this value");

/// The state that control requests change.
pub(crate) struct DcpControl<'a> {
    /// Flags of the open request.
    pub flags: OpenFlags,
    /// Features of the connection.
    pub features: Features,
    pub options: &'a mut DcpOptions,
    pub noop: &'a mut Noop,
    pub window: &'a mut FlowWindow,
}

impl DcpControl<'_> {
    /// Applies one control request.
    ///
    /// # Errors
    /// The status and the reason to refuse it with.
    pub fn take(&mut self, name: &[u8], value: &[u8], now_ms: u64) -> Result<(), ControlRejection> {
        let is_true = value == b"true";
        let only_true = if is_true { Ok(()) } else { Err(BAD_VALUE) };
        match name {
            control::ENABLE_NOOP => self.noop.enable(is_true, now_ms),
            control::SET_NOOP_INTERVAL => self.noop.set_interval(interval_ms(value)?),
            control::CONNECTION_BUFFER_SIZE => self.window.resize(number(value)?),
            control::SET_PRIORITY => return one_of(value, &[b"high", b"medium", b"low"]),
            control::BACKFILL_ORDER => return one_of(value, &[b"round-robin", b"sequential"]),
            control::ENABLE_OUT_OF_ORDER_SNAPSHOTS => {
                return one_of(value, &[b"true", b"true_with_seqno_advanced"]);
            }
            control::FORCE_VALUE_COMPRESSION if !self.features.has(Feature::Snappy) => {
                return Err((Status::Einval, "Snappy was not negotiated"));
            }
            control::FORCE_VALUE_COMPRESSION => self.options.compresses = is_true,
            control::SEND_STREAM_END_ON_CLIENT_CLOSE_STREAM => {
                self.options.ends_closed_streams |= is_true;
            }
            control::ENABLE_EXPIRY_OPCODE => self.options.expirations = is_true,
            control::ENABLE_STREAM_ID => {
                only_true?;
                self.options.stream_ids = true;
            }
            // Queues answer for slow consumers anyway, and there is no such counter in messages.
            control::SUPPORTS_CURSOR_DROPPING
            | control::SUPPORTS_CURSOR_DROPPING_VULCAN
            | control::SUPPORTS_HIFI_MFU
            | control::V7_DCP_STATUS_CODES => {}
            control::INCLUDE_DELETED_USER_XATTRS => {
                only_true?;
                if !self.flags.has(OpenFlags::INCLUDE_DELETED_USER_XATTRS) {
                    return Err((Status::Einval, "the flag was not given to open"));
                }
            }
            control::MAX_MARKER_VERSION => self.choose_marker(value)?,
            control::FLATBUFFERS_SYSTEM_EVENTS
            | control::CHANGE_STREAMS
            | control::ENABLE_SYNC_WRITES => {
                only_true?;
                return Err((Status::NotSupported, "this server does not know how"));
            }
            control::STREAM_BUFFER_SIZE => {
                return Err((Status::NotSupported, "the option is withdrawn"));
            }
            _ => return Err((Status::Einval, "unknown option")),
        }
        Ok(())
    }

    fn choose_marker(&mut self, value: &[u8]) -> Result<(), ControlRejection> {
        if value != b"2.2" {
            return Err(BAD_VALUE);
        }
        if !self.features.has(Feature::Collections) {
            return Err((Status::NotSupported, "collections were not negotiated"));
        }
        self.options.purge_seqnos = true;
        Ok(())
    }
}

fn one_of(value: &[u8], known: &[&[u8]]) -> Result<(), ControlRejection> {
    if known.contains(&value) { Ok(()) } else { Err(BAD_VALUE) }
}

fn number(value: &[u8]) -> Result<u32, ControlRejection> {
    // The standard library would accept a sign.
    let digits = std::str::from_utf8(value).ok().filter(|_| value.iter().all(u8::is_ascii_digit));
    digits.and_then(|digits| digits.parse().ok()).ok_or(BAD_VALUE)
}

fn interval_ms(value: &[u8]) -> Result<u64, ControlRejection> {
    let is_decimal = value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(value).ok().filter(|_| is_decimal);
    let seconds: f64 = text.and_then(|text| text.parse().ok()).ok_or(BAD_VALUE)?;
    if seconds < NOOP_INTERVAL_MIN_S {
        return Err(BAD_VALUE);
    }
    let interval_ms = (seconds.min(NOOP_INTERVAL_MAX_S) * 1000.0) as u64;
    debug_assert!(interval_ms > 0, "noops are sent at intervals");
    Ok(interval_ms)
}
