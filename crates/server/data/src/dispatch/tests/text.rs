//! Clients of memcached's text protocol.

use std::sync::Arc;

use oribi_auth::{StoredUser, UserFile, UserStore};
use oribi_engine::EvictionPolicy;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_protocol::text::ForeignProtocol;
use oribi_storage::MemoryStore;

use super::{Client, about, set_extras};
use crate::connection::close_reason::CloseReason;
use crate::harness::ConnectionHarness;

/// A client without a user, in development mode.
fn client() -> ConnectionHarness {
    ConnectionHarness::new()
}

pub(super) fn say(client: &mut ConnectionHarness, commands: &str) -> String {
    String::from_utf8(client.feed(commands.as_bytes())).unwrap()
}

/// Sends commands, and compares the answers.
pub(super) fn expect(client: &mut ConnectionHarness, commands: &str, answers: &str) {
    assert_eq!(say(client, commands), answers, "{commands}");
}

// Compat (memcached's text protocol): Commands
// Compat (memcached's text protocol): `flush_all`
// Compat (memcached's text protocol): `verbosity`
// Compat (memcached's text protocol): `decr`
#[test]
fn documents_are_stored_read_and_removed() {
    let mut client = client();
    for (commands, answers) in [
        ("get a\r\n", "END\r\n"),
        ("set a 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("get b a c a\r\n", "VALUE a 5 3\r\nabc\r\nVALUE a 5 3\r\nabc\r\nEND\r\n"),
        ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace b 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        (
            "append a 9 9 1\r\n!\r\nprepend a 0 0 1\r\n?\r\nget a\r\n",
            "STORED\r\nSTORED\r\nVALUE a 5 5\r\n?abc!\r\nEND\r\n",
        ),
        ("append b 0 0 1\r\n!\r\n", "NOT_STORED\r\n"),
        (
            "cas b 0 0 1 7\r\nx\r\ncas a 0 0 1 7\r\nx\r\ncas a 0 0 1 0\r\nx\r\n",
            "NOT_FOUND\r\nEXISTS\r\nEXISTS\r\n",
        ),
        ("delete a\r\ndelete a\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        (
            "set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 14\r\ndecr n 14\r\nincr x 1\r\nget n\r\n",
            "STORED\r\n15\r\n1\r\n0\r\nNOT_FOUND\r\nVALUE n 0 1\r\n0\r\nEND\r\n",
        ),
        (
            "set n 0 0 1\r\nx\r\nincr n 1\r\n",
            "STORED\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        (
            "touch n 10\r\ntouch x 10\r\ngat 20 n x\r\n",
            "TOUCHED\r\nNOT_FOUND\r\nVALUE n 0 1\r\nx\r\nEND\r\n",
        ),
        ("set n 0 -1 1\r\nx\r\nget n\r\n", "STORED\r\nEND\r\n"),
        ("set n 0 4294967295 1\r\nx\r\nget n\r\n", "STORED\r\nEND\r\n"),
        ("set b 0 0 0\r\n\r\nget b\r\n", "STORED\r\nVALUE b 0 0\r\n\r\nEND\r\n"),
        ("verbosity 1\r\nmn\r\nfoo\r\n", "OK\r\nMN\r\nERROR\r\n"),
        ("set a 0 0 3\r\nabcdef\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("flush_all\r\nget b\r\n", "OK\r\nEND\r\n"),
        ("flush_all 10\r\n", "CLIENT_ERROR flush_all not allowed\r\n"),
    ] {
        expect(&mut client, commands, answers);
    }
    assert!(say(&mut client, "version\r\n").starts_with("VERSION 1.6.0-oribi-"));
    expect(&mut client, "quit\r\n", "");
    assert_eq!(client.close_reason(), Some(CloseReason::Quit));
}

#[test]
fn noreply_is_silent_whatever_happens() {
    let mut client = client();
    let commands = "set a 0 0 1 noreply\r\nx\r\nadd a 0 0 1 noreply\r\ny\r\nincr a 1 noreply\r\n\
        touch a 0 noreply\r\ndelete a noreply\r\ndelete a noreply\r\nset a 0 0 1 noreply\r\nxyz\r\n\
        flush_all noreply\r\nverbosity 1 noreply\r\nmn\r\n";
    // What follows a data block that is too long is a line.
    expect(&mut client, commands, "ERROR\r\nMN\r\n");
}

// Invariant: A stream of the text protocol is the same commands, however it is split.
#[test]
fn pieces_of_a_pipeline_are_answered_like_the_whole() {
    let pipeline = "set a 1 0 5\r\nhello\r\nget a b\r\ngets\r\nset c 0 0 1\r\nxy\r\nget  a  a \r\n\
        incr a 1\r\ndelete a\r\nget a\r\nmn\r\n";
    let whole = say(&mut client(), pipeline);
    for size in [1, 2, 3, 7, 20] {
        let mut client = client();
        let pieces = pipeline.as_bytes().chunks(size).map(|piece| client.feed(piece));
        assert_eq!(pieces.collect::<Vec<_>>().concat(), whole.as_bytes(), "{size}");
    }
    let mut without = ConnectionHarness::with_prefetch(0);
    assert_eq!(say(&mut without, pipeline), whole, "looking ahead changes no answer");
}

// Compat (memcached's text protocol): Documents
// Compat (memcached's text protocol): Width of a CAS
#[test]
fn documents_are_those_of_binary_clients() {
    let mut sdk = Client::modern();
    let mut text = sdk.harness.beside();
    let extras = set_extras(7, 0);
    let set = RequestParts { extras: &extras, value: br#"{"a":1}"#, ..about(Opcode::Set, b"k") };
    let cas = sdk.ask(&set).cas;
    // Both clients have the same bucket, but only one routes its keys itself.
    let vbid = oribi_protocol::hash::vbucket_of(b"k", crate::harness::HARNESS_VBUCKETS);
    assert_eq!(sdk.ask(&RequestParts { vbid, ..set }).status, Status::Success);
    let read = say(&mut text, "gets k\r\n");
    let cas = [cas, sdk.ask(&RequestParts { vbid, ..about(Opcode::Get, b"k") }).cas];
    assert_eq!(read, format!("VALUE k 7 7 {}\r\n{{\"a\":1}}\r\nEND\r\n", cas[1]));
    let swap = format!("cas k 9 0 2 {}\r\nhi\r\n", cas[1]);
    expect(&mut text, &swap, "STORED\r\n");
    let reply = sdk.ask(&RequestParts { vbid, ..about(Opcode::Get, b"k") });
    assert_eq!((&reply.value[..], &reply.extras[..]), (&b"hi"[..], &9_u32.to_be_bytes()[..]));
}

// Compat (memcached's text protocol): Large values
#[test]
fn large_values_go_in_and_out_however_they_arrive() {
    let mut client = client();
    for bytes in [10_000, 100_000, 3_000_000] {
        let value = "v".repeat(bytes);
        let set = format!("set k 0 0 {bytes}\r\n{value}\r\nget k\r\n");
        let answer = format!("STORED\r\nVALUE k 0 {bytes}\r\n{value}\r\nEND\r\n");
        assert!(say(&mut client, &set) == answer, "{bytes}");
        let (begin, end) = set.split_at(bytes / 2);
        let pieces = [client.feed(begin.as_bytes()), client.feed(end.as_bytes())];
        assert!(pieces.concat() == answer.as_bytes(), "{bytes}");
        let bad = format!("set k 0 0 {bytes}\r\n{value}!!get k\r\n");
        let after =
            format!("CLIENT_ERROR bad data chunk\r\nVALUE k 0 {bytes}\r\n{value}\r\nEND\r\n");
        assert!(say(&mut client, &bad) == after, "{bytes}");
    }
    let bytes = 20 * 1024 * 1024 + 1;
    let answer = say(&mut client, &format!("set k 0 0 {bytes}\r\n"));
    assert_eq!(answer, "SERVER_ERROR object too large for cache\r\n");
    client.feed(&vec![b'x'; bytes]);
    expect(&mut client, "\r\nmn\r\n", "MN\r\n");
}

#[test]
fn evicted_documents_are_fetched_key_by_key() {
    for eviction in [EvictionPolicy::Value, EvictionPolicy::Full] {
        let mut client = ConnectionHarness::evicting(Arc::new(MemoryStore::new()), eviction, 16);
        // Long enough to be worth an eviction.
        let value = "v".repeat(50);
        let set = |key: &str| format!("set {key} 0 0 50\r\n{value}\r\n");
        let sets = [set("a"), set("b")].concat();
        expect(&mut client, &sets, "STORED\r\nSTORED\r\n");
        client.bucket().bucket().flush_step().unwrap();
        for key in [b"a", b"b"] {
            let vbid = oribi_protocol::hash::vbucket_of(key, crate::harness::HARNESS_VBUCKETS);
            let key = oribi_types::DocKey { collection: oribi_types::CollectionId::DEFAULT, key };
            assert!(client.bucket().bucket().evict(vbid, key));
        }
        let shown = |key: &str| format!("VALUE {key} 0 50\r\n{value}\r\n");
        let answer = [shown("a"), shown("b"), "END\r\nMN\r\n".to_owned()].concat();
        expect(&mut client, "get a x b\r\nmn\r\n", &answer);
    }
}

/// A client of a server whose only user is `ann`.
fn secured(roles: &[&str]) -> (ConnectionHarness, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
    let user = StoredUser::new("ann", b"secret", roles).unwrap();
    UserFile::edit(directory.path(), |file| file.put(user)).unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    (ConnectionHarness::over(users, Arc::new(MemoryStore::new())), directory)
}

// Compat (memcached's text protocol): Login
// Compat (memcached's text protocol): Missing rights
#[test]
fn a_login_comes_first_where_there_are_users() {
    let (mut client, _users) = secured(&["read-only:default"]);
    let unknown = "CLIENT_ERROR unauthenticated\r\n";
    expect(&mut client, "get a\r\nversion\r\n", &unknown.repeat(2));
    expect(&mut client, "set x 0 0 9\r\nann wrong\r\n", "CLIENT_ERROR authentication failure\r\n");
    expect(&mut client, "get a\r\n", unknown);
    expect(&mut client, "set x 0 0 10\r\nann secret\r\nget a\r\n", "STORED\r\nEND\r\n");
    expect(
        &mut client,
        "set a 0 0 1\r\nx\r\nset a 0 0 1 noreply\r\nx\r\n",
        "CLIENT_ERROR needs the privilege Upsert\r\n",
    );
}

// Invariant: Before a text login the server receives at most 3 KiB and serves only the login.
#[test]
fn little_is_received_before_a_login() {
    for start in ["set a 0 0 2147483646\r\n".to_owned(), "x".repeat(3000)] {
        let (mut client, _users) = secured(&["admin"]);
        assert_eq!(client.feed(start.as_bytes()), b"CLIENT_ERROR unauthenticated\r\n");
        assert_eq!(client.close_reason(), Some(CloseReason::LineTooLong));
    }
}

// Compat (memcached's text protocol): Other protocols
#[test]
fn another_protocols_opening_ends_the_connection() {
    use ForeignProtocol::{Http, Redis, Ssh};
    let body = "Host: x\r\nContent-Length: 18\r\n\r\nset evil 0 0 1\r\nx\r\nflush_all\r\n";
    for (opening, protocol) in
        [("POST / HTTP/1.1", Http), ("set / HTTP/1.1", Http), ("SSH-2.0-x", Ssh), ("*3", Redis)]
    {
        let stream = format!("{opening}\r\n{body}");
        for size in [1, 5, stream.len()] {
            let mut client = client();
            let mut other = client.beside();
            expect(&mut other, "set kept 0 0 1\r\nx\r\n", "STORED\r\n");
            for piece in stream.as_bytes().chunks(size) {
                assert_eq!(client.feed(piece), b"", "{opening}");
            }
            assert_eq!(client.close_reason(), Some(CloseReason::ForeignProtocol(protocol)));
            expect(&mut other, "get evil kept\r\n", "VALUE kept 0 1\r\nx\r\nEND\r\n");
        }
        let (mut client, _users) = secured(&["admin"]);
        assert_eq!(client.feed(stream.as_bytes()), b"", "before a login");
        assert_eq!(client.close_reason(), Some(CloseReason::ForeignProtocol(protocol)));
    }
}

// Compat (memcached's text protocol): `stats`
#[test]
fn statistics_are_lines() {
    let mut client = client();
    let stats = say(&mut client, "stats\r\n");
    assert!(stats.contains("STAT curr_items 0\r\n") && stats.ends_with("\r\nEND\r\n"), "{stats}");
    assert!(stats.lines().all(|line| line.starts_with("STAT ") || line == "END"));
    expect(&mut client, "stats nonsense\r\nmn\r\n", "ERROR\r\nMN\r\n");
    let items = say(&mut client, "set a 0 0 1\r\nx\r\nstats items\r\n");
    assert!(items.contains("STAT items:1:number 1\r\n"), "{items}");
    assert!(say(&mut client, "stats slabs\r\n").contains("STAT active_slabs 1\r\n"));
    let settings = say(&mut client, "stats settings\r\n");
    assert!(settings.contains("STAT item_size_max 20971520\r\n"), "{settings}");
    assert!(say(&mut client, "stats conns\r\n").ends_with("END\r\n"));
    expect(&mut client, "stats reset\r\n", "RESET\r\n");
}

// Compat (memcached's text protocol): `stats`
#[test]
fn statistics_have_memcacheds_names() {
    let mut client = client();
    expect(&mut client, "set a 0 0 1\r\nx\r\nset a 0 0 1\r\ny\r\n", "STORED\r\nSTORED\r\n");
    let stats = say(&mut client, "stats\r\n");
    for line in [
        "accepting_conns 1",
        "evictions 0",
        "idle_kicks 0",
        "rejected_connections 0",
        "store_no_memory 0",
        "total_items 2",
    ] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line}: {stats}");
    }
    for name in ["limit_maxbytes ", "rusage_user ", "rusage_system ", "version 1.6.0-oribi-"] {
        assert!(stats.contains(&format!("STAT {name}")), "{name}: {stats}");
    }
}

// Compat (memcached's text protocol): `stats cachedump`, `lru_crawler metadump`
#[test]
fn dumps_list_the_documents_in_memory() {
    let mut sdk = Client::modern();
    let mut text = sdk.harness.beside();
    let key = b"a% \r\nset evil";
    let vbid = oribi_protocol::hash::vbucket_of(key, crate::harness::HARNESS_VBUCKETS);
    let extras = set_extras(0, 0);
    let set = RequestParts { extras: &extras, value: b"1", vbid, ..about(Opcode::Set, key) };
    assert_eq!(sdk.ask(&set).status, Status::Success);
    expect(
        &mut text,
        "set b 0 2000000000 3\r\nxyz\r\nset gone 0 -1 1\r\nx\r\n",
        "STORED\r\nSTORED\r\n",
    );
    // A key that would break the line is left out of the older form, and escaped in the newer one.
    for command in ["stats cachedump 1 0", "stats cachedump 1 100", "stats cachedump 1 4294967296"]
    {
        let answer = "ITEM b [3 b; 2000000000 s]\r\nEND\r\n";
        expect(&mut text, &format!("{command}\r\n"), answer);
    }
    let cas = say(&mut text, "mg b c\r\n");
    let cas = cas.trim().strip_prefix("HD c").unwrap().to_owned();
    for command in ["all", "hash", "1", "3,1"] {
        let dump = say(&mut text, &format!("lru_crawler metadump {command}\r\n"));
        let mut lines: Vec<&str> = dump.lines().collect();
        assert_eq!(lines.pop(), Some("END"), "{dump}");
        lines.sort_unstable();
        assert_eq!(lines.len(), 2, "{dump}");
        assert!(lines[0].starts_with("key=a%25%20%0D%0Aset%20evil exp=-1 la="), "{dump}");
        assert!(lines[1].starts_with("key=b exp=2000000000 la="), "{dump}");
        assert!(lines[1].contains(&format!(" cas={cas} fetch=")), "{dump}");
    }
}

// Compat (memcached's text protocol): `stats cachedump`, `lru_crawler metadump`
#[test]
fn dumps_are_bounded_and_need_a_right() {
    let mut client = client();
    for number in 0..500 {
        let key = format!("{number:0>240}");
        expect(&mut client, &format!("set {key} 0 0 1\r\nx\r\n"), "STORED\r\n");
    }
    let limited = say(&mut client, "stats cachedump 1 7\r\n");
    assert_eq!(limited.lines().count(), 8, "{limited}");
    // Several slices.
    let all = say(&mut client, "lru_crawler metadump all\r\nmn\r\n");
    assert_eq!(all.lines().count(), 502);
    assert!(all.ends_with("END\r\nMN\r\n"));
    for (command, answer) in [
        ("stats cachedump 2 0", "END"),
        ("stats cachedump 64 0", "CLIENT_ERROR Illegal slab id"),
        ("stats cachedump 1", "CLIENT_ERROR bad command line"),
        ("stats cachedump x 1", "CLIENT_ERROR bad command line format"),
        ("lru_crawler metadump 99", "BADCLASS invalid class id"),
        ("lru_crawler metadump 2", "END"),
        ("lru_crawler metadump", "ERROR"),
        ("lru_crawler crawl all", "ERROR"),
        ("stats metadump", "ERROR"),
    ] {
        expect(&mut client, &format!("{command}\r\n"), &format!("{answer}\r\n"));
    }
    let (mut stranger, _users) = secured(&["change-streams:default"]);
    expect(&mut stranger, "set x 0 0 10\r\nann secret\r\n", "STORED\r\n");
    for command in ["stats cachedump 1 0\r\n", "lru_crawler metadump all\r\n"] {
        let answer = say(&mut stranger, command);
        assert!(answer.starts_with("CLIENT_ERROR needs the privilege"), "{answer}");
    }
}

// Invariant: The first byte of a connection decides its protocol, and no later byte changes it.
#[test]
fn only_the_first_byte_decides() {
    let mut binary = Client::legacy();
    assert_eq!(binary.get(b"k").status, Status::KeyEnoent);
    binary.harness.feed(b"get k\r\n");
    assert_eq!(binary.harness.close_reason(), Some(CloseReason::UnknownMagic(b'g')));
    let mut text = client();
    expect(&mut text, "mn\r\n", "MN\r\n");
    assert_eq!(text.feed(&[0x80, b'\r', b'\n']), b"ERROR\r\n");
}
