//! The bill of materials: every crate that is linked into the programs, as CycloneDX 1.5 in JSON.
//!
//! The format: <https://cyclonedx.org/docs/1.5/json/>. It has no serial number, which would differ
//! from run to run.

use anyhow::Result;
use serde_json::{Value, json};

use super::crate_graph::{CrateGraph, LinkedCrate};
use super::release::{Release, rfc3339};

pub(super) fn cyclone_dx(graph: &CrateGraph, release: &Release) -> Result<String> {
    let foreign = graph.crates.iter().filter(|(id, _)| **id != graph.root);
    let components: Vec<Value> =
        foreign.map(|(id, described)| component(id, described, "library")).collect();
    let edges: Vec<Value> = graph
        .crates
        .iter()
        .map(|(id, described)| json!({"ref": id, "dependsOn": described.dependencies}))
        .collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": rfc3339(release.time_s),
            "component": component(&graph.root, &graph.crates[&graph.root], "application"),
            "properties": [{"name": "oribi:target", "value": release.target}],
        },
        "components": components,
        "dependencies": edges,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn component(id: &str, described: &LinkedCrate, kind: &str) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": id,
        "name": described.name,
        "version": described.version,
        "purl": id,
    });
    if let Some(license) = &described.license {
        // Older crates separate alternatives by a slash.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    if let Some(checksum) = &described.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if !described.is_foreign {
        component["scope"] = json!("required");
    }
    component
}
