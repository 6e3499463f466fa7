//! `oribi user`: adds, lists, changes and removes users.
//!
//! It owns the command line and the printing of users. There is one command for both places of
//! users: a running server, which is asked over its admin HTTP, and with `--data-dir`, `--config`
//! or `ORIBI_DATA_DIR` the file of users, whether a server runs on it or not; a running server
//! reads the file again within a second.

mod password;

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{Arg, ArgGroup, ArgMatches, Subcommand};
use oribi_auth::{Role, StoredUser, UserFile, parse_role};
use oribi_config::CollectionPath;
use oribi_config::arguments_named;
use oribi_system::data_dir::DataDir;

use crate::config::resolve_here;
use crate::print;
use crate::tools::users::{self, UserListing, UserServer, UserUpdate};

/// Environment variable with the data directory, as of the server.
const DATA_DIR_VARIABLE: &str = "ORIBI_DATA_DIR";

/// Arguments of `oribi user change`.
const CHANGES: [&str; 5] = ["roles", "bucket", "collection", "new_password", "password_stdin"];

#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user, or give a user a new password and new roles.
    ///
    /// The password is asked for, or read from the environment variable ORIBI_NEW_PASSWORD or with
    /// --password-stdin from standard input. With the first user development mode ends.
    #[command(
        visible_alias = "add",
        after_help = "Examples:
  oribi user create root --role admin
  oribi user create shop --role read-write:orders --role read-only:sessions
  oribi user create billing --role read-write:orders/eu/invoices --data-dir /var/lib/oribi"
    )]
    Create {
        /// Name of the user.
        name: String,
        /// admin, or WORD[+WORD...]:BUCKET[/SCOPE[/COLLECTION]] with words like read-write,
        /// read-only, insert, meta or stats, and '*' for every bucket; or a role of Couchbase with
        /// its place in brackets. May be repeated. See docs/security.md.
        #[arg(long = "role", value_name = "ROLE", required = true, value_parser = parse_role)]
        roles: Vec<Role>,
        /// Bucket that the user's memcached clients use, which cannot select one. When not given:
        /// the only one in which the user has rights, else the bucket default.
        #[arg(long, value_name = "BUCKET")]
        bucket: Option<String>,
        /// Collection in that bucket for the same clients; the default collection when not given.
        #[arg(long, value_name = "SCOPE.COLLECTION")]
        collection: Option<CollectionPath>,
        /// Read the password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// Change a user: what is not given stays as it is.
    #[command(group(ArgGroup::new("change").required(true).multiple(true).args(CHANGES)))]
    #[command(after_help = "Examples:
  oribi user change shop --new-password
  oribi user change shop --role read-write:orders")]
    Change {
        /// Name of the user.
        name: String,
        /// New roles, all of them, as for `create`.
        #[arg(long = "role", value_name = "ROLE", value_parser = parse_role)]
        roles: Vec<Role>,
        /// Bucket that the user's memcached clients use.
        #[arg(long, value_name = "BUCKET")]
        bucket: Option<String>,
        /// Collection in that bucket for the same clients.
        #[arg(long, value_name = "SCOPE.COLLECTION")]
        collection: Option<CollectionPath>,
        /// Give the user a new password, which is asked for or read from ORIBI_NEW_PASSWORD.
        #[arg(long)]
        new_password: bool,
        /// Read a new password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// List the users and their roles.
    #[command(
        visible_alias = "ls",
        after_help = "Examples:
  oribi user list
  oribi user list --json"
    )]
    List {
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Remove a user. A running server closes the user's connections within seconds.
    #[command(
        visible_alias = "rm",
        alias = "delete",
        after_help = "Examples:
  oribi user drop shop"
    )]
    Drop {
        /// Name of the user.
        name: String,
    },
}

/// `--data-dir`, `--config` and the options of a server, accepted before and after the name of the
/// subcommand.
pub fn with_arguments(command: clap::Command) -> clap::Command {
    let files = arguments_named(&["data_dir"]).into_iter();
    let files: Vec<Arg> = files.map(|argument| argument.global(true)).collect();
    users::with_arguments(command.args(files))
}

/// Where the users are.
enum Place {
    Files(PathBuf),
    Server(UserServer),
}

impl Place {
    fn of(matches: &ArgMatches) -> anyhow::Result<Place> {
        let is_given = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let names_files = is_given("data_dir") || is_given("config");
        let names_server = users::names_server(matches);
        if names_files && names_server {
            bail!("either a server or --data-dir, not both");
        }
        let is_usual = !names_server && std::env::var_os(DATA_DIR_VARIABLE).is_some();
        match names_files || is_usual || !users::ARE_REACHABLE {
            true => Ok(Place::Files(resolve_here(matches)?.settings.data_dir)),
            false => Ok(Place::Server(UserServer::of(matches)?)),
        }
    }

    fn is_server(&self) -> bool {
        matches!(self, Place::Server(_))
    }
}

