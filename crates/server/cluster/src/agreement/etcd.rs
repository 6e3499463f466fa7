//! An agreement in etcd, over its HTTP/JSON gateway.
//!
//! Owns: requests, their time limits, and the choice of an endpoint: the client stays with one
//! until that fails, then takes the next. `access` connects to an endpoint and authenticates this
//! node. Invariants: a request ends when its limit is over; a field that is missing from an answer
//! is an error, never a guess; keys and values are bytes here and base64 on the wire. Each request
//! has a separate connection: there are a few a second. Sessions are etcd's leases.

mod access;
mod json;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use oribi_config::EtcdSettings;
use serde_json::{Value, json};

use super::{
    Agreement, AgreementAnswer, AgreementError, AgreementRecord, RecordChange, RecordComparison,
    RecordList, SessionGrant, SessionId, Sessions, WatchAnswer,
};
use access::{EtcdAccess, EtcdRequest};
use json::{base64, number, number_or_zero};

/// Longest answer that is read. A whole configuration is some hundred KiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of an error text that are kept.
const DETAIL_BYTES_MAX: usize = 300;
/// How etcd refuses a request about a lease that is over.
const LEASE_IS_OVER: &str = "requested lease not found";

/// See the module text.
#[derive(Debug)]
pub struct Etcd {
    access: EtcdAccess,
    current: AtomicUsize,
}

impl Etcd {
    /// A client for the endpoints of the settings.
    ///
    /// # Errors
    /// A malformed endpoint, or a file that cannot be read.
    pub fn new(settings: &EtcdSettings) -> Result<Etcd, AgreementError> {
        Ok(Etcd { access: EtcdAccess::new(settings)?, current: AtomicUsize::new(0) })
    }

    async fn range(&self, range: &Value, limit: Duration) -> Result<RecordList, AgreementError> {
        const PATH: &str = "/v3/kv/range";
        let answer = self.call(PATH, range, limit).await?;
        let entries = answer.get("kvs").and_then(Value::as_array);
        let records: Result<Vec<AgreementRecord>, AgreementError> =
            entries.into_iter().flatten().map(|entry| json::record(PATH, entry)).collect();
        let header = answer.get("header").unwrap_or(&Value::Null);
        Ok(RecordList { records: records?, revision: number(PATH, header, "revision")? })
    }

    async fn compare_and_set(
        &self,
        comparisons: &[RecordComparison],
        changes: &[RecordChange],
        limit: Duration,
    ) -> Result<Option<i64>, AgreementError> {
        const PATH: &str = "/v3/kv/txn";
        let compare: Vec<Value> = comparisons.iter().map(json::comparison).collect();
        let success: Vec<Value> = changes.iter().map(json::change).collect();
        let transaction = json!({ "compare": compare, "success": success });
        let answer = self.call(PATH, &transaction, limit).await?;
        let did = answer.get("succeeded").and_then(Value::as_bool).unwrap_or(false);
        let header = answer.get("header").unwrap_or(&Value::Null);
        let revision = number(PATH, header, "revision")?;
        Ok(did.then_some(revision))
    }

    async fn next_changes(
        &self,
        prefix: &str,
        revision: i64,
        limit: Duration,
    ) -> Result<WatchAnswer, AgreementError> {
        const PATH: &str = "/v3/watch";
        let body = json!({ "create_request": {
            "key": base64(prefix),
            "range_end": base64(end_of(prefix)),
            "start_revision": revision.saturating_add(1).to_string(),
        }});
        let place = self.place();
        let watching = async {
            let request = EtcdRequest { path: PATH, body: &body };
            let answer = self.access.post(place, request).await;
            let answer = answer.map_err(|detail| self.failed(place, detail))?;
            if !answer.status().is_success() {
                return Err(self.failed(place, self.access.refusal(answer.status())));
            }
            self.first_message(place, answer).await
        };
        // A watch without events ends like any other.
        match tokio::time::timeout(limit, watching).await {
            Ok(Ok(Some(message))) => json::watch_answer(PATH, &message, revision),
            Ok(Ok(None)) | Err(_) => Ok(WatchAnswer::Quiet),
            Ok(Err(error)) => Err(error),
        }
    }

