//! `oribi user` on the users of a running server; the program owns its command line and
//! the same with the files of a data directory.

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use hyper::Method;
use oribi_auth::{Role, parse_roles};
use serde_json::Value;

use super::place::AdminPlace;
use super::run;
use crate::admin::{path, unless_missing};
use crate::help;

/// This build has a client for servers.
pub const ARE_REACHABLE: bool = true;

/// A user as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserListing {
    /// Name.
    pub name: String,
    /// Roles, as on the command line.
    pub roles: Vec<String>,
    /// Bucket of the user's memcached clients.
    pub bucket: Option<String>,
    /// Collection of the same.
    pub collection: Option<String>,
}

/// Changes; `None` leaves a setting.
#[derive(Clone, Default, Debug)]
pub struct UserUpdate {
    /// Password.
    pub password: Option<Vec<u8>>,
    /// Roles.
    pub roles: Option<Vec<Role>>,
    /// Bucket of the user's memcached clients; empty for none.
    pub bucket: Option<String>,
    /// Collection of the same; empty for none.
    pub collection: Option<String>,
}

/// A server that is asked.
pub struct UserServer(AdminPlace);

/// Adds the options that say where the server is, for the command and all below it.
pub fn with_arguments(command: Command) -> Command {
    let names = |command: &Command| -> Vec<String> {
        command.get_arguments().map(|argument| argument.get_id().to_string()).collect()
    };
    let before = names(&command);
    let command = AdminPlace::augment_args(command);
    let added = names(&command).into_iter().filter(|name| !before.contains(name));
    let global = |command: Command, name| command.mut_arg(name, |argument| argument.global(true));
    help::finish(added.fold(command, global))
}

/// True when the command line says where a server is.
pub fn names_server(matches: &ArgMatches) -> bool {
    ["host", "port", "admin_port"]
        .iter()
        .any(|name| matches.value_source(name) == Some(ValueSource::CommandLine))
}

impl UserServer {
    /// The server of the command line.
    pub fn of(matches: &ArgMatches) -> anyhow::Result<UserServer> {
        Ok(UserServer(AdminPlace::from_arg_matches(matches)?))
    }

    /// All users.
    pub fn list(&self) -> anyhow::Result<Vec<UserListing>> {
        let users = run(async { self.0.find().await?.get("/settings/rbac/users").await })?;
        Ok(users.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(user).collect())
    }

    /// Adds a user or changes it as a whole, or changes parts of one that there is.
    pub fn change(&self, name: &str, change: UserUpdate, may_add: bool) -> anyhow::Result<()> {
        // A script may add users before the buckets.
        let mut form = vec![("allowMissing", "true".to_owned())];
        if let Some(password) = change.password {
            let Ok(password) = String::from_utf8(password) else {
                bail!(
                    "the server takes passwords in UTF-8 over HTTP; use --data-dir on its machine"
                );
            };
            form.push(("password", password));
        }
        if let Some(roles) = &change.roles {
            let roles: Vec<String> = roles.iter().map(written).collect();
            form.push(("roles", roles.join(",")));
        }
        form.extend(change.bucket.map(|bucket| ("memcachedBucket", bucket)));
        form.extend(change.collection.map(|collection| ("memcachedCollection", collection)));
        let method = if may_add { Method::PUT } else { Method::PATCH };
        run(async { self.0.find().await?.change(method, &path_of(name), &form).await })
            .map_err(|error| unknown(name, error))
    }

    /// Removes a user.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        run(async { self.0.find().await?.change(Method::DELETE, &path_of(name), &[]).await })
            .map_err(|error| unknown(name, error))
    }
}

fn path_of(name: &str) -> String {
    path(&["settings", "rbac", "users", "local", name])
}

fn unknown(name: &str, error: anyhow::Error) -> anyhow::Error {
    unless_missing(error, &format!("user {name:?}"))
}

/// A role in the syntax of the admin HTTP.
fn written(role: &Role) -> String {
    match role.to_string().split_once(':') {
        Some((words, place)) => format!("{words}[{}]", place.replace('/', ":")),
        None => role.to_string(),
    }
}

fn user(json: &Value) -> UserListing {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let roles = json["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    UserListing {
        name: text(&json["id"]).unwrap_or_default(),
        roles: roles.iter().map(role).collect(),
        bucket: text(&json["memcachedBucket"]),
        collection: text(&json["memcachedCollection"]),
    }
}

/// A role as the command line has it; one that is not known here stays as the server names it.
fn role(json: &Value) -> String {
    let name = json["role"].as_str().unwrap_or_default();
    let place = ["bucket_name", "scope_name", "collection_name"];
    let place: Vec<&str> = place.iter().filter_map(|field| json[field].as_str()).collect();
    let named = match place.is_empty() {
        true => name.to_owned(),
        false => format!("{name}[{}]", place.join(":")),
    };
    match parse_roles(&named).as_deref() {
        Ok([role]) => role.to_string(),
        _ => named,
    }
}

#[cfg(test)]
mod tests {
    //! Roles on their way to a server and back.

    use super::*;

    #[test]
    fn roles_come_back_as_they_were_given() {
        for text in ["admin", "read-only+insert:b", "read-write:b/s/c", "stats:*"] {
            let role: Role = text.parse().expect("a role");
            let parsed = parse_roles(&written(&role)).expect("the same role");
            assert_eq!(parsed, [role]);
        }
        let json =
            serde_json::json!({"role": "data_monitoring", "bucket_name": "b", "scope_name": "s"});
        assert_eq!(role(&json), "simple-stats:b/s");
        let json = serde_json::json!({
            "role": "data_monitoring",
            "bucket_name": "b",
            "scope_name": "*",
            "collection_name": "*",
        });
        assert_eq!(role(&json), "simple-stats:b");
        let json = serde_json::json!({"role": "views_admin", "bucket_name": "b"});
        assert_eq!(role(&json), "views_admin[b]");
    }
}