pub fn run(command: UserCommand, matches: &ArgMatches) -> anyhow::Result<()> {
    let place = Place::of(matches)?;
    if let Place::Files(data_dir) = &place {
        match command {
            UserCommand::Create { .. } => DataDir::prepare(data_dir)?,
            _ => DataDir::check_existing(data_dir)?,
        }
    }
    match command {
        UserCommand::Create { name, roles, bucket, collection, password_stdin } => {
            let change = UserUpdate {
                password: Some(password::read(password_stdin, place.is_server())?),
                roles: Some(roles),
                // What is not given is none.
                bucket: Some(bucket.unwrap_or_default()),
                collection: Some(collection.map(|path| path.to_string()).unwrap_or_default()),
            };
            put(&place, &name, change, true)
        }
        UserCommand::Change { name, roles, bucket, collection, new_password, password_stdin } => {
            let password = match new_password || password_stdin {
                true => Some(password::read(password_stdin, place.is_server())?),
                false => None,
            };
            let roles = (!roles.is_empty()).then_some(roles);
            let collection = collection.map(|path| path.to_string());
            put(&place, &name, UserUpdate { password, roles, bucket, collection }, false)
        }
        UserCommand::List { json } => list(&place, json),
        UserCommand::Drop { name } => remove(&place, &name),
    }
}

fn put(place: &Place, name: &str, change: UserUpdate, may_add: bool) -> anyhow::Result<()> {
    let was_new = match place {
        Place::Files(data_dir) => put_in_file(data_dir, name, change, may_add)?,
        Place::Server(server) => {
            let users = if may_add { server.list()? } else { Vec::new() };
            server.change(name, change, may_add)?;
            may_add && users.iter().all(|user| user.name != name)
        }
    };
    eprintln!("{} user {name}", if was_new { "added" } else { "changed" });
    Ok(())
}

/// True when the user is new.
fn put_in_file(
    data_dir: &Path,
    name: &str,
    change: UserUpdate,
    may_add: bool,
) -> anyhow::Result<bool> {
    let before = match UserFile::path(data_dir).exists() {
        true => UserFile::load(data_dir)?.get(name).cloned(),
        false => None,
    };
    if before.is_none() && !may_add {
        bail!("there is no user {name:?} in {}", data_dir.display());
    }
    let present = before.as_ref().map(|user| user.roles.clone()).unwrap_or_default();
    let roles = change.roles.unwrap_or(present);
    // Deriving takes long, so it is done before the file is locked.
    let new = match &change.password {
        Some(password) => Some(StoredUser::new(name, password, roles.clone())?),
        None => None,
    };
    let mut user = match (before, new) {
        (Some(before), Some(new)) => before.with_secret_of(new),
        (Some(user), None) | (None, Some(user)) => user,
        (None, None) => bail!("a new user needs a password"),
    };
    user.roles = roles;
    match change.bucket.as_deref() {
        None => {}
        Some("") => user.bucket = None,
        Some(bucket) => user = user.with_bucket(bucket)?,
    }
    match change.collection.as_deref() {
        None => {}
        Some("") => user.collection = None,
        Some(path) => user.collection = Some(path.parse().map_err(anyhow::Error::msg)?),
    }
    let (mut was_new, mut has_admin) = (false, false);
    UserFile::edit(data_dir, |file| {
        was_new = file.put(user);
        has_admin = file.users().any(|user| user.roles.contains(&Role::Admin));
        true
    })?;
    if !has_admin {
        eprintln!("note: no user has the role admin, so nobody can create buckets or collections");
    }
    Ok(was_new)
}

fn list(place: &Place, json: bool) -> anyhow::Result<()> {
    let users: Vec<UserListing> = match place {
        Place::Server(server) => server.list()?,
        Place::Files(data_dir) => UserFile::load(data_dir)?.users().map(listed).collect(),
    };
    if json {
        let objects: Vec<_> = users
            .iter()
            .map(|UserListing { name, roles, bucket, collection }| {
                serde_json::json!({
                    "name": name,
                    "roles": roles,
                    "bucket": bucket,
                    "collection": collection,
                })
            })
            .collect();
        return print::text(format!("{:#}\n", serde_json::Value::Array(objects)));
    }
    if users.is_empty() {
        eprintln!("no user is configured: the server is in development mode");
        return Ok(());
    }
    print::text(table(users))
}

fn listed(user: &StoredUser) -> UserListing {
    UserListing {
        name: user.name.clone(),
        roles: user.roles.iter().map(Role::to_string).collect(),
        bucket: user.bucket.clone(),
        collection: user.collection.as_ref().map(CollectionPath::to_string),
    }
}

/// Users as lines, with columns as wide as what stands in them.
fn table(users: Vec<UserListing>) -> String {
    let header = ["NAME", "ROLES", "BUCKET", "COLLECTION"].map(str::to_owned);
    let row = |UserListing { name, roles, bucket, collection }: UserListing| {
        [name, roles.join(", "), bucket.unwrap_or_default(), collection.unwrap_or_default()]
    };
    let rows: Vec<[String; 4]> =
        std::iter::once(header).chain(users.into_iter().map(row)).collect();
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (names, roles, buckets) = (width(0), width(1), width(2));
    rows.iter()
        .map(|[name, role, bucket, collection]| {
            format!(" {name:names$}  {role:roles$}  {bucket:buckets$}  {collection}")
        })
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

fn remove(place: &Place, name: &str) -> anyhow::Result<()> {
    match place {
        Place::Server(server) => server.remove(name)?,
        Place::Files(data_dir) => {
            let is_there = UserFile::path(data_dir).exists();
            if !is_there || !UserFile::edit(data_dir, |file| file.remove(name))? {
                bail!("there is no user {name:?} in {}", data_dir.display());
            }
        }
    }
    eprintln!("removed user {name}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_but_the_name_is_a_change() {
        let command = UserCommand::augment_subcommands(clap::Command::new("user"));
        let change = command.find_subcommand("change").expect("there is such a command");
        let ids = change.get_arguments().map(|one| one.get_id().as_str());
        assert_eq!(ids.filter(|id| *id != "name").collect::<Vec<_>>(), CHANGES);
    }
}
