//! The effective configuration as `oribi config` prints it.
//!
//! Owns: the two forms. Invariant: the TOML form can be saved and used as the configuration file.
//! Caller: the `oribi` binary.

use std::fmt::Write as _;

use super::resolve::ResolvedSettings;
use super::table::SETTINGS;

/// TOML with the source of each value as a comment; an unset setting is a comment.
pub fn to_toml(resolved: &ResolvedSettings) -> String {
    assert_eq!(resolved.sources.len(), SETTINGS.len(), "each setting has a line with its source");
    let lines: Vec<(String, String)> = SETTINGS
        .iter()
        .zip(&resolved.sources)
        .map(|(setting, source)| match (setting.get)(&resolved.settings) {
            Some(value) => (format!("{} = {}", setting.name, value.to_toml()), source.to_string()),
            None => (format!("# {} =", setting.name), "not set".to_owned()),
        })
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    let mut heading = "";
    for (setting, (line, source)) in SETTINGS.iter().zip(&lines) {
        if setting.heading != heading {
            heading = setting.heading;
            let separator = if text.is_empty() { "" } else { "\n" };
            writeln!(text, "{separator}# {heading}").expect("a String takes every write");
        }
        writeln!(text, "{line:width$}  # {source}").expect("a String takes every write");
    }
    text
}

/// JSON: for each setting its value (or null) and its source.
pub fn to_json(resolved: &ResolvedSettings) -> serde_json::Value {
    assert_eq!(resolved.sources.len(), SETTINGS.len(), "each setting has an entry with its source");
    let entries = SETTINGS.iter().zip(&resolved.sources).map(|(setting, source)| {
        let value = (setting.get)(&resolved.settings).map(|value| value.to_toml());
        let entry = serde_json::json!({ "value": value, "source": source.to_string() });
        (setting.name.to_owned(), entry)
    });
    let entries: serde_json::Map<String, serde_json::Value> = entries.collect();
    debug_assert_eq!(entries.len(), SETTINGS.len(), "each setting has its own name");
    serde_json::Value::Object(entries)
}
