//! The bench, tiny, so that it cannot rot: what it runs it also checks.

#[path = "../benches/operations/mod.rs"]
mod operations;

fn run(arguments: &str) -> Result<(), String> {
    operations::run(arguments.split_whitespace().map(str::to_owned))
}

#[test]
fn every_operation_runs() {
    for operation in ["noop", "get", "get_miss", "set"] {
        for value_bytes in [1, 500, 10_000] {
            run(&format!(
                "--bench --operation {operation} --value-bytes {value_bytes} --batches 3"
            ))
            .unwrap_or_else(|reason| panic!("{operation}, {value_bytes} bytes: {reason}"));
        }
    }
    run("--operation get --batch 999 --batches 2").unwrap();
}

#[test]
fn mistakes_are_named() {
    for (arguments, named) in [
        ("--operation put", "put"),
        ("--batch 0", "1 to 1000"),
        ("--value-bytes 20000", "1 to 16384"),
        ("--batches", "--batches"),
        ("--fast yes", "--fast"),
    ] {
        let reason = run(arguments).expect_err("refused");
        assert!(reason.contains(named), "{arguments}: {reason}");
    }
}
