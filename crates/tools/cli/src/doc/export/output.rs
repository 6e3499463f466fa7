//! The destination of exported lines: standard output, or a file that gets its name when it is
//! complete.
//!
//! A pipe, a device or another non-regular file cannot be replaced and is written directly.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write, stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::print::failed;

const WRITING: &str = "writing the export";
const PART_SUFFIX: &str = ".part";
const BUFFER_BYTES: usize = 256 * 1024;

pub struct ExportOutput {
    writer: BufWriter<Box<dyn Write>>,
    file: Option<PartFile>,
    bytes: u64,
}

struct PartFile {
    /// The same file as the writer's, to sync it.
    file: File,
    part: PathBuf,
    path: PathBuf,
}

impl ExportOutput {
    /// Begins the output; `-` is standard output.
    pub fn create(path: &Path) -> anyhow::Result<ExportOutput> {
        if path == Path::new("-") {
            return Ok(ExportOutput::new(Box::new(stdout()), None));
        }
        let context = || format!("cannot write {}", path.display());
        // Follow links, so that a link to a device counts as the device.
        if let Ok(metadata) = std::fs::metadata(path)
            && !metadata.is_file()
        {
            if metadata.is_dir() {
                bail!("{} is a directory", path.display());
            }
            let file = OpenOptions::new().write(true).open(path).with_context(context)?;
            return Ok(ExportOutput::new(Box::new(file), None));
        }
        let mut part = OsString::from(path);
        part.push(PART_SUFFIX);
        let part = PathBuf::from(part);
        let context = || format!("cannot write {}", part.display());
        let file = File::create(&part).with_context(context)?;
        let writer = Box::new(file.try_clone().with_context(context)?);
        Ok(ExportOutput::new(writer, Some(PartFile { file, part, path: path.to_owned() })))
    }

    fn new(writer: Box<dyn Write>, file: Option<PartFile>) -> ExportOutput {
        ExportOutput { writer: BufWriter::with_capacity(BUFFER_BYTES, writer), file, bytes: 0 }
    }

    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.bytes += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(|error| failed(error, WRITING))
    }

    /// Makes the output durable where it is a file, and gives the complete file its name; returns
    /// its size.
    pub fn finish(mut self) -> anyhow::Result<u64> {
        self.writer.flush().map_err(|error| failed(error, WRITING))?;
        let Some(PartFile { file, part, path }) = self.file else {
            sync_stdout()?;
            return Ok(self.bytes);
        };
        file.sync_all().with_context(|| format!("writing {}", part.display()))?;
        let renaming = || format!("cannot rename {} to {}", part.display(), path.display());
        std::fs::rename(&part, &path).with_context(renaming)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(directory.unwrap_or(Path::new(".")));
        directory.and_then(|directory| directory.sync_all()).with_context(renaming)?;
        Ok(self.bytes)
    }

    /// Keeps an unfinished file under the name of a part and says so; returns its size.
    pub fn abandon(mut self) -> u64 {
        let is_written = self.writer.flush().is_ok();
        if let Some(PartFile { part, .. }) = &self.file
            && is_written
        {
            eprintln!("oribi: what was exported so far is in {}", part.display());
        }
        self.bytes
    }
}

/// Makes standard output durable if the shell has redirected it to a file.
fn sync_stdout() -> anyhow::Result<()> {
    let Ok(stdout) = stdout().as_fd().try_clone_to_owned() else { return Ok(()) };
    let file = File::from(stdout);
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => file.sync_all().context(WRITING),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    //! A file appears when it is complete, and only where a file can be.

    use super::*;

    #[test]
    fn a_file_has_its_name_once_it_is_complete() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, part) = (scratch.path().join("out"), scratch.path().join("out.part"));
        std::fs::write(&path, "before").unwrap();
        let mut output = ExportOutput::create(&path).unwrap();
        output.write(b"half").unwrap();
        assert_eq!(output.abandon(), 4);
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        assert_eq!(std::fs::read(&part).unwrap(), b"half");

        let mut output = ExportOutput::create(&path).unwrap();
        output.write(b"all").unwrap();
        assert_eq!(output.finish().unwrap(), 3);
        assert_eq!(std::fs::read(&path).unwrap(), b"all");
        assert!(!part.exists());
    }

    /// A link to a device counts as the device: replacing it would leave a file in its place.
    #[test]
    fn special_files_are_not_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let link = scratch.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let mut output = ExportOutput::create(&link).unwrap();
        output.write(b"gone").unwrap();
        assert_eq!(output.finish().unwrap(), 4);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);

        let error = ExportOutput::create(scratch.path()).err().expect("a directory");
        assert!(error.to_string().ends_with("is a directory"), "{error}");
    }
}
