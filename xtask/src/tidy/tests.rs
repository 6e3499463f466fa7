//! Every rule rejects its sample, accepts the sound version of it, and names the right line.

use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};
use super::{check, code_mask, columns, file_shape};

fn file(path: &str, text: impl Into<String>) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.into() }
}

fn findings_in(path: &str, text: impl Into<String>) -> Vec<Finding> {
    check(&SourceTree::from_files(vec![file(path, text)]))
}

/// Asserts that the sample has exactly one finding, on `line`, whose message contains `message`.
#[track_caller]
fn assert_one(findings: &[Finding], line: usize, message: &str) {
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].line, line, "{findings:?}");
    assert!(findings[0].message.contains(message), "{findings:?}");
}

fn manifest(name: &str, sections: &str) -> String {
    format!("[package]\nname = \"{name}\"\n\n{sections}")
}

#[test]
fn header_is_required() {
    assert_one(&findings_in("crates/a/src/lib.rs", "fn main() {}\n"), 1, "header");
    assert_eq!(findings_in("crates/a/src/lib.rs", "//! Says what it owns.\nfn main() {}\n"), []);
}

#[test]
fn long_files_are_rejected() {
    let of_lines = |lines: usize| format!("//! Header.\n{}", "\n".repeat(lines - 1));
    let path = "crates/a/src/lib.rs";
    assert_eq!(findings_in(path, of_lines(file_shape::LINES_MAX)), []);
    assert_one(&findings_in(path, of_lines(file_shape::LINES_MAX + 1)), 601, "601 lines");
    let path = "crates/a/src/lib/tests.rs";
    assert_eq!(findings_in(path, of_lines(file_shape::TEST_LINES_MAX)), []);
    assert_one(&findings_in(path, of_lines(file_shape::TEST_LINES_MAX + 1)), 801, "801 lines");
}

#[test]
fn stale_edits_of_mutants_are_rejected() {
    let list =
        "[[mutant]]\nname = \"forgets\"\n[[mutant.edit]]\nfile = \"src/lib.rs\"\nfind = \"one\"\n";
    let findings = |source: &str| {
        let source = file("crates/a/src/lib.rs", format!("//! Header.\n{source}"));
        check(&SourceTree::from_files(vec![source, file("crates/a/mutants.toml", list)]))
    };
    assert_eq!(findings("fn one() {}\n"), []);
    assert_one(&findings("fn two() {}\n"), 1, "0 times");
    assert_one(&findings("fn one_one() {}\n"), 1, "2 times");
}

#[test]
fn leftovers_are_rejected() {
    // The samples are put together at run time, so that this file does not contain them.
    for (head, tail) in [
        ("to", "do!()"),
        ("unimpl", "emented!()"),
        ("db", "g!(1)"),
        ("#[ig", "nore]"),
        ("#[cfg(debug_", "assertions)]"),
        ("// FIX", "ME later"),
        ("// XX", "X later"),
    ] {
        let text = format!("//! Header.\n\n{head}{tail}\n");
        assert_eq!(findings_in("crates/a/src/lib.rs", text).len(), 1, "{head}{tail}");
    }
    let path = "crates/a/src/lib.rs";
    assert_eq!(findings_in(path, "//! Header.\nlet name = \"tmp.XXXXXX\";\n"), []);
}

#[test]
fn long_lines_of_prose_are_rejected() {
    let line = |columns: usize| "äb ".repeat(columns).chars().take(columns).collect::<String>();
    let longest = line(columns::COLUMNS_MAX);
    let longer = line(columns::COLUMNS_MAX + 1);
    assert_eq!(findings_in("docs/a.md", format!("{longest}\n")), []);
    assert_one(
        &findings_in("docs/a.md", format!("```\n{longer}\n```\n\n{longer}\n")),
        5,
        "101 columns",
    );
    let path = "x".repeat(columns::COLUMNS_MAX + 1);
    for free in [format!("| {longer} |\n"), format!("<!-- {longer} -->\n"), format!("  {path}\n")] {
        assert_eq!(findings_in("docs/a.md", free.as_str()), [], "{free}");
    }
    let comment = format!("//! Header.\n\n/// {longest}\nlet text = \"{longer}\";\n");
    assert_one(&findings_in("crates/a/src/lib.rs", comment), 3, "104 columns");
}

