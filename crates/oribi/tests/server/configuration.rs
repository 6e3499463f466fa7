//! Where a setting's value comes from: flag over variable over file over default, with one name.

use std::fs;
use std::path::Path;

use crate::fixture::run_oribi;

/// The value that `oribi config` prints for a setting.
#[track_caller]
fn effective(
    name: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
    directory: &Path,
) -> String {
    let all: Vec<&str> = [&["config"], arguments].concat();
    let (success, output) = run_oribi(&all, environment, directory);
    assert!(success, "{output}");
    value_of(&output, name)
}

/// The value in a line `name = value  # source`.
#[track_caller]
fn value_of(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='));
    let value = value.unwrap_or_else(|| panic!("no setting {name} in:\n{text}"));
    value.split('#').next().unwrap_or_default().trim().to_owned()
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert_eq!(effective("flush_interval_ms", &[], &[], path), "20");
    fs::write(path.join("oribi.toml"), "flush_interval_ms = 31\n").unwrap();
    assert_eq!(effective("flush_interval_ms", &[], &[], path), "31");
    let variable = [("ORIBI_FLUSH_INTERVAL_MS", "32")];
    assert_eq!(effective("flush_interval_ms", &[], &variable, path), "32");
    let flag = ["--flush-interval-ms", "33"];
    assert_eq!(effective("flush_interval_ms", &flag, &variable, path), "33");
    // A file of another name is named by flag or variable.
    fs::write(path.join("other.toml"), "flush_interval_ms = 41\n").unwrap();
    assert_eq!(effective("flush_interval_ms", &["--config", "other.toml"], &[], path), "41");
    assert_eq!(effective("flush_interval_ms", &[], &[("ORIBI_CONFIG", "other.toml")], path), "41");
}

#[test]
fn the_printed_configuration_is_a_configuration_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let given = ["config", "--workers", "3", "--buckets", "default,orders", "--vbuckets", "128"];
    let (success, printed) = run_oribi(&given, &[], path);
    assert!(success, "{printed}");
    fs::write(path.join("saved.toml"), &printed).unwrap();
    for name in ["workers", "buckets", "vbuckets", "data_dir", "listen"] {
        let again = effective(name, &["--config", "saved.toml"], &[], path);
        assert_eq!(again, value_of(&printed, name), "{name}");
    }
}

#[test]
fn mistakes_name_the_setting_and_its_source() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let refused = |arguments: &[&str], environment: &[(&str, &str)], words: &[&str]| {
        let (success, output) = run_oribi(arguments, environment, path);
        assert!(!success, "{arguments:?} was accepted:\n{output}");
        for word in words {
            assert!(output.contains(word), "no word of {word:?}:\n{output}");
        }
    };
    refused(&["config", "--workers", "many"], &[], &["workers", "many"]);
    refused(&["config"], &[("ORIBI_WORKERS", "many")], &["ORIBI_WORKERS"]);
    refused(&["config", "--vbuckets", "63"], &[], &["vbuckets", "63"]);
    refused(&["config", "--config", "missing.toml"], &[], &["missing.toml"]);
    fs::write(path.join("typo.toml"), "wokers = 2\n").unwrap();
    refused(&["config", "--config", "typo.toml"], &[], &["typo.toml", "wokers"]);
    fs::write(path.join("broken.toml"), "workers = \n").unwrap();
    refused(&["config", "--config", "broken.toml"], &[], &["broken.toml"]);
}

#[test]
fn help_lists_every_setting() {
    let directory = tempfile::tempdir().unwrap();
    let (success, help) = run_oribi(&["serve", "--help"], &[], directory.path());
    assert!(success, "{help}");
    for flag in ["--data-dir", "--port", "--admin-port", "--workers", "--buckets", "--ready-file"] {
        assert!(help.contains(flag), "{flag} is not in:\n{help}");
    }
}
