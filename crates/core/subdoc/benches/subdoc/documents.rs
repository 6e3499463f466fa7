//! Documents as applications store them, made up but always the same.

/// An object with a list of small records, about `size` bytes of compact JSON.
pub(crate) fn records(size: usize) -> Vec<u8> {
    let mut text = br#"{"type":"order","version":3,"customer":{"name":"Ada Example","city":"Springfield"},"records":["#.to_vec();
    let mut number = 0usize;
    while text.len() + 150 < size || number < 3 {
        if number > 0 {
            text.push(b',');
        }
        text.extend_from_slice(record(number).as_bytes());
        number += 1;
    }
    text.extend_from_slice(b"],\"done\":false}");
    text
}

fn record(number: usize) -> String {
    format!(
        r#"{{"id":{},"name":"article number {number}","price":{}.{:02},"tags":["new","tag {}"],"stock":{{"count":{},"open":true}}}}"#,
        number * 7919 % 100_003,
        number * 31 % 997,
        number % 100,
        number % 17,
        number % 40,
    )
}

/// The path of a record's counter: of the first, the middle or the last record.
pub(crate) fn path_of_count(document: &[u8], place: &str) -> String {
    let text = std::str::from_utf8(document).expect("documents are text");
    let count = text.matches("\"stock\":").count();
    let at = match place {
        "first" => 0,
        "middle" => count / 2,
        _ => count - 1,
    };
    format!("records[{at}].stock.count")
}

/// Kinds of text whose checking costs differently.
pub(crate) fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let compact = records(100 << 10);
    let tree: serde_json::Value = serde_json::from_slice(&compact).expect("documents are JSON");
    let pretty = serde_json::to_vec_pretty(&tree).expect("a tree can be printed");
    let paragraph =
        "Words of an article, a line or two of them at a time, as a user wrote them. ".repeat(5);
    let articles: Vec<&str> = vec![&paragraph; 250];
    let prose = serde_json::to_vec(&articles).expect("strings can be printed");
    let foreign: Vec<String> =
        vec!["Größe äöü, naïve façade – und noch etwas Text dazu ".repeat(4); 400];
    let numbers: Vec<f64> = (0..8000).map(|number| f64::from(number) * 1.25 + 1000.0).collect();
    vec![
        ("records of 1 KiB", records(1 << 10)),
        ("records", compact),
        ("records, indented", pretty),
        ("prose", prose),
        ("prose beyond ASCII", serde_json::to_vec(&foreign).expect("strings can be printed")),
        ("numbers", serde_json::to_vec(&numbers).expect("numbers can be printed")),
    ]
}
