//! deb and rpm, by `cargo-deb` and `cargo-generate-rpm`.
//!
//! Owns: how the two are called. What is in a package stands in `crates/oribi/Cargo.toml`; both
//! read the staged tree of the dynamic link.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::cargo;
use super::options::{Kind, Link, Options};
use super::release::Release;

/// The versions that CI installs.
const DEB: (&str, &str) = ("cargo-deb", "3.8.0");
const RPM: (&str, &str) = ("cargo-generate-rpm", "0.21.1");

/// Writes the wanted packages of the staged tree to `out`.
pub(super) fn write(
    root: &Path,
    stage: &Path,
    out: &Path,
    release: &Release,
    options: &Options,
) -> Result<()> {
    let time = release.time_s.to_string();
    if options.wants(Kind::Deb) {
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
    if options.wants(Kind::Rpm) {
        let mut command = Command::new(cargo());
        command
            .args(["generate-rpm", "--package", "crates/oribi", "--auto-req", "builtin"])
            .args(["--target", &release.target, "--source-date", &time])
            .arg("--output")
            .arg(out.join(format!("{}.rpm", release.package_name(Link::Dynamic))));
        if options.is_check() {
            command.args(["--payload-compress", "none"]);
        }
        run(command, root, &time, RPM)?;
    }
    debug_assert!(stage.exists(), "Cargo.toml names files of the stage");
    Ok(())
}

fn run(mut command: Command, root: &Path, time: &str, tool: (&str, &str)) -> Result<()> {
    let (name, version) = tool;
    let how = || format!("cargo install {name} --version {version} --locked");
    let status = command
        .current_dir(root)
        .env("SOURCE_DATE_EPOCH", time)
        .status()
        .with_context(|| format!("cannot run {name}; {} installs it", how()))?;
    if !status.success() {
        bail!("{name} failed; if cargo does not know it, {} installs it", how());
    }
    Ok(())
}
