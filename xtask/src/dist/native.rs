//! deb and rpm, by `cargo-deb` and `cargo-generate-rpm`.
//!
//! Owns: how the two are called, and Debian's changelog. What is in a package stands in
//! `crates/oribi/Cargo.toml`; both read the staged tree of the dynamic link.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::build::cargo;
use super::options::{DistOptions, LinkKind, PackageKind};
use super::release::{Release, rfc5322};

/// The versions that CI installs.
const DEB: (&str, &str) = ("cargo-deb", "3.8.0");
const RPM: (&str, &str) = ("cargo-generate-rpm", "0.21.1");

/// Where `crates/oribi/Cargo.toml` expects Debian's changelog.
const DEBIAN_CHANGELOG: &str = "target/packages/stage/debian-changelog";
/// As `crates/oribi/Cargo.toml` has it.
const MAINTAINER: &str = "The Oribi maintainers <maintainers@oribi.invalid>";

/// Writes the wanted packages of the staged tree to `out`.
pub(super) fn write(
    root: &Path,
    stage: &Path,
    out: &Path,
    release: &Release,
    options: &DistOptions,
) -> Result<()> {
    let time = release.time_s.to_string();
    if options.wants(PackageKind::Deb) {
        let place = root.join(DEBIAN_CHANGELOG);
        fs::write(&place, debian_changelog(release))
            .with_context(|| format!("cannot write {}", place.display()))?;
        let mut command = Command::new(cargo());
        command
            .args(["deb", "--no-build", "--no-strip", "--quiet", "-p", "oribi"])
            .args(["--target", &release.target])
            .arg("--output")
            .arg(out);
        if options.is_check() {
            command.args(["--fast", "-Z", "gz"]);
        }
        run(command, root, &time, DEB)?;
    }
    if options.wants(PackageKind::Rpm) {
        let mut command = Command::new(cargo());
        command
            .args(["generate-rpm", "--package", "crates/oribi", "--auto-req", "builtin"])
            .args(["--target", &release.target, "--source-date", &time])
            .arg("--output")
            .arg(out.join(format!("{}.rpm", release.package_name(LinkKind::Dynamic))));
        if options.is_check() {
            command.args(["--payload-compress", "none"]);
        }
        run(command, root, &time, RPM)?;
    }
    debug_assert!(stage.exists(), "Cargo.toml names files of the stage");
    Ok(())
}

/// The one entry of this version; what changed stands in the changelog that the package also has.
fn debian_changelog(release: &Release) -> String {
    let Release { version, time_s, .. } = release;
    let date = rfc5322(*time_s);
    format!(
        "oribi ({version}-1) stable; urgency=medium\n\n  * Version {version}; CHANGELOG.md has \
         the notes.\n\n -- {MAINTAINER}  {date}\n"
    )
}

fn run(mut command: Command, root: &Path, time: &str, tool: (&str, &str)) -> Result<()> {
    let (name, version) = tool;
    let how = || format!("cargo install {name} --version {version} --locked");
    let status = command
        .current_dir(root)
        .env("SOURCE_DATE_EPOCH", time)
        // The name of the file, which stands in the checksums.
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {name}; {} installs it", how()))?;
    if !status.success() {
        bail!("{name} failed; if cargo does not know it, {} installs it", how());
    }
    Ok(())
}
