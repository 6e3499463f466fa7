//! Requests and replies as values.
//!
//! Owns: splitting and decoding of paths and forms, and the few shapes of answers. Invariants:
//! input from the network is decoded strictly and never panics; error bodies have the shape that
//! the client libraries' managers parse (`{"errors":{..}}` or `{"_":".."}`), with the wording they
//! search for. Callers: `routes` and the handlers. This module does not interpret paths.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::body::{READING_DEADLINE, ReplyBody, WHOLE_BYTES_MAX};
use super::operator_memory::OperatorMemory;
use crate::limits::OPERATOR_READING_DEADLINE;
use oribi_server::admin_api::memory::ConnectionMemory;

/// Bytes of most requests' bodies. Forms with every field set have about 500.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Time for a request's body to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// Seconds after which a refused client should come back.
const RETRY_AFTER_S: u64 = 1;

/// The header by which scripts of a page say that they sent a request.
const REQUESTED_WITH: &str = "x-requested-with";

pub(crate) type HttpReply = Response<ReplyBody>;

/// The answer to a request that fails, in a form for `?`; boxed, because it is large and rare.
pub(crate) type HttpRejection = Box<HttpReply>;

/// Fields of a form. The last one of a name wins.
#[derive(Default)]
pub(crate) struct FormFields {
    fields: HashMap<String, String>,
}

impl FormFields {
    /// Reads an `application/x-www-form-urlencoded` body of at most `bytes_max`.
    pub(crate) async fn read(
        body: Incoming,
        bytes_max: usize,
    ) -> Result<FormFields, HttpRejection> {
        let collected =
            tokio::time::timeout(BODY_DEADLINE, Limited::new(body, bytes_max).collect()).await;
        let bytes = match collected {
            Ok(Ok(collected)) => collected.to_bytes(),
            // The body is too long, or the client is gone and will not read the answer.
            Ok(Err(_)) => return Err(error(StatusCode::PAYLOAD_TOO_LARGE, "body too large").into()),
            Err(_) => return Err(error(StatusCode::REQUEST_TIMEOUT, "body too slow").into()),
        };
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| error(StatusCode::BAD_REQUEST, "the form is not UTF-8"))?;
        FormFields::parse(text)
            .ok_or_else(|| error(StatusCode::BAD_REQUEST, "the form is not URL-encoded").into())
    }

    /// Parses the fields; also those of a query.
    pub(crate) fn parse(text: &str) -> Option<FormFields> {
        Some(FormFields { fields: FormFields::pairs(text)?.into_iter().collect() })
    }

    /// Names and values in their order.
    pub(crate) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let parted = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        parted.map(|(name, value)| Some((decode(name, true)?, decode(value, true)?))).collect()
    }

    /// A field's value, if present and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A field's value, if present; it may be empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// Refuses fields that are not among these, in the words of the service that clients know.
    /// Otherwise a misspelt field would be ignored silently.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), HttpRejection> {
        let unknown = self.fields.keys().filter(|name| !known.contains(&name.as_str()));
        let errors: serde_json::Map<String, Value> =
            unknown.map(|name| (name.clone(), json!("Unsupported key"))).collect();
        if errors.is_empty() {
            return Ok(());
        }
        let body = json!({ "errors": errors }).to_string();
        Err(whole(StatusCode::BAD_REQUEST, "application/json", body).into())
    }

    /// A field that must be a number, if present.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, HttpRejection> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(field_error(name, "The value must be an integer").into()),
        }
    }

    /// A field that must be a yes or no, if present.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, HttpRejection> {
        match self.get(name) {
            None => Ok(None),
            Some("1" | "true") => Ok(Some(true)),
            Some("0" | "false") => Ok(Some(false)),
            Some(_) => Err(field_error(name, "The value must be 0 or 1").into()),
        }
    }
}

/// The parts of a path between slashes, decoded; `None` when it is not URL-encoded UTF-8.
pub(crate) fn segments(path: &str) -> Option<Vec<String>> {
    path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect()
}

/// The host name that the client used, without port. Documents that have to name a host use this
/// one, because it is known to be reachable.
pub(crate) fn host_of(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or("127.0.0.1");
    // An IPv6 address is in brackets, so its colons do not belong to the port.
    let end = if host.ends_with(']') { None } else { host.rfind(':') };
    host[..end.unwrap_or(host.len())].to_owned()
}

