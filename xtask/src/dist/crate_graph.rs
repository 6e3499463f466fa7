//! The crates that are linked into `oribi`, as `cargo metadata` tells them.
//!
//! Owns: the walk from the binary over normal and build dependencies of one target, and which of
//! these crates have code in the binary: build scripts and macros do not. Development dependencies
//! and what only other members of the workspace ask for are left out, as `cargo tree` tells.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::build::cargo;

/// The crate whose dependencies count.
const BINARY: &str = "oribi";

/// One crate of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkedCrate {
    pub name: String,
    pub version: String,
    /// An SPDX expression, where the crate names one.
    pub license: Option<String>,
    /// Whether it comes from the registry, and not from this workspace.
    pub is_foreign: bool,
    /// SHA-256 of its archive in the registry.
    pub checksum: Option<String>,
    /// Ids of the crates that it links.
    pub dependencies: BTreeSet<String>,
    /// Whether its code is in the binary, and not only in what builds it.
    pub in_binary: bool,
    pub directory: PathBuf,
}

/// Crates by id, the binary among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CrateGraph {
    pub root: String,
    pub crates: BTreeMap<String, LinkedCrate>,
}

impl CrateGraph {
    /// Reads the graph of the workspace at `root` for a target.
    pub fn read(root: &Path, target: &str) -> Result<CrateGraph> {
        let output = Command::new(cargo())
            .current_dir(root)
            .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target])
            .output()
            .context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let lock: toml::Table = std::fs::read_to_string(root.join("Cargo.lock"))?.parse()?;
        let sets = Sets {
            needed: tree(root, target, "normal,build")?,
            in_binary: tree(root, target, "normal,no-proc-macro")?,
        };
        CrateGraph::of(&serde_json::from_slice(&output.stdout)?, &checksums(&lock), &sets)
    }

    fn of(
        metadata: &Value,
        checksums: &BTreeMap<(String, String), String>,
        sets: &Sets,
    ) -> Result<CrateGraph> {
        let packages = list(metadata, "packages")?;
        let nodes = list(&metadata["resolve"], "nodes")?;
        let root = packages
            .iter()
            .find(|package| package["name"] == BINARY && package["source"].is_null())
            .and_then(|package| package["id"].as_str())
            .context("cargo metadata names no crate oribi")?;
        let mut graph = CrateGraph { root: readable(packages, root)?, crates: BTreeMap::new() };
        let mut pending = vec![root];
        let mut seen = BTreeSet::from([root]);
        while let Some(id) = pending.pop() {
            let node = nodes.iter().find(|node| node["id"] == id);
            let node = node.with_context(|| format!("cargo metadata resolves no {id}"))?;
            let mut linked = Vec::new();
            for edge in list(node, "deps")?.iter().filter(|edge| is_linked(edge)) {
                if sets.needed.contains(&identity(find(packages, id_of(edge))?)?) {
                    linked.push(id_of(edge));
                }
            }
            let package = find(packages, id)?;
            let key = identity(package)?;
            let dependencies = linked.iter().map(|id| readable(packages, id));
            let manifest = PathBuf::from(text(package, "manifest_path")?);
            let described = LinkedCrate {
                checksum: checksums.get(&key).cloned(),
                license: package["license"].as_str().map(str::to_owned),
                is_foreign: !package["source"].is_null(),
                dependencies: dependencies.collect::<Result<_>>()?,
                in_binary: sets.in_binary.contains(&key),
                directory: manifest.parent().map(Path::to_owned).unwrap_or_default(),
                name: key.0,
                version: key.1,
            };
            graph.crates.insert(readable(packages, id)?, described);
            pending.extend(linked.into_iter().filter(|id| seen.insert(id)));
        }
        Ok(graph)
    }
}

type Identity = (String, String);

/// Facts that `cargo metadata` lacks, because it resolves the whole workspace at once.
struct Sets {
    /// Crates that a build of the binary needs.
    needed: BTreeSet<Identity>,
    /// Crates with code in it.
    in_binary: BTreeSet<Identity>,
}

