//! Canonical texts, errors, and the bounds on nesting.

use super::{parse, parse_expression};
use crate::printer::print;

fn canonical(text: &str) -> String {
    print(&parse_expression(text).expect("the expression is valid"))
}

#[test]
fn printer_writes_the_canonical_form() {
    assert_eq!(canonical("field"), "`field`");
    assert_eq!(canonical("fld1 = 1 AND fld2 = 2"), "((`fld1` = 1) and (`fld2` = 2))");
    assert_eq!(canonical("a > 3"), "(3 < `a`)");
    assert_eq!(canonical("a.b[0].c"), "((`a`.`b`)[0].`c`)");
}

#[test]
fn printed_expression_parses_to_itself() {
    for text in [
        "a + b * -c",
        "a NOT LIKE 'x%' OR NOT b",
        "ARRAY v.x FOR i:v IN a WHEN v END",
        "CASE a WHEN 1 THEN 2 ELSE 3 END",
        "ANY v WITHIN a SATISFIES v BETWEEN 1 AND 2 END",
        "{'a': [1, null, missing]}",
        "`a``b`.c[1]",
        r"`a\\b`",
    ] {
        let once = canonical(text);
        assert_eq!(canonical(&once), once, "{text}");
    }
}

#[test]
fn syntax_error_names_line_and_column() {
    let error = parse("SELECT 1\n  FROM ,", &|_| Ok(())).expect_err("a source is missing");
    assert_eq!((error.code, error.position), (3000, Some((2, 8))));
}

#[test]
fn deep_nesting_is_a_syntax_error() {
    for (open, close) in [("(", ")"), ("[", "]"), ("{\"a\":", "}"), ("-(", ")"), ("NOT ", "")] {
        let text = format!("SELECT {}1{}", open.repeat(50_000), close.repeat(50_000));
        assert_eq!(parse(&text, &|_| Ok(())).expect_err("the text is too deep").code, 3000);
    }
}

#[test]
fn long_chains_need_no_depth() {
    for operator in [" + ", " AND ", " || ", "."] {
        let text = format!("SELECT {}", vec!["a"; 100_000].join(operator));
        drop(parse(&text, &|_| Ok(())).expect("a chain is no nesting"));
    }
}

#[test]
fn parameters_of_a_text_read_twice_are_counted_once() {
    for (text, count) in [("(SELECT ?)", 1), ("((SELECT ? + ?))", 2), ("(SELECT ?) + ?", 2)] {
        let mut parser = super::Parser::new(text, &|_| Ok(())).expect("the tokens are right");
        assert_eq!(parser.statement().expect(text), super::Statement::Expression);
        assert_eq!(parser.positions, count, "{text}");
    }
}
