//! Oribi and memcached answer the same random text and meta commands alike.

use oribi_testkit::MemcachedServer;
use oribi_testkit::text_differential::{Commands, TextDifferential};

use crate::fixture::Fixture;

/// `cargo xtask soak text` sends a million.
const COMMANDS: u64 = 8_000;
/// Always the same commands: other ones are for the soak.
const SEED: u64 = 1;

fn compare(kinds: Commands, configure: &[&str]) {
    let Some(memcached) = MemcachedServer::start_for_test(&[]) else { return };
    let fixture = Fixture::start_with(|options| {
        // Each `flush_all` waits for the disk, once for every vbucket.
        let options = options.setting("flush-enabled", true).setting("vbuckets", 2);
        configure.iter().fold(options, |options, argument| options.argument(*argument))
    });
    let run = TextDifferential {
        ports: [fixture.server.port(), memcached.port()],
        seed: SEED,
        first_case: 0,
        commands: COMMANDS,
        kinds,
        differences_max: 3,
    };
    let report = run.run(&mut |_| ()).unwrap();
    assert!(report.differences.is_empty(), "{}", report.differences.join("\n"));
}

#[test]
fn text_commands_are_answered_as_by_memcached() {
    compare(Commands::Text, &["--cache"]);
}

#[test]
fn meta_commands_are_answered_as_by_memcached() {
    compare(Commands::Meta, &["--cache"]);
}

#[test]
fn both_kinds_of_commands_share_the_documents() {
    compare(Commands::Both, &["--cache"]);
}
