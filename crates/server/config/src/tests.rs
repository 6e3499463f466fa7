//! Tests of the layers, the error messages and the printed forms.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clap::{ArgMatches, Command};
use oribi_types::policy::EvictionPolicy;

use super::form::{SettingValue, ValueForm};
use super::resolve::{ConfigError, ResolvedSettings, arguments, resolve};
use super::table::SETTINGS;
use super::{BucketStorage, Settings, SettingsError, is_bucket_name, to_json, to_toml};

fn command() -> Command {
    Command::new("serve").args(arguments())
}

fn matches(flags: &[&str]) -> ArgMatches {
    command().get_matches_from(std::iter::once("serve").chain(flags.iter().copied()))
}

fn resolve_with(
    flags: &[&str],
    variables: &[(&str, &str)],
) -> Result<ResolvedSettings, ConfigError> {
    resolve(&matches(flags), |wanted| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| OsString::from(value))
    })
}

fn in_file(text: &str) -> (tempfile::TempDir, String) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("oribi.toml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (scratch, path)
}

#[test]
fn without_anything_there_are_defaults() {
    assert_eq!(resolve_with(&[], &[]).unwrap().settings, Settings::default());
    command().debug_assert();
}

#[test]
fn every_other_source_wins_over_the_preset_of_a_cache() {
    let (_scratch, path) = in_file("low_watermark_percent = 50\n");
    let flags = ["--config", &path, "--cache", "--flush-enabled", "false"];
    let resolved = resolve_with(&flags, &[("ORIBI_HIGH_WATERMARK_PERCENT", "60")]).unwrap();
    let settings = &resolved.settings;
    assert_eq!(settings.storage, BucketStorage::Memory);
    assert_eq!(settings.eviction, Some(EvictionPolicy::Nru));
    assert_eq!((settings.low_watermark_percent, settings.high_watermark_percent), (50, 60));
    assert!(!settings.flush_enabled);
    assert_eq!(to_json(&resolved)["storage"]["source"], "--cache");
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let (_scratch, path) =
        in_file("workers = 2\nport = 1\nvbuckets = 8\nbuckets = [\"a\", \"b\"]\n");
    let flags = ["--config", &path, "--workers", "4", "--flush-enabled"];
    let variables = [("ORIBI_WORKERS", "3"), ("ORIBI_PORT", "5"), ("ORIBI_ADMIN_LISTEN", "::1")];
    let resolved = resolve_with(&flags, &variables).unwrap();
    let settings = &resolved.settings;
    assert_eq!((settings.workers, settings.port, settings.vbuckets), (4, 5, 8));
    assert_eq!(settings.buckets, ["a", "b"]);
    assert!(settings.flush_enabled);
    assert_eq!(settings.admin_address().to_string(), "::1");

    let json = to_json(&resolved);
    assert_eq!(json["workers"]["source"], "--workers");
    assert_eq!(json["port"]["source"], "ORIBI_PORT");
    assert_eq!(json["vbuckets"]["source"], path.as_str());
    assert_eq!(json["log"]["source"], "default");
    assert_eq!(json["ready_file"]["value"], serde_json::Value::Null);
    assert_eq!(json["buckets"]["value"], serde_json::json!(["a", "b"]));
}

#[test]
fn a_quota_that_is_not_set_is_a_share_of_the_machine() {
    let given = resolve_with(&["--memory-quota-mib", "7"], &[]).unwrap().settings;
    assert_eq!(given.new_bucket_quota_mib(), 7);
    let one = Settings::default().new_bucket_quota_mib();
    let names = vec!["a".to_owned(), "b".to_owned()];
    let two = Settings { buckets: names, ..Settings::default() }.new_bucket_quota_mib();
    assert!(two <= one && one >= 100, "{two} and {one} MiB");
}

#[test]
fn the_file_can_be_named_by_a_variable() {
    let (_scratch, path) = in_file("port = 77");
    let resolved = resolve_with(&[], &[("ORIBI_CONFIG", &path)]).unwrap();
    assert_eq!(resolved.settings.port, 77);
    let error = resolve_with(&[], &[("ORIBI_CONFIG", "/nonexistent/x.toml")]).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/x.toml"), "{error}");
}

