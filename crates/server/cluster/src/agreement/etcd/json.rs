//! The JSON of etcd's gateway: requests from the agreement's types, and answers into them.
//!
//! Owns: the spelling. The gateway writes numbers as strings, bytes as base64, and omits what is
//! zero or empty.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::{
    AgreementError, AgreementRecord, RecordChange, RecordComparison, SessionId, WatchAnswer,
    WatchEvent,
};

pub(super) fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn comparison(comparison: &RecordComparison) -> Value {
    match comparison {
        RecordComparison::Absent(key) => json!({
            "key": base64(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0",
        }),
        RecordComparison::ModifiedAt(key, revision) => json!({
            "key": base64(key), "target": "MOD", "result": "EQUAL",
            "mod_revision": revision.to_string(),
        }),
        RecordComparison::CreatedAt(key, revision) => json!({
            "key": base64(key), "target": "CREATE", "result": "EQUAL",
            "create_revision": revision.to_string(),
        }),
        RecordComparison::HasValue(key, value) => json!({
            "key": base64(key), "target": "VALUE", "result": "EQUAL",
            "value": base64(value),
        }),
    }
}

pub(super) fn change(change: &RecordChange) -> Value {
    match change {
        RecordChange::Put { key, value, session } => json!({ "request_put": {
            "key": base64(key),
            "value": base64(value),
            "lease": session.map_or(0, |session| session.0).to_string(),
        }}),
        RecordChange::Delete { key } => json!({ "request_delete_range": { "key": base64(key) }}),
    }
}

pub(super) fn record(path: &'static str, entry: &Value) -> Result<AgreementRecord, AgreementError> {
    let lease = number_or_zero(path, entry, "lease")?;
    Ok(AgreementRecord {
        key: key_of(path, entry)?,
        value: bytes_of(path, entry, "value")?,
        mod_revision: number(path, entry, "mod_revision")?,
        create_revision: number(path, entry, "create_revision")?,
        session: Some(SessionId(lease)).filter(|session| session.0 != 0),
    })
}

fn key_of(path: &'static str, entry: &Value) -> Result<String, AgreementError> {
    String::from_utf8(bytes_of(path, entry, "key")?)
        .map_err(|error| AgreementError::Answer { path, detail: error.to_string() })
}

fn bytes_of(path: &'static str, entry: &Value, field: &str) -> Result<Vec<u8>, AgreementError> {
    // The gateway omits an empty value.
    let text = entry.get(field).and_then(Value::as_str).unwrap_or_default();
    STANDARD
        .decode(text)
        .map_err(|error| AgreementError::Answer { path, detail: format!("{field}: {error}") })
}

/// A number, which the gateway writes as a string.
pub(super) fn number(
    path: &'static str,
    answer: &Value,
    field: &str,
) -> Result<i64, AgreementError> {
    match answer.get(field) {
        None => Err(AgreementError::Answer { path, detail: format!("{field} is missing") }),
        Some(_) => number_or_zero(path, answer, field),
    }
}

pub(super) fn number_or_zero(
    path: &'static str,
    answer: &Value,
    field: &str,
) -> Result<i64, AgreementError> {
    let found = match answer.get(field) {
        None => Some(0),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_i64(),
    };
    found.ok_or_else(|| AgreementError::Answer { path, detail: format!("{field} is not a number") })
}

/// True for the message that only says that a watch has begun.
pub(super) fn is_watch_created(message: &Value) -> bool {
    let result = message.get("result").unwrap_or(&Value::Null);
    let has = |field: &str| result.get(field).is_some();
    message.get("error").is_none() && !has("events") && !has("compact_revision") && !has("canceled")
}

/// What a message of a watch after `revision` reports.
pub(super) fn watch_answer(
    path: &'static str,
    message: &Value,
    revision: i64,
) -> Result<WatchAnswer, AgreementError> {
    if let Some(error) = message.get("error") {
        return Err(AgreementError::Refused { path, detail: error.to_string() });
    }
    let result = message.get("result").unwrap_or(&Value::Null);
    if number_or_zero(path, result, "compact_revision")? != 0 {
        return Ok(WatchAnswer::Compacted);
    }
    let events = result.get("events").and_then(Value::as_array);
    let events: Result<Vec<WatchEvent>, AgreementError> =
        events.into_iter().flatten().map(|event| watch_event(path, event)).collect();
    let events = events?;
    if events.is_empty() {
        let detail = result
            .get("cancel_reason")
            .map_or_else(|| "the watch was ended without a reason".to_owned(), Value::to_string);
        return Err(AgreementError::Refused { path, detail });
    }
    if events.iter().any(|event| event.revision() <= revision) {
        let detail = format!("an event that is not after revision {revision}");
        return Err(AgreementError::Answer { path, detail });
    }
    Ok(WatchAnswer::Changes(events))
}

fn watch_event(path: &'static str, event: &Value) -> Result<WatchEvent, AgreementError> {
    let entry = event.get("kv").unwrap_or(&Value::Null);
    match event.get("type").and_then(Value::as_str) {
        // The gateway omits the type of a put.
        None | Some("PUT") => record(path, entry).map(WatchEvent::Put),
        Some("DELETE") => Ok(WatchEvent::Deleted {
            key: key_of(path, entry)?,
            revision: number(path, entry, "mod_revision")?,
        }),
        Some(other) => {
            let detail = format!("an event of the unknown type {other:?}");
            Err(AgreementError::Answer { path, detail })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{WatchAnswer, number, record, watch_answer};

    #[test]
    fn records_are_parsed_or_rejected() {
        let entry =
            json!({ "key": "YQ==", "value": "Yg==", "mod_revision": "7", "create_revision": "3" });
        let found = record("p", &entry).unwrap();
        assert_eq!((found.key.as_str(), &found.value[..]), ("a", &b"b"[..]));
        assert_eq!((found.mod_revision, found.create_revision), (7, 3));
        let broken = [
            json!({ "key": "%", "mod_revision": "7", "create_revision": "3" }),
            json!({ "key": "YQ==", "create_revision": "3" }),
            json!({ "key": "YQ==", "mod_revision": "x", "create_revision": "3" }),
            json!({ "key": "/w==", "mod_revision": "7", "create_revision": "3" }),
        ];
        for entry in broken {
            assert!(record("p", &entry).is_err(), "{entry}");
        }
        assert!(number("p", &json!({ "n": [] }), "n").is_err());
    }

    #[test]
    fn a_compacted_or_cancelled_watch_is_no_change() {
        let compacted = json!({ "result": { "canceled": true, "compact_revision": "9" } });
        assert_eq!(watch_answer("p", &compacted, 3).unwrap(), WatchAnswer::Compacted);
        let put = json!({ "kv": { "key": "YQ==", "mod_revision": "7", "create_revision": "7" } });
        for refused in [
            json!({ "result": { "canceled": true } }),
            json!({ "error": { "code": 7 } }),
            json!({ "result": { "events": [put.clone()] } }),
        ] {
            assert!(watch_answer("p", &refused, 7).is_err(), "{refused}");
        }
        let changes = watch_answer("p", &json!({ "result": { "events": [put] } }), 6).unwrap();
        assert!(matches!(changes, WatchAnswer::Changes(events) if events.len() == 1));
    }
}
