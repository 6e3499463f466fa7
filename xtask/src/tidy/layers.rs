//! Rule: crates depend on each other only along the edges of the layer table.
//!
//! The table is the architecture: the engine links no server, the client links no engine, and the
//! test kit stays out of shipped code. Normal, build and target-specific dependencies count as
//! edges of the shipped program; development dependencies have a separate table.

use anyhow::{Context, Result};

use super::finding::Finding;
use super::source_tree::SourceFile;

/// Allowed dependencies of one crate.
struct Layer {
    name: &'static str,
    /// Workspace crates that it may link.
    links: &'static [&'static str],
    /// Workspace crates that its tests may use besides.
    tests_use: &'static [&'static str],
}

/// The layer table, lowest first. A crate that is not listed may not exist.
const LAYERS: [Layer; 25] = [
    Layer { name: "crc-fast", links: &[], tests_use: &[] },
    Layer { name: "oribi-types", links: &[], tests_use: &[] },
    Layer { name: "oribi-supervisor", links: &[], tests_use: &[] },
    Layer { name: "oribi-protocol", links: &["oribi-types"], tests_use: &["oribi-testkit"] },
    Layer { name: "oribi-system", links: &["oribi-types"], tests_use: &[] },
    Layer { name: "oribi-tls", links: &[], tests_use: &[] },
    Layer { name: "oribi-subdoc", links: &[], tests_use: &[] },
    Layer { name: "oribi-replication", links: &["oribi-types"], tests_use: &[] },
    Layer {
        name: "oribi-query",
        links: &["oribi-types", "oribi-subdoc"],
        tests_use: &["oribi-testkit"],
    },
    Layer {
        name: "oribi-storage",
        links: &["oribi-types", "oribi-supervisor"],
        tests_use: &["oribi-testkit"],
    },
    Layer {
        name: "oribi-engine",
        links: &["oribi-types", "oribi-supervisor", "oribi-subdoc", "oribi-storage"],
        tests_use: &["oribi-testkit"],
    },
    Layer { name: "oribi-kudu-derive", links: &[], tests_use: &[] },
    Layer { name: "oribi-kudu", links: &["oribi-kudu-derive"], tests_use: &["oribi-testkit"] },
    Layer {
        name: "oribi-storage-kudu",
        links: &["oribi-types", "oribi-storage", "oribi-kudu"],
        tests_use: &["oribi-testkit"],
    },
    Layer {
        name: "oribi-config",
        // The options of TLS and the URL of Kudu are plain data of their crates.
        links: &["oribi-types", "oribi-system", "oribi-tls", "oribi-storage-kudu"],
        tests_use: &[],
    },
    Layer {
        name: "oribi-auth",
        links: &["oribi-types", "oribi-supervisor", "oribi-system", "oribi-config", "oribi-tls"],
        tests_use: &[],
    },
    Layer {
        name: "oribi-cluster",
        links: &[
            "oribi-types",
            "oribi-supervisor",
            "oribi-config",
            "oribi-system",
            "oribi-tls",
            "oribi-storage",
            "oribi-engine",
            "oribi-replication",
        ],
        tests_use: &["oribi-testkit"],
    },
    Layer {
        name: "oribi-server",
        links: &[
            "oribi-cluster",
            "oribi-types",
            "oribi-supervisor",
            "oribi-auth",
            "oribi-config",
            "oribi-system",
            "oribi-protocol",
            "oribi-subdoc",
            "oribi-tls",
            "oribi-storage",
            "oribi-storage-kudu",
            "oribi-engine",
        ],
        tests_use: &["oribi-testkit"],
    },
    Layer {
        name: "oribi-admin",
        links: &[
            "oribi-types",
            "oribi-supervisor",
            "oribi-auth",
            "oribi-cluster",
            "oribi-config",
            "oribi-system",
            "oribi-protocol",
            "oribi-subdoc",
            "oribi-storage",
            "oribi-engine",
            "oribi-server",
            "oribi-query",
        ],
        tests_use: &["oribi-testkit", "oribi-tls"],
    },
    Layer {
        name: "oribi-client",
        links: &["oribi-types", "oribi-protocol", "oribi-tls"],
        tests_use: &["oribi-testkit"],
    },
    Layer {
        name: "oribi-backup",
        // The token of a change stream is part of an archive's format.
        links: &["oribi-types", "oribi-protocol"],
        tests_use: &[],
    },
    Layer {
        name: "oribi-testkit",
        links: &["oribi-types", "oribi-protocol", "oribi-client", "oribi-tls"],
        tests_use: &[],
    },
    Layer {
        name: "oribi-tools",
        // The protocol's vocabulary is part of the interface of the client's exclusive connection.
        links: &[
            "oribi-types",
            "oribi-supervisor",
            "oribi-system",
            "oribi-protocol",
            "oribi-subdoc",
            "oribi-auth",
            "oribi-server",
            "oribi-tls",
            "oribi-client",
            "oribi-backup",
            "oribi-kudu",
            "oribi-query",
        ],
        tests_use: &[],
    },
    Layer {
        name: "oribi",
        links: &[
            "oribi-supervisor",
            "oribi-system",
            "oribi-auth",
            "oribi-config",
            "oribi-server",
            "oribi-admin",
            "oribi-tools",
        ],
        tests_use: &[
            "oribi-types",
            "oribi-protocol",
            "oribi-client",
            "oribi-kudu",
            "oribi-testkit",
            "oribi-tls",
        ],
    },
    Layer { name: "xtask", links: &[], tests_use: &["oribi-testkit"] },
];

/// Checks the manifests of workspace members; the root manifest and crates outside the workspace
/// are free.
pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let is_member = file.path.starts_with("crates/") || file.path == "xtask/Cargo.toml";
    if !is_member {
        return;
    }
    if let Err(error) = check_manifest(file, findings) {
        findings.push(Finding::new(&file.path, 1, format!("{error:#}")));
    }
}

fn check_manifest(file: &SourceFile, findings: &mut Vec<Finding>) -> Result<()> {
    let manifest: toml::Table = file.text.parse().context("is not valid TOML")?;
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(toml::Value::as_str)
        .context("has no package name")?;
    let layer = LAYERS
        .iter()
        .find(|layer| layer.name == name)
        .with_context(|| format!("crate {name} is not in the table of xtask/src/tidy/layers.rs"))?;
    check_sections(file, layer, &manifest, findings);
    for target in manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten() {
        if let Some(sections) = target.1.as_table() {
            check_sections(file, layer, sections, findings);
        }
    }
    Ok(())
}

fn check_sections(
    file: &SourceFile,
    layer: &Layer,
    sections: &toml::Table,
    findings: &mut Vec<Finding>,
) {
    for (section, for_tests) in
        [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        let Some(dependencies) = sections.get(section).and_then(toml::Value::as_table) else {
            continue;
        };
        for (key, value) in dependencies {
            // A dependency may be renamed; the package name is what counts.
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
            let in_workspace = LAYERS.iter().any(|other| other.name == package);
            let allowed =
                layer.links.contains(&package) || (for_tests && layer.tests_use.contains(&package));
            if in_workspace && !allowed {
                let message =
                    format!("[{section}] {} -> {package} is not an allowed edge", layer.name);
                findings.push(Finding::new(&file.path, line_of(&file.text, key), message));
            }
        }
    }
}

/// Line on which a dependency is declared; good enough to jump to.
fn line_of(text: &str, key: &str) -> usize {
    text.lines().position(|line| line.trim_start().starts_with(key)).map_or(1, |index| index + 1)
}
