//! Settings name the bucket and the collection of clients that can select neither.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::CollectionIdExtras;
use oribi_protocol::status::Status;
use oribi_testkit::{PATIENCE, RawConnection, Request, poll_until};

use crate::fixture::{Fixture, expect};

/// The answer to a command that is answered with one line.
fn say(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(command.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", answer.escape_ascii());
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}

// Compat (memcached's text protocol): Documents
// Compat (Differences): Memcached clients
#[test]
fn clients_without_a_choice_use_the_configured_place() {
    let fixture = Fixture::start_with(|options| {
        options
            .setting("buckets", "default,cache")
            .setting("memcached-bucket", "cache")
            .setting("memcached-collection", "web.pages")
    });
    let mut text = TcpStream::connect((Ipv4Addr::LOCALHOST, fixture.server.port())).unwrap();
    text.set_read_timeout(Some(PATIENCE)).unwrap();
    let refused = say(&mut text, "set k 0 0 1\r\nx\r\n");
    assert!(refused.starts_with("SERVER_ERROR "), "no other collection is used: {refused}");

    let admin = fixture.admin();
    let scopes = "/pools/default/buckets/cache/scopes";
    assert_eq!(admin.post_form(scopes, &[("name", "web")]).unwrap().status, 200);
    let collections = format!("{scopes}/web/collections");
    assert_eq!(admin.post_form(&collections, &[("name", "pages")]).unwrap().status, 200);
    let stored = poll_until(PATIENCE, || {
        let answer = say(&mut text, "set k 0 0 1\r\nx\r\n");
        (answer == "STORED\r\n").then_some(())
    });
    assert!(stored.is_some(), "the collection is not found");
    // A binary client that says no HELLO.
    let mut binary = RawConnection::connect(fixture.server.port()).unwrap();
    assert_eq!(binary.call(&Request::get("k")).unwrap().text(), "x");

    let mut sdk = fixture.login();
    expect(sdk.call(&Request::get("k")).unwrap(), Status::KeyEnoent);
    let select = Request::new(Opcode::SelectBucket).bare_key("cache");
    expect(sdk.call(&select).unwrap(), Status::Success);
    expect(sdk.call(&Request::get("k")).unwrap(), Status::KeyEnoent);
    let request = Request::new(Opcode::CollectionsGetId).value("web.pages");
    let response = expect(sdk.call(&request).unwrap(), Status::Success);
    let pages = CollectionIdExtras::decode(&response.extras).expect("twelve bytes").collection;
    assert_eq!(sdk.call(&Request::get("k").collection(pages)).unwrap().text(), "x");

    // Each protocol is counted on its own.
    assert_eq!(say(&mut text, "mn\r\n"), "MN\r\n");
    let metrics = admin.get("/metrics").unwrap().text();
    let counted = |protocol: &str| {
        let name = format!("oribi_protocol_commands_total{{protocol=\"{protocol}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{metrics}"))
    };
    assert!(counted("binary") > 0 && counted("text") >= 2, "{metrics}");
    assert_eq!(counted("meta"), 1);
    fixture.finish(&[]);
}
