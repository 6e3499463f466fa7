//! What an operator sees and changes: lines of the log, warnings at the start, reloads.

use std::fs;

use oribi_testkit::ServerOptions;
use serde_json::Value;

use crate::fixture::{Fixture, ORIBI};

#[test]
fn a_bad_log_filter_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServerOptions::new(ORIBI, directory.path().join("data"));
    let options = options.setting("log", "info,oribi_engine=loud");
    let (status, output) = options.run_to_exit().unwrap();
    assert_eq!(status.code(), Some(2), "a mistake on the command line: {output}");
    assert!(output.contains("\"oribi_engine=loud\" at column 6"), "{output}");
}

#[test]
fn json_lines_say_how_the_server_was_started() {
    let mut fixture = Fixture::start_with(|options| options.setting("log-format", "json"));
    fixture.stop();
    let log = fixture.server.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        for name in ["time", "level", "target", "message"] {
            assert!(line[name].is_string(), "no {name}: {line}");
        }
    }
    let said = |name: &str| lines.iter().find(|line| !line[name].is_null());
    let start = said("version").expect("a line with the version");
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    assert!(start["data_dir"].as_str().unwrap().ends_with("/data"), "{start}");
    let bucket = said("quota_mib").expect("a line about the bucket");
    assert_eq!((&bucket["bucket"], &bucket["eviction"]), (&"default".into(), &"value".into()));
    assert!(bucket["quota_mib"].as_u64().unwrap() > 0, "{bucket}");
    let ports = [fixture.server.port(), fixture.server.admin_port()];
    for port in ports {
        let is_named = |line: &&Value| {
            let message = line["message"].as_str().unwrap();
            message.starts_with("listening") && message.contains(&format!(":{port} "))
        };
        assert!(lines.iter().any(|line| is_named(&line)), "no word of {port}:\n{log}");
    }
}

#[test]
fn settings_without_effect_are_logged_at_start() {
    let mut fixture = Fixture::start_with(|options| options.setting("vbuckets", 8));
    fixture.stop();
    let data_dir = fixture.server.data_dir().to_owned();
    let options = ServerOptions::new(ORIBI, data_dir).setting("vbuckets", 16);
    fixture.server = oribi_testkit::ServerProcess::start(options).unwrap();
    fixture.expect_logged("vbuckets = 16 (--vbuckets) is ignored");
    fixture.finish(&["is ignored"]);
}

#[test]
fn quotas_beyond_the_memory_are_said_at_the_start() {
    let fixture = Fixture::start_with(|options| options.setting("memory-quota-mib", 8 << 20));
    fixture.expect_logged("memory quotas are 8388608 MiB together, but this process may use");
    fixture.finish(&["memory quotas are 8388608 MiB"]);
}

#[test]
fn a_reload_applies_changes_a_bad_file_none() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("reloaded.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write("memory_quota_mib = 128\n");
    let path = file.to_str().unwrap().to_owned();
    let fixture = Fixture::start_with(|options| options.setting("config", path));
    let shown = || {
        let reply = fixture.admin().get("/pools/default/buckets/default").unwrap();
        serde_json::from_str::<Value>(&reply.text()).unwrap()
    };
    write("memory_quota_mib = 256\neviction = \"full\"\nflush_interval_ms = 33\nvbuckets = 1\n");
    fixture.server.ask_to_reload().unwrap();
    fixture.expect_logged("the configuration was reloaded");
    let bucket = shown();
    assert_eq!(bucket["quota"]["ram"], 256u64 << 20);
    assert_eq!(bucket["evictionPolicy"], "fullEviction");
    assert_eq!(bucket["flushIntervalMs"], 33);
    fixture.expect_logged("a setting needs a restart");

    write("memory_quota_mib = 512\nevictoin = \"value\"\n");
    fixture.server.ask_to_reload().unwrap();
    fixture.expect_logged("was not reloaded, and nothing changed");
    assert_eq!(shown()["quota"]["ram"], 256u64 << 20);
    fixture.finish(&["needs a restart", "was not reloaded"]);
}
