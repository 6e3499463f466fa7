//! Clients at the port for queries that close one side of their connection, or both.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::query_queue::ENDLESS;
use super::query_service::unchunked;
use super::{ADMIN, Fixture, basic};
use crate::limits::STATEMENTS_MAX;

/// A thousand rows of 1,000 bytes, and then hours without one.
const SILENT: &str = "statement=SELECT RAW REPEAT(\"x\", 1000) FROM ARRAY_RANGE(0,1000) a \
                      UNNEST ARRAY_RANGE(0,1000) b UNNEST ARRAY_RANGE(0,1000) c \
                      UNNEST ARRAY_RANGE(0,1000) d WHERE a = 0 AND b = 0 AND c = 0&timeout=300s";

impl Fixture {
    fn begin_at_query_port(&self, form: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.query_address()).unwrap();
        let (login, length) = (basic(ADMIN), form.len());
        write!(
            stream,
            "POST /query/service HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: {login}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {length}\r\n\r\n{form}"
        )
        .unwrap();
        stream
    }
}

/// Reads the rows that are sent, so that the end of the connection is no reset.
fn read_all_that_comes(stream: &mut TcpStream) {
    let mut begun = vec![0; 900_000];
    stream.read_exact(&mut begun).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while stream.read(&mut begun).is_ok_and(|bytes| bytes > 0) {}
}

/// The last response; interim ones come before it.
fn answer_of(mut text: &str) -> Value {
    while text.starts_with("HTTP/1.1 100 ") {
        text = text.split_once("\r\n\r\n").unwrap().1;
    }
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(&unchunked(head, body)).unwrap()
}

// Compat (SQL++ over HTTP): many statements
#[test]
fn a_half_closed_client_gets_its_answer() {
    let fixture = Fixture::with_queries(|_| {});
    for (statement, rows) in [
        // Silent until its end, and rows all the time.
        (
            "SELECT COUNT(*) FROM ARRAY_RANGE(0,600) a UNNEST ARRAY_RANGE(0,600) b WHERE a = -1 - b",
            1,
        ),
        ("SELECT RAW n FROM ARRAY_RANGE(0, 200000) AS n", 200_000),
    ] {
        let mut stream = fixture.begin_at_query_port(&format!("statement={statement}"));
        stream.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let answer = answer_of(&text);
        assert_eq!(answer["status"], "success", "{statement}");
        assert_eq!(answer["results"].as_array().map(Vec::len), Some(rows), "{statement}");
    }
}

#[test]
fn a_client_that_has_gone_ends_its_statement() {
    let fixture = Fixture::with_queries(|_| {});
    for form in [ENDLESS, SILENT] {
        for half_closes in [false, true] {
            for _ in 0..STATEMENTS_MAX {
                let mut stream = fixture.begin_at_query_port(form);
                if half_closes {
                    stream.shutdown(Shutdown::Write).unwrap();
                }
                if form == SILENT {
                    read_all_that_comes(&mut stream);
                }
            }
            let body = json!({ "statement": "SELECT RAW 1", "timeout": "60s" });
            let answer = fixture.service(ADMIN, &body).json();
            assert_eq!(answer["results"], json!([1]), "{form} {half_closes}: {answer}");
        }
    }
}
