//! Tar archives that depend only on their files: sorted, owned by root, one time, fixed
//! modes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::release::Release;

/// Writes `NAME.tar.gz` with the tree `stage` below the directory `NAME`.
pub(super) fn write_package(stage: &Path, out: &Path, name: &str, release: &Release) -> Result<()> {
    let path = out.join(format!("{name}.tar.gz"));
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = TarArchive::new(gzip(file, release.compression), release.time_s);
    archive.tree(stage, Path::new(name))?;
    archive.finish()?.finish()?;
    Ok(())
}

/// A gzip stream without name and time.
pub(super) fn gzip<W: Write>(to: W, compression: Compression) -> flate2::write::GzEncoder<W> {
    GzBuilder::new().mtime(0).write(to, compression)
}

/// An archive whose entries have one time.
pub(super) struct TarArchive<W: Write> {
    builder: Builder<W>,
    time_s: u64,
}

/// Owner and mode of an entry.
#[derive(Clone, Copy)]
pub(super) struct TarAttributes {
    pub mode: u32,
    pub owner: u64,
}

impl TarAttributes {
    pub fn of_root(mode: u32) -> TarAttributes {
        TarAttributes { mode, owner: 0 }
    }
}

impl<W: Write> TarArchive<W> {
    pub fn new(to: W, time_s: u64) -> TarArchive<W> {
        TarArchive { builder: Builder::new(to), time_s }
    }

    pub fn directory(&mut self, path: &Path, attributes: TarAttributes) -> Result<()> {
        self.entry(EntryType::Directory, path, &[], attributes)
    }

    pub fn file(&mut self, path: &Path, content: &[u8], attributes: TarAttributes) -> Result<()> {
        self.entry(EntryType::Regular, path, content, attributes)
    }

    /// Adds everything below `from` as `to`, sorted by name.
    pub fn tree(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.directory(to, TarAttributes::of_root(0o755))?;
        for path in sorted(from)? {
            let name = to.join(path.file_name().context("an entry has a name")?);
            let metadata = fs::metadata(&path)?;
            if metadata.is_dir() {
                self.tree(&path, &name)?;
            } else {
                let is_program = metadata.permissions().mode() & 0o100 != 0;
                let mode = if is_program { 0o755 } else { 0o644 };
                let content = fs::read(&path)?;
                self.file(&name, &content, TarAttributes::of_root(mode))?;
            }
        }
        Ok(())
    }

    /// Ends the archive and hands back what it was written to.
    pub fn finish(self) -> Result<W> {
        Ok(self.builder.into_inner()?)
    }

    fn entry(
        &mut self,
        kind: EntryType,
        path: &Path,
        content: &[u8],
        attributes: TarAttributes,
    ) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(attributes.mode);
        header.set_uid(attributes.owner);
        header.set_gid(attributes.owner);
        header.set_mtime(self.time_s);
        header.set_size(content.len() as u64);
        self.builder
            .append_data(&mut header, path, content)
            .with_context(|| format!("cannot pack {}", path.display()))
    }
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_and_times_of_files_do_not_matter() {
        let root = std::env::temp_dir().join(format!("oribi-tarball-{}", std::process::id()));
        let mut digests = Vec::new();
        for (number, names) in [["a", "b"], ["b", "a"]].iter().enumerate() {
            let stage = root.join(number.to_string());
            fs::create_dir_all(stage.join("bin")).unwrap();
            for name in names {
                fs::write(stage.join("bin").join(name), name).unwrap();
                let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
                File::open(stage.join("bin").join(name)).unwrap().set_modified(time).unwrap();
            }
            let mut archive = TarArchive::new(gzip(Vec::new(), Compression::fast()), 7);
            archive.tree(&stage, Path::new("x")).unwrap();
            digests.push(archive.finish().unwrap().finish().unwrap());
        }
        assert!(digests[0] == digests[1], "the same files make different archives");
        fs::remove_dir_all(&root).unwrap();
    }
}
