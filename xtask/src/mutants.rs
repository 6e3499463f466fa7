//! `cargo xtask mutants`: each mutant of the lists in `crates/**/mutants.toml` must fail its test.
//!
//! Owns: the lists' format, and a copy of the work tree below `target/mutants` with a separate
//! target directory. For one mutant at a time it applies the edits to the copy, builds the library
//! tests of the crate, or of `package`, and runs the named ones, which must fail. A mutant that
//! does not build is an error of its list. A test that hangs counts as failed. First the same tests
//! must pass without a mutant. The task only reads the work tree itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

/// Help for the list of tasks.
pub(crate) const USAGE: &str = "\
  mutants [--list] [NAME]...
         applies each mutant of crates/**/mutants.toml to a copy of the tree; its test must fail";

/// Seeds of the simulation in which a mutant has to show.
const SEEDS: &str = "300";
/// A test that runs longer with a mutant hangs.
const RUN_MAX: Duration = Duration::from_secs(600);

struct Mutant {
    crate_directory: PathBuf,
    package: String,
    name: String,
    test: String,
    edits: Vec<Edit>,
}

/// Replaces a text that stands once in a file of the crate.
struct Edit {
    file: String,
    find: String,
    replace: String,
}

enum Verdict {
    Passed,
    Failed,
    Hung,
    DoesNotBuild,
}

/// Runs all mutants, or those whose names are given.
pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let mut names: Vec<String> = arguments.collect();
    let is_list = names.first().is_some_and(|name| name == "--list");
    if is_list {
        names.remove(0);
    }
    let mut mutants = read_lists(root)?;
    if let Some(unknown) = names.iter().find(|name| mutants.iter().all(|it| it.name != **name)) {
        bail!("no mutant has the name {unknown:?}\n\n{USAGE}");
    }
    mutants.retain(|mutant| names.is_empty() || names.contains(&mutant.name));
    if is_list {
        mutants.iter().for_each(|it| println!("{:<18} {:<36} {}", it.package, it.name, it.test));
        return Ok(ExitCode::SUCCESS);
    }
    let tree = root.join("target/mutants/tree");
    copy_tree(root, &tree)?;
    let mut tests: Vec<_> = mutants.iter().map(|it| (&it.package, &it.test)).collect();
    tests.sort();
    tests.dedup();
    for (package, test) in tests {
        let verdict = verdict(&tree, package, test, false)?;
        ensure!(matches!(verdict, Verdict::Passed), "{test} of {package} fails without a mutant");
    }
    let mut unnoticed = 0;
    for mutant in &mutants {
        let begun = Instant::now();
        let verdict = mutant.run(&tree)?;
        let text = match verdict {
            Verdict::Failed => "found",
            Verdict::Hung => "found: the test hangs",
            Verdict::Passed => "NOT FOUND",
            Verdict::DoesNotBuild => "DOES NOT BUILD",
        };
        unnoticed += usize::from(matches!(verdict, Verdict::Passed | Verdict::DoesNotBuild));
        let seconds = begun.elapsed().as_secs();
        println!("{:<18} {:<36} {seconds:>4} s  {text}", mutant.package, mutant.name);
    }
    println!("{} mutants, {unnoticed} not found", mutants.len());
    Ok(if unnoticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Mutant {
    /// Applies the edits to the copy, runs the test, and takes the edits back.
    fn run(&self, tree: &Path) -> Result<Verdict> {
        let mut originals = Vec::new();
        for edit in &self.edits {
            let path = tree.join(&self.crate_directory).join(&edit.file);
            let text = fs::read_to_string(&path)?;
            let mutated = edit.applied_to(&text).with_context(|| self.name.clone())?;
            fs::write(&path, mutated)?;
            originals.push((path, text));
        }
        let verdict = verdict(tree, &self.package, &self.test, true);
        for (path, text) in originals.into_iter().rev() {
            fs::write(path, text)?;
        }
        verdict
    }
}

impl Edit {
    fn applied_to(&self, text: &str) -> Result<String> {
        let count = text.matches(&self.find).count();
        ensure!(count == 1, "{} has this text {count} times:\n{}", self.file, self.find);
        Ok(text.replacen(&self.find, &self.replace, 1))
    }
}

fn read_lists(root: &Path) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for family in fs::read_dir(root.join("crates"))? {
        let family = family?.path();
        let members = if family.is_dir() { fs::read_dir(&family)?.collect() } else { Vec::new() };
        let directories = members.into_iter().flatten().map(|entry| entry.path());
        for directory in directories.chain([family]) {
            let list = directory.join("mutants.toml");
            if list.is_file() {
                let read = read_list(root, &directory);
                mutants.extend(read.with_context(|| list.display().to_string())?);
            }
        }
    }
    ensure!(!mutants.is_empty(), "no crate has a mutants.toml");
    Ok(mutants)
}

