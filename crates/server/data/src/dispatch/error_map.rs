//! The error map: how a client has to treat a status that it does not know.
//!
//! Owns: the attributes of each status this server may send, and the JSON of map versions 1 and 2.
//! Both texts are made once, at first use.
//!
//! Invariants:
//! - a client that requests version 1 gets version 1 (one client library refuses anything newer
//!   than it asked for);
//! - every entry has `name`, `desc` and `attrs`;
//! - no entry uses `auto-retry`, which would oblige it to carry a retry specification.
//!
//! Names and descriptions come from the status table of the protocol crate. The handshake
//! dispatcher calls this.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use oribi_protocol::status::Status;
use serde::Serialize;

/// Changes whenever an entry of the map changes.
const REVISION: u32 = 2;

/// Newest version that this server can render.
pub const VERSION_MAX: u16 = 2;

#[derive(Serialize)]
struct ErrorMap {
    version: u16,
    revision: u32,
    errors: BTreeMap<String, Entry>,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    desc: &'static str,
    attrs: Vec<&'static str>,
}

/// The map for a client that understands versions up to `version_asked`; `None` for version 0,
/// which never existed.
pub fn error_map(version_asked: u16) -> Option<Arc<str>> {
    static TEXTS: OnceLock<[Arc<str>; VERSION_MAX as usize]> = OnceLock::new();
    let version = version_asked.min(VERSION_MAX);
    let index = usize::from(version).checked_sub(1)?;
    let texts = TEXTS.get_or_init(|| [Arc::from(render(1)), Arc::from(render(2))]);
    Some(Arc::clone(&texts[index]))
}

fn render(version: u16) -> String {
    assert!((1..=VERSION_MAX).contains(&version), "clients know this version");
    let errors = (0..=0xff_u16)
        .filter_map(Status::from_u16)
        .map(|status| {
            let entry = Entry {
                name: status.name(),
                desc: status.description(),
                attrs: attributes(status)
                    .iter()
                    .copied()
                    .filter(|attribute| version > 1 || !SINCE_VERSION_2.contains(attribute))
                    .collect(),
            };
            (format!("{:x}", status as u16), entry)
        })
        .collect();
    let map = ErrorMap { version, revision: REVISION, errors };
    serde_json::to_string(&map).expect("plain structs with string keys always serialise")
}

/// Attributes that version 1 does not know.
const SINCE_VERSION_2: [&str; 2] = ["rate-limit", "system-constraint"];

