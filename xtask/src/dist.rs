//! `cargo xtask dist`: the packages of a release.
//!
//! Owns: the order (build, stage, pack, sum up) and the options; each kind of package is a module.
//! Invariants: what is packed depends on the sources, the toolchain and `SOURCE_DATE_EPOCH` (by
//! default the time of the commit), never on the clock, the user or the directory, so two runs give
//! equal digests. CI runs the same code with a faster profile and binaries that it has anyway.

mod build;
mod checksums;
mod crate_graph;
mod image;
mod native;
mod notes;
mod options;
mod release;
mod sbom;
mod stage;
mod tarball;
mod third_party;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use flate2::Compression;

pub(crate) use options::USAGE;
use options::{DistOptions, LinkKind, PackageKind};
use release::Release;

/// Builds and packs what the arguments ask for.
pub(crate) fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let options = DistOptions::parse(arguments)?;
    let release = Release {
        version: build::version(root)?,
        target: options.target.clone(),
        time_s: build::source_date(root)?,
        compression: if options.is_check() { Compression::fast() } else { Compression::best() },
    };
    let out = root.join(&options.out);
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let graph = crate_graph::CrateGraph::read(root, &release.target)?;
    let third_party = third_party::of(root, &graph)?;
    let mut staged = Vec::new();
    for link in options.links() {
        let binaries = match options.binaries(link) {
            Some(path) => PathBuf::from(path),
            None => build::build(root, &options, link)?,
        };
        staged.push((link, stage::stage(root, link, &binaries, &options, &third_party)?));
    }
    for (link, stage) in &staged {
        if options.wants(PackageKind::Tarball) {
            tarball::write_package(stage, &out, &release.package_name(*link), &release)?;
        }
        if *link == LinkKind::Static && options.wants(PackageKind::Image) {
            image::write(stage, &out, &release)?;
        }
        if *link == LinkKind::Dynamic {
            native::write(root, stage, &out, &release, &options)?;
        }
    }
    if options.wants(PackageKind::Sbom) {
        let path = out.join(format!("oribi-{}-{}.cdx.json", release.version, release.target));
        fs::write(&path, sbom::cyclone_dx(&graph, &release)?)?;
    }
    if options.wants(PackageKind::Notes) {
        let changelog = fs::read_to_string(root.join("CHANGELOG.md"))?;
        fs::write(out.join("RELEASE_NOTES.md"), notes::of(&changelog, &release.version)?)?;
    }
    for line in checksums::write(&out)? {
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}
