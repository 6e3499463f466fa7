//! The reader in Python, written from the documentation only, reads what was backed up.
//!
//! It needs Python and something that inflates zstd. Where they are missing, the test says so and
//! passes, unless `ORIBI_BACKUP_READER_REQUIRED` is set, as in CI.

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_testkit::skip;
use serde_json::Value;

use crate::backup::Fixture;
use crate::backup::filled::fill;
use crate::backup::table::{remove, table_of, write};

const REQUIRED: &str = "ORIBI_BACKUP_READER_REQUIRED";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backup-reader.py");
/// Succeeds where [`SCRIPT`] can inflate.
const CAN_INFLATE: &str = "import shutil, sys, importlib.util as u
sys.exit(not (shutil.which('zstd') or u.find_spec('zstandard') or sys.version_info >= (3, 14)))";

/// False after reporting that the test is skipped.
fn can_read() -> bool {
    let can = Command::new("python3").args(["-c", CAN_INFLATE]).status();
    let can = can.is_ok_and(|status| status.success());
    if !can {
        skip(REQUIRED, "python3 with zstd", "Debian packages python3 and zstd");
    }
    can
}

// Compat (Backup and restore): Archives have their own format, in a directory or an object store
// Invariant: The documented format is enough to read an archive.
#[tokio::test]
async fn the_documented_format_is_enough_to_read_an_archive() {
    if !can_read() {
        return;
    }
    let source = Fixture::start();
    let client = source.client().await;
    fill(&source, &client).await;
    let archive = source.archive();
    source.backup(&["create", &archive]);
    write(&client, client.default_collection(), "text", "changed").await;
    remove(&client, client.default_collection(), "json").await;
    source.backup(&["create", &archive, "--segment-kib", "1", "--level", "0"]);

    let output = Command::new("python3").args([SCRIPT, &archive]).output().expect("python3 runs");
    assert!(output.status.success(), "{}", crate::backup::text(&output.stderr));
    let table = table_of(&client).await;
    let mut found = 0;
    for line in crate::backup::text(&output.stdout).lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let bytes =
            |name: &str| STANDARD.decode(line[name].as_str().expect("text")).expect("base64");
        let path =
            format!("{}.{}", line["scope"].as_str().unwrap(), line["collection"].as_str().unwrap());
        let version = table.get(&(path, bytes("key"))).unwrap_or_else(|| panic!("unknown: {line}"));
        assert_eq!(version.is_removed, line["kind"] != "mutation", "{line}");
        assert_eq!(line["cas"], version.cas.to_string(), "{line}");
        assert_eq!((&line["rev"], &line["flags"]), (&version.rev.into(), &version.flags.into()));
        assert_eq!(line["expiry"], version.expiry, "{line}");
        // Snappy is not undone by a reader that has only the standard library.
        if line["snappy"] == false {
            assert_eq!(bytes("value"), version.value, "{line}");
            assert_eq!(line["attributes"].as_object().unwrap().len(), version.attributes.len());
        }
        found += 1;
    }
    assert_eq!(found, table.len());
}
