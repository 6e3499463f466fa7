//! The bench, tiny, so that it cannot rot. Only the shape of its output is checked.

#[path = "../benches/arguments/mod.rs"]
mod arguments;
#[path = "../benches/checkpoint_cost/mod.rs"]
mod checkpoint_cost;

#[test]
fn checkpoint_costs_are_measured() {
    let mut lines = Vec::new();
    let arguments = ["--items", "1,300,9000", "--queued", "500", "--rounds", "2"];
    checkpoint_cost::run(arguments.map(str::to_owned).into_iter(), &mut lines)
        .expect("the bench runs");
    let lines = String::from_utf8(lines).expect("lines are text");
    let count = |text: &str| lines.lines().filter(|line| line.contains(text)).count();
    assert_eq!((count("expel"), count("enqueue")), (12, 2), "{lines}");
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON");
    }

    let none = ["--items", "0"].map(str::to_owned);
    assert!(checkpoint_cost::run(none.into_iter(), &mut Vec::new()).is_err());
}
