//! The container image: an OCI layout, written without a daemon.
//!
//! Owns: `oci/` (the layout) and the same as one archive. The image has one layer with the static
//! binaries, the two files that name its user, and an empty data directory. The formats:
//! <https://github.com/opencontainers/image-spec>, `image-layout.md`, `manifest.md`, `config.md`.
//! Invariant: blobs are named by their digests, and nothing in them depends on the run.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::build::PROGRAMS;
use super::checksums::sha256;
use super::release::{Release, rfc3339};
use super::stage::BINARIES;
use super::tarball::{TarArchive, TarAttributes, gzip};

/// The user that the server runs as: "nonroot" of distroless images.
const USER: u64 = 65532;
/// The image's data directory.
const DATA_DIR: &str = "var/lib/oribi";
/// Key-value and admin HTTP, each without and with TLS.
const PORTS: [u16; 6] = [11210, 8091, 8093, 11207, 18091, 18093];
const PASSWD: &str =
    "root:x:0:0:root:/:/sbin/nologin\noribi:x:65532:65532:Oribi:/var/lib/oribi:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\noribi:x:65532:\n";

/// A start reads the log, and may wait for Kudu. The first success ends the period.
const START_S: u64 = 3600;
const NS_PER_S: u64 = 1_000_000_000;
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// Writes the layout and its archive for the binaries of `stage`.
pub(super) fn write(stage: &Path, out: &Path, release: &Release) -> Result<()> {
    let layout = out.join("oci");
    fs::create_dir_all(layout.join("blobs/sha256")).context("cannot create the image layout")?;
    let layer = layer(stage, release.time_s)?;
    let mut compressed = gzip(Vec::new(), release.compression);
    std::io::Write::write_all(&mut compressed, &layer)?;
    let layer_blob = blob(&layout, LAYER_TYPE, &compressed.finish()?)?;
    let config = config(release, &sha256(&layer))?;
    let config_blob = blob(&layout, CONFIG_TYPE, config.to_string().as_bytes())?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": config_blob,
        "layers": [layer_blob],
    });
    let mut manifest_blob = blob(&layout, MANIFEST_TYPE, manifest.to_string().as_bytes())?;
    manifest_blob["platform"] = json!({"os": "linux", "architecture": architecture(release)?});
    manifest_blob["annotations"] = json!({"org.opencontainers.image.ref.name": release.version});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [manifest_blob]});
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(layout.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;

    let name = format!("oribi-{}-{}-oci.tar", release.version, release.target);
    let file =
        fs::File::create(out.join(&name)).with_context(|| format!("cannot create {name}"))?;
    let mut archive = TarArchive::new(file, release.time_s);
    archive.tree(&layout, Path::new("."))?;
    archive.finish()?;
    Ok(())
}

/// Writes a blob and returns its descriptor.
fn blob(layout: &Path, media_type: &str, bytes: &[u8]) -> Result<Value> {
    let digest = sha256(bytes);
    let path = layout.join("blobs/sha256").join(&digest);
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
}

/// The root file system.
fn layer(stage: &Path, time_s: u64) -> Result<Vec<u8>> {
    let mut archive = TarArchive::new(Vec::new(), time_s);
    for directory in ["etc", "usr", "usr/bin", "var", "var/lib"] {
        archive.directory(Path::new(directory), TarAttributes::of_root(0o755))?;
    }
    archive.directory(Path::new("tmp"), TarAttributes::of_root(0o1777))?;
    let data = TarAttributes { mode: 0o750, owner: USER };
    archive.directory(Path::new(DATA_DIR), data)?;
    archive.file(Path::new("etc/passwd"), PASSWD.as_bytes(), TarAttributes::of_root(0o644))?;
    archive.file(Path::new("etc/group"), GROUP.as_bytes(), TarAttributes::of_root(0o644))?;
    for program in PROGRAMS {
        let binary = fs::read(stage.join(BINARIES).join(program))
            .with_context(|| format!("cannot read the staged {program}"))?;
        let place = Path::new("usr/bin").join(program);
        archive.file(&place, &binary, TarAttributes::of_root(0o755))?;
    }
    archive.finish()
}

/// The image's configuration. `Healthcheck` is Docker's, which other runtimes pass over.
fn config(release: &Release, layer_digest: &str) -> Result<Value> {
    let created = rfc3339(release.time_s);
    let ports: serde_json::Map<String, Value> =
        PORTS.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect();
    let data_dir = format!("/{DATA_DIR}");
    Ok(json!({
        "created": created,
        "architecture": architecture(release)?,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": [
                "PATH=/usr/bin".to_owned(),
                format!("ORIBI_DATA_DIR={data_dir}"),
                "ORIBI_LISTEN=0.0.0.0".to_owned(),
            ],
            "Entrypoint": ["/usr/bin/oribi"],
            "Cmd": ["serve"],
            "ExposedPorts": ports,
            "Volumes": {(data_dir.clone()): {}},
            "WorkingDir": data_dir,
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/oribi", "health"],
                "Interval": 10 * NS_PER_S,
                "Timeout": 5 * NS_PER_S,
                "StartPeriod": START_S * NS_PER_S,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "oribi",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.created": created,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    }))
}

/// The target's processor in Go's words, which images use.
fn architecture(release: &Release) -> Result<&'static str> {
    match release.target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => bail!("no image architecture is known for {}", release.target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_complete_and_the_same_every_time() {
        let root = std::env::temp_dir().join(format!("oribi-image-{}", std::process::id()));
        let release = Release {
            version: "1.2.3".into(),
            target: "x86_64-a-b".into(),
            time_s: 9,
            compression: flate2::Compression::fast(),
        };
        let binaries = root.join("stage").join(BINARIES);
        fs::create_dir_all(&binaries).unwrap();
        for program in PROGRAMS {
            fs::write(binaries.join(program), program).unwrap();
        }
        let mut indexes = Vec::new();
        for name in ["one", "two"] {
            write(&root.join("stage"), &root.join(name), &release).unwrap();
            let layout = root.join(name).join("oci");
            indexes.push(fs::read_to_string(layout.join("index.json")).unwrap());
            for blob in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
                let path = blob.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap();
                assert_eq!(sha256(&fs::read(&path).unwrap()), name);
            }
        }
        assert_eq!(indexes[0], indexes[1]);
        fs::remove_dir_all(&root).unwrap();
    }
}
