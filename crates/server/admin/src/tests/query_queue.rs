//! Statements beyond the number at once, clients that leave, and clients that do not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::changes::wait_until;
use super::crowds::allow_files;
use super::query_service::unchunked;
use super::{ADMIN, Fixture, basic};
use crate::limits::{QUERIES_WAITING_MAX, STATEMENTS_MAX};
use crate::statement_places::{QueueRejection, Statements};

/// A statement that would run for hours, and needs hardly any memory.
const ENDLESS: &str = "statement=SELECT COUNT(*) FROM ARRAY_RANGE(0,1000) a \
                       UNNEST ARRAY_RANGE(0,1000) b UNNEST ARRAY_RANGE(0,1000) c \
                       UNNEST ARRAY_RANGE(0,1000) d WHERE a = -1 - d&timeout=300s";

impl Fixture {
    fn begin_query(&self, form: &str) -> TcpStream {
        self.connect("POST", "/query/service", ADMIN, form)
    }
}

#[test]
fn statements_wait_in_order_and_in_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let statements = Statements::default();
        let soon = || Instant::now() + Duration::from_millis(20);
        let mut places = Vec::new();
        for _ in 0..STATEMENTS_MAX {
            places.push(statements.wait(soon()).await.unwrap());
        }
        assert_eq!(statements.wait(soon()).await.err(), Some(QueueRejection::Timeout));
        assert!(!statements.has_waiters(), "it has left the queue");
        let later = Instant::now() + Duration::from_secs(300);
        let mut waiting: Vec<_> =
            (0..QUERIES_WAITING_MAX).map(|_| Box::pin(statements.wait(later))).collect();
        for waiter in &mut waiting {
            assert!(futures_poll(waiter.as_mut()).is_none());
        }
        assert_eq!(statements.wait(later).await.err(), Some(QueueRejection::Full));
        places.pop();
        assert!(futures_poll(waiting[1].as_mut()).is_none(), "the first one is before it");
        assert!(futures_poll(waiting[0].as_mut()).is_some_and(|place| place.is_ok()));
    });
}

/// The outcome of a future that is ready.
fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(outcome) => Some(outcome),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn a_waiting_statement_ends_with_its_time() {
    let fixture = Fixture::development();
    let running: Vec<TcpStream> =
        (0..STATEMENTS_MAX).map(|_| fixture.begin_query(ENDLESS)).collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    let code = loop {
        let body = json!({ "statement": "SELECT 1", "timeout": "100ms" });
        let answer = fixture.service(ADMIN, &body).json();
        if let Some(code) = answer["errors"][0]["code"].as_u64() {
            assert_eq!(answer["status"], "timeout", "{answer}");
            break code;
        }
        assert!(Instant::now() < deadline, "the places are never taken");
    };
    assert_eq!(code, 1080);
    drop(running);
    // The statements of clients that have gone end, so their places are free.
    let answer = fixture.service(ADMIN, &json!({ "statement": "SELECT RAW 1", "timeout": "60s" }));
    assert_eq!(answer.json()["results"], json!([1]), "{}", answer.body);
}

// Each statement that waits has a connection, which only the port for queries takes so many of.
/// One more than run and wait. No other statement is sent until then: it would take the place of
/// one of these, and leave it later.
#[test]
fn a_full_queue_answers_429_and_retry() {
    const CLIENTS: usize = STATEMENTS_MAX + QUERIES_WAITING_MAX + 1;
    allow_files();
    let fixture = Fixture::with_queries(|_| {});
    // The password is known from then on: a crowd of unknown ones is refused.
    fixture.service(ADMIN, &json!({ "statement": "SELECT 1" }));
    let begin = |_| {
        let mut stream = TcpStream::connect(fixture.query_address()).unwrap();
        write!(
            stream,
            "POST /query/service HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{ENDLESS}",
            basic(ADMIN),
            ENDLESS.len()
        )
        .unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let clients: Vec<TcpStream> = (0..CLIENTS).map(begin).collect();
    let is_answered = |client: &&TcpStream| client.peek(&mut [0]).is_ok();
    wait_until(|| clients.iter().any(|client| is_answered(&client)), "one is refused");
    let refused: Vec<&TcpStream> = clients.iter().filter(is_answered).collect();
    let [mut refused] = refused[..] else { panic!("{} are refused", refused.len()) };
    refused.set_nonblocking(false).unwrap();
    let mut answer = String::new();
    refused.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let error = &body["errors"][0];
    assert_eq!((&error["code"], &error["retry"]), (&json!(1201), &json!(true)), "{error}");
    drop(clients);
    // As the code says, the same statement works later.
    let answer = fixture.service(ADMIN, &json!({ "statement": "SELECT RAW 1", "timeout": "60s" }));
    assert_eq!(answer.json()["results"], json!([1]), "{}", answer.body);
}

#[test]
fn a_client_that_does_not_read_leaves_its_place() {
    let fixture = Fixture::development();
    let large = "statement=SELECT RAW REPEAT(\"x\", 1000) FROM ARRAY_RANGE(0, 1000000) a\
                 &timeout=300s";
    let mut stalled: Vec<TcpStream> =
        (0..STATEMENTS_MAX).map(|_| fixture.begin_query(large)).collect();
    for stream in &mut stalled {
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    let answer = fixture.service(ADMIN, &json!({ "statement": "SELECT RAW 1", "timeout": "60s" }));
    assert_eq!(answer.json()["results"], json!([1]), "{}", answer.body);
}

/// The place of a statement was once free a little after its client had the answer.
#[test]
fn a_client_with_its_answer_may_ask_again() {
    let fixture = Fixture::development();
    std::thread::scope(|scope| {
        for _ in 0..STATEMENTS_MAX {
            scope.spawn(|| {
                for _ in 0..100 {
                    for (statement, status) in [("SELECT 1", 200), ("SELEC 1", 400)] {
                        let body = json!({ "statement": statement, "timeout": "5s" });
                        let answer = fixture.service(ADMIN, &body);
                        assert_eq!(answer.status, status, "{statement}: {}", answer.body);
                    }
                }
            });
        }
    });
}

#[test]
fn a_million_rows_to_a_slow_reader_hold_little() {
    const ROWS: usize = 1_000_000;
    let fixture = Fixture::development();
    let form = format!("statement=SELECT RAW n FROM ARRAY_RANGE(0, {ROWS}) AS n&timeout=600s");
    let mut stream = fixture.begin_query(&form);
    stream.read_exact(&mut [0; 12]).unwrap();
    let (mut most, mut last, mut same) = (0, 0, 0);
    wait_until(
        || {
            let reserved = fixture.reserved_bytes();
            same = if reserved > 0 && reserved == last { same + 1 } else { 0 };
            last = reserved;
            most = most.max(reserved);
            same > 40
        },
        "the statement waits for its client",
    );
    assert!((1..1 << 20).contains(&most), "{most} bytes");
    assert_eq!(fixture.statement("SELECT RAW 1")["results"], json!([1]), "others are served");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    let (head, body) = rest.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(&unchunked(head, body)).unwrap();
    assert_eq!(answer["status"], "success");
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(ROWS));
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is returned");
}

#[test]
fn a_statement_ends_with_its_server() {
    let mut fixture = Fixture::development();
    let mut stream = fixture.begin_query(
        "statement=SELECT RAW REPEAT(\"x\", 1000) FROM ARRAY_RANGE(0, 1000000) a&timeout=300s",
    );
    stream.read_exact(&mut [0; 100]).unwrap();
    fixture.restart();
    let mut rest = Vec::new();
    // It may be reset instead.
    let _ = stream.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("\"success\""));
}