    /// The first message of a watch that reports something; `None` when the watch ends before.
    async fn first_message(
        &self,
        place: usize,
        mut answer: Response<Incoming>,
    ) -> Result<Option<Value>, AgreementError> {
        let mut text: Vec<u8> = Vec::new();
        while let Some(frame) = answer.body_mut().frame().await {
            let frame = frame.map_err(|error| self.failed(place, error.to_string()))?;
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| &bytes[..]));
            if text.len() > ANSWER_BYTES_MAX {
                // The caller lists instead.
                return Ok(Some(json!({ "result": { "compact_revision": "1" } })));
            }
            // Each message is a line.
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let message: Value = serde_json::from_slice(&line)
                    .map_err(|error| self.failed(place, error.to_string()))?;
                if !json::is_watch_created(&message) {
                    return Ok(Some(message));
                }
            }
        }
        Ok(None)
    }

    async fn call(
        &self,
        path: &'static str,
        body: &Value,
        limit: Duration,
    ) -> Result<Value, AgreementError> {
        let place = self.place();
        let call = async {
            let mut is_again = false;
            loop {
                let answer = self.access.post(place, EtcdRequest { path, body }).await?;
                let status = answer.status();
                let limited = http_body_util::Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
                let body = limited.collect().await.map_err(|error| error.to_string())?.to_bytes();
                if is_again || !self.access.is_to_log_in_again(status, &body) {
                    return Ok((status, body));
                }
                is_again = true;
            }
        };
        let answered = tokio::time::timeout(limit, call).await;
        let answered = answered.unwrap_or_else(|_| Err(format!("none within {limit:?}")));
        let (status, body) = answered.map_err(|detail: String| self.failed(place, detail))?;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&body[..body.len().min(DETAIL_BYTES_MAX)]);
            let detail = format!("{status} {text}");
            if status.is_server_error() {
                // The endpoint may have no leader; another may have one.
                return Err(self.failed(place, detail));
            }
            return Err(AgreementError::Refused { path, detail });
        }
        // A streaming call answers one line for each message; the first line is the answer.
        let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let answer: Value = serde_json::from_slice(line)
            .map_err(|error| AgreementError::Answer { path, detail: error.to_string() })?;
        match answer.get("error") {
            None => Ok(answer),
            // Without this, a refused renewal would look like a lease that is gone.
            Some(error) => Err(AgreementError::Refused { path, detail: error.to_string() }),
        }
    }

    /// Makes etcd require passwords, with a user `root` that has this password.
    #[cfg(test)]
    pub(crate) async fn enable_passwords(&self, password: &str) -> Result<(), AgreementError> {
        let root = json!({ "name": "root", "password": password });
        let granted = json!({ "user": "root", "role": "root" });
        let limit = Duration::from_secs(20);
        // The user of this client cannot log in yet.
        let access = self.access.without_login();
        let stranger = Etcd { access, current: AtomicUsize::new(0) };
        stranger.call("/v3/auth/user/add", &root, limit).await?;
        stranger.call("/v3/auth/role/add", &json!({ "name": "root" }), limit).await?;
        stranger.call("/v3/auth/user/grant", &granted, limit).await?;
        stranger.call("/v3/auth/enable", &json!({}), limit).await.map(drop)
    }

    /// Removes the history before a revision.
    #[cfg(test)]
    pub(crate) async fn compact(
        &self,
        revision: i64,
        limit: Duration,
    ) -> Result<(), AgreementError> {
        let compaction = json!({ "revision": revision.to_string() });
        self.call("/v3/kv/compaction", &compaction, limit).await.map(drop)
    }

    /// Replaces the token by one that etcd does not know.
    #[cfg(test)]
    pub(crate) fn forge_token(&self) {
        self.access.forge_token();
    }

    fn place(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// The next request goes to the next endpoint.
    fn failed(&self, place: usize, detail: String) -> AgreementError {
        self.current.fetch_add(1, Ordering::Relaxed);
        AgreementError::Unreachable { endpoint: self.access.name(place).to_owned(), detail }
    }
}

impl Agreement for Etcd {
    fn get<'a>(
        &'a self,
        key: &'a str,
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<AgreementRecord>> {
        Box::pin(async move {
            let range = json!({ "key": base64(key) });
            Ok(self.range(&range, limit).await?.records.pop())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, limit: Duration) -> AgreementAnswer<'a, RecordList> {
        Box::pin(async move {
            let range = json!({ "key": base64(prefix), "range_end": base64(end_of(prefix)) });
            self.range(&range, limit).await
        })
    }

    fn transact<'a>(
        &'a self,
        comparisons: &'a [RecordComparison],
        changes: &'a [RecordChange],
        limit: Duration,
    ) -> AgreementAnswer<'a, Option<i64>> {
        Box::pin(self.compare_and_set(comparisons, changes, limit))
    }

    fn watch<'a>(
        &'a self,
        prefix: &'a str,
        revision: i64,
        limit: Duration,
    ) -> AgreementAnswer<'a, WatchAnswer> {
        Box::pin(self.next_changes(prefix, revision, limit))
    }
}

impl Sessions for Etcd {
    fn begin_session(&self, ttl_s: u64, limit: Duration) -> AgreementAnswer<'_, SessionGrant> {
        const PATH: &str = "/v3/lease/grant";
        Box::pin(async move {
            let answer = self.call(PATH, &json!({ "TTL": ttl_s.to_string() }), limit).await?;
            let ttl_s = u64::try_from(number(PATH, &answer, "TTL")?).unwrap_or(0);
            let id = SessionId(number(PATH, &answer, "ID")?);
            Ok(SessionGrant { id, ttl: Duration::from_secs(ttl_s) })
        })
    }

    fn renew_session(
        &self,
        session: SessionId,
        limit: Duration,
    ) -> AgreementAnswer<'_, Option<Duration>> {
        const PATH: &str = "/v3/lease/keepalive";
        Box::pin(async move {
            let answer = self.call(PATH, &json!({ "ID": session.0.to_string() }), limit).await?;
            let result = answer.get("result").unwrap_or(&answer);
            // The answer omits zeroes, so it has no TTL for a lease that is gone.
            let ttl_s = u64::try_from(number_or_zero(PATH, result, "TTL")?).unwrap_or(0);
            Ok((ttl_s > 0).then(|| Duration::from_secs(ttl_s)))
        })
    }

    fn end_session(&self, session: SessionId, limit: Duration) -> AgreementAnswer<'_, ()> {
        Box::pin(async move {
            let lease = json!({ "ID": session.0.to_string() });
            match self.call("/v3/lease/revoke", &lease, limit).await {
                Err(AgreementError::Refused { detail, .. }) if detail.contains(LEASE_IS_OVER) => {
                    Ok(())
                }
                ended => ended.map(drop),
            }
        })
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

#[cfg(test)]
mod tests {
    use super::end_of;

    #[test]
    fn a_prefix_ends_after_all_keys_that_begin_with_it() {
        assert_eq!(end_of("/oribi/a/"), b"/oribi/a0");
    }
}
