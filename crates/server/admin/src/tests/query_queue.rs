//! Statements beyond the number at once, clients that leave, and clients that do not read.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{ADMIN, Fixture};
use crate::limits::{QUERIES_WAITING_MAX, SQL_STATEMENTS_MAX};
use crate::statement_places::{QueueRejection, Statements};

/// A statement that would run for hours.
const ENDLESS: &str = "statement=SELECT COUNT(*) FROM ARRAY_RANGE(0,100000) a UNNEST \
                       ARRAY_RANGE(0,100000) b WHERE a = -1 - b&timeout=300s";

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
        for _ in 0..SQL_STATEMENTS_MAX {
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
        (0..SQL_STATEMENTS_MAX).map(|_| fixture.begin_query(ENDLESS)).collect();
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

#[test]
fn a_client_that_does_not_read_leaves_its_place() {
    let fixture = Fixture::development();
    let large = "statement=SELECT RAW REPEAT(\"x\", 1000) FROM ARRAY_RANGE(0, 1000000) a\
                 &timeout=300s";
    let mut stalled: Vec<TcpStream> =
        (0..SQL_STATEMENTS_MAX).map(|_| fixture.begin_query(large)).collect();
    for stream in &mut stalled {
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    let answer = fixture.service(ADMIN, &json!({ "statement": "SELECT RAW 1", "timeout": "60s" }));
    assert_eq!(answer.json()["results"], json!([1]), "{}", answer.body);
}
