//! The error map: what a client should do about a status it does not know.
//!
//! Owns: the attributes of each status this server may send and the JSON of map versions 1 and 2. Both
//! texts are made once, at first use. Invariants: a client that asks for version 1 gets version 1 (one
//! client library refuses anything newer than it asked for); every entry has `name`, `desc` and
//! `attrs`; no entry uses `auto-retry`, which would oblige it to carry a retry specification. Names and
//! descriptions come from the status table of the protocol crate. Called by the handshake dispatcher.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use oribi_protocol::status::Status;
use serde::Serialize;

/// Changes whenever an entry of the map changes.
const REVISION: u32 = 1;

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
    attrs: &'static [&'static str],
}

/// The map for a client that understands versions up to `version_asked`; `None` for version 0, which
/// never existed.
pub fn error_map(version_asked: u16) -> Option<Arc<str>> {
    static TEXTS: OnceLock<[Arc<str>; VERSION_MAX as usize]> = OnceLock::new();
    let version = version_asked.min(VERSION_MAX);
    let index = usize::from(version).checked_sub(1)?;
    let texts = TEXTS.get_or_init(|| [Arc::from(render(1)), Arc::from(render(2))]);
    Some(Arc::clone(&texts[index]))
}

fn render(version: u16) -> String {
    let errors = (0..=0xff_u16)
        .filter_map(Status::from_u16)
        .map(|status| {
            let entry = Entry {
                name: status.name(),
                desc: status.description(),
                attrs: attributes(status),
            };
            (format!("{:x}", status as u16), entry)
        })
        .collect();
    let map = ErrorMap { version, revision: REVISION, errors };
    serde_json::to_string(&map).expect("plain structs with string keys always serialise")
}

/// What a client that does not know `status` should make of it.
fn attributes(status: Status) -> &'static [&'static str] {
    match status {
        Status::Success => &["success"],
        Status::KeyEnoent | Status::KeyEexists | Status::NotStored | Status::DeltaBadval => {
            &["item-only"]
        }
        Status::E2big | Status::Einval | Status::Erange => &["item-only", "invalid-input"],
        Status::NotMyVbucket => &["fetch-config", "invalid-input"],
        Status::NoBucket => &["conn-state-invalidated"],
        Status::Locked => &["item-locked", "item-only", "retry-later"],
        Status::AuthStale => &["conn-state-invalidated", "auth"],
        Status::AuthError | Status::Eaccess => &["auth"],
        Status::AuthContinue => &["special-handling", "auth"],
        Status::NotInitialized => &["conn-state-invalidated"],
        Status::UnknownFrameInfo | Status::UnknownCommand | Status::NotSupported => &["support"],
        Status::Enomem | Status::Ebusy | Status::Etmpfail => &["temp", "retry-later"],
        Status::Einternal => &["internal"],
        Status::UnknownCollection | Status::UnknownScope => &["item-only", "fetch-config"],
        Status::DurabilityInvalidLevel => &["item-only", "invalid-input"],
        Status::DurabilityImpossible => &["item-only", "temp"],
        Status::SyncWriteInProgress | Status::SyncWriteReCommitInProgress => {
            &["item-only", "retry-later"]
        }
        Status::SyncWriteAmbiguous => &["item-only", "special-handling"],
        Status::Rollback => &["dcp", "special-handling"],
        other if (0xc0..=0xdf).contains(&(other as u16)) => &["subdoc", "item-only"],
        _ => &["special-handling"],
    }
}

#[cfg(test)]
mod tests {
    use super::error_map;

    fn parsed(version: u16) -> serde_json::Value {
        serde_json::from_str(&error_map(version).unwrap()).unwrap()
    }

    #[test]
    fn version_is_never_newer_than_asked() {
        assert_eq!(parsed(1)["version"], 1);
        assert_eq!(parsed(2)["version"], 2);
        assert_eq!(parsed(9)["version"], 2);
        assert!(error_map(0).is_none());
    }

    #[test]
    fn every_entry_is_complete_and_asks_for_no_retry_specification() {
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
