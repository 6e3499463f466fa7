//! The memory of statements: within the process's bound, and returned to the system when a
//! statement ends.

use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;
const QUOTA_MIB: u64 = 64;
const RESIDENT_BYTES_MAX: u64 = (QUOTA_MIB + QUOTA_MIB / 10 + 64) * MIB;
/// Bytes that may stay with the allocator after a statement.
const IDLE_BYTES_MAX: u64 = 12 * MIB;

/// A sort that needs more memory than statements may have.
#[test]
fn refused_queries_return_their_memory() {
    const QUERIES: usize = 20;
    let fixture = Fixture::start_with(|options| options.setting("memory-quota-mib", QUOTA_MIB));
    let admin = fixture.admin();
    let resident = || fixture.server.resident_bytes().unwrap();
    let sort = "SELECT n, REPEAT(\"x\", 100) AS v FROM ARRAY_RANGE(0, 1000000) AS n \
                UNNEST [1, 2, 3, 4, 5, 6, 7, 8] AS m ORDER BY n * m DESC";
    let body = serde_json::json!({ "statement": sort }).to_string();
    let (before, mut most) = (resident(), 0);
    for number in 0..QUERIES {
        let answer = std::thread::scope(|scope| {
            let query = scope.spawn(|| {
                admin.request("POST", "/query/service", "application/json", body.as_bytes())
            });
            while !query.is_finished() {
                most = most.max(resident());
                std::thread::yield_now();
            }
            query.join().unwrap().unwrap()
        });
        let text = answer.text();
        assert!(text.contains("\"code\":5500"), "{}", &text[..text.len().min(300)]);
        let grown = resident().saturating_sub(before);
        assert!(grown <= IDLE_BYTES_MAX, "{} MiB stay after {number}", grown / MIB);
    }
    assert!(most <= RESIDENT_BYTES_MAX, "{} MiB", most / MIB);
    fixture.finish(&[]);
}

/// Rows that a client asks for and does not read.
#[test]
fn a_million_unread_rows_take_bounded_memory() {
    use std::io::Write;
    let fixture = Fixture::start_with(|options| options.setting("memory-quota-mib", QUOTA_MIB));
    let resident = || fixture.server.resident_bytes().unwrap();
    let before = resident();
    let form = "statement=SELECT n, REPEAT('x', 200) AS v FROM ARRAY_RANGE(0, 1000000) AS n";
    let mut stream =
        std::net::TcpStream::connect(("127.0.0.1", fixture.server.admin_port())).unwrap();
    write!(
        stream,
        "POST /query/service HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    )
    .unwrap();
    // A million numbers are an array of 24 MiB; their rows would be 230 MB.
    let most = before + 96 * MIB;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(3);
    while std::time::Instant::now() < until {
        assert!(resident() <= most, "{} MiB", resident() / MIB);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let answer = fixture.admin().request("GET", "/pools", "", b"").unwrap();
    assert_eq!(answer.status, 200);
    drop(stream);
    fixture.finish(&[]);
}
