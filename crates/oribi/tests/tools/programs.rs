//! Two programs, one command: `oribi` executes `oribi-tools`, which is in its own directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");
const TOOLS: &str = env!("CARGO_BIN_EXE_oribi-tools");

/// A directory with `oribi` and without `oribi-tools`.
fn server_alone() -> (TempDir, PathBuf) {
    // Of the same file system, so that the program is linked and not copied.
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let oribi = directory.path().join("oribi");
    fs::hard_link(ORIBI, &oribi).expect("a link");
    (directory, oribi)
}

fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Output {
    Command::new(program.as_ref()).args(arguments).stdin(Stdio::null()).output().expect("a program")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_tool_replaces_the_process_with_its_arguments() {
    let (directory, oribi) = server_alone();
    // The shell stands for the tools; the first argument names its script.
    std::os::unix::fs::symlink("/bin/sh", directory.path().join("oribi-tools")).unwrap();
    let script = "echo $$; for word; do echo \"<$word>\"; done; cat; exit 7";
    fs::write(directory.path().join("doc"), script).unwrap();
    let mut child = Command::new(&oribi)
        .args(["doc", "two words", "", "--help", "ä"])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"from standard input").unwrap();
    let output = child.wait_with_output().unwrap();
    let wanted = format!("{id}\n<two words>\n<>\n<--help>\n<ä>\nfrom standard input");
    assert_eq!(text(&output.stdout), wanted);
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_server_without_tools_names_their_place() {
    let (directory, oribi) = server_alone();
    let place = directory.path().canonicalize().unwrap().join("oribi-tools");
    for tool in ["doc", "query", "backup"] {
        let output = run(&oribi, &[tool, "--help"]);
        let wanted = format!(
            "oribi: `oribi {tool}` needs the program {}, which is missing; packages have it, and \
             `cargo build --release -p oribi` builds it\n",
            place.display()
        );
        assert_eq!(text(&output.stderr), wanted);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
    }
    fs::write(&place, "not a program").unwrap();
    let output = run(&oribi, &["top"]);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("cannot execute {}", place.display())), "{said}");
    assert_eq!(output.status.code(), Some(1));
    // The rest of the program does not need them.
    assert!(run(&oribi, &["config"]).status.success());
    assert!(text(&run(&oribi, &["--help"]).stdout).contains("Query documents by SQL"));
}

#[test]
fn tools_of_another_version_refuse() {
    let output =
        Command::new(TOOLS).arg("ping").env("ORIBI_TOOLS_VERSION", "0.0.1").output().unwrap();
    let wanted = format!(
        "oribi: `oribi` has version 0.0.1 and {TOOLS} has {}; install both from one package\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(text(&output.stderr), wanted);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_symbolic_link_to_the_program_finds_the_tools() {
    let directory = TempDir::new().unwrap();
    let link = directory.path().join("oribi");
    std::os::unix::fs::symlink(ORIBI, &link).unwrap();
    let output = run(&link, &["ping", "--help"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Usage: oribi ping"), "{}", text(&output.stdout));
}

#[test]
fn both_programs_give_equal_help_and_errors() {
    let help = run(ORIBI, &["--help"]);
    let tools = run(TOOLS, &["--help"]);
    let names = text(&tools.stdout).lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter_map(|line| line.split_once("  ").map(|(name, _)| name));
    let names: Vec<&str> = names.filter(|name| !name.starts_with(['-', ' ', 'h'])).collect();
    assert!(names.len() > 10 && names.contains(&"query"), "{names:?}");
    for name in names {
        assert!(text(&help.stdout).contains(&format!("\n  {name} ")), "no help lists {name}");
        let [by_server, by_tools] =
            [["help", name], [name, "--help"]].map(|words| run(ORIBI, &words));
        assert!(by_server.status.success() && by_tools.status.success());
        assert_eq!(text(&by_server.stdout), text(&by_tools.stdout), "{name}");
    }
}

#[test]
fn wrong_usage_is_told_from_failure() {
    for (wrong, expected) in [
        (&["doc", "get"][..], "Usage: oribi doc get"),
        (&["backup", "create", "archive", "--key-pattern", "("], "unclosed group"),
        (&["backup", "restore", "archive", "--key-pattern", "["], "unclosed character class"),
        (&["copy", "couchbase://a/b", "--key-pattern", "("], "unclosed group"),
        (&["bucket", "change", "default"], "Usage: oribi bucket change"),
        (&["user", "change", "anna"], "Usage: oribi user change"),
    ] {
        let output = run(ORIBI, wrong);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {error}");
        assert!(error.contains(expected), "{wrong:?}: {error}");
    }
}
