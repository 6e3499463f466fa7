//! Where exported lines go: standard output, or a file that gets its name when it is complete.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

const PART_SUFFIX: &str = ".part";
const BUFFER_BYTES: usize = 256 * 1024;

/// See the module.
pub struct Output {
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

impl Output {
    /// Begins the output; `-` is standard output.
    pub fn create(path: &Path) -> anyhow::Result<Output> {
        if path == Path::new("-") {
            let writer: Box<dyn Write> = Box::new(std::io::stdout());
            let writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
            return Ok(Output { writer, file: None, bytes: 0 });
        }
        let mut part = OsString::from(path);
        part.push(PART_SUFFIX);
        let part = PathBuf::from(part);
        let context = || format!("cannot write {}", part.display());
        let file = File::create(&part).with_context(context)?;
        let writer: Box<dyn Write> = Box::new(file.try_clone().with_context(context)?);
        let writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
        let file = Some(PartFile { file, part, path: path.to_owned() });
        Ok(Output { writer, file, bytes: 0 })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.bytes += bytes.len() as u64;
        self.writer.write_all(bytes).context("writing the export")
    }

    /// Gives the complete file its name; returns its size.
    pub fn finish(mut self) -> anyhow::Result<u64> {
        self.writer.flush().context("writing the export")?;
        let Some(PartFile { file, part, path }) = self.file else { return Ok(self.bytes) };
        file.sync_all().with_context(|| format!("writing {}", part.display()))?;
        std::fs::rename(&part, &path)
            .with_context(|| format!("cannot rename {} to {}", part.display(), path.display()))?;
        Ok(self.bytes)
    }

    /// Leaves what there is under the name of a part, and says so; returns its size.
    pub fn abandon(mut self) -> anyhow::Result<u64> {
        self.writer.flush().context("writing the export")?;
        if let Some(PartFile { part, .. }) = &self.file {
            eprintln!("oribi: interrupted; what was exported so far is in {}", part.display());
        }
        Ok(self.bytes)
    }
}
