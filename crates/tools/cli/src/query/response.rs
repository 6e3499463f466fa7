//! Takes the answer of a query service apart while it arrives.
//!
//! An answer is one JSON object whose rows are the elements of `results`. Owns: the row in
//! progress, and the other members, which are few. Invariants: both are limited in size; an answer
//! that ends early is an error.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::row::OutputRow;
use super::source::{ResultSink, ServiceError, StatementFailure, Summary};

/// Longest row, and longest text of the other members.
const ROW_BYTES_MAX: usize = 512 << 20;
const OTHERS_BYTES_MAX: usize = 64 << 20;

/// The member with the rows.
const RESULTS: &[u8] = b"\"results\"";

/// See the module text.
#[derive(Default)]
pub struct ResponseReader {
    /// The answer without its rows: a whole object at its end.
    others: Vec<u8>,
    row: Vec<u8>,
    depth: usize,
    in_rows: bool,
    in_string: bool,
    is_escaped: bool,
    rows: u64,
}

impl ResponseReader {
    /// Takes the next bytes of the answer.
    ///
    /// # Errors
    /// When they are no such answer, or those of the sink.
    pub fn push(&mut self, bytes: &[u8], sink: &mut dyn ResultSink) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.in_string && !self.is_escaped {
                // Most of a row is inside of strings.
                let end = memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                self.part().extend_from_slice(&rest[..end]);
                rest = &rest[end..];
            }
            let Some((byte, after)) = rest.split_first() else { break };
            rest = after;
            self.byte(*byte, sink)?;
        }
        if self.row.len() > ROW_BYTES_MAX || self.others.len() > OTHERS_BYTES_MAX {
            bail!("the server's answer has a row or an error that is too long");
        }
        Ok(())
    }

    fn part(&mut self) -> &mut Vec<u8> {
        if self.in_rows { &mut self.row } else { &mut self.others }
    }

    fn byte(&mut self, byte: u8, sink: &mut dyn ResultSink) -> Result<()> {
        if self.in_string {
            self.in_string = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            self.part().push(byte);
            return Ok(());
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.depth += 1;
                if byte == b'[' && self.depth == 2 && !self.in_rows && self.is_at_results() {
                    self.others.push(b'[');
                    self.in_rows = true;
                    return sink.begin(&self.signature());
                }
            }
            b'}' | b']' => {
                self.depth = self.depth.checked_sub(1).context("the server's answer is no JSON")?;
                if self.in_rows && self.depth == 1 {
                    self.end_row(sink)?;
                    self.in_rows = false;
                }
            }
            b',' if self.in_rows && self.depth == 2 => return self.end_row(sink),
            b'\n' | b'\r' if self.in_rows => {
                // Stored JSON may have several lines, and a row is one.
                self.row.push(b' ');
                return Ok(());
            }
            _ => {}
        }
        self.part().push(byte);
        Ok(())
    }

    fn end_row(&mut self, sink: &mut dyn ResultSink) -> Result<()> {
        let row = self.row.trim_ascii();
        if !row.is_empty() {
            self.rows += 1;
            sink.row(row)?;
        }
        self.row.clear();
        Ok(())
    }

    fn is_at_results(&self) -> bool {
        let before = self.others.trim_ascii_end();
        let key = before.strip_suffix(b":").map(<[u8]>::trim_ascii_end);
        key.is_some_and(|key| key.ends_with(RESULTS))
    }

    /// The signature in the part before the rows.
    fn signature(&self) -> String {
        let closed = [&self.others[..], b"]}"].concat();
        // Its order is that of the columns.
        let members = OutputRow::parse(&closed).map(|row| row.fields).unwrap_or_default();
        let signature = members.into_iter().find(|(name, _)| name == "signature");
        signature.map(|(_, json)| json.to_owned()).unwrap_or_default()
    }

    /// The end of the answer.
    ///
    /// # Errors
    /// When it says that the statement failed, or is not the end.
    pub fn finish(self) -> Result<Summary> {
        let end: Value = match self.depth == 0 && !self.in_string {
            true => serde_json::from_slice(&self.others).context("the server's answer")?,
            false => bail!("the server ended its answer early; rows may be missing"),
        };
        let errors: Vec<ServiceError> =
            end["errors"].as_array().into_iter().flatten().map(service_error).collect();
        if !errors.is_empty() {
            return Err(StatementFailure { errors }.into());
        }
        match end["status"].as_str() {
            Some("success") => {}
            Some(status) => bail!("the statement ended with the status {status:?}"),
            None => bail!("the server's answer has no status"),
        }
        let changes = end["metrics"]["mutationCount"].as_u64().unwrap_or(0);
        Ok(Summary { rows: self.rows, changes })
    }
}

fn service_error(error: &Value) -> ServiceError {
    let number = |name: &str| error[name].as_u64().and_then(|number| u32::try_from(number).ok());
    ServiceError {
        code: error["code"].as_u64().unwrap_or(0),
        text: error["msg"].as_str().unwrap_or("no reason given").to_owned(),
        position: number("line").zip(number("column")),
    }
}

#[cfg(test)]
mod tests {
    //! Answers in pieces of every length.

    use super::super::source::CollectedRows;
    use super::*;

    fn read(answer: &str, piece: usize) -> (Vec<Value>, Result<Summary>) {
        let (mut reader, mut rows) = (ResponseReader::default(), CollectedRows::default());
        for bytes in answer.as_bytes().chunks(piece) {
            if let Err(error) = reader.push(bytes, &mut rows) {
                return (rows.0, Err(error));
            }
        }
        (rows.0, reader.finish())
    }

    #[test]
    fn rows_are_the_elements_of_results() {
        let answer = "{\"requestID\":\"\\\"results\\\":[\", \"signature\": {\"a\":\"json\"},\n\
             \"results\": [\n{\"a\":[1,{\"b\":\"x,]\\\\\"}],\n \"c\":\"}\\\"\"},\n7\n,[]\n],\n\
             \"status\":\"success\",\"metrics\":{\"mutationCount\":2}\n}\n";
        for piece in 1..answer.len() {
            let (rows, summary) = read(answer, piece);
            let expected = serde_json::json!([{"a": [1, {"b": "x,]\\"}], "c": "}\""}, 7, []]);
            assert_eq!(Value::from(rows), expected, "{piece}");
            assert_eq!(summary.unwrap(), Summary { rows: 3, changes: 2 });
        }
    }

    #[test]
    fn failures_have_their_code_and_place() {
        let answer = r#"{"results":[1],"errors":[{"code":3000,"msg":"no","line":2,"column":5}],
            "status":"fatal"}"#;
        let (rows, summary) = read(answer, 7);
        let failure = summary.unwrap_err();
        assert_eq!(failure.to_string(), "no - line 2, column 5 (error 3000)");
        let failure = failure.downcast::<StatementFailure>().unwrap();
        let excerpt = failure.excerpt("select\n  a  b").unwrap();
        assert_eq!((rows.len(), &*excerpt), (1, "    a  b\n      ^"));
    }

    #[test]
    fn incomplete_answers_are_errors() {
        for (answer, reason) in [
            (r#"{"results":[1,2"#, "early"),
            (r#"{"results":[1,2],"status":"succ"#, "early"),
            (r#"{"results":[1,2]}"#, "status"),
            (r#"{"results":[],"status":"timeout"}"#, "timeout"),
            ("}", "no JSON"),
            ("", "answer"),
        ] {
            let (_, summary) = read(answer, 3);
            let error = format!("{:#}", summary.unwrap_err());
            assert!(error.contains(reason), "{answer}: {error}");
        }
    }
}