fn read_list(root: &Path, directory: &Path) -> Result<Vec<Mutant>> {
    let manifest: Table = fs::read_to_string(directory.join("Cargo.toml"))?.parse()?;
    let package = manifest.get("package").and_then(|package| package.get("name"));
    let package = package.and_then(Value::as_str).context("Cargo.toml names no package")?;
    let list: Table = fs::read_to_string(directory.join("mutants.toml"))?.parse()?;
    let mutant = |value: &Value| {
        let edits = array(value, "edit")?.iter().map(|edit| {
            let [file, find, replace] = ["file", "find", "replace"].map(|key| text(edit, key));
            Ok(Edit { file: file?, find: find?, replace: replace? })
        });
        Ok(Mutant {
            crate_directory: directory.strip_prefix(root)?.to_owned(),
            package: text(value, "package").unwrap_or_else(|_| package.to_owned()),
            name: text(value, "name")?,
            test: text(value, "test")?,
            edits: edits.collect::<Result<_>>()?,
        })
    };
    array(&Value::Table(list), "mutant")?.iter().map(mutant).collect()
}

fn array<'v>(value: &'v Value, key: &str) -> Result<&'v Vec<Value>> {
    value.get(key).and_then(Value::as_array).with_context(|| format!("{key} is missing"))
}

fn text(value: &Value, key: &str) -> Result<String> {
    let text = value.get(key).and_then(Value::as_str);
    Ok(text.with_context(|| format!("{key} is missing"))?.to_owned())
}

/// Copies the files that git knows or would add. A file that is equal keeps its time, so that cargo
/// builds only what changed since the last run.
fn copy_tree(root: &Path, tree: &Path) -> Result<()> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output()?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    for name in String::from_utf8(output.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), tree.join(name));
        if !from.is_file() {
            continue;
        }
        let bytes = fs::read(&from)?;
        if fs::read(&to).ok().as_ref() == Some(&bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        fs::write(&to, bytes)?;
    }
    Ok(())
}

/// Builds the tests and runs the named ones.
fn verdict(tree: &Path, package: &str, test: &str, is_mutant: bool) -> Result<Verdict> {
    let cargo = |no_run: bool| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["test", "--quiet", "-p", package, "--lib"]).args(no_run.then_some("--no-run"));
        cargo.arg(test).current_dir(tree).stdout(Stdio::null());
        cargo.stderr(if is_mutant { Stdio::null() } else { Stdio::inherit() });
        cargo.env("CARGO_TARGET_DIR", tree.with_file_name("build")).env("CARGO_INCREMENTAL", "1");
        if is_mutant {
            cargo.env("ORIBI_SIMULATION_SEEDS", SEEDS);
        }
        cargo
    };
    if !cargo(true).status().context("cannot run cargo")?.success() {
        return Ok(Verdict::DoesNotBuild);
    }
    let (mut child, begun) = (cargo(false).spawn()?, Instant::now());
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(Verdict::Passed),
            Some(_) => return Ok(Verdict::Failed),
            None if begun.elapsed() > RUN_MAX => {
                child.kill()?;
                child.wait()?;
                return Ok(Verdict::Hung);
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
