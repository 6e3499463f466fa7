//! The bench of destroying batches, tiny, so that it cannot rot; the one of lookups needs a cluster and is in `guide.rs`.

#[path = "../benches/batch_drop/mod.rs"]
mod batch_drop;

fn run(arguments: &str) -> (bool, String) {
    let mut lines = Vec::new();
    let arguments = arguments.split(' ').map(str::to_owned);
    let succeeded = batch_drop::run(arguments, &mut lines).is_ok();
    (succeeded, String::from_utf8(lines).expect("lines are text"))
}

#[test]
fn destroying_batches_runs() {
    let (succeeded, lines) = run("--rounds 2 --operations 5000 --bench");
    assert!(succeeded);
    for way in ["objects", "objects-prefetch", "buffers"] {
        assert_eq!(lines.matches(&format!(r#""way": "{way}","#)).count(), 2, "{lines}");
    }
    assert_eq!(lines.matches(r#""operations": 5000, "drop_ns": "#).count(), 6);
}

#[test]
fn wrong_options_measure_nothing() {
    for arguments in ["--round 2", "--rounds", "--operations x"] {
        assert_eq!(run(arguments), (false, String::new()), "{arguments}");
    }
}
