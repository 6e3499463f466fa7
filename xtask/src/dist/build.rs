//! The recipe of release binaries: flags, environment, and facts about the sources.
//!
//! Invariants: no path of this machine gets into a binary. How the C library is linked is a flag of
//! the last crate alone, so all binaries share every other compiled crate.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::options::{DistOptions, LinkKind};

/// The programs of a package. The first executes the second, which is next to it.
pub(super) const PROGRAMS: [&str; 2] = ["oribi", "oribi-tools"];

/// Builds [`PROGRAMS`] and returns the directory that has them.
pub(super) fn build(root: &Path, options: &DistOptions, link: LinkKind) -> Result<PathBuf> {
    // Separate, so that its flags do not make the usual target directory build everything anew.
    let target_dir = root.join("target/packages/build");
    // The other link is built to the same place.
    let kept = target_dir.join(link.name());
    std::fs::create_dir_all(&kept).with_context(|| format!("cannot create {}", kept.display()))?;
    for program in PROGRAMS {
        build_program(root, &target_dir, options, link, program)?;
        let built = target_dir.join(&options.target).join(profile_dir(&options.profile));
        std::fs::copy(built.join(program), kept.join(program))
            .with_context(|| format!("cannot copy {program} from {}", built.display()))?;
    }
    Ok(kept)
}

fn build_program(
    root: &Path,
    target_dir: &Path,
    options: &DistOptions,
    link: LinkKind,
    program: &str,
) -> Result<()> {
    let mut command = Command::new(cargo());
    command
        .current_dir(root)
        .args(["rustc", "--locked", "-p", "oribi", "--bin", program, "--profile", &options.profile])
        .args(["--target", &options.target])
        .arg("--target-dir")
        .arg(target_dir)
        // C code that names its date. Not the commit's: that would compile C anew for each commit.
        .env("SOURCE_DATE_EPOCH", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CFLAGS", c_flags(root)?)
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(root)?.join("\u{1f}"));
    if let Some(jobs) = &options.jobs {
        command.args(["--jobs", jobs]);
    }
    let sign = if link == LinkKind::Static { '+' } else { '-' };
    command.args(["--", "-C", &format!("target-feature={sign}crt-static")]);
    if options.target == "x86_64-unknown-linux-gnu" {
        // Functions with the same instructions are kept once: half a megabyte less. Here the
        // toolchain links with LLD; the linkers of other targets may not know the option.
        command.args(["-C", "link-arg=-Wl,--icf=all"]);
    }
    if link == LinkKind::Static {
        // Half a megabyte less. A system's loader understands it from glibc 2.36 on only; these
        // binaries bring their own, of the machine that builds them.
        command.args(["-C", "link-arg=-Wl,-z,pack-relative-relocs"]);
    }
    if !command.status().context("cannot run cargo")?.success() {
        bail!("the {} build of {program} for {} failed", link.name(), options.target);
    }
    Ok(())
}

/// Cargo's directory for the artifacts of a profile.
fn profile_dir(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

/// Directories whose names must not get into a binary, and what stands for each.
fn renamed(root: &Path) -> Result<[(String, &'static str); 2]> {
    let home = match env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cargo"),
    };
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    Ok([(text(root)?, "/oribi"), (text(&home)?, "/cargo")])
}

fn rust_flags(root: &Path) -> Result<Vec<String>> {
    // Otherwise the crate looks for the function in a shared library, and without one opens
    // /dev/urandom, which an empty root does not have.
    let mut flags = vec!["--cfg".to_owned(), "getrandom_backend=\"linux_getrandom\"".to_owned()];
    flags.extend(renamed(root)?.map(|(from, to)| format!("--remap-path-prefix={from}={to}")));
    Ok(flags)
}

fn c_flags(root: &Path) -> Result<String> {
    Ok(renamed(root)?.map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).join(" "))
}

/// The time that every file in a package has: `SOURCE_DATE_EPOCH`, else the commit's.
pub(super) fn source_date(root: &Path) -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let output = Command::new("git")
                .current_dir(root)
                .args(["log", "-1", "--format=%ct"])
                .output()
                .context("cannot run git; SOURCE_DATE_EPOCH replaces it")?;
            String::from_utf8(output.stdout)?
        }
    };
    text.trim().parse().with_context(|| {
        format!("{text:?} is not the time of a commit; set SOURCE_DATE_EPOCH to seconds")
    })
}

/// Version of the workspace.
pub(super) fn version(root: &Path) -> Result<String> {
    let manifest: toml::Table = std::fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let version = manifest.get("workspace").and_then(|table| table.get("package"));
    let version = version.and_then(|table| table.get("version")).and_then(toml::Value::as_str);
    version.map(str::to_owned).context("Cargo.toml has no workspace.package.version")
}

/// The cargo that runs this task.
pub(super) fn cargo() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
