//! A client for etcd's key-value store, leases and watches, over its HTTP/JSON gateway.
//!
//! Owns: requests, their time limits, and the choice of an endpoint: the client stays with one
//! until that fails, then takes the next. `access` connects to an endpoint and authenticates this
//! node. Invariants: a request ends when its limit is over; a field that is missing from an answer
//! is an error, never a guess; keys and values are bytes here and base64 on the wire. Each request
//! has its own connection: there are a few a second. Callers: the agent and the renewal thread.

mod access;
mod error;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use access::{Access, Post};

pub use error::EtcdError;
use oribi_config::EtcdSettings;

/// Longest answer that is read. A whole configuration is some hundred KiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// One key and its value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyValue {
    pub key: String,
    pub value: Vec<u8>,
    /// etcd's revision of the last change.
    pub mod_revision: i64,
    /// etcd's revision of the creation.
    pub create_revision: i64,
    /// Lease that the key is attached to; 0 for none.
    pub lease: i64,
}

/// A precondition of a transaction.
#[derive(Debug, Clone)]
pub enum Condition {
    /// The key does not exist.
    Absent(String),
    /// The key was last changed in this revision.
    Unchanged(String, i64),
    /// The key was created in this revision.
    CreatedAt(String, i64),
    /// The key holds this value.
    Holds(String, Vec<u8>),
}

/// One change of a transaction.
#[derive(Debug, Clone)]
pub enum Change {
    /// Sets a key, attached to a lease (0: none).
    Put(String, Vec<u8>, i64),
    Delete(String),
}

/// See the module text.
#[derive(Debug)]
pub struct Etcd {
    access: Access,
    current: AtomicUsize,
}

impl Etcd {
    /// A client for the endpoints of the settings.
    ///
    /// # Errors
    /// A malformed endpoint, or a file that cannot be read.
    pub fn new(settings: &EtcdSettings) -> Result<Etcd, EtcdError> {
        Ok(Etcd { access: Access::new(settings)?, current: AtomicUsize::new(0) })
    }

    /// Creates a lease that lives `ttl_s` seconds from its last renewal; returns its id and its
    /// granted time.
    pub async fn grant(&self, ttl_s: u64, limit: Duration) -> Result<(i64, u64), EtcdError> {
        const PATH: &str = "/v3/lease/grant";
        let answer = self.ask(PATH, &json!({ "TTL": ttl_s.to_string() }), limit).await?;
        let ttl = u64::try_from(number(PATH, &answer, "TTL")?).unwrap_or(0);
        Ok((number(PATH, &answer, "ID")?, ttl))
    }

    /// Renews a lease; returns its remaining seconds, 0 when it is gone.
    pub async fn keep_alive(&self, lease: i64, limit: Duration) -> Result<u64, EtcdError> {
        const PATH: &str = "/v3/lease/keepalive";
        let answer = self.ask(PATH, &json!({ "ID": lease.to_string() }), limit).await?;
        let result = answer.get("result").unwrap_or(&answer);
        // The answer omits zeroes, so it has no TTL for a lease that is gone.
        Ok(u64::try_from(number_or_zero(PATH, result, "TTL")?).unwrap_or(0))
    }

    /// Revokes a lease and removes the keys attached to it.
    pub async fn revoke(&self, lease: i64, limit: Duration) -> Result<(), EtcdError> {
        self.ask("/v3/lease/revoke", &json!({ "ID": lease.to_string() }), limit).await.map(drop)
    }

    /// One key, as of now.
    pub async fn get(&self, key: &str, limit: Duration) -> Result<Option<KeyValue>, EtcdError> {
        let asked = json!({ "key": STANDARD.encode(key) });
        Ok(self.range(&asked, limit).await?.0.pop())
    }

    /// All keys that begin with `prefix`, as of now, in order, and the revision of that state.
    pub async fn list(
        &self,
        prefix: &str,
        limit: Duration,
    ) -> Result<(Vec<KeyValue>, i64), EtcdError> {
        let end = STANDARD.encode(end_of(prefix));
        let asked = json!({ "key": STANDARD.encode(prefix), "range_end": end });
        self.range(&asked, limit).await
    }