#[test]
fn threads_are_started_by_the_supervisor_only() {
    for (head, tail) in [("std::thread::", "spawn(f)"), ("thread::", "Builder::new()")] {
        let text = format!("//! thread::spawn( in prose.\n\nfn f() {{ {head}{tail}; }}\n");
        let found = findings_in("crates/server/data/src/runtime/worker.rs", text.as_str());
        assert_one(&found, 3, "oribi_supervisor::spawn");
        assert_one(&findings_in("crates/oribi/src/serve.rs", text.as_str()), 3, "nobody watches");
        for free in [
            "crates/core/supervisor/src/lib.rs",
            "crates/tools/cli/src/perf/run.rs",
            "crates/core/engine/tests/bucket/main.rs",
            "crates/core/engine/src/checkpoint/tests.rs",
        ] {
            assert_eq!(findings_in(free, text.as_str()), [], "{free}");
        }
        let test = format!("//! Header.\n\n#[cfg(test)]\nmod tests {{\n    {head}{tail};\n}}\n");
        assert_eq!(findings_in("crates/server/data/src/runtime/worker.rs", test), []);
    }
}

// Invariant: `unsafe` stands only in listed files.
#[test]
fn unsafe_is_allowed_in_listed_files_only() {
    let text = "//! No unsafe in prose.\n\nfn f() { unsafe { g() } }\n";
    assert_one(&findings_in("crates/server/data/src/runtime/worker.rs", text), 3, "not listed");
    assert_eq!(findings_in("crates/core/engine/src/item.rs", text), []);
    assert_eq!(findings_in("crates/core/engine/src/item/block.rs", text), []);
    let harmless =
        "//! Header.\n#![forbid(unsafe_code)]\n// unsafe here\nconst A: &str = \"unsafe\";\n";
    assert_eq!(findings_in("crates/server/data/src/runtime/worker.rs", harmless), []);
}

