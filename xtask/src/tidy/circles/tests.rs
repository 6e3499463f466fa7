//! Circles are found however the name is written, and what is no import makes none.

use super::super::finding::Finding;
use super::super::source_tree::{SourceFile, SourceTree};
use super::check;

/// Findings in a crate of the given files, whose paths are relative to `src/`.
fn findings(files: &[(&str, &str)]) -> Vec<Finding> {
    let file = |(path, text): &(&str, &str)| SourceFile {
        path: format!("crates/a/src/{path}"),
        text: (*text).to_owned(),
    };
    let mut findings = Vec::new();
    check(&SourceTree::from_files(files.iter().map(file).collect()), &mut findings);
    findings
}

/// Findings where `high.rs` imports `low.rs`, which holds `low`.
fn findings_below(low: &str) -> Vec<Finding> {
    findings(&[
        ("lib.rs", "mod high;\nmod low;\n"),
        ("high.rs", "use crate::low::Low;\npub struct High(Low);\npub fn high() {}\n"),
        ("high/part.rs", "pub struct Part;\n"),
        ("low.rs", low),
    ])
}

#[track_caller]
fn assert_circle(low: &str, name: &str) {
    let found = findings_below(low);
    assert_eq!(found.len(), 1, "{low}: {found:?}");
    let wanted = format!("import circle: high.rs -> low.rs: Low; low.rs -> high.rs: {name}");
    assert_eq!(found[0].message, wanted);
    assert_eq!((found[0].path.as_str(), found[0].line), ("crates/a/src/high.rs", 1));
}

#[track_caller]
fn assert_none(low: &str) {
    assert_eq!(findings_below(low), [], "{low}");
}

// Invariant: Modules of one crate do not import each other in a circle.
#[test]
fn a_circle_of_two_files_is_found_in_every_form() {
    assert_circle("use crate::high::High;\npub struct Low;\n", "High");
    assert_circle("use super::high::{self, High as Upper};\npub struct Low;\n", "High");
    assert_circle("use crate::{high::{High, high}, low};\npub struct Low;\n", "High, high");
    assert_circle("use self::super::high;\npub fn low() { high::high(); }\n", "high");
    assert_circle("pub struct Low;\nfn low() { crate::high::high() }\n", "high");
    assert_circle("pub struct Low;\nfn low() { use super::high::High; }\n", "High");
    assert_circle("pub struct Low(super::high::High);\n", "High");
    assert_circle("pub fn low() { super::high::High::default(); }\n", "High");
    assert_circle(
        "pub fn low() { assert!(format!(\"{}\", crate::high::high()) == \"\"); }\n",
        "high",
    );
    assert_circle("use crate::high::*;\npub struct Low;\n", "*");
    assert_circle("macro_rules! low { () => { $crate::high::high() } }\npub struct Low;\n", "high");
    assert_circle("mod inner { use super::super::high::High; }\npub struct Low;\n", "High");
    assert_circle("#[cfg(feature = \"x\")]\nuse super::high::High;\npub struct Low;\n", "High");
}

#[test]
fn a_re_export_that_its_own_file_uses_is_an_import() {
    assert_circle("pub use crate::high::High;\npub struct Low(High);\n", "High");
}

