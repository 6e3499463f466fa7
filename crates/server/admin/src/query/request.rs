//! The body of a request: a statement as text, or JSON around it.
//!
//! Owns: the decoding. JSON has `statement`, and may have `bucket` (whose name may then be left out
//! of tables), `parameters` (an array, or an object by names) and `timeout_ms`. Invariant: the body
//! is bounded in size and time, and unknown members are refused.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use oribi_sql::Value as SqlValue;
use oribi_sql::database::{Parameters, STATEMENT_BYTES_MAX};
use serde::Deserialize;
use serde_json::Value;

use crate::limits::{SQL_TIMEOUT, SQL_TIMEOUT_MAX};
use crate::message::{HttpRejection, error, field_error};
use crate::request::AdminRequest;

/// Time for a body to arrive.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct StatementRequest {
    pub statement: String,
    pub bucket: Option<String>,
    pub parameters: Parameters,
    pub timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementJson {
    statement: String,
    bucket: Option<String>,
    parameters: Option<Value>,
    timeout_ms: Option<u64>,
}

impl StatementRequest {
    pub async fn read(request: &mut AdminRequest) -> Result<StatementRequest, HttpRejection> {
        let (body, bytes_max) = request.take_body();
        let limited = Limited::new(body, bytes_max).collect();
        let bytes = match tokio::time::timeout(BODY_DEADLINE, limited).await {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(_)) => return Err(error(StatusCode::PAYLOAD_TOO_LARGE, "body too large").into()),
            Err(_) => return Err(error(StatusCode::REQUEST_TIMEOUT, "body too slow").into()),
        };
        let kind =
            request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        match kind.starts_with("application/json") {
            true => StatementRequest::parse(&bytes),
            false => StatementRequest::of_text(&bytes),
        }
    }

    fn of_text(bytes: &[u8]) -> Result<StatementRequest, HttpRejection> {
        let statement = std::str::from_utf8(bytes)
            .map_err(|_| error(StatusCode::BAD_REQUEST, "the statement is not UTF-8"))?;
        StatementRequest::checked(StatementRequest {
            statement: statement.to_owned(),
            bucket: None,
            parameters: Parameters::None,
            timeout: SQL_TIMEOUT,
        })
    }

    fn parse(bytes: &[u8]) -> Result<StatementRequest, HttpRejection> {
        let written: StatementJson = serde_json::from_slice(bytes)
            .map_err(|why| error(StatusCode::BAD_REQUEST, &format!("the body is wrong: {why}")))?;
        let parameters = match written.parameters {
            None | Some(Value::Null) => Parameters::None,
            Some(Value::Array(values)) => {
                Parameters::Positions(values.into_iter().map(sql_value).collect())
            }
            Some(Value::Object(values)) => {
                let values = values.into_iter().map(|(name, value)| (name, sql_value(value)));
                Parameters::Names(values.collect())
            }
            Some(_) => {
                let message = "The parameters must be an array or an object";
                return Err(field_error("parameters", message).into());
            }
        };
        let timeout = written.timeout_ms.map_or(SQL_TIMEOUT, Duration::from_millis);
        StatementRequest::checked(StatementRequest {
            statement: written.statement,
            bucket: written.bucket.filter(|bucket| !bucket.is_empty()),
            parameters,
            timeout,
        })
    }

    fn checked(self) -> Result<StatementRequest, HttpRejection> {
        let refuse = |field, message: &str| Err(field_error(field, message).into());
        if self.statement.trim().is_empty() {
            return refuse("statement", "A statement is needed");
        }
        if self.statement.len() > STATEMENT_BYTES_MAX {
            return refuse("statement", "A statement may have 64 KiB");
        }
        if self.timeout.is_zero() || self.timeout > SQL_TIMEOUT_MAX {
            return refuse("timeout_ms", "The value must be in range from 1 to 600000");
        }
        Ok(self)
    }
}

/// A value of JSON as SQLite has it; arrays and objects are their text.
fn sql_value(value: Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(is) => SqlValue::Integer(is.into()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => SqlValue::Integer(whole),
            None => number.as_f64().map_or(SqlValue::Null, SqlValue::Real),
        },
        Value::String(text) => SqlValue::Text(text),
        Value::Array(_) | Value::Object(_) => SqlValue::Text(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    //! Bodies, right and wrong.

    use super::*;

    #[test]
    fn bodies_are_decoded_strictly() {
        let parse = |text: &str| StatementRequest::parse(text.as_bytes());
        let query = parse(
            r#"{"statement":"select ?1","bucket":"b","parameters":[1,"x",null,true,0.5,[2]],
                "timeout_ms":5}"#,
        )
        .expect("a request");
        assert_eq!((query.bucket.as_deref(), query.timeout), (Some("b"), Duration::from_millis(5)));
        let text = |text: &str| SqlValue::Text(text.to_owned());
        let values = vec![
            SqlValue::Integer(1),
            text("x"),
            SqlValue::Null,
            SqlValue::Integer(1),
            SqlValue::Real(0.5),
            text("[2]"),
        ];
        assert_eq!(query.parameters, Parameters::Positions(values));
        for wrong in [
            "",
            "{}",
            r#"{"statement":""}"#,
            r#"{"statement":"select 1","extra":1}"#,
            r#"{"statement":"select 1","parameters":1}"#,
            r#"{"statement":"select 1","timeout_ms":0}"#,
            r#"{"statement":"select 1","timeout_ms":600001}"#,
        ] {
            let refused = parse(wrong).expect_err(wrong);
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{wrong}");
        }
        assert!(
            StatementRequest::of_text(b"\xff").is_err() && StatementRequest::of_text(b" ").is_err()
        );
        assert!(StatementRequest::of_text(&vec![b'a'; STATEMENT_BYTES_MAX + 1]).is_err());
    }
}
