//! The benches, tiny, so that they cannot rot. Only the shape of their output is checked.

#[path = "../benches/arguments/mod.rs"]
mod arguments;
#[path = "../benches/block_cost/mod.rs"]
mod block_cost;
#[path = "../benches/checkpoint_cost/mod.rs"]
mod checkpoint_cost;
#[path = "../benches/cpu_time/mod.rs"]
mod cpu_time;
#[path = "../benches/flush_cost/mod.rs"]
mod flush_cost;
#[path = "../benches/persistence/mod.rs"]
mod persistence_cost;

#[test]
fn block_costs_are_measured() {
    let mut lines = Vec::new();
    let arguments = ["--live", "600", "--rounds", "2", "--bytes", "48,40000"].map(str::to_owned);
    block_cost::run(arguments.into_iter(), &mut lines).expect("the bench runs");
    let lines = String::from_utf8(lines).expect("lines are text");
    assert_eq!(lines.lines().count(), 2 * 6 * 2, "{lines}");
    assert_eq!(lines.lines().filter(|line| line.contains("arena")).count(), 12);

    let unknown = ["--speed", "1"].map(str::to_owned);
    assert!(block_cost::run(unknown.into_iter(), &mut Vec::new()).is_err());
}

#[test]
fn checkpoint_costs_are_measured() {
    let mut lines = Vec::new();
    let arguments =
        ["--items", "1,300,9000", "--queued", "500", "--streams", "1,3", "--rounds", "2"];
    checkpoint_cost::run(arguments.map(str::to_owned).into_iter(), &mut lines)
        .expect("the bench runs");
    let lines = String::from_utf8(lines).expect("lines are text");
    let count = |text: &str| lines.lines().filter(|line| line.contains(text)).count();
    assert_eq!((count("expel"), count("memory"), count("enqueue")), (12, 12, 2), "{lines}");
    assert_eq!((count("streams"), count("drop_ns")), (4, 4), "{lines}");
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON");
    }

    let none = ["--items", "0"].map(str::to_owned);
    assert!(checkpoint_cost::run(none.into_iter(), &mut Vec::new()).is_err());
}

#[test]
fn flush_costs_are_measured() {
    let mut lines = Vec::new();
    let arguments = ["--items", "500", "--vbuckets", "4", "--bytes", "100", "--rounds", "1"];
    flush_cost::run(arguments.map(str::to_owned).into_iter(), &mut lines).expect("the bench runs");
    let lines = String::from_utf8(lines).expect("lines are text");
    assert_eq!(lines.lines().count(), 2, "{lines}");
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON");
    }

    let unknown = ["--stores", "paper"].map(str::to_owned);
    assert!(flush_cost::run(unknown.into_iter(), &mut Vec::new()).is_err());
}

#[test]
fn persistence_is_measured() {
    let mut lines = Vec::new();
    let arguments = ["--items", "300", "--rounds", "2", "--bytes", "32,5000"].map(str::to_owned);
    persistence_cost::run(arguments.into_iter(), &mut lines).expect("the bench runs");
    let lines = String::from_utf8(lines).expect("lines are text");
    assert_eq!(lines.lines().count(), 2 * 2 * 5, "{lines}");
    for what in ["insert", "overwrite", "single", "open", "load"] {
        let field = format!("\"what\":\"{what}\"");
        assert_eq!(lines.lines().filter(|line| line.contains(&field)).count(), 4);
    }
    let unknown = ["--stores", "paper"].map(str::to_owned);
    assert!(persistence_cost::run(unknown.into_iter(), &mut Vec::new()).is_err());
}
