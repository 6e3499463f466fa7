//! `SHA256SUMS`: the digest of every package, for `sha256sum --check`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

const FILE: &str = "SHA256SUMS";

/// SHA-256 in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the sums of all files of `out` and returns the lines. Directories are packed as files
/// too.
pub(super) fn write(out: &Path) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(out).with_context(|| format!("cannot list {}", out.display()))? {
        let path = entry?.path();
        if path.is_file() {
            let name = path.file_name().and_then(|name| name.to_str()).context("a plain name")?;
            lines.push(format!("{}  {name}", sha256(&fs::read(&path)?)));
        }
    }
    lines.sort_by(|a, b| a.split_once("  ").map(|p| p.1).cmp(&b.split_once("  ").map(|p| p.1)));
    fs::write(out.join(FILE), lines.join("\n") + "\n")
        .with_context(|| format!("cannot write {FILE}"))?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_digest_is_the_published_one() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(super::sha256(b"abc"), abc);
    }
}
