//! A request's fields: checks names, types and values as the reference does.
//!
//! Codes: 1065 an unknown name, 1070 a wrong type, 1040 a value that does not parse, 1030 a value
//! that is not one of those allowed, 1020 a feature that is not there, 1050 a missing field.

use std::time::Duration;

use bytes::Bytes;

use crate::consistency::Consistency;
use crate::context::QueryContext;
use crate::error::{QueryError, Result};
use crate::runtime::QueryParameters;
use crate::value::{QueryValue, Text, json};

#[derive(Clone, Debug, Default)]
pub struct QueryRequest {
    /// The statement's text, unless `prepared` is set.
    pub statement: String,
    /// Whose prepared statements it uses. The server sets it.
    pub user: String,
    /// The name of a prepared statement.
    pub prepared: Option<String>,
    pub(crate) params: QueryParameters,
    pub(crate) context: QueryContext,
    /// Refuses statements that change something (1000).
    pub readonly: bool,
    /// The client's bound on time.
    pub timeout: Option<Duration>,
    /// PREPARE runs its statement at once.
    pub auto_execute: bool,
    /// Changes keep the expiry of documents.
    pub preserve_expiry: bool,
    /// Freshness of index scans.
    pub consistency: Consistency,
    /// The bound on waiting for an index.
    pub scan_wait: Option<Duration>,
    /// The answer has `metrics`.
    pub metrics: Option<bool>,
    /// The answer has `signature`.
    pub signature: Option<bool>,
    /// The answer is indented.
    pub pretty: bool,
    pub client_context_id: Option<String>,
    /// `off`, `phases` or `timings`.
    pub profile: Option<String>,
}

impl QueryRequest {
    /// A request of a statement without anything else.
    pub fn of(statement: impl Into<String>) -> QueryRequest {
        QueryRequest { statement: statement.into(), ..QueryRequest::default() }
    }

    /// A request from a JSON body.
    pub fn from_json(body: &[u8]) -> Result<QueryRequest> {
        let value = json::parse_checked(&Bytes::copy_from_slice(body));
        let Some(object) = value.and_then(|value| value.object()) else {
            return Err(QueryError::new(1040, "The body of the request is no JSON object"));
        };
        let mut request = QueryRequest::default();
        for (name, value) in object.fields() {
            request.set(&name.to_str(), value.clone())?;
        }
        request.check()
    }

    /// A request from the pairs of a form or of a URL.
    pub fn from_form<'f>(
        pairs: impl IntoIterator<Item = (&'f str, &'f str)>,
    ) -> Result<QueryRequest> {
        let mut request = QueryRequest::default();
        for (name, text) in pairs {
            let value = match (field_type(name), text) {
                (FieldType::Boolean, "true") => QueryValue::Bool(true),
                (FieldType::Boolean, "false") => QueryValue::Bool(false),
                (FieldType::Json, text) => {
                    let value = json::parse_checked(&Bytes::copy_from_slice(text.as_bytes()));
                    value.ok_or_else(|| {
                        QueryError::new(1040, format!("The value of {name} is no JSON"))
                    })?
                }
                (_, text) => QueryValue::from(text),
            };
            request.set(name, value)?;
        }
        request.check()
    }

    /// Positional arguments as JSON texts.
    pub fn set_args(&mut self, args: &[&str]) -> Result<()> {
        let parse = |text: &&str| json::parse_checked(&Bytes::copy_from_slice(text.as_bytes()));
        let values = args.iter().map(parse).collect::<Option<Vec<QueryValue>>>();
        self.params.positional =
            values.ok_or_else(|| QueryError::new(1040, "An argument is no JSON"))?;
        Ok(())
    }

    /// The bucket and scope of bare keyspace names.
    pub fn set_context(&mut self, bucket: &str, scope: &str) {
        self.context = QueryContext(Some((bucket.to_owned(), scope.to_owned())));
    }

    fn check(self) -> Result<QueryRequest> {
        if self.statement.is_empty() && self.prepared.is_none() {
            return Err(QueryError::new(1050, "The request has neither statement nor prepared"));
        }
        if self.consistency == Consistency::AtPlus(String::new()) {
            return Err(QueryError::new(1050, "at_plus needs scan_vectors"));
        }
        Ok(self)
    }

    fn set(&mut self, name: &str, value: QueryValue) -> Result<()> {
        if let Some(parameter) = name.strip_prefix(['$', '@']) {
            self.params.named.push((Text::from(parameter), value));
            return Ok(());
        }
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "statement" => self.statement = text(&name, &value)?,
            "prepared" => self.prepared = Some(text(&name, &value)?),
            "args" => {
                let items = value.elements().ok_or_else(|| wrong_type(&name))?;
                self.params.positional = items.to_vec();
            }
            "query_context" => self.context = context(&text(&name, &value)?)?,
            "readonly" => self.readonly = flag(&name, &value)?,
            "auto_execute" => self.auto_execute = flag(&name, &value)?,
            "preserve_expiry" => self.preserve_expiry = flag(&name, &value)?,
            "pretty" => self.pretty = flag(&name, &value)?,
            "metrics" => self.metrics = Some(flag(&name, &value)?),
            "signature" => self.signature = Some(flag(&name, &value)?),
            "timeout" => self.timeout = duration(&name, &value)?,
            "scan_wait" => self.scan_wait = duration(&name, &value)?,
            "client_context_id" => self.client_context_id = Some(text(&name, &value)?),
            "profile" => {
                let profile = one_of(&name, &value, &["off", "phases", "timings"])?;
                self.profile = Some(profile);
            }
            "scan_consistency" => {
                let allowed =
                    ["not_bounded", "request_plus", "at_plus", "statement_plus", "scan_plus"];
                self.set_consistency(&one_of(&name, &value, &allowed)?);
            }
            "scan_vector" | "scan_vectors" => {
                self.consistency = Consistency::AtPlus(crate::value::write::to_json(&value));
            }
            "format" | "compression" => {
                let text = text(&name, &value)?.to_ascii_lowercase();
                if text != "json" && text != "none" {
                    return Err(QueryError::new(1020, format!("{name} {text} is not supported")));
                }
            }
            "encoding" => drop(one_of(&name, &value, &["utf-8", "utf8"])?),
            _ => ignored(&name, &value)?,
        }
        Ok(())
    }

    fn set_consistency(&mut self, name: &str) {
        match (name, &self.consistency) {
            ("at_plus", Consistency::AtPlus(_)) => {}
            ("at_plus", _) => self.consistency = Consistency::AtPlus(String::new()),
            ("not_bounded", _) => {}
            _ => self.consistency = Consistency::RequestPlus,
        }
    }
}