    async fn range(
        &self,
        asked: &Value,
        limit: Duration,
    ) -> Result<(Vec<KeyValue>, i64), EtcdError> {
        const PATH: &str = "/v3/kv/range";
        let answer = self.ask(PATH, asked, limit).await?;
        let entries = answer.get("kvs").and_then(Value::as_array);
        let entries: Result<Vec<KeyValue>, EtcdError> =
            entries.into_iter().flatten().map(|entry| key_value(PATH, entry)).collect();
        let header = answer.get("header").unwrap_or(&Value::Null);
        Ok((entries?, number(PATH, header, "revision")?))
    }

    /// Applies all of `changes` if all of `conditions` hold, else none; returns whether it did, and
    /// the revision.
    pub async fn transact(
        &self,
        conditions: &[Condition],
        changes: &[Change],
        limit: Duration,
    ) -> Result<Option<i64>, EtcdError> {
        const PATH: &str = "/v3/kv/txn";
        let compare: Vec<Value> = conditions.iter().map(condition_json).collect();
        let success: Vec<Value> = changes.iter().map(change_json).collect();
        let answer =
            self.ask(PATH, &json!({ "compare": compare, "success": success }), limit).await?;
        let did = answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false);
        let header = answer.get("header").unwrap_or(&Value::Null);
        let revision = number(PATH, header, "revision")?;
        Ok(did.then_some(revision))
    }

    /// Returns when something below `prefix` has changed since `revision`, or the watch has ended.
    pub async fn changed_since(
        &self,
        prefix: &str,
        revision: i64,
        limit: Duration,
    ) -> Result<(), EtcdError> {
        const PATH: &str = "/v3/watch";
        let watch = json!({ "create_request": {
            "key": STANDARD.encode(prefix),
            "range_end": STANDARD.encode(end_of(prefix)),
            "start_revision": (revision + 1).to_string(),
        }});
        let place = self.place();
        let watching = async {
            let mut answer = self.access.post(place, Post { path: PATH, asked: &watch }).await?;
            if !answer.status().is_success() {
                return Err(self.access.refusal(answer.status()));
            }
            while let Some(frame) = answer.body_mut().frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                let text = frame.data_ref().map_or(&[][..], |bytes| &bytes[..]);
                if text.windows(8).any(|part| part == b"\"events\"") {
                    break;
                }
            }
            Ok(())
        };
        // A watch without events ends like any other.
        let ended = tokio::time::timeout(limit, watching).await.unwrap_or(Ok(()));
        ended.map_err(|detail| self.failed(place, detail))
    }

    async fn ask(
        &self,
        path: &'static str,
        asked: &Value,
        limit: Duration,
    ) -> Result<Value, EtcdError> {
        let place = self.place();
        let asking = async {
            let mut is_again = false;
            loop {
                let answer = self.access.post(place, Post { path, asked }).await?;
                let status = answer.status();
                let limited = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
                let body = limited.collect().await.map_err(|error| error.to_string())?.to_bytes();
                if is_again || !self.access.is_to_log_in_again(status, &body) {
                    return Ok((status, body));
                }
                is_again = true;
            }
        };
        let answered = tokio::time::timeout(limit, asking).await;
        let answered = answered.unwrap_or_else(|_| Err(format!("none within {limit:?}")));
        let (status, body) = answered.map_err(|detail: String| self.failed(place, detail))?;
        if !status.is_success() {
            let detail =
                format!("{status} {}", String::from_utf8_lossy(&body[..body.len().min(300)]));
            if status.is_server_error() {
                // The endpoint may have no leader; another may have one.
                return Err(self.failed(place, detail));
            }
            return Err(EtcdError::Refused { path, detail });
        }
        // A streaming call answers one line for each message; the first line is the answer.
        let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let answer: Value = serde_json::from_slice(line)
            .map_err(|error| EtcdError::Answer { path, detail: error.to_string() })?;
        match answer.get("error") {
            None => Ok(answer),
            // Without this, a refused renewal would look like a lease that is gone.
            Some(error) => Err(EtcdError::Refused { path, detail: error.to_string() }),
        }
    }

    /// Makes etcd require passwords, with a user `root` that has this password.
    #[cfg(test)]
    pub(super) async fn enable_passwords(&self, password: &str) -> Result<(), EtcdError> {
        let root = json!({ "name": "root", "password": password });
        let granted = json!({ "user": "root", "role": "root" });
        let limit = Duration::from_secs(20);
        // The user of this client cannot log in yet.
        let nobody = self.access.without_login();
        let nobody = Etcd { access: nobody, current: AtomicUsize::new(0) };
        nobody.ask("/v3/auth/user/add", &root, limit).await?;
        nobody.ask("/v3/auth/role/add", &json!({ "name": "root" }), limit).await?;
        nobody.ask("/v3/auth/user/grant", &granted, limit).await?;
        nobody.ask("/v3/auth/enable", &json!({}), limit).await.map(drop)
    }

    /// Replaces the token by one that etcd does not know.
    #[cfg(test)]
    pub(super) fn forge_token(&self) {
        self.access.forge_token();
    }

    fn place(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// The next request goes to the next endpoint.
    fn failed(&self, place: usize, detail: String) -> EtcdError {
        self.current.fetch_add(1, Ordering::Relaxed);
        EtcdError::Unreachable { endpoint: self.access.name(place).to_owned(), detail }
    }
}

