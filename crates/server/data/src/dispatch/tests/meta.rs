//! The meta commands of memcached's text protocol.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::text::{expect, say};
use super::{Client, SET_EXTRAS, about};
use crate::harness::ConnectionHarness;

/// The CAS in an answer.
fn cas_in(answer: &str) -> u64 {
    let flag = answer.split_whitespace().find_map(|word| word.strip_prefix('c'));
    flag.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

// Compat (memcached's text protocol): Commands
// Compat (memcached's text protocol): Keys in base64
// Compat (memcached's text protocol): `me`
#[test]
fn documents_are_stored_read_counted_and_removed() {
    let mut client = ConnectionHarness::new();
    for (commands, answers) in [
        ("mg a v\r\nmg a v q\r\nmg a k O1\r\nmn\r\n", "EN\r\nEN ka O1\r\nMN\r\n"),
        ("ms a 2 F5 T30 O7 k s\r\nhi\r\n", "HD O7 ka s2\r\n"),
        ("mg a v f t s k O8 q\r\n", "VA 2 f5 t30 s2 ka O8\r\nhi\r\n"),
        ("mg a f t\r\nmg a t T60\r\nmg a t\r\n", "HD f5 t30\r\nHD t30\r\nHD t60\r\n"),
        ("ms a 1 ME\r\nx\r\nms b 1 MR\r\nx\r\nms b 1 MA\r\nx\r\n", "NS\r\nNS\r\nNS\r\n"),
        ("ms a 1 MA\r\n!\r\nms a 1 MP q\r\n?\r\nmg a v\r\n", "HD\r\nVA 4\r\n?hi!\r\n"),
        ("ms n 1 MA N0\r\n1\r\nms n 1 MA N0 s\r\n2\r\nmg n v\r\n", "HD\r\nHD s2\r\nVA 2\r\n12\r\n"),
        (
            "ma n v\r\nma n D10 MD v\r\nma n q\r\nma none\r\nma none q\r\n",
            "VA 2\r\n13\r\nVA 1\r\n3\r\nNF\r\nNF\r\n",
        ),
        (
            "ma new N60 J7 v t\r\nma new v T30 t\r\nma new T9 q\r\n",
            "VA 1 t60\r\n7\r\nVA 1 t30\r\n8\r\n",
        ),
        ("ma a\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        (
            "ms Zm9v 1 b k\r\nx\r\nmg Zm9v b k v\r\nmg foo v\r\nget foo\r\n",
            "HD kZm9v b\r\nVA 1 kZm9v b\r\nx\r\nVA 1\r\nx\r\nVALUE foo 0 1\r\nx\r\nEND\r\n",
        ),
        ("md a O1 k\r\nmd a\r\nmd a q\r\nmd n q\r\nmn\r\n", "HD O1 ka\r\nNF\r\nNF\r\nMN\r\n"),
        ("me none\r\n", "EN\r\n"),
        ("ms a 2\r\nabc\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
    ] {
        expect(&mut client, commands, answers);
    }
    assert!(say(&mut client, "me foo\r\n").starts_with("ME foo exp=-1 la=0 cas="));
}

// Compat (memcached's text protocol): `E`
#[test]
fn a_cas_is_compared_and_may_be_chosen() {
    let mut client = ConnectionHarness::new();
    let cas = cas_in(&say(&mut client, "ms a 1 c\r\nx\r\n"));
    expect(&mut client, &format!("ms a 1 C{} c\r\ny\r\n", cas + 1), "EX c0\r\n");
    expect(
        &mut client,
        "ms i 1 ME C5\r\n1\r\nma i C5\r\nma i C0 v\r\n",
        "HD\r\nEX\r\nVA 1\r\n2\r\n",
    );
    expect(&mut client, "ms a 1 C0\r\ny\r\nms b 1 C5\r\ny\r\nmd a C5\r\n", "EX\r\nNF\r\nEX\r\n");
    expect(&mut client, "ms i 1 C0 MA\r\n3\r\nms i 1 C5 MP\r\n1\r\n", "HD\r\nEX\r\n");
    let next = cas_in(&say(&mut client, &format!("ms a 1 C{cas} c\r\ny\r\n")));
    assert_ne!(next, cas);
    expect(&mut client, &format!("mg a c\r\nmd a C{next}\r\n"), &format!("HD c{next}\r\nHD\r\n"));
    expect(&mut client, "ms e 1 E77 c\r\nx\r\nmg e c v\r\n", "HD c77\r\nVA 1 c77\r\nx\r\n");
    expect(&mut client, "ms e 1 E78 C77 c\r\ny\r\nms e 1 E79 C77\r\nz\r\n", "HD c78\r\nEX\r\n");
    expect(
        &mut client,
        "ms e 1 E0\r\nx\r\n",
        "CLIENT_ERROR a CAS is chosen between 0 and 2^63\r\n",
    );
}

// Compat (memcached's text protocol): `mg` with C
#[test]
fn a_read_with_the_current_cas_has_no_value() {
    let mut client = ConnectionHarness::new();
    let cas = cas_in(&say(&mut client, "ms a 1 c\r\nx\r\n"));
    let get = format!("mg a C{cas} v s\r\n");
    expect(&mut client, &get, "HD s1\r\n");
    expect(
        &mut client,
        &format!("mg a C{} v s\r\nmg b C1 v\r\n", cas + 1),
        "VA 1 s1\r\nx\r\nEN\r\n",
    );
    say(&mut client, "ms a 2\r\nyy\r\n");
    expect(&mut client, &get, "VA 2 s2\r\nyy\r\n");
}

// Compat (memcached's text protocol): `ms` with s
#[test]
fn a_value_that_is_joined_answers_the_new_size() {
    let mut client = ConnectionHarness::new();
    expect(
        &mut client,
        "ms a 2 s\r\nhi\r\nms a 2 MA s\r\nko\r\nms a 3 MP s\r\nzoo\r\nms b 3 MA N0 s\r\nabc\r\n",
        "HD s2\r\nHD s4\r\nHD s7\r\nHD s3\r\n",
    );
}

// Compat (memcached's text protocol): Expiry
#[test]
fn times_above_31_bits_have_passed() {
    let mut client = ConnectionHarness::new();
    let absent = "EN\r\n";
    for command in [
        "ms a 1 T4294967295 q\r\nx\r\n",
        "ms a 1 q\r\nx\r\ntouch a 4294967295 noreply\r\n",
        "ms a 1 q\r\nx\r\nmg b q\r\nmg a T4294967295 u q\r\n",
        "ma a N4102444800 J1\r\n",
        "ms a 1 q\r\nx\r\nmd a I T2147483648 q\r\n",
        "set a 0 4294967295 1 noreply\r\nx\r\n",
        "set a 0 0 1 noreply\r\nx\r\ngat 4294967295 a\r\n",
    ] {
        let answer = say(&mut client, command);
        assert!(!answer.contains("ERROR"), "{command} {answer}");
        expect(&mut client, "mg a\r\n", absent);
        say(&mut client, "delete a\r\n");
    }
}

// Compat (memcached's text protocol): CAS
#[test]
fn one_client_wins_a_missing_document() {
    let mut client = ConnectionHarness::new();
    for (commands, answers) in [
        (
            "mg a N30 v t\r\nmg a N30 v t\r\nmg a t\r\n",
            "VA 0 t30 W\r\n\r\nVA 0 t30 Z\r\n\r\nHD t30 Z\r\n",
        ),
        ("ms a 1 T90\r\nx\r\nmg a N30 v t\r\n", "HD\r\nVA 1 t90\r\nx\r\n"),
        // Too little time is left, so one client is to store it anew.
        (
            "mg a R30 t\r\nmg a R100 t\r\nmg a R100 t\r\nmg a v\r\n",
            "HD t90\r\nHD t90 W\r\nHD t90 Z\r\nVA 1 Z\r\nx\r\n",
        ),
        ("ms a 1 T90\r\ny\r\nmg a v\r\n", "HD\r\nVA 1\r\ny\r\n"),
        // The time that the command itself gives is the one that is left, if it gives it before.
        ("ms a 1 T30\r\ny\r\nmg a R100 T0 t\r\nmg a\r\n", "HD\r\nHD t-1 W\r\nHD Z\r\n"),
        ("ms a 1 T90\r\ny\r\n", "HD\r\n"),
        ("mg a T0 R100\r\nmg a T30 R100 t\r\nmg a T0\r\n", "HD\r\nHD t30 W\r\nHD Z\r\n"),
        ("mg a T-1 R100\r\nmg a\r\n", "HD Z\r\nEN\r\n"),
        ("ms a 1\r\ny\r\nmg a T-1 R100\r\n", "HD\r\nHD W\r\n"),
        ("ms a 1 T90\r\ny\r\nmg a v\r\n", "HD\r\nVA 1\r\ny\r\n"),
    ] {
        expect(&mut client, commands, answers);
    }
    // The winner's CAS is good for its own write.
    expect(&mut client, "md a\r\n", "HD\r\n");
    let cas = cas_in(&say(&mut client, "mg a N30 c\r\n"));
    expect(&mut client, &format!("ms a 1 C{cas}\r\nz\r\nmg a v\r\n"), "HD\r\nVA 1\r\nz\r\n");
}

// Compat (memcached's text protocol): Marks X, Z (stale, won)
#[test]
fn a_stale_document_is_served_until_it_is_stored_anew() {
    let mut client = ConnectionHarness::new();
    let old = cas_in(&say(&mut client, "ms a 1 T90 F3 c\r\nx\r\n"));
    for (commands, answers) in [
        ("md none I\r\nmd a I T30\r\n", "NF\r\nHD\r\n"),
        (
            "mg a v t f\r\nmg a v t\r\nget a\r\n",
            "VA 1 t30 f3 X W\r\nx\r\nVA 1 t30 Z X\r\nx\r\nVALUE a 3 1\r\nx\r\nEND\r\n",
        ),
    ] {
        expect(&mut client, commands, answers);
    }
    // A write that is too late replaces the value, but not the mark.
    expect(&mut client, &format!("ms a 1 C{old} I\r\ny\r\nmg a v\r\n"), "HD\r\nVA 1 Z X\r\ny\r\n");
    expect(&mut client, &format!("ms a 1 C{} I\r\ny\r\n", u64::MAX), "EX\r\n");
    expect(&mut client, "ms a 1 C0 I\r\ny\r\n", "EX\r\n");
    expect(&mut client, "ms a 1\r\nz\r\nmg a v\r\n", "HD\r\nVA 1\r\nz\r\n");
    expect(&mut client, "md a x\r\nmg a v s\r\n", "HD\r\nVA 0 s0\r\n\r\n");
}

// Compat (memcached's text protocol): Marks X, Z (stale, won)
#[test]
fn touches_and_counts_keep_the_marks() {
    let mut client = ConnectionHarness::new();
    for (command, answer) in [
        ("touch n 60", "TOUCHED\r\n"),
        ("gat 60 n", "VALUE n 3 1\r\n9\r\nEND\r\n"),
        ("mg n T60", "HD X W\r\n"),
        ("incr n 1", "10\r\n"),
        ("decr n 10", "0\r\n"),
        ("ma n", "HD\r\n"),
        ("ma n T60 v", "VA 2\r\n10\r\n"),
    ] {
        expect(&mut client, "ms n 1 F3 T30\r\n9\r\nmd n I\r\n", "HD\r\nHD\r\n");
        expect(&mut client, &format!("{command}\r\n"), answer);
        let ttl = if command.contains("60") { 60 } else { 30 };
        let first = if answer.ends_with("W\r\n") { "Z X" } else { "X W" };
        let marks = format!("HD f3 t{ttl} {first}\r\nHD f3 t{ttl} Z X\r\n");
        expect(&mut client, "mg n f t\r\nmg n f t\r\n", &marks);
        // Now a client has won.
        say(&mut client, &format!("{command}\r\n"));
        expect(&mut client, "mg n f t\r\n", &format!("HD f3 t{ttl} Z X\r\n"));
    }
    // A touch may be the end of the document.
    expect(&mut client, "gat -1 n n\r\n", "VALUE n 3 2\r\n11\r\nEND\r\n");
}

// Invariant: Any write by another command clears the marks of meta commands.
#[test]
fn marks_are_gone_when_any_client_stores_the_document() {
    let mut sdk = Client::modern();
    let mut text = sdk.harness.beside();
    let vbid = oribi_protocol::hash::vbucket_of(b"k", crate::harness::HARNESS_VBUCKETS);
    let set = RequestParts { vbid, extras: &SET_EXTRAS, value: b"v", ..about(Opcode::Set, b"k") };
    assert_eq!(sdk.ask(&set).status, Status::Success);
    expect(&mut text, "md k I\r\nmg k v\r\n", "HD\r\nVA 1 X W\r\nv\r\n");
    let get = RequestParts { vbid, ..about(Opcode::Get, b"k") };
    assert_eq!(sdk.ask(&get).value, b"v", "other clients do not see them");
    assert_eq!(sdk.ask(&RequestParts { value: b"w", ..set }).status, Status::Success);
    expect(&mut text, "mg k v\r\n", "VA 1\r\nw\r\n");
}

// Compat (memcached's text protocol): `h`, `fetch` of `me`
// Compat (memcached's text protocol): `l`
#[test]
fn reads_tell_of_reads_before() {
    let mut client = ConnectionHarness::new();
    expect(
        &mut client,
        "ms a 1\r\nx\r\nmg a h u\r\nmg a h l\r\nmg a h\r\n",
        "HD\r\nHD h0\r\nHD h0 l0\r\nHD h1\r\n",
    );
    // To be stored again is a use, too.
    expect(&mut client, "ms b 1\r\nx\r\nms b 1\r\ny\r\nmg b h\r\n", "HD\r\nHD\r\nHD h1\r\n");
    client.advance_ms(5_000);
    expect(&mut client, "mg a l\r\n", "HD l5\r\n");
}