#[test]
fn masking_hides_comments_and_literals_but_no_code() {
    for (source, visible) in [
        ("a /* unsafe /* nested */ unsafe */ b", "a b"),
        ("a // unsafe\nb", "a b"),
        (r##"a r#"unsafe " "# b"##, "a b"),
        (r#"a b"unsafe \" unsafe" c"#, "a b c"),
        (r"a '\'' unsafe 'x' b", "a unsafe b"),
        ("fn f<'a>(x: &'a str) { unsafe {} }", "fn f<'a>(x: &'a str) { unsafe {} }"),
        ("a 'é' unsafe", "a unsafe"),
    ] {
        let masked = code_mask::code_only(source);
        let words: Vec<&str> = masked.split_whitespace().collect();
        assert_eq!(words.join(" "), visible, "{source}");
        assert_eq!(masked.lines().count(), source.lines().count(), "{source}");
    }
}

// Invariant: A crate depends only on the crates that the layer table allows.
#[test]
fn edges_outside_the_layer_table_are_rejected() {
    let path = "crates/core/engine/Cargo.toml";
    let upward = manifest("oribi-engine", "[dependencies]\noribi-server.workspace = true\n");
    assert_one(&findings_in(path, upward), 5, "oribi-engine -> oribi-server");
    let sound =
        manifest("oribi-engine", "[dependencies]\noribi-types.workspace = true\nfjall = \"3\"\n");
    assert_eq!(findings_in(path, sound), []);
}

#[test]
fn development_edges_have_their_own_table() {
    let in_tests = manifest("oribi", "[dev-dependencies]\noribi-testkit.workspace = true\n");
    assert_eq!(findings_in("crates/oribi/Cargo.toml", in_tests), []);
    let shipped = manifest("oribi", "[dependencies]\noribi-testkit.workspace = true\n");
    assert_one(&findings_in("crates/oribi/Cargo.toml", shipped), 5, "oribi -> oribi-testkit");
}

#[test]
fn renamed_and_target_specific_edges_count() {
    let path = "crates/tools/client/Cargo.toml";
    let renamed =
        "[dependencies]\nkv = { package = \"oribi-engine\", path = \"../oribi-engine\" }\n";
    assert_one(&findings_in(path, manifest("oribi-client", renamed)), 5, "oribi-engine");
    let target = "[target.'cfg(unix)'.dependencies]\noribi-engine.workspace = true\n";
    assert_one(&findings_in(path, manifest("oribi-client", target)), 5, "oribi-engine");
}

#[test]
fn crates_outside_the_table_are_rejected() {
    let unknown = manifest("oribi-extra", "[dependencies]\n");
    assert_one(&findings_in("crates/oribi-extra/Cargo.toml", unknown), 1, "not in the table");
    assert_one(&findings_in("crates/oribi/Cargo.toml", "not = [toml"), 1, "TOML");
}

#[test]
fn links_have_to_lead_somewhere() {
    let tree = |text: &str| {
        check(&SourceTree::from_files(vec![
            file("docs/page.md", text),
            file("docs/other.md", ""),
            file("README.md", ""),
        ]))
    };
    let sound = "[a](other.md#part) [b](../README.md) [c](https://example.org/x) [d](#here) [e](../docs)\n\
                 `[code](nowhere.md)`\n```\n[block](nowhere.md)\n```\n";
    assert_eq!(tree(sound), []);
    assert_one(&tree("text\n[gone](missing.md)\n"), 2, "missing.md");
    assert_one(&tree("[out](../../etc/passwd)\n"), 1, "leads nowhere");
    assert_one(&tree("![image](images/plot.png \"title\")\n"), 1, "plot.png");
}

#[test]
fn tests_that_documents_name_exist() {
    let tree = |text: &str| {
        check(&SourceTree::from_files(vec![
            file("COMPAT.md", text),
            file("tests/a.rs", "//! Tests.\n\nfn b() {}\n\nfn takes<T>() {}\n"),
            file("tests/steps.py", "LOCKS = step()\n"),
        ]))
    };
    let sound = "| `tests/a.rs::b` | `tests/a.rs::takes`, `tests/steps.py::LOCKS` | `Vec::new` |\n";
    assert_eq!(tree(sound), []);
    assert_one(&tree("x\n`tests/a.rs::bc`\n"), 2, "names no test");
    assert_one(&tree("`tests/a.rs::take`\n"), 1, "names no test");
    assert_one(&tree("`tests/steps.py::WRITES`\n"), 1, "names no test");
    assert_one(&tree("`tests/gone.rs::b`\n"), 1, "no source file");
}

#[test]
fn a_marked_code_block_is_the_file_it_names() {
    let check_block = |block: &str| {
        let page = format!("# Title\n<!-- same as examples/a.py -->\n```python\n{block}```\n");
        check(&SourceTree::from_files(vec![
            file("README.md", page),
            file("examples/a.py", "print(1)\nprint(2)\n"),
        ]))
    };
    assert_eq!(check_block("print(1)\nprint(2)\n"), []);
    assert_one(&check_block("print(1)\n"), 2, "differs");
    assert_one(&findings_in("a.md", "<!-- same as no.py -->\n```\n```\n"), 1, "not a text file");
}

#[test]
fn blocks_of_documents_say_how_they_are_run() {
    let block = |mark: &str, language: &str, text: &str| {
        findings_in("docs/a.md", format!("# Title\n{mark}```{language}\n{text}\n```\n"))
    };
    assert_one(&block("", "toml", "a = 1"), 2, "no mark");
    assert_one(&block("", "", "a figure\noribi top"), 2, "`sh`");
    for (mark, language, text) in [
        ("", "sh", "oribi top"),
        ("", "", "a figure"),
        ("<!-- file: a.toml -->\n", "toml", "a = 1"),
        ("<!-- not run: output -->\n<!-- first: b -->\n", "json", "{}"),
    ] {
        assert_eq!(block(mark, language, text), [], "{language} {text}");
    }
    assert_eq!(findings_in("crates/a/README.md", "```rust\nlet a = 1;\n```\n"), []);
}

#[test]
fn phrases_are_rejected_in_prose_only() {
    let path = "crates/a/src/lib.rs";
    assert_one(&findings_in(path, "//! Header.\n\n// Waits in\n// vain.\n"), 3, "without success");
    assert_eq!(findings_in(path, "//! Header.\n\n// `in vain` in.\n//\n// Vain.\n"), []);
    assert_eq!(findings_in(path, "//! Header.\n\nconst A: &str = \"in vain\";\n"), []);
    assert_one(&findings_in("docs/a.md", "# A\n\nMeanwhile it waits.\n"), 3, "concurrently");
    assert_eq!(findings_in("a.md", "# A\n\n```text\nmeanwhile\n```\n"), []);
}

#[test]
fn participles_are_no_type_names() {
    let path = "crates/a/src/lib.rs";
    assert_one(&findings_in(path, "//! Header.\n\npub(super) struct Shown(u8);\n"), 3, "role");
    assert_one(&findings_in(path, "//! Header.\n\nenum Told {}\n"), 3, "role");
    assert_eq!(findings_in(path, "//! Header.\n\nstruct ShownDocument;\nenum E { Told }\n"), []);
}

#[test]
fn a_public_type_name_is_defined_once() {
    let check = |one: &str, two: &str| {
        check(&SourceTree::from_files(vec![
            file("crates/a/src/lib.rs", format!("//! A.\n\n{one}\n")),
            file("crates/b/src/lib.rs", format!("//! B.\n\n{two}\n")),
        ]))
    };
    let found = check("pub struct Cassowary;", "pub(super) enum Cassowary {}");
    assert_one(&found, 3, "crates/a/src/lib.rs too");
    assert_eq!(found[0].path, "crates/b/src/lib.rs");
    assert_one(&check("pub trait Cassowary {}", "pub type Cassowary = u8;"), 3, "defined in");
    assert_one(
        &check("pub(super) trait Cassowary {}", "pub(in crate::x) struct Cassowary;"),
        3,
        "defined in",
    );
    assert_eq!(check("pub struct Cassowary;", "struct Cassowary;\ntype Rows = u8;"), []);
    assert_eq!(check("pub struct Cassowary;", "// pub struct Cassowary;"), []);
}

#[test]
fn long_names_of_functions_are_rejected() {
    let of_length = |length: usize| format!("//! Header.\n\nfn {}() {{}}\n", "a".repeat(length));
    assert_eq!(findings_in("crates/a/src/lib.rs", of_length(50)), []);
    assert_one(&findings_in("crates/a/src/lib.rs", of_length(51)), 3, "51 characters");
}

#[test]
fn documentation_that_repeats_a_name_is_rejected() {
    let text =
        "//! Header.\n\n/// Its name.\nstruct A;\n/// More than three\n/// words.\nstruct B;\n";
    assert_one(&findings_in("crates/a/src/lib.rs", text), 3, "2 words");
    assert_eq!(findings_in("crates/core/types/src/lib.rs", text), []);
}

#[test]
fn functions_named_by_question_words_are_rejected() {
    let named = |name: &str| format!("//! Header.\n\nfn {name}() {{}}\n");
    assert_one(&findings_in("crates/a/src/tests.rs", named("what_is_lost_is_said")), 3, "what");
    assert_eq!(findings_in("crates/a/src/tests.rs", named("losses_are_reported")), []);
    assert_eq!(findings_in("crates/a/src/tests.rs", named("it")), []);
}

#[test]
fn crates_below_their_assertion_floor_are_rejected() {
    let of = |assertion: &str| {
        let text = format!("//! Header.\n\nfn f() {{{assertion}}}\nfn g(x: [u8; 2]) {{}}\n");
        findings_in("crates/core/engine/src/lib.rs", text)
    };
    assert_one(&of("h();"), 1, "0 assertions in 2 functions");
    assert_eq!(of("assert!(h());"), []);
    assert_one(&of("/* assert!(h()) */"), 1, "less than 50");
}
