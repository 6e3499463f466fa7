//! Every form of output, rounds, and what is said when there is nothing to show.

use serde_json::Value;

use crate::stats::{Fixture, interrupt, stderr, stdout, wait};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn raw_and_json_say_the_same() {
    let fixture = Fixture::start();
    fixture.create_collection();
    for group in [&["config"][..], &["vbucket-details", "3"], &["vbucket"], &["collections"]] {
        let raw = stdout(&fixture.run(&[&["stats"], group, &["--raw"]].concat()));
        let document = stdout(&fixture.run(&[&["stats"], group, &["--json"]].concat()));
        let document = json(&document);
        for line in raw.lines() {
            let (name, value) = line.split_once(": ").expect("name and value");
            let found = match &document[name] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(found, value, "{name}");
        }
        let mut names: Vec<&str> = raw.lines().filter_map(|line| line.split(": ").next()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), document.as_object().map_or(0, |members| members.len()));
    }
    let general = json(&stdout(&fixture.run(&["stats", "--json"])));
    assert_eq!(general["curr_items"], 0);
    assert_eq!(general["bucket"], "default");
    assert_eq!(general["ep_degraded_mode"], false);
}

#[test]
fn people_get_tables() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let seqnos = stdout(&fixture.run(&["stats", "vbucket-seqno", "--filter", "vb_*high_seqno"]));
    let lines: Vec<&str> = seqnos.lines().collect();
    assert!(lines[0].starts_with("id ") && lines[0].contains(" high_seqno"), "{seqnos}");
    assert!(lines[1].starts_with("vb_0 "), "{seqnos}");
    let details = stdout(&fixture.run(&["stats", "vbucket-details", "7"]));
    assert!(details.starts_with("vb_7\n  state"), "{details}");
    let general = stdout(&fixture.run(&["stats"]));
    let has_unit = |line: &str| line.starts_with("ep_max_size ") && line.ends_with("iB)");
    assert!(general.lines().any(has_unit), "{general}");
    let collections = stdout(&fixture.run(&["stats", "collections"]));
    assert!(collections.lines().any(|line| line.contains(" packages ")), "{collections}");
}

#[test]
fn figures_are_chosen_by_name() {
    let fixture = Fixture::start();
    let raw = stdout(&fixture.run(&["stats", "--raw", "--filter", "curr_items*"]));
    assert_eq!(raw, "curr_items: 0\ncurr_items_tot: 0\n");
    let raw = stdout(&fixture.run(&["stats", "--raw", "--filter", "*_items"]));
    assert!(
        raw.lines().all(|line| line.split(':').next().is_some_and(|name| name.ends_with("items")))
    );
    assert!(!raw.contains("curr_items_tot"), "{raw}");
    assert_eq!(stdout(&fixture.run(&["stats", "--json", "--filter", "no such"])), "{\n}\n");
    assert_eq!(stdout(&fixture.run(&["stats", "--filter", "no such"])), "");
}

#[test]
fn every_node_is_asked_and_named() {
    let fixture = Fixture::start();
    let node = format!("127.0.0.1:{}", fixture.server.port());
    let raw = stdout(&fixture.run(&["stats", "uuid", "--all-nodes", "--raw"]));
    assert!(raw.starts_with(&format!("{node} uuid: ")), "{raw}");
    let document = json(&stdout(&fixture.run(&["stats", "uuid", "--all-nodes", "--json"])));
    assert_eq!(document[&node]["uuid"].as_str().map(str::len), Some(32), "{document}");
    let view = stdout(&fixture.run(&["stats", "uuid", "--all-nodes"]));
    assert!(view.starts_with(&format!("node {node}\n\nuuid  ")), "{view}");
}

#[test]
fn rounds_show_what_grew() {
    let fixture = Fixture::start();
    let rounds = ["stats", "--watch", "50ms", "--count", "2"];
    let lines = stdout(&fixture.run(&[&rounds[..], &["--json"]].concat()));
    let lines: Vec<Value> = lines.lines().map(json).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["per_second"], serde_json::json!({}));
    let grown = &lines[1]["stats"]["cmd_total"];
    assert!(grown.as_u64() > lines[0]["stats"]["cmd_total"].as_u64(), "{grown}");
    assert!(lines[1]["per_second"]["cmd_total"].as_f64().is_some_and(|rate| rate > 0.0));
    assert_eq!(lines[1]["per_second"].get("curr_items"), None);

    let text = stdout(&fixture.run(&[&rounds[..], &["--filter", "cmd_total"]].concat()));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(lines[0].ends_with("  general") && lines[2].is_empty(), "{text}");
    assert!(!lines[1].ends_with("/s") && lines[4].ends_with("/s"), "{text}");

    let raw =
        stdout(&fixture.run(&[&rounds[..], &["--raw", "--filter", "curr_items_tot"]].concat()));
    assert_eq!(raw, "curr_items_tot: 0\n\ncurr_items_tot: 0\n");
}

#[test]
fn rounds_end_when_nobody_wants_more() {
    let fixture = Fixture::start();
    let watch = ["stats", "--watch", "10ms", "--json"];
    let (mut child, lines) = fixture.run_to_first_line(&watch);
    assert_eq!(interrupt(&mut child), Some(130));
    drop(lines);
    let (mut child, lines) = fixture.run_to_first_line(&watch);
    drop(lines);
    assert_eq!(wait(&mut child), Some(0), "the reader has gone");
}

#[test]
fn refusals_are_one_clear_line() {
    let fixture = Fixture::start();
    for (arguments, status, text) in [
        (&["vbucket-detials"][..], 2, "did you mean \"vbucket-details\"?"),
        (&["xyzzy", "--json"], 2, "`oribi stats --list` lists those there are"),
        (
            &["vbucket-details", "9999"],
            1,
            "the vbucket in \"vbucket-details 9999\" is not on 127.0.0.1:",
        ),
        (
            &["vbucket-seqno", "x", "--raw"],
            2,
            "bad argument \"x\", the usage is: vbucket-seqno [VB]",
        ),
        (&["--bucket", "nope"], 1, "cannot open bucket \"nope\""),
        (&["--password", "wrong"], 1, "wrong name or password"),
        (&["--watch", "1x"], 2, "such as 1s or 500ms"),
        (&["--raw", "--json"], 2, "cannot be used with"),
    ] {
        let output = fixture.run(&[&["stats"], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn groups_are_listed_without_a_server() {
    let output = std::process::Command::new(crate::stats::ORIBI)
        .args(["stats", "--list", "--port", "1"])
        .output()
        .expect("the program runs");
    let list = stdout(&output);
    assert!(list.lines().any(|line| line.starts_with("collections-details [VB] ")), "{list}");
}

#[test]
fn the_list_separates_local_from_remote_buckets() {
    let fixture = Fixture::start();
    let list = stdout(&fixture.run(&["stats", "--list"]));
    let (own, others) = list.split_once("\nOther servers").expect("two lists");
    let others = others.split_once("\n\n").expect("a list of others").1;
    let name = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    for (list, is_own) in [(own, true), (others, false)] {
        for group in list.lines().map(name).filter(|name| name != "(none)") {
            let refusal = stderr(&fixture.run(&["stats", &group]));
            assert_eq!(refusal.contains("does not offer"), !is_own, "{group}: {refusal}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let mut fixture = Fixture::start();
    fixture.server.terminate().expect("the server ends");
    let output = fixture.run(&["stats"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("connecting to 127.0.0.1:{}", fixture.server.port());
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
}
