//! The console's files, and the figures that it shows.

use std::io::Read;

use super::changes::wait_until;
use super::{ADMIN, Answer, Fixture, add_user};

/// Asks with further headers and without credentials.
fn ask(fixture: &Fixture, path: &str, headers: &str) -> Answer {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(fixture.admin).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost:8091\r\nConnection: close\r\n{headers}\r\n"
    )
    .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

// Invariant: The console's files need no credentials, come from the binary, and name no other site.
#[test]
fn the_page_is_open_and_confined() {
    let fixture = Fixture::development();
    let page = ask(&fixture, "/console/", "");
    assert_eq!(page.status, 200);
    for header in [
        "content-security-policy: default-src 'none'; script-src 'self'",
        "frame-ancestors 'none'",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
        "cache-control: no-cache",
        "content-type: text/html",
    ] {
        assert!(page.head.contains(header), "{header}: {}", page.head);
    }
    let script = page.body.split('"').find(|part| part.ends_with(".js")).unwrap().to_owned();
    let plain = ask(&fixture, &script, "");
    assert!(plain.head.contains("immutable") && !plain.head.contains("content-encoding"));
    let zipped = ask(&fixture, &script, "Accept-Encoding: gzip, deflate\r\n");
    assert!(zipped.head.contains("content-encoding: gzip"), "{}", zipped.head);
    assert!(zipped.body.len() < plain.body.len());
    let etag = plain.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    let known = ask(&fixture, &script, &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((known.status, known.body.as_str()), (304, ""));
    for path in ["/console/nope.js", "/console/a/b", "/console/..%2fapp.js"] {
        assert_eq!(ask(&fixture, path, "").status, 404, "{path}");
    }
    assert_eq!(fixture.ask("PUT", "/console/", "", "").status, 401);
}

// Compat (Admin HTTP): `GET /` of a browser, `/console/`
#[test]
fn only_browsers_are_redirected_to_the_console() {
    let fixture = Fixture::development();
    let browser = ask(&fixture, "/", "Accept: text/html,application/xhtml+xml\r\n");
    assert!(browser.status == 303 && browser.head.contains("location: /console/"));
    assert_eq!(fixture.ask("GET", "/", "", "").json()["name"], "oribi");
    let about = ask(&fixture, "/console/about.json", "").json();
    assert_eq!(about["development"], true);
    let rebound = ask(&fixture, "/console/", "Host: evil.example\r\n");
    assert_eq!(rebound.status, 421, "development mode answers loopback names only");
    assert!(rebound.body.contains("--admin-user"), "{}", rebound.body);
}

#[test]
fn only_browsers_get_a_login_prompt() {
    let fixture = Fixture::development();
    assert!(ask(&fixture, "/whoami", "").head.contains("www-authenticate"));
    let asked = ask(&fixture, "/whoami", "X-Requested-With: oribi-console\r\n");
    assert!(asked.status == 401 && !asked.head.contains("www-authenticate"));
}

// Compat (Admin HTTP): `GET /node/figures`, `/node/slowOperations`,
// `/pools/default/buckets/B/vbuckets`
#[test]
fn figures_are_of_buckets_that_the_user_may_watch() {
    let fixture = Fixture::start(
        |data_dir| {
            add_user(data_dir, "admin", &["admin"]);
            add_user(data_dir, "reader", &["read-only:default"]);
            add_user(data_dir, "narrow", &["read-only:default/_default/_default"]);
        },
        false,
    );
    let figures = |user: &str, path: &str| fixture.ask("GET", path, &format!("{user}:secret1"), "");
    let all = figures("admin", "/node/figures").json();
    assert_eq!(all["buckets"][0]["name"], "default");
    assert_eq!(all["buckets"][0]["latencies"]["get"].as_array().unwrap().len(), 26);
    assert!(all["node"]["workers"].is_u64());
    let some = figures("reader", "/node/figures").json();
    assert!(some["buckets"][0]["memory"]["used_bytes"].is_u64() && some.get("node").is_none());
    assert!(figures("narrow", "/node/figures").json()["buckets"].as_array().unwrap().is_empty());

    let history = |user: &str| figures(user, "/node/figures?history=1").json()["history"].clone();
    // The task takes the first sample as the server starts.
    wait_until(|| history("admin")[0]["buckets"][0]["name"] == "default", "there is a sample");
    assert_eq!(history("reader")[0]["buckets"][0]["operations"]["cmd_get"], 0);
    assert_eq!(history("narrow")[0]["buckets"].as_array().map(Vec::len), Some(0));
    assert_eq!(all.get("history"), None, "only on request");

    let path = "/pools/default/buckets/default/vbuckets";
    assert_eq!(figures("reader", path).json()["vbuckets"].as_array().unwrap().len(), 4);
    assert_eq!(figures("narrow", path).status, 403);
    let path = "/node/slowOperations";
    assert!(figures("admin", path).json()["operations"].is_array());
    assert_eq!(figures("reader", path).status, 403);
    assert_eq!(fixture.ask("GET", path, ADMIN, "").status, 401, "development mode is over");
}
