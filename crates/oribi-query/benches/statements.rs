//! CPU time of statements over documents in memory: a constant, one key, a scan with a filter, a
//! group, and a bounded order. Inside the tests it runs tiny.

#![allow(clippy::unwrap_used)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use oribi_query::{Control, Head, Request, RowSink, Service, SinkClosed};
use support::{Budget, MemoryDatastore};

/// Drops all rows.
struct Discard;

impl RowSink for Discard {
    fn start(&mut self, _: &Head) -> Result<(), SinkClosed> {
        Ok(())
    }

    fn row(&mut self, _: &[u8]) -> Result<(), SinkClosed> {
        Ok(())
    }
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (documents, rounds) = if is_bench { (100_000, 5_000) } else { (100, 3) };
    let store = MemoryDatastore::default();
    let keyspace = store.add("k");
    for number in 0..documents {
        let name = format!("name {number:06}");
        let filler = "x".repeat(60);
        let text = format!(
            r#"{{"type":"hotel","name":"{name}","address":{{"street":"{filler}","zip":"01234","geo":{{"lat":60.1,"lon":24.9}}}},"tags":["a","b","c"],"vacancy":true,"price":{},"g":{},"reviews":[{{"author":"{name}","rating":4,"text":"{filler}"}},{{"author":"x","rating":2,"text":"{filler}"}}],"phone":"+358 9 123456","url":"https://example.com/{number}"}}"#,
            number % 1000,
            number % 1000,
        );
        keyspace.put(&format!("k{number:06}"), &text);
    }
    measure("SELECT 1", &store, "SELECT 1", rounds, 1);
    measure("one key", &store, "SELECT k.* FROM k USE KEYS 'k000007'", rounds, 1);
    let scans = if is_bench { 5 } else { 1 };
    measure("scan, filter", &store, "SELECT name FROM k WHERE price = 1001", scans, documents);
    measure("scan, count", &store, "SELECT COUNT(price) FROM k", scans, documents);
    measure("group", &store, "SELECT g, COUNT(*), SUM(price) FROM k GROUP BY g", scans, documents);
    let top = "SELECT name FROM k ORDER BY price DESC, name LIMIT 10";
    measure("top 10", &store, top, scans, documents);
    measure("full sort", &store, "SELECT name FROM k ORDER BY name DESC", scans, documents);
}

/// Prints nanoseconds of each of `parts` parts of a statement.
fn measure(name: &str, store: &MemoryDatastore, statement: &str, rounds: usize, parts: usize) {
    let service = Service::new();
    let budget = Budget::new(1 << 30);
    let control = Control { memory: &budget, cancelled: None, timeout: None };
    let request = Request::of(statement);
    let started = Instant::now();
    for _ in 0..rounds {
        let outcome = service.run(store, &request, &control, &mut Discard);
        assert_eq!(outcome.errors, []);
    }
    let nanoseconds = started.elapsed().as_nanos() / (rounds * parts) as u128;
    println!("{name:14} {nanoseconds:8} ns");
}
