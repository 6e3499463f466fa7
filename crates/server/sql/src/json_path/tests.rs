//! The functions beside SQLite's own.

use super::*;

/// Documents with every kind of value, and texts that are none.
const DOCUMENTS: [&str; 25] = [
    r#"{"a":1,"b":"x","c":[1,2.5,{"d":null}],"e":{"f":{"g":true}},"h":false}"#,
    r#"  { "a" : "with space" , "e" : { } }  "#,
    r#"{"a":"esc\"aped\n\t\/\\","b":"\u0041\u00e9","c":"\ud83d\ude00"}"#,
    r#"{"a":"x\u0000y","b":"\ud83d","c":"\udc00x"}"#,
    r#"{"\u0061":1,"a":2}"#,
    r#"{"a":1,"a":2}"#,
    r#"{"a":-0,"b":-0.0,"c":1e5,"e":1E-5}"#,
    r#"{"a":9223372036854775807,"b":9223372036854775808,"c":-9223372036854775809}"#,
    r#"{"a":0.1,"b":123456789.123456,"c":1e300,"e":1e-300,"h":12345678901234567890.5}"#,
    r#"{"0":"zero","1":"one"}"#,
    r#"["first",["nested"],3]"#,
    "[]",
    "17",
    r#""text""#,
    "null",
    "",
    "{",
    r#"{"a":1"#,
    r#"{"a":1,}"#,
    "{a:1}",
    r#"{'a':'single'}"#,
    r#"{"a":01}"#,
    r#"{"a":"é","b":"日本"}"#,
    r#"{"ä":1,"a b":2,"a.b":3,"a-b":4,"a_b":5}"#,
    "no JSON",
];

const PATHS: [&str; 41] = [
    "'a'",
    "'b'",
    "'c'",
    "'e'",
    "'h'",
    "'0'",
    "'1'",
    "0",
    "1",
    "2",
    "-1",
    "-4",
    "'ä'",
    "'a b'",
    "'a.b'",
    "'a-b'",
    "'a_b'",
    "''",
    "'$'",
    "'$.a'",
    "'$.e.f.g'",
    "'$.e.f'",
    "'$.c[1]'",
    "'$.c[2].d'",
    "'$.c[#-1]'",
    "'$[0]'",
    "'$[1][0]'",
    "'$[01]'",
    "'$[99]'",
    "'$.a.b'",
    "'$.\"a.b\"'",
    "'$.'",
    "'$..a'",
    "'$.a['",
    "'[1]'",
    "'a[0]'",
    "'$a'",
    "null",
    "1.5",
    "x'61'",
    "'$[9999999999]'",
];

/// What a statement returns, or its error.
fn shown(connection: &Connection, statement: &str, document: &dyn rusqlite::ToSql) -> String {
    let row = connection.query_row(statement, [document], |row| {
        Ok(format!("{:?} {:?}", row.get_ref(0)?, row.get_ref(1)?))
    });
    row.unwrap_or_else(|error| format!("error: {error}"))
}

fn both() -> (Connection, Connection) {
    let ours = Connection::open_in_memory().unwrap();
    register(&ours, &any_room()).unwrap();
    (ours, Connection::open_in_memory().unwrap())
}

#[test]
fn results_are_those_of_sqlite() {
    let (ours, plain) = both();
    for path in PATHS {
        for call in [format!("?1 ->> {path}"), format!("json_extract(?1, {path})")] {
            // The second column shows whether a result is marked as JSON.
            let statement = format!("select {call}, json_array({call})");
            for document in DOCUMENTS {
                let shows = |connection| shown(connection, &statement, &document);
                assert_eq!(shows(&ours), shows(&plain), "{call} of {document}");
            }
            let shows = |connection| shown(connection, &statement, &rusqlite::types::Null);
            assert_eq!(shows(&ours), shows(&plain), "{call} of NULL");
            let shows = |connection| shown(connection, &statement, &b"\x2c\x17a\x131".to_vec());
            assert_eq!(shows(&ours), shows(&plain), "{call} of a blob");
        }
    }
}

#[test]
fn numbers_are_those_of_sqlite() {
    let (ours, plain) = both();
    let statement = "select ?1 ->> '$[0]', 0";
    let mut random = 1_u64;
    let mut below = |bound: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut own = 0;
    for _ in 0..20_000 {
        let digits = |below: &mut dyn FnMut(u64) -> u64, most| {
            let digits = (0..=below(most)).map(|_| char::from(b'0' + below(10) as u8));
            let digits = digits.collect::<String>();
            let trimmed = digits.trim_start_matches('0').to_owned();
            (digits, if trimmed.is_empty() { "0".to_owned() } else { trimmed })
        };
        let sign = ["", "-"][below(2) as usize];
        let (fraction, whole) = (digits(&mut below, 9).0, digits(&mut below, 12).1);
        let exponent = below(60) as i64 - 30;
        let text = match below(3) {
            0 => format!("{sign}{whole}"),
            1 => format!("{sign}{whole}.{fraction}"),
            _ => format!("{sign}{whole}.{fraction}e{exponent}"),
        };
        own += u32::from(number(&text).is_some());
        let document = format!("[{text}]");
        assert_eq!(
            shown(&ours, statement, &document),
            shown(&plain, statement, &document),
            "{text}"
        );
    }
    assert!(own > 10_000, "{own} of 20,000 are converted here");
}

#[test]
fn usual_values_need_no_fallback() {
    for (path, expected) in [
        ("$.a", Some(Argument::Integer(1))),
        ("b", Some(Argument::Text(b"x".to_vec()))),
        ("$.c[1]", Some(Argument::Real(2.5))),
        ("$.e.f.g", Some(Argument::Integer(1))),
        ("$.none.at.all", Some(Argument::Null)),
        ("e", None),
        ("$.c[#-1]", None),
    ] {
        let path = path_of(ValueRef::Text(path.as_bytes()), Function::Arrow);
        let text = DOCUMENTS[0].as_bytes();
        let span = path.and_then(|path| span_in(text, &path));
        let found = span.and_then(|span| match span {
            Some(span) => value_of(&text[span]),
            None => Some(Argument::Null),
        });
        assert_eq!(found, expected);
    }
}

#[test]
fn deep_documents_are_malformed_as_sqlite_says() {
    let (ours, plain) = both();
    for depth in [10, 31, 40, 999, 1000, 1001, 1100] {
        let document = format!("{{\"a\":{}1{},\"b\":7}}", "[".repeat(depth), "]".repeat(depth));
        let shows = |connection| shown(connection, "select ?1 ->> 'b', 0", &document);
        assert_eq!(shows(&ours), shows(&plain), "{depth}");
    }
}