#[test]
fn a_re_export_makes_a_circle_of_modules() {
    let circle = "circle of modules: high.rs -> low.rs: Low; low.rs -> high.rs: ";
    let found = findings_below("pub use crate::high::High;\npub struct Low;\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].message, format!("{circle}High"));
    let found =
        findings_below("pub(crate) use crate::high::{High, high};\nstruct Low { high: u8 }\n");
    assert_eq!(found[0].message, format!("{circle}High, high"));
    // The root may re-export what it likes.
    let root = "mod low;\npub use low::Low;\npub struct Root;\n";
    assert_eq!(findings(&[("lib.rs", root), ("low.rs", "pub struct Low(crate::Root);\n")]), []);
}

#[test]
fn parts_of_modules_make_a_circle_of_modules() {
    let found = findings(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        ("a.rs", "pub(crate) mod one;\npub(crate) mod two;\n"),
        ("a/one.rs", "use crate::b::three::Three;\npub struct One(Three);\n"),
        ("a/two.rs", "pub struct Two;\n"),
        ("b.rs", "pub(crate) mod three;\npub(crate) mod four;\n"),
        ("b/three.rs", "pub struct Three;\n"),
        ("b/four.rs", "use crate::a::two::Two;\npub struct Four(Two);\n"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    let circle = "circle of modules: a.rs -> b.rs: Three; b.rs -> a.rs: Two";
    assert_eq!(found[0].message, circle);
}

#[test]
fn other_paths_make_no_circle() {
    assert_none("// use crate::high::High;\npub struct Low;\n");
    assert_none("/* crate::high::High */ pub const LOW: &str = \"crate::high::High\";\n");
    assert_none("use other::high::High;\nuse ::high::High as Other;\npub struct Low;\n");
    assert_none("pub(in crate::high) struct Low;\n");
    assert_none(
        "pub struct Low;\nfn high() {}\nfn low<'crate_>() { Self::high::<u8>(); high() }\n",
    );
}

#[test]
fn test_code_is_left_out() {
    assert_none("pub struct Low;\n#[cfg(test)]\nmod tests {\n use crate::high::High;\n}\n");
    assert_none("#[cfg(test)]\nuse crate::high::{High, high};\npub struct Low;\n");
    assert_none("pub struct Low { #[cfg(test)] pub(crate) high: crate::high::High, low: u8 }\n");
    assert_none(
        "#[cfg(test)]\n#[allow(x)]\npub(crate) fn low<A, B>(a: [A; 2]) -> B { crate::high::high() }\n",
    );
    assert_none(
        "fn low() {\n #[cfg(all(test, unix))]\n let x = { crate::high::High };\n f(x);\n}\n",
    );
    assert_none("#[cfg(test)]\nconst X: [u8; 1] = [crate::high::X];\npub struct Low;\n");
    // What stands behind the test code counts again.
    assert_circle("#[cfg(test)]\nmod tests;\nuse super::high::High;\n", "High");
    assert_circle("struct Low { #[cfg(test)] a: u8, b: super::high::High }\n", "High");
    assert_circle("#[cfg(any(test, unix))]\nuse super::high::High;\npub struct Low;\n", "High");
}

#[test]
fn a_file_that_only_tests_declare_is_left_out() {
    let root = "#[cfg(test)]\nmod tests;\npub struct Root;\n#[cfg(test)]\nuse tests::Test;\n";
    assert_eq!(findings(&[("lib.rs", root), ("tests.rs", "use super::Root;\nstruct Test;")]), []);
    let root = "mod tests;\npub struct Root;\nuse tests::Test;\n";
    let found = findings(&[("lib.rs", root), ("tests.rs", "use super::Root;\nstruct Test;")]);
    assert_eq!(found.len(), 1, "a module of that name that is shipped counts");
}

#[test]
fn a_circle_of_three_is_reported_as_its_shortest_loop() {
    let found = findings(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n"),
        ("a.rs", "//! A.\n\nuse crate::b::B;\nuse crate::d::D;\npub struct A;\n"),
        ("b.rs", "use crate::c::{C, c};\npub struct B;\n"),
        ("c.rs", "use crate::a::A;\npub struct C;\npub fn c() {}\n"),
        ("d.rs", "use crate::b::B;\npub struct D;\n"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    let loops = "import circle: a.rs -> b.rs: B; b.rs -> c.rs: C, c; c.rs -> a.rs: A";
    assert_eq!((found[0].message.as_str(), found[0].line), (loops, 3));
}

#[test]
fn a_name_counts_for_the_file_that_defines_it() {
    let below = |part: &str| {
        findings(&[
            ("lib.rs", "mod high;\nmod low;\npub use high::Part as Piece;\n"),
            ("high.rs", "mod part;\npub use part::Part;\nuse crate::low::Low;\npub struct High;\n"),
            ("high/part.rs", part),
            ("low.rs", "use crate::{high::Part, Piece};\npub struct Low;\n"),
        ])
    };
    let found = below("pub struct Part;\n");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].message.starts_with("circle of modules: high.rs"), "{found:?}");
    let found = below("use crate::low::Low;\npub struct Part(Low);\n");
    assert_eq!(found.len(), 1, "{found:?}");
    let wanted = "import circle: high/part.rs -> low.rs: Low; low.rs -> high/part.rs: Part, Piece";
    assert_eq!(found[0].message, wanted);
}

#[test]
fn a_parent_and_its_part_do_not_use_each_other() {
    let with = |parent: &str| {
        findings(&[
            ("main.rs", parent),
            ("part.rs", "use super::Shared;\npub fn run(_: Shared) {}\n"),
        ])
    };
    assert_eq!(with("mod part;\npub struct Shared;\npub use part::run;\n"), []);
    assert_eq!(with("mod part;\npub struct Shared;\nfn f() { part::run(Shared) }\n").len(), 1);
}

#[test]
fn each_root_is_a_crate_of_its_own() {
    let files = [
        ("lib.rs", "pub struct A;\n"),
        ("bin/b.rs", "mod c;\nfn b() { c::f() }\n"),
        ("bin/c.rs", "use crate::b;\npub fn f() {}\n"),
    ];
    assert_eq!(findings(&files).len(), 1);
}