/// The type of a form field's text.
enum FieldType {
    Text,
    Boolean,
    Json,
}

fn field_type(name: &str) -> FieldType {
    if name.starts_with(['$', '@']) {
        return FieldType::Json;
    }
    match name.to_ascii_lowercase().as_str() {
        "args" | "scan_vector" | "scan_vectors" | "controls" => FieldType::Json,
        "readonly" | "auto_execute" | "preserve_expiry" | "pretty" | "metrics" | "signature"
        | "use_cbo" | "tximplicit" => FieldType::Boolean,
        _ => FieldType::Text,
    }
}

/// Fields that are checked and have no effect.
fn ignored(name: &str, value: &QueryValue) -> Result<()> {
    match name {
        "max_parallelism" | "scan_cap" | "pipeline_cap" | "pipeline_batch" | "memory_quota"
        | "numatrs" => {
            if value.as_int().is_some() {
                return Ok(());
            }
            let text = text(name, value)?;
            text.parse::<i64>().map(drop).map_err(|_| not_parsed(name, &text))
        }
        "controls" | "use_cbo" | "use_fts" | "use_replica" | "encoded_plan" | "encoding_type"
        | "creds" | "durability_level" | "kvtimeout" | "atrcollection" | "txtimeout" | "txdata"
        | "txstmtnum" | "client_type" | "loglevel" | "sort_projection" | "error_limit"
        | "natural_context" => Ok(()),
        "txid" | "tximplicit" if value.truth() => {
            Err(QueryError::unsupported("a transaction by query"))
        }
        "txid" | "tximplicit" => Ok(()),
        _ => {
            let msg = format!("Unrecognized parameter in request: {name}");
            Err(QueryError::new(1065, msg))
        }
    }
}

fn wrong_type(name: &str) -> Box<QueryError> {
    QueryError::new(1070, format!("The value of {name} has a wrong type"))
}

fn not_parsed(name: &str, text: &str) -> Box<QueryError> {
    QueryError::new(1040, format!("The value {text} of {name} does not parse"))
}

fn text(name: &str, value: &QueryValue) -> Result<String> {
    value.as_text().map(Text::to_string).ok_or_else(|| wrong_type(name))
}

fn flag(name: &str, value: &QueryValue) -> Result<bool> {
    match value {
        QueryValue::Bool(flag) => Ok(*flag),
        _ => Err(wrong_type(name)),
    }
}

fn one_of(name: &str, value: &QueryValue, allowed: &[&str]) -> Result<String> {
    let text = text(name, value)?.to_ascii_lowercase();
    if allowed.contains(&text.as_str()) {
        return Ok(text);
    }
    Err(QueryError::new(1030, format!("The value {text} of {name} is not known")))
}

/// A Go duration; a zero or negative one is none.
fn duration(name: &str, value: &QueryValue) -> Result<Option<Duration>> {
    let text = text(name, value)?;
    let nanoseconds = crate::functions::parse_duration(&text);
    let nanoseconds = nanoseconds.ok_or_else(|| not_parsed(name, &text))?;
    Ok(u64::try_from(nanoseconds).ok().filter(|count| *count > 0).map(Duration::from_nanos))
}

fn context(text: &str) -> Result<QueryContext> {
    let path = text.strip_prefix("default:").unwrap_or(text);
    if path.is_empty() {
        return Ok(QueryContext::default());
    }
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for character in path.chars() {
        match character {
            '`' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other => parts.last_mut().into_iter().for_each(|part| part.push(other)),
        }
    }
    match <[String; 2]>::try_from(parts) {
        Ok([bucket, scope]) if !quoted && !bucket.is_empty() && !scope.is_empty() => {
            Ok(QueryContext(Some((bucket, scope))))
        }
        Ok(_) => Err(not_parsed("query_context", text)),
        // A bucket alone: its default scope holds bare names.
        Err(parts) if parts.len() == 1 && !quoted => Ok(QueryContext::default()),
        Err(_) => Err(not_parsed("query_context", text)),
    }
}
