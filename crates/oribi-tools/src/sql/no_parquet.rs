//! Stands for `parquet.rs` in builds without the feature: there are no Parquet files.

use anyhow::{Result, bail};
use oribi_sql::ValueRef;
use oribi_sql::database::ResultColumn;

/// A file that cannot be.
pub enum ParquetFile {}

impl ParquetFile {
    /// Says what is missing.
    ///
    /// # Errors
    /// Always.
    pub fn stdout(_: Vec<ResultColumn>) -> Result<ParquetFile> {
        bail!("this build of oribi writes no Parquet: build it with `--features parquet`")
    }

    /// As of a file.
    ///
    /// # Errors
    /// None.
    pub fn row(&mut self, _: &[ValueRef<'_>]) -> Result<()> {
        match *self {}
    }

    /// As of a file.
    ///
    /// # Errors
    /// None.
    pub fn finish(self) -> Result<()> {
        match self {}
    }
}