/// How a client that does not know `status` should treat it. Each failure says whether to retry: at
/// once, later, or not at all. Empty for a status that this table forgot, which a test looks for.
fn attributes(status: Status) -> &'static [&'static str] {
    use Status as S;
    match status {
        S::Success => &["success"],
        S::KeyEnoent | S::KeyEexists | S::NotStored | S::DeltaBadval | S::NotLocked => {
            &["item-only", "no-retry"]
        }
        S::E2big | S::Einval | S::Erange | S::XattrEinval | S::CasValueInvalid => {
            &["item-only", "invalid-input", "no-retry"]
        }
        S::ExpiryOverflow | S::LockExpiryOverflow | S::DurabilityInvalidLevel => {
            &["item-only", "invalid-input", "no-retry"]
        }
        S::NotMyVbucket => &["fetch-config", "invalid-input", "retry-now"],
        S::NoBucket | S::NotInitialized => &["conn-state-invalidated", "no-retry"],
        S::Locked => &["item-locked", "item-only", "retry-later"],
        S::DcpStreamNotFound | S::OpaqueNoMatch | S::DcpStreamIdInvalid => &["dcp", "no-retry"],
        S::Rollback => &["dcp", "special-handling", "no-retry"],
        S::EWouldThrottle
        | S::RateLimitedNetworkIngress
        | S::RateLimitedNetworkEgress
        | S::RateLimitedMaxConnections
        | S::RateLimitedMaxCommands => &["rate-limit", "temp", "retry-later"],
        S::BucketSizeLimitExceeded
        | S::BucketResidentRatioTooLow
        | S::BucketDataSizeTooBig
        | S::BucketDiskSpaceTooLow => &["system-constraint", "no-retry"],
        S::EConfigOnly => &["fetch-config", "conn-state-invalidated", "no-retry"],
        S::AuthStale => &["conn-state-invalidated", "auth", "no-retry"],
        S::AuthError | S::Eaccess => &["auth", "no-retry"],
        S::AuthContinue => &["special-handling", "auth"],
        S::EncryptionKeyNotAvailable | S::ChecksumMismatch | S::Einternal => {
            &["internal", "no-retry"]
        }
        S::BucketPaused => &["temp", "retry-later"],
        S::Cancelled | S::RangeScanCancelled => &["special-handling", "no-retry"],
        S::UnknownFrameInfo | S::UnknownCommand | S::NotSupported => &["support", "no-retry"],
        S::Enomem | S::Ebusy | S::Etmpfail => &["temp", "retry-later"],
        S::UnknownCollection | S::UnknownScope => &["item-only", "fetch-config", "retry-later"],
        S::CannotApplyCollectionsManifest => &["invalid-input", "no-retry"],
        S::DurabilityImpossible => &["item-only", "temp", "retry-later"],
        S::SyncWriteInProgress | S::SyncWriteReCommitInProgress => {
            &["item-only", "temp", "retry-later"]
        }
        S::SyncWriteAmbiguous => &["item-only", "special-handling", "no-retry"],
        S::RangeScanMore | S::RangeScanComplete => &["success", "special-handling"],
        S::VbUuidNotEqual => &["item-only", "special-handling", "no-retry"],
        S::SubdocSuccessDeleted => &["success", "subdoc"],
        other if (0xc0..=0xdf).contains(&other.code()) => &["subdoc", "item-only", "no-retry"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use oribi_protocol::status::Status;

    use super::{SINCE_VERSION_2, error_map};

    /// Every attribute that the protocol's documentation names.
    const ATTRIBUTES: [&str; 19] = [
        "item-deleted",
        "item-locked",
        "item-only",
        "invalid-input",
        "fetch-config",
        "conn-state-invalidated",
        "auth",
        "special-handling",
        "support",
        "temp",
        "internal",
        "retry-now",
        "retry-later",
        "no-retry",
        "subdoc",
        "dcp",
        "success",
        "rate-limit",
        "system-constraint",
    ];

    // Compat (Bootstrap and session): GET_ERROR_MAP
    #[test]
    fn each_status_has_its_retry_attribute() {
        for version in [1_u16, 2] {
            let map = parsed(version);
            let errors = map["errors"].as_object().unwrap();
            assert_eq!(errors.len(), Status::all().len());
            for status in Status::all() {
                let entry = &errors[&format!("{:x}", status.code())];
                assert_eq!(entry["name"], status.name());
                let attributes = entry["attrs"].as_array().unwrap();
                let has = |name: &str| attributes.iter().any(|one| one == name);
                let known = |one: &serde_json::Value| ATTRIBUTES.iter().any(|name| one == name);
                assert!(!attributes.is_empty() && attributes.iter().all(known), "{status:?}");
                let retries = ["retry-now", "retry-later", "no-retry"].map(has);
                let may_continue = has("success") || *status == Status::AuthContinue;
                let said = retries.iter().filter(|said| **said).count();
                assert_eq!(said, usize::from(!may_continue), "{status:?}");
                assert!(version > 1 || !SINCE_VERSION_2.iter().any(|name| has(name)));
            }
        }
    }

    fn parsed(version: u16) -> serde_json::Value {
        serde_json::from_str(&error_map(version).unwrap()).unwrap()
    }

    #[test]
    fn version_is_never_newer_than_requested() {
        assert_eq!(parsed(1)["version"], 1);
        assert_eq!(parsed(2)["version"], 2);
        assert_eq!(parsed(9)["version"], 2);
        assert!(error_map(0).is_none());
    }

    #[test]
    fn each_error_map_entry_is_complete() {
        for version in [1, 2] {
            let map = parsed(version);
            assert!(map["revision"].as_u64().unwrap() > 0);
            let errors = map["errors"].as_object().unwrap();
            assert!(errors.len() > 40);
            for (code, entry) in errors {
                assert!(u16::from_str_radix(code, 16).is_ok());
                assert!(!entry["name"].as_str().unwrap().is_empty());
                assert!(!entry["desc"].as_str().unwrap().is_empty());
                let attributes = entry["attrs"].as_array().unwrap();
                assert!(attributes.iter().all(|attribute| attribute != "auto-retry"));
            }
        }
    }
}
