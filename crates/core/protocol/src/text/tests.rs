//! Commands as memcached 1.6 understands them, and streams in pieces.

use proptest::prelude::*;

use super::{Command, DecodedCommand, Decoder, Fault, Keys, Store, StoreMode};
use crate::harness::check_text;
use crate::limits::VALUE_BYTES_MAX;

/// The only command of `bytes`.
fn one(bytes: &[u8]) -> Command<'_> {
    match Decoder::default().decode(bytes) {
        DecodedCommand::Complete { command, consumed } if consumed == bytes.len() => command,
        other => panic!("{} is {other:?}", bytes.escape_ascii()),
    }
}

/// The answer to a wrong line, and the bytes that are skipped after it.
fn refusal(line: &str) -> (&'static str, usize) {
    match one(format!("{line}\r\n").as_bytes()) {
        Command::Invalid(Fault { answer, skip_bytes, .. }) => (answer, skip_bytes),
        other => panic!("{line} is {other:?}"),
    }
}

// Compat (memcached's text protocol): Opaque over 32 bytes
#[test]
fn wrong_lines_get_memcacheds_words() {
    let long = "k".repeat(251);
    let format = "CLIENT_ERROR bad command line format";
    for (line, answer) in [
        ("", "ERROR"),
        ("x", "ERROR"),
        ("GET a", "ERROR"),
        ("get", "ERROR"),
        ("get ", "ERROR"),
        ("gat", "ERROR"),
        ("gat x a", "CLIENT_ERROR invalid exptime argument"),
        (&format!("get a {long} b"), format),
        (&format!("set {long} 0 0 1"), format),
        ("set a 0 0", "ERROR"),
        ("set a 0 0 1 noreply more", "ERROR"),
        ("set a x 0 1", format),
        ("set a 0 x 1", format),
        ("set a 0 0 -1", format),
        ("set a 0 0 2147483646", format),
        ("cas a 0 0 1", "ERROR"),
        ("cas a 0 0 1 x", format),
        ("delete", "ERROR"),
        ("delete a 1", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("incr a", "ERROR"),
        ("incr a -1", "CLIENT_ERROR invalid numeric delta argument"),
        ("touch a x", "CLIENT_ERROR invalid exptime argument"),
        ("flush_all x", "CLIENT_ERROR invalid exptime argument"),
        ("verbosity", "ERROR"),
        ("shutdown", "ERROR: shutdown not enabled"),
        ("mg", "ERROR"),
        ("mg a ?", "CLIENT_ERROR invalid flag"),
        ("mg a v v", "CLIENT_ERROR duplicate flag"),
        ("mg a Tx", "CLIENT_ERROR bad token in command line format"),
        ("mg !! b", "CLIENT_ERROR error decoding key"),
        ("md a v v", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma a MZ", "CLIENT_ERROR invalid mode for ma M token"),
        ("ms a", format),
        ("ms a x", format),
        ("me", format),
    ] {
        assert_eq!(refusal(line), (answer, 0), "{line}");
    }
    assert_eq!(
        refusal(&format!("mg a {}", "v ".repeat(18))).0,
        "CLIENT_ERROR options flags are too long"
    );
    assert_eq!(
        refusal(&format!("mg a O{}", "1".repeat(32))).0,
        "CLIENT_ERROR opaque token too long"
    );
}

#[test]
fn the_data_block_of_a_refused_store_is_passed_over() {
    assert_eq!(refusal("ms a 5 ?"), ("CLIENT_ERROR invalid flag", 7));
    assert_eq!(refusal("ms a 5 MX"), ("CLIENT_ERROR invalid mode for ms M token", 7));
    let bytes = VALUE_BYTES_MAX + 1;
    let (answer, skipped) = refusal(&format!("set a 0 0 {bytes}"));
    assert_eq!((answer, skipped), ("SERVER_ERROR object too large for cache", bytes + 2));
}

#[test]
fn keys_are_commands_of_their_own() {
    let mut decoder = Decoder::default();
    let mut rest = &b" gats 10 a  bc \r\nget d\n"[..];
    let keys = Keys { with_cas: true, expiry: Some(10) };
    for (key, keys, is_last) in
        [(&b"a"[..], keys, false), (b"bc", keys, true), (b"d", Keys::default(), true)]
    {
        let DecodedCommand::Complete { command, consumed } = decoder.decode(rest) else { panic!() };
        assert_eq!(command, Command::Get { key, keys, is_last });
        assert_eq!(decoder.is_at_line(), is_last);
        rest = &rest[consumed..];
    }
    assert!(rest.is_empty());
    assert_eq!(one(b"gat 10\r\n"), Command::End);
}

#[test]
fn the_other_keys_of_a_command_can_be_abandoned() {
    let mut decoder = Decoder::default();
    let bytes = b"get a b c\r\nversion\r\n";
    let DecodedCommand::Complete { consumed, .. } = decoder.decode(bytes) else { panic!() };
    decoder.abandon_keys();
    let rest = &bytes[consumed..];
    assert_eq!(decoder.decode(rest), DecodedCommand::Skipped { consumed: 6 });
    let version = DecodedCommand::Complete { command: Command::Version, consumed: 9 };
    assert_eq!(decoder.decode(&rest[6..]), version);
}

#[test]
fn stores_have_a_data_block() {
    let bytes = b"cas k 5 -1 3 77 noreply\r\na\r\n\r\n";
    let Command::Store(store) = one(bytes) else { panic!() };
    assert_eq!((store.mode, store.flags, store.cas), (StoreMode::Cas, 5, Some(77)));
    assert_eq!((store.value, store.is_terminated, store.quiet), (&b"a\r\n"[..], true, true));
    assert!(store.expiry > 30 * 24 * 3600, "it has passed");
    let Command::Store(store) = one(b"set k 0 0 1\r\nabc") else { panic!() };
    assert_eq!((store.value, store.is_terminated), (&b"a"[..], false));
    let partial = Decoder::default().decode(b"set k 0 0 5\r\nab");
    assert!(matches!(partial, DecodedCommand::Partial { line_bytes: 13, value_bytes: 5, .. }));
    let Command::Store(Store { meta: Some(meta), mode, flags, .. }) =
        one(b"ms Zm9v 2 b c F9 T60 C5 I q\r\nhi\r\n")
    else {
        panic!()
    };
    assert_eq!((mode, flags, meta.cas, meta.expiry), (StoreMode::Cas, 9, Some(5), Some(60)));
    assert!(meta.is_base64 && meta.invalidates && meta.quiet);
    assert_eq!(meta.decoded_key(&mut [0; 186]), b"foo");
    let letters: Vec<u8> = meta.flags.iter().map(|flag| flag[0]).collect();
    assert_eq!(letters, b"bcFTCIq");
}

// Compat (memcached's text protocol): Long `get` lines
#[test]
fn long_lines_are_lists_of_keys_or_end_the_connection() {
    let keys = "key ".repeat(100_000);
    let mut decoder = Decoder::default();
    let line = format!("get {keys}\r\n");
    let mut rest = line.as_bytes();
    let mut count = 0;
    while !rest.is_empty() {
        // Only a few bytes are ever there.
        match decoder.decode(&rest[..rest.len().min(20_000)]) {
            DecodedCommand::Complete { command: Command::Get { key: b"key", .. }, consumed } => {
                (count, rest) = (count + 1, &rest[consumed..]);
            }
            DecodedCommand::Skipped { consumed } => rest = &rest[consumed..],
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(count, 100_000);
    assert_eq!(Decoder::default().decode(&[b'x'; 3000]), DecodedCommand::TooLong);
    assert_eq!(Decoder::default().decode(&[b'x'; 2000]), DecodedCommand::Incomplete);
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "get ",
        "gets ",
        "gat 5 ",
        "set a 0 0 3\r\n",
        "abc\r\n",
        "\r\n",
        "\n",
        " ",
        "a ",
        "key1 ",
        "ms k 3 ",
        "mg k ",
        "v ",
        "q ",
        "T30 ",
        "Oabc ",
        "C5 ",
        "delete a",
        "incr n 5",
        "noreply",
        "\0",
        "\r",
        "x",
        "cas a 1 2 3 4\r\n",
        "stats ",
        "mn\r\n",
        "ms k 9 ?\r\n",
    ];
    prop_oneof![
        8 => proptest::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..8),
        1 => (1_usize..300).prop_map(|len| vec![b'k'; len]),
    ]
}

proptest! {
    // Invariant: A stream of the text protocol is the same commands, however it is split.
    #[test]
    fn pieces_of_a_stream_are_the_same_commands(
        seed: u8,
        pieces in proptest::collection::vec(piece(), 0..60),
    ) {
        let mut input = vec![seed];
        input.extend(pieces.concat());
        check_text(&input);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check_text(&bytes);
    }
}

#[test]
fn every_split_of_a_stream_is_the_same_commands() {
    let stream = b"get a bb\r\nset k 1 2 3\r\nxyz\r\nms k 2 c Oq b\r\nhi\r\nmg k v q\r\ngat 9 a b \r\nquit\r\n";
    let whole = crate::harness::read_text(stream, |_| usize::MAX);
    assert_eq!(whole.len(), 8);
    for cut in 1..stream.len() {
        assert_eq!(
            crate::harness::read_text(stream, |at| if at == 0 { cut } else { usize::MAX }),
            whole
        );
    }
}

#[test]
fn corpus_of_the_fuzz_target() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/text");
    let files = std::fs::read_dir(corpus).expect("the corpus is part of the repository");
    let checked = files.map(|entry| {
        let path = entry.expect("the corpus can be listed").path();
        check_text(&std::fs::read(path).expect("the corpus can be read"));
    });
    assert!(checked.count() >= 3);
}