pub(crate) fn json_reply(value: &Value) -> HttpReply {
    whole(StatusCode::OK, "application/json", value.to_string())
}

/// 200 with JSON text made elsewhere.
pub(crate) fn json_text(text: &str) -> HttpReply {
    whole(StatusCode::OK, "application/json", text.to_owned())
}

/// A status without body.
pub(crate) fn empty(status: StatusCode) -> HttpReply {
    whole(status, "text/plain", String::new())
}

/// An error without field, in the shape of the collection manager's paths.
pub(crate) fn error(status: StatusCode, message: &str) -> HttpReply {
    debug_assert!(status.is_client_error() || status.is_server_error(), "an error has its status");
    whole(status, "application/json", json!({ "errors": { "_": message } }).to_string())
}

/// 400 for one field of a form.
pub(crate) fn field_error(field: &str, message: &str) -> HttpReply {
    let body = json!({ "errors": { field: message } });
    whole(StatusCode::BAD_REQUEST, "application/json", body.to_string())
}

/// 500 for a handler that panicked.
pub(crate) fn panicked() -> HttpReply {
    error(StatusCode::INTERNAL_SERVER_ERROR, "internal error; the log has the reason")
}

/// 404 in the words by which client libraries recognise an unknown bucket.
pub(crate) fn bucket_not_found() -> HttpReply {
    whole(StatusCode::NOT_FOUND, "text/plain", "Requested resource not found.\r\n".to_owned())
}

/// 404 in the words by which client libraries recognise a feature that a server does not have.
pub(crate) fn path_not_found() -> HttpReply {
    whole(StatusCode::NOT_FOUND, "text/plain", "Not found.".to_owned())
}

/// 401, which makes a browser prompt for credentials, unless the console sent the request: it asks
/// for them itself.
pub(crate) fn unauthorized(request: &HeaderMap) -> HttpReply {
    let mut reply = error(
        StatusCode::UNAUTHORIZED,
        "this needs the name and password of a user, as in curl -u NAME:PASSWORD",
    );
    if request.contains_key(REQUESTED_WITH) {
        return reply;
    }
    let realm = HeaderValue::from_static("Basic realm=\"Oribi\"");
    reply.headers_mut().insert(WWW_AUTHENTICATE, realm);
    reply
}

/// 401 with the challenge that the client has to answer.
pub(crate) fn challenged(challenge: HeaderValue) -> HttpReply {
    let mut reply = empty(StatusCode::UNAUTHORIZED);
    reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    reply
}