#[test]
fn mistakes_are_named_with_their_source() {
    let cases = [
        ("wrkers = 2", "there is no setting \"wrkers\""),
        ("workers = \"2\"", "workers from"),
        ("workers = 0", "0 is not between 1 and 1024"),
        ("port = -1", "-1 is not a number of 0 or more"),
        ("listen = \"localhost\"", "\"localhost\" is not an IP address"),
        ("buckets = [1]", "a list of strings"),
        ("flush_enabled = 1", "true or false"),
        ("storage = \"disk\"", "\"disk\" is not one of log, memory"),
        ("storage = \"kudu://a?replicas=2\"", "replicas=\"2\" is not an odd number"),
        ("storage = \"kudu:/a\"", "does not begin with kudu://"),
        ("storage = \"kudu://a\"\neviction = \"nru\"", "does not go with storage \"kudu://a:7051"),
        ("compression_mode = \"on\"", "\"on\" is not one of off, passive, active"),
        ("eviction = \"lru\"", "\"lru\" is not one of value, full, none, nru"),
        ("eviction = \"nru\"", "eviction \"nru\" does not go with storage \"log\""),
        ("storage = \"memory\"\neviction = \"full\"", "does not go with storage \"memory\""),
        ("high_watermark_percent = 60", "must be below high_watermark_percent, 60"),
        ("checkpoint_quota_percent = 101", "101 is not between 1 and 100"),
        ("workers = ", "oribi.toml"),
        ("vbuckets = 48", "power of two"),
        ("buckets = [\"a b\"]", "not a bucket name"),
        ("buckets = [\"a\", \"a\"]", "listed twice"),
    ];
    for (text, expected) in cases {
        if text.contains("kudu") && !cfg!(feature = "kudu") {
            continue;
        }
        let (_scratch, path) = in_file(text);
        let error = resolve_with(&["--config", &path], &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let error = resolve_with(&[], &[("ORIBI_WORKERS", "many")]).unwrap_err().to_string();
    assert_eq!(error, "workers from ORIBI_WORKERS: \"many\" is not a whole number");
    let error = resolve_with(&["--workers", "3"], &[("ORIBI_WORKERS", "many")]);
    assert!(error.is_err(), "a mistake in a layer that loses is still a mistake");
    let error = command().try_get_matches_from(["serve", "--workers", "many"]).unwrap_err();
    assert!(error.to_string().contains("--workers"), "{error}");
}

#[test]
fn printed_toml_is_a_configuration_file() {
    let flags = ["--port", "1", "--buckets", "a,b", "--ready-file", "r \"x\""];
    let resolved = resolve_with(&flags, &[]).unwrap();
    let text = to_toml(&resolved);
    assert!(text.contains("# --port") && text.contains("# default"), "{text}");
    let (_scratch, path) = in_file(&text);
    let again = resolve_with(&["--config", &path], &[]).unwrap();
    assert_eq!(again.settings, resolved.settings);
}

#[test]
fn every_row_sets_and_shows_its_own_field() {
    // Compares fields of the struct with rows of the table: a new field without row changes the
    // debug form.
    let fields = format!("{:#?}", Settings::default());
    let top_level = fields.lines().filter(|line| {
        line.starts_with("    ") && !line.starts_with("     ") && line.contains(": ")
    });
    assert_eq!(top_level.count(), SETTINGS.len());

    for setting in SETTINGS {
        let value = match setting.form {
            ValueForm::Text => SettingValue::Text("x".to_owned()),
            ValueForm::Choice(choices) => {
                let texts = choices.iter().map(|choice| SettingValue::Text((*choice).to_owned()));
                let is_change = |text: &SettingValue| {
                    (setting.get)(&Settings::default()).as_ref() != Some(text)
                };
                texts.into_iter().find(is_change).expect("there is a choice")
            }
            ValueForm::Address => SettingValue::Address("10.0.0.1".parse().unwrap()),
            ValueForm::Integer { max, .. } => SettingValue::Integer(max),
            ValueForm::Flag => SettingValue::Flag(true),
            ValueForm::Names => SettingValue::Names(vec!["x".to_owned()]),
            ValueForm::Checked(check) => {
                let fits = |text: &&str| check(text).is_ok();
                let texts = ["memory", "scope.collection", "debug"];
                SettingValue::Text(texts.into_iter().find(fits).expect("one fits").to_owned())
            }
        };
        let mut settings = Settings::default();
        (setting.set)(&mut settings, value.clone());
        assert_eq!((setting.get)(&settings), Some(value), "{}", setting.name);
        assert_ne!(settings, Settings::default(), "{}", setting.name);
    }
}

#[test]
fn help_names_every_flag_under_a_heading() {
    let help = command().term_width(200).render_help().to_string();
    for setting in SETTINGS {
        assert!(help.contains(&format!("--{}", setting.flag())), "{}", setting.name);
        assert!(help.contains(&format!("{}:", setting.heading)), "{}", setting.heading);
    }
    assert!(help.contains("[default: 11210]"), "{help}");
}

#[test]
fn development_mode_is_for_loopback_only() {
    let mut settings = Settings::default();
    assert_eq!(settings.check_exposure(true), Ok(()));
    settings.admin_listen = Some("0.0.0.0".parse().unwrap());
    let error = settings.check_exposure(true).unwrap_err();
    assert_eq!(error, SettingsError::ExposedDevelopment("0.0.0.0".parse().unwrap()));
    assert_eq!(settings.check_exposure(false), Ok(()));
    settings.listen = "192.0.2.1".parse().unwrap();
    assert!(settings.check_exposure(true).is_err());
    settings.listen = "::1".parse().unwrap();
    settings.admin_listen = None;
    assert_eq!(settings.check_exposure(true), Ok(()));
}

#[test]
fn bucket_names_are_directory_names() {
    for name in ["default", "a", "A-1_b%c.d"] {
        assert!(is_bucket_name(name), "{name:?}");
        assert_eq!(Path::new(name).components().count(), 1);
    }
    let long = "x".repeat(101);
    for name in ["", ".", "..", ".hidden", "a/b", "a b", "a\0", "é", long.as_str()] {
        assert!(!is_bucket_name(name), "{name:?}");
    }
}
