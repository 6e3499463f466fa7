//! What a run leaves behind: tables, files, and the summary after Ctrl-C.

use oribi_protocol::status::Status;
use oribi_testkit::{PATIENCE, RawConnection, Request, poll_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::perf::{Fixture, json, number, stderr};

#[test]
fn files_are_written_and_agree() {
    let fixture = Fixture::start();
    let path = |name: &str| fixture.directory.path().join(name).to_str().unwrap().to_owned();
    let (report, plot, hdr) = (path("report.json"), path("plot.svg"), path("latency.hgrm"));
    let pid = fixture.server.pid().to_string();
    let mut arguments = vec!["-I", "500", "-c", "100", "--report", &report, "--plot", &plot];
    arguments.extend(["--hdr", &hdr]);
    if cfg!(target_os = "linux") {
        arguments.extend(["--server-pid", &pid]);
    }
    let summary = fixture.summary(&arguments);
    let written: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(written, summary);
    assert_eq!(summary["options"]["items"], 500);
    assert!(summary["load"]["client_cpu_ns_per_operation"]["total"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        assert!(summary["load"]["server_cpu_ns_per_operation"]["total"].is_number());
    }
    let image = std::fs::read_to_string(&plot).unwrap();
    assert!(image.starts_with("<svg") && image.trim_end().ends_with("</svg>"));
    let percentiles = std::fs::read_to_string(&hdr).unwrap();
    let total = format!("Total count    = {:>12}]", number(&summary, "load", "operations"));
    assert!(percentiles.contains(&total), "{percentiles}");
}

#[test]
fn people_get_tables() {
    let fixture = Fixture::start();
    let output = fixture.command(&["-I", "1500", "-c", "10"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["population", "load GET", "operations/s", "1,500", "p99.9", "client CPU ns/op"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn the_summary_comes_after_ctrl_c() {
    let fixture = Fixture::start();
    let child = fixture.command(&["-I", "100", "-r", "100", "--json"]).spawn().unwrap();
    // The load is under way once a document has its second version.
    let mut connection = RawConnection::login(fixture.server.port()).unwrap();
    let mut first_cas = 0;
    let changed = poll_until(PATIENCE, || {
        let response = connection.call(&Request::get(format!("{:020}", 99))).unwrap();
        if response.status() != Status::Success {
            return None;
        }
        let before = std::mem::replace(&mut first_cas, response.cas.0);
        (before != 0 && before != first_cas).then_some(())
    });
    changed.expect("the load goes on");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let summary = json(&output);
    assert_eq!(summary["interrupted"], true);
    assert_eq!(number(&summary, "population", "stored"), 100);
    assert!(number(&summary, "load", "stored") > 0);
    assert_eq!(summary["problems"], 0);
}
