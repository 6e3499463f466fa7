//! The benches, tiny, so that they cannot rot. What they measure here is looked at for shape only.

#[path = "../benches/block_cost/mod.rs"]
mod block_cost;

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