/// The first key after all keys that begin with `prefix`, which is ASCII.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn condition_json(condition: &Condition) -> Value {
    match condition {
        Condition::Absent(key) => json!({
            "key": STANDARD.encode(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0",
        }),
        Condition::Unchanged(key, revision) => json!({
            "key": STANDARD.encode(key), "target": "MOD", "result": "EQUAL",
            "mod_revision": revision.to_string(),
        }),
        Condition::CreatedAt(key, revision) => json!({
            "key": STANDARD.encode(key), "target": "CREATE", "result": "EQUAL",
            "create_revision": revision.to_string(),
        }),
        Condition::Holds(key, value) => json!({
            "key": STANDARD.encode(key), "target": "VALUE", "result": "EQUAL",
            "value": STANDARD.encode(value),
        }),
    }
}

fn change_json(change: &Change) -> Value {
    match change {
        Change::Put(key, value, lease) => json!({ "request_put": {
            "key": STANDARD.encode(key), "value": STANDARD.encode(value), "lease": lease.to_string(),
        }}),
        Change::Delete(key) => {
            json!({ "request_delete_range": { "key": STANDARD.encode(key) }})
        }
    }
}

fn key_value(path: &'static str, entry: &Value) -> Result<KeyValue, EtcdError> {
    let bytes = |field: &str| {
        // The gateway omits an empty value.
        let text = entry.get(field).and_then(Value::as_str).unwrap_or_default();
        STANDARD
            .decode(text)
            .map_err(|error| EtcdError::Answer { path, detail: format!("{field}: {error}") })
    };
    let key = String::from_utf8(bytes("key")?)
        .map_err(|error| EtcdError::Answer { path, detail: error.to_string() })?;
    Ok(KeyValue {
        key,
        value: bytes("value")?,
        mod_revision: number(path, entry, "mod_revision")?,
        create_revision: number(path, entry, "create_revision")?,
        lease: number_or_zero(path, entry, "lease")?,
    })
}

/// A number, which the gateway writes as a string.
fn number(path: &'static str, answer: &Value, field: &str) -> Result<i64, EtcdError> {
    match answer.get(field) {
        None => Err(EtcdError::Answer { path, detail: format!("{field} is missing") }),
        Some(_) => number_or_zero(path, answer, field),
    }
}

fn number_or_zero(path: &'static str, answer: &Value, field: &str) -> Result<i64, EtcdError> {
    let found = match answer.get(field) {
        None => Some(0),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_i64(),
    };
    found.ok_or_else(|| EtcdError::Answer { path, detail: format!("{field} is not a number") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{end_of, key_value, number};

    #[test]
    fn answers_are_taken_apart_or_refused() {
        let entry =
            json!({ "key": "YQ==", "value": "Yg==", "mod_revision": "7", "create_revision": "3" });
        let found = key_value("p", &entry).unwrap();
        assert_eq!((found.key.as_str(), &found.value[..]), ("a", &b"b"[..]));
        assert_eq!((found.mod_revision, found.create_revision), (7, 3));
        let broken = [
            json!({ "key": "%", "mod_revision": "7", "create_revision": "3" }),
            json!({ "key": "YQ==", "create_revision": "3" }),
            json!({ "key": "YQ==", "mod_revision": "x", "create_revision": "3" }),
            json!({ "key": "/w==", "mod_revision": "7", "create_revision": "3" }),
        ];
        for entry in broken {
            assert!(key_value("p", &entry).is_err(), "{entry}");
        }
        assert!(number("p", &json!({ "n": [] }), "n").is_err());
    }

    #[test]
    fn a_prefix_ends_behind_all_that_begin_with_it() {
        assert_eq!(end_of("/oribi/a/"), b"/oribi/a0");
    }
}