/// The crates that `cargo tree` reaches from the binary over some kinds of edges.
fn tree(root: &Path, target: &str, edges: &str) -> Result<BTreeSet<Identity>> {
    let output = Command::new(cargo())
        .current_dir(root)
        .args(["tree", "--locked", "--package", BINARY, "--target", target, "--edges", edges])
        .args(["--prefix", "none", "--format", "{p}"])
        .output()
        .context("cannot run cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let lines = String::from_utf8(output.stdout)?;
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some((name.to_owned(), version.to_owned()))
    };
    let crates = lines.lines().filter(|line| !line.is_empty()).map(|line| {
        parse(line).with_context(|| format!("cargo tree prints {line:?}, which is no crate"))
    });
    crates.collect()
}

/// Whether an edge is a normal or build dependency.
fn is_linked(edge: &Value) -> bool {
    let kinds = edge["dep_kinds"].as_array();
    kinds.into_iter().flatten().any(|kind| kind["kind"] != "dev")
}

fn identity(package: &Value) -> Result<Identity> {
    Ok((text(package, "name")?, text(package, "version")?))
}

/// Digests of the lock file, by name and version.
fn checksums(lock: &toml::Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key| package.get(key)?.as_str().map(str::to_owned);
    let entry = |package| {
        Some(((text(package, "name")?, text(package, "version")?), text(package, "checksum")?))
    };
    packages.into_iter().flatten().filter_map(entry).collect()
}

fn id_of(edge: &Value) -> &str {
    edge["pkg"].as_str().unwrap_or_default()
}

/// A package URL, which has no path of this machine as cargo's id has.
fn readable(packages: &[Value], id: &str) -> Result<String> {
    let package = find(packages, id)?;
    Ok(format!("pkg:cargo/{}@{}", text(package, "name")?, text(package, "version")?))
}

fn find<'a>(packages: &'a [Value], id: &str) -> Result<&'a Value> {
    let found = packages.iter().find(|package| package["id"] == id);
    found.with_context(|| format!("cargo metadata describes no {id}"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no list {key}"))
}

fn text(value: &Value, key: &str) -> Result<String> {
    let text = value[key].as_str().map(str::to_owned);
    text.with_context(|| format!("cargo metadata has a package without {key}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn test_and_member_only_crates_are_omitted() {
        let package = |name: &str, source: Value| {
            json!({
                "id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT",
                "manifest_path": format!("/sources/{name}/Cargo.toml"),
            })
        };
        let edge = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("oribi", Value::Null),
                package("linked", json!("registry")),
                package("builds", json!("registry")),
                package("tests", json!("registry")),
                package("unified", json!("registry")),
            ],
            "resolve": {"nodes": [
                {"id": "oribi", "deps": [
                    edge("linked", Value::Null), edge("builds", json!("build")), edge("tests", json!("dev")),
                ]},
                {"id": "linked", "deps": [edge("builds", Value::Null), edge("unified", Value::Null)]},
                {"id": "builds", "deps": []},
                {"id": "tests", "deps": []},
                {"id": "unified", "deps": []},
            ]},
        });
        let sums = BTreeMap::from([(("linked".into(), "1.0.0".into()), "ab".to_owned())]);
        let set = |names: &[&str]| {
            names.iter().map(|name| ((*name).to_owned(), "1.0.0".to_owned())).collect()
        };
        let sets = Sets {
            needed: set(&["oribi", "linked", "builds"]),
            in_binary: set(&["oribi", "linked"]),
        };
        let graph = CrateGraph::of(&metadata, &sums, &sets).unwrap();
        let names: Vec<&str> = graph.crates.values().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["builds", "linked", "oribi"]);
        let linked = graph.crates.values().filter(|found| found.in_binary);
        let linked: Vec<&str> = linked.map(|found| found.name.as_str()).collect();
        assert_eq!(linked, ["linked", "oribi"], "macros and build scripts leave no code behind");
        assert_eq!(graph.crates["pkg:cargo/linked@1.0.0"].checksum.as_deref(), Some("ab"));
        assert!(!graph.crates[&graph.root].is_foreign);
    }
}