/// 503: the client's share of this server is used up; it has to retry later.
pub(crate) fn busy(why: &str) -> HttpReply {
    let mut reply = error(StatusCode::SERVICE_UNAVAILABLE, why);
    let headers = reply.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// 503: other clients hold all memory for connections. Until this client retries it counts as
/// waiting, so that stalled clients lose their memory.
pub(crate) fn no_memory(memory: &Arc<ConnectionMemory>) -> HttpReply {
    let waiting = memory.wait_beside();
    tokio::spawn(async move {
        tokio::time::sleep(2 * Duration::from_secs(RETRY_AFTER_S)).await;
        drop(waiting);
    });
    busy("the memory for connections is in use")
}

/// The same answer, with no more in memory than is counted; 503 when there is no space for it.
pub(crate) fn counted(
    reply: HttpReply,
    memory: &Arc<ConnectionMemory>,
    of_operators: &OperatorMemory,
) -> HttpReply {
    let (mut head, body) = reply.into_parts();
    let body = match body {
        ReplyBody::Whole(Some(bytes)) if bytes.len() > WHOLE_BYTES_MAX => {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            if let Some(held) = of_operators.hold(&head.extensions, bytes.len()) {
                ReplyBody::paced(bytes, held, OPERATOR_READING_DEADLINE, None)
            } else {
                let Some(held) = memory.hold(bytes.len()) else { return no_memory(memory) };
                ReplyBody::paced(bytes, held, READING_DEADLINE, Some(Arc::clone(memory)))
            }
        }
        other => other,
    };
    HttpReply::from_parts(head, body)
}

/// 403: the user is known but may not do this.
pub(crate) fn forbidden(needed: &str) -> HttpReply {
    let body = json!({
        "message": "Forbidden. User needs the following permissions",
        "permissions": [needed],
    });
    whole(StatusCode::FORBIDDEN, "application/json", body.to_string())
}

/// Any status, type and text.
pub(crate) fn whole(status: StatusCode, content_type: &'static str, text: String) -> HttpReply {
    let bytes = (!text.is_empty()).then(|| Bytes::from(text));
    let mut reply = Response::new(ReplyBody::Whole(bytes));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// Resolves `%XX`, and `+` when it stands for a space.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    debug_assert!(bytes.len() <= text.len(), "decoding makes a text no longer");
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::super::operator_memory::for_operators;
    use super::*;
    use crate::limits::OPERATOR_BYTES;

    #[test]
    fn paths_and_forms_are_decoded_strictly() {
        assert_eq!(segments("/pools/default/").unwrap(), ["pools", "default"]);
        assert_eq!(segments("/a%2Fb/c+d").unwrap(), ["a/b", "c+d"]);
        for path in ["/%", "/%4", "/%zz", "/%ff", "/%+1"] {
            assert!(segments(path).is_none(), "{path}");
        }
        let form = FormFields::parse("name=a+b%26&maxTTL=-1&x&flag=0").unwrap();
        assert_eq!(form.get("name"), Some("a b&"));
        assert_eq!(form.get("x"), None);
        assert_eq!(form.number("maxTTL").unwrap(), Some(-1));
        assert_eq!(form.flag("flag").unwrap(), Some(false));
        assert!(form.number("name").is_err() && form.flag("name").is_err());
        assert!(FormFields::parse("a=%f").is_none());
    }

    #[tokio::test]
    async fn unread_answers_are_counted_then_refused() {
        const BYTES: usize = 1 << 20;
        let (memory, of_operators) = (Arc::new(ConnectionMemory::default()), OperatorMemory::new());
        let reserved = || memory.stats().reserved_bytes as usize;
        let answer = |bytes: usize| {
            let text = "x".repeat(bytes);
            counted(whole(StatusCode::OK, "text/plain", text), &memory, &of_operators)
        };
        let mut unread = Vec::new();
        while memory.reservable_bytes() - reserved() >= BYTES {
            unread.push(answer(BYTES));
            assert_eq!(reserved(), unread.len() * BYTES);
        }
        assert_eq!(answer(BYTES).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer(WHOLE_BYTES_MAX).status(), StatusCode::OK, "short ones need no memory");
        // Figures of the server have memory that the others cannot take.
        let figures = || {
            let reply = whole(StatusCode::OK, "text/plain", "y".repeat(BYTES));
            counted(for_operators(reply), &memory, &of_operators)
        };
        let mut unread_figures = Vec::new();
        while of_operators.free_bytes() >= BYTES {
            unread_figures.push(figures());
            let status = unread_figures.last().map(|reply| reply.status());
            assert_eq!(status, Some(StatusCode::OK));
            assert_eq!(of_operators.free_bytes(), OPERATOR_BYTES - unread_figures.len() * BYTES);
        }
        assert!(!unread_figures.is_empty());
        assert_eq!(figures().status(), StatusCode::SERVICE_UNAVAILABLE, "it is bounded");
        drop(unread_figures);
        while of_operators.free_bytes() < OPERATOR_BYTES {
            tokio::task::yield_now().await;
        }
        let read = unread.pop().unwrap();
        assert_eq!(read.headers()[CONTENT_LENGTH], BYTES.to_string());
        assert!(read.into_body().collect().await.unwrap().to_bytes() == "x".repeat(BYTES));
        drop(unread);
        while reserved() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn the_host_is_the_one_the_client_used() {
        let host = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(text));
            host_of(&headers)
        };
        assert_eq!(host("example.org:8091"), "example.org");
        assert_eq!(host("example.org"), "example.org");
        assert_eq!(host("[::1]:8091"), "[::1]");
        assert_eq!(host("[::1]"), "[::1]");
        assert_eq!(host_of(&HeaderMap::new()), "127.0.0.1");
    }
}
