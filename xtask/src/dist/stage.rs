//! The files of a package, in the tree in which they are installed.
//!
//! Owns: `target/packages/stage/LINK`, made anew for each run. The tarball is this tree; deb and
//! rpm name its files in `crates/oribi/Cargo.toml`. Manual and completions come from `oribi`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::build::PROGRAMS;
use super::options::{DistOptions, LinkKind};
use super::third_party;

/// Files that are copied as they are, and where they go.
const COPIED: [(&str, &str); 8] = [
    ("LICENSE", "share/doc/oribi/LICENSE"),
    ("README.md", "share/doc/oribi/README.md"),
    ("CHANGELOG.md", "share/doc/oribi/CHANGELOG.md"),
    ("packaging/oribi.service", "lib/systemd/system/oribi.service"),
    ("packaging/sysusers.conf", "lib/sysusers.d/oribi.conf"),
    ("packaging/oribi.toml", "etc/oribi/oribi.toml"),
    ("packaging/grafana/oribi.json", "share/oribi/grafana/oribi.json"),
    ("packaging/prometheus/oribi.rules.yml", "share/oribi/prometheus/oribi.rules.yml"),
];

/// Shells, and where each looks for completions below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/oribi"),
    ("zsh", "share/zsh/site-functions/_oribi"),
    ("fish", "share/fish/vendor_completions.d/oribi.fish"),
];

/// Place of the programs in the tree.
pub(super) const BINARIES: &str = "bin";

/// Makes the tree for the programs in the directory `binaries` and returns its place.
pub(super) fn stage(
    root: &Path,
    link: LinkKind,
    binaries: &Path,
    options: &DistOptions,
    third_party: &str,
) -> Result<PathBuf> {
    let stage = root.join("target/packages/stage").join(link.name());
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot empty {}", stage.display()))?;
    }
    let binaries = root.join(binaries);
    for program in PROGRAMS {
        copy(&binaries.join(program), &stage.join(BINARIES).join(program), 0o755)?;
    }
    for (from, to) in COPIED {
        copy(&root.join(from), &stage.join(to), 0o644)?;
    }
    fs::write(stage.join(third_party::PLACE), third_party)
        .with_context(|| format!("cannot write {}", third_party::PLACE))?;
    let printer =
        options.pages_from.as_ref().map_or(binaries.join("oribi"), |path| root.join(path));
    let pages = stage.join("share/man/man1");
    run(&printer, &["man".as_ref(), pages.as_os_str()])?;
    for (shell, to) in COMPLETIONS {
        let script = run(&printer, &["completions".as_ref(), shell.as_ref()])?;
        let to = stage.join(to);
        create_parent(&to)?;
        fs::write(&to, script).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(stage)
}

/// Runs the binary and returns its standard output.
fn run(binary: &Path, arguments: &[&std::ffi::OsStr]) -> Result<Vec<u8>> {
    let output = Command::new(binary).args(arguments).output().with_context(|| {
        format!("cannot run {}; --pages-from names a binary that runs here", binary.display())
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} {arguments:?} failed: {said}", binary.display());
    }
    Ok(output.stdout)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    create_parent(to)?;
    fs::copy(from, to)
        .and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(mode)))
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn create_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a file has a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}
