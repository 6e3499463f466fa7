//! Users in a backup, which go over the admin HTTP and need the role `admin`.
//!
//! Passwords are there as verifiers, which are as secret as the server's own file of users: encrypt
//! such an archive. The server decides whether it accepts the restored users.

use anyhow::{Context, bail};
use oribi_backup::manifest::BackupManifest;
use serde_json::Value;

use crate::admin::Admin;

const PATH: &str = "/settings/rbac/backup";

/// The server's name for the form of users that it can restore.
const FORMAT: &str = "oribi-users";

/// The users of a server, which must have some.
pub async fn read(admin: &Admin) -> anyhow::Result<Value> {
    let users = admin.get(PATH).await.context("the server's users")?;
    if users["format"] != FORMAT {
        bail!("the server is no Oribi server: its users cannot be in the backup");
    }
    match users["users"].as_array().is_none_or(Vec::is_empty) {
        true => bail!("the server has no users, only those of the development mode"),
        false => Ok(users),
    }
}

/// The users in a backup.
pub fn of(manifest: &BackupManifest) -> anyhow::Result<&Value> {
    let id = &manifest.begin.id;
    manifest.begin.users.as_ref().with_context(|| format!("backup {id} has no users"))
}

/// Adds these users to those of a server.
pub async fn write(admin: &Admin, users: &Value, replaces: bool) -> anyhow::Result<()> {
    let form = [("backup", users.to_string()), ("canOverwrite", replaces.to_string())];
    let answer = admin.put(PATH, &form).await.context("restoring the users")?;
    let number = |field: &str| answer[field].as_array().map_or(0, Vec::len);
    eprintln!(
        "oribi: {} users were added, {} replaced, {} left alone",
        number("usersCreated"),
        number("usersOverwritten"),
        number("usersSkipped"),
    );
    Ok(())
}
