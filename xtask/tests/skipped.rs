//! Not a test: the summary of the tests that this run of `cargo test` skipped. Cargo runs test
//! binaries in the order of package names, so this one is the last of the workspace.

fn main() {
    match oribi_testkit::take_skipped_summary() {
        Some(summary) => println!("\n{summary}"),
        None => println!("\nno test was SKIPPED"),
    }
}
