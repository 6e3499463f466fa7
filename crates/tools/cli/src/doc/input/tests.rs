//! Reading records; what happens to them is tested against a running server.

use super::*;

fn input(bytes: &'static [u8], framing: Framing) -> DocumentInput {
    DocumentInput::new(Source::Other(Box::new(bytes)), None, framing)
}

fn lines(bytes: &'static [u8], framing: Framing) -> Vec<(u64, Bytes)> {
    let mut input = input(bytes, framing);
    std::iter::from_fn(|| input.next_line().unwrap())
        .map(|line| (line.number, line.bytes))
        .collect()
}

#[test]
fn numbers_lines_and_skips_blank_ones() {
    let expected = [(1, Bytes::from("a")), (4, Bytes::from(" b")), (5, Bytes::from("c"))];
    assert_eq!(lines(b"a\r\n\n  \n b \nc", Framing::Lines), expected);
    assert!(lines(b"", Framing::Lines).is_empty());
    let expected = [(1, Bytes::from("a ")), (3, Bytes::from("  "))];
    assert_eq!(lines(b"a \r\n\n  \n", Framing::ExactLines), expected);
}

#[test]
fn refuses_endless_lines() {
    let endless = Source::Other(Box::new(std::io::repeat(b'x')));
    let error = DocumentInput::new(endless, None, Framing::ExactLines).next_line().unwrap_err();
    assert_eq!(error.to_string(), "line 1 is longer than any document may be");
}

#[test]
fn a_place_is_found_again_only_behind_the_same_lines() {
    let mut first = input(b"one\ntwo\nthree\n", Framing::Lines);
    first.next_line().unwrap();
    let at = first.next_line().unwrap().expect("there are three").after;
    assert_eq!((at.offset, at.line), (8, 2));
    let was = FileIdentity { bytes: 14, modified_ns: 1 };
    for (bytes, is_same) in [
        (&b"one\ntwo\nTHREE and more\n"[..], true),
        (b"one\ntwo\n", true),
        (b"one\ntwO\nthree\n", false),
        (b"two\none\nthree\n", false),
        (b"one\ntwo", false),
        (b"one two\nthree\n", false),
    ] {
        assert_eq!(input(bytes, Framing::Lines).resume(at, was).unwrap(), is_same);
    }
}

#[test]
fn array_elements_are_records_with_positions() {
    const ARRAY: &[u8] = b" \n[ {\"a\":\n\"]}\\\"\"},\n\n [1,[2]] ,3\n, \"x\"] \n";
    let mut whole = input(ARRAY, Framing::Json);
    let elements: Vec<Line> = std::iter::from_fn(|| whole.next_line().unwrap()).collect();
    let found: Vec<(u64, &[u8])> =
        elements.iter().map(|line| (line.number, &line.bytes[..])).collect();
    let expected: [(u64, &[u8]); 4] =
        [(2, b"{\"a\":\n\"]}\\\"\"}"), (5, b"[1,[2]]"), (5, b"3"), (6, b"\"x\"")];
    assert_eq!(found, expected);
    assert!(elements.windows(2).all(|pair| pair[0].after == pair[1].before));
    let was = FileIdentity { bytes: 1, modified_ns: 1 };
    for line in &elements {
        let mut again = input(ARRAY, Framing::Json);
        assert!(again.resume(line.before, was).unwrap());
        assert_eq!(again.next_line().unwrap().as_ref(), Some(line));
    }
    assert!(lines(b"[]", Framing::Json).is_empty());
    assert!(lines(b" [ ] ", Framing::Array).is_empty());
}

#[test]
fn arrays_that_are_none_are_refused_with_their_line() {
    for (array, reason) in [
        (&b"[1"[..], "line 1: the array has no end"),
        (b"[{\"a\":1}\n,", "line 2: the array has no end"),
        (b"[1 2]", "line 1: a comma or a bracket belongs behind an element"),
        (b"[1]\nx", "line 2: there is more behind the array"),
        (b"[,1]", "line 1: an element is missing"),
        (b"[1,]", "line 1: an element is missing"),
        (b"{}", "line 1: an array begins with a bracket"),
    ] {
        let mut input = input(array, Framing::Array);
        let error = loop {
            match input.next_line() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{array:?} is no array"),
                Err(error) => break format!("{error:#}"),
            }
        };
        assert_eq!(error, reason);
    }
    let endless = Source::Other(Box::new(std::io::repeat(b'[')));
    let error = DocumentInput::new(endless, None, Framing::Array).next_line().unwrap_err();
    assert!(error.to_string().contains("longer than any document"), "{error:#}");
}

#[test]
fn records_of_csv_may_have_line_ends_in_quotes() {
    let csv = Framing::Csv { separator: b',' };
    let expected = [(2, Bytes::from("1,\"x\n\"\"y\"\"\"")), (5, Bytes::from("2,b"))];
    assert_eq!(lines(b"a,b\r\n1,\"x\n\"\"y\"\"\"\r\n\n2,b", csv), expected);
    for (file, reason) in [
        (&b""[..], "there is no line with field names"),
        (b"a,a\n", "two fields have the name \"a\""),
        (b"a\n\"x\n", "line 2: a quote has no end"),
    ] {
        let error = input(file, csv).next_line().unwrap_err();
        assert_eq!(error.to_string(), reason);
    }
}
