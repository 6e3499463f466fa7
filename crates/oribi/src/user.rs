//! `oribi user`: adds, lists and removes the users of a data directory.
//!
//! It owns the source of a password and the printing of users. Invariants: a password is never an
//! argument, where other users of the machine could read it, and is not echoed. The commands work
//! while a server runs on the directory, which reads the file again within a second.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::path::Path;

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Subcommand};
use oribi_server::auth::{CollectionPath, Role, StoredUser, UserFile};
use oribi_server::config::arguments_named;
use oribi_server::data_dir::DataDir;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::config::resolve_here;

/// Environment variable with the password of a new user.
const PASSWORD_VARIABLE: &str = "ORIBI_PASSWORD";

/// Manage the users of a data directory.
#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user, or give a user a new password and new roles.
    ///
    /// The password is asked for, or read from the environment variable ORIBI_PASSWORD or with
    /// --password-stdin from standard input. With the first user development mode ends.
    Add {
        /// Name of the user.
        name: String,
        /// admin, or WORD[+WORD...]:BUCKET[/SCOPE[/COLLECTION]] with words like read-write, read-only,
        /// insert, meta or stats, and '*' for every bucket; may be repeated. See docs/security.md.
        #[arg(long = "role", value_name = "ROLE", required = true)]
        roles: Vec<Role>,
        /// Bucket that the user's memcached clients use, which cannot select one. When not given: the only one in
        /// which the user has rights, else the bucket default.
        #[arg(long, value_name = "BUCKET")]
        bucket: Option<String>,
        /// Collection in that bucket for the same clients; the default collection when not given.
        #[arg(long, value_name = "SCOPE.COLLECTION")]
        collection: Option<CollectionPath>,
        /// Read the password from the first line of standard input.
        #[arg(long)]
        password_stdin: bool,
    },
    /// List the users and their roles.
    List {
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Remove a user. A running server closes the user's connections within seconds.
    Rm {
        /// Name of the user.
        name: String,
    },
}

/// `--data-dir` and `--config`, accepted before and after the name of the subcommand.
pub fn data_dir_arguments() -> Vec<Arg> {
    arguments_named(&["data_dir"]).into_iter().map(|argument| argument.global(true)).collect()
}

/// Runs the subcommand.
pub fn run(command: UserCommand, matches: &ArgMatches) -> anyhow::Result<()> {
    let data_dir = resolve_here(matches)?.settings.data_dir;
    match command {
        UserCommand::Add { name, roles, bucket, collection, password_stdin } => {
            DataDir::prepare(&data_dir)?;
            let password = read_password(password_stdin)?;
            let user = StoredUser::new(&name, &password, roles)?;
            let user = match bucket {
                Some(bucket) => user.with_bucket(&bucket)?,
                None => user,
            };
            let user = match collection {
                Some(collection) => user.with_collection(collection),
                None => user,
            };
            add(&data_dir, user)
        }
        UserCommand::List { json } => list(&data_dir, json),
        UserCommand::Rm { name } => remove(&data_dir, &name),
    }
}

fn add(data_dir: &Path, user: StoredUser) -> anyhow::Result<()> {
    let name = user.name.clone();
    let mut was_new = false;
    let mut has_admin = false;
    UserFile::edit(data_dir, |file| {
        was_new = file.put(user);
        has_admin = file.users().any(|user| user.roles.contains(&Role::Admin));
        true
    })?;
    eprintln!("{} user {name}", if was_new { "added" } else { "changed" });
    if !has_admin {
        eprintln!("note: no user has the role admin, so nobody can create buckets or collections");
    }
    Ok(())
}

fn list(data_dir: &Path, json: bool) -> anyhow::Result<()> {
    let file = UserFile::load(data_dir)?;
    let roles =
        |user: &StoredUser| -> Vec<String> { user.roles.iter().map(Role::to_string).collect() };
    if json {
        let users: Vec<_> = file
            .users()
            .map(|user| {
                let (name, bucket) = (&user.name, &user.bucket);
                let collection = user.collection.as_ref().map(CollectionPath::to_string);
                serde_json::json!({
                    "name": name,
                    "roles": roles(user),
                    "bucket": bucket,
                    "collection": collection,
                })
            })
            .collect();
        println!("{:#}", serde_json::Value::Array(users));
        return Ok(());
    }
    if file.is_empty() {
        eprintln!(
            "no user is configured: a server on {} is in development mode",
            data_dir.display()
        );
        return Ok(());
    }
    let rows = file.users().map(|user| {
        let bucket = user.bucket.clone().unwrap_or_default();
        let collection = user.collection.as_ref().map(CollectionPath::to_string);
        [user.name.clone(), roles(user).join(", "), bucket, collection.unwrap_or_default()]
    });
    print!("{}", table(rows));
    Ok(())
}

/// Users as lines, with columns as wide as what stands in them.
fn table(rows: impl Iterator<Item = [String; 4]>) -> String {
    let header = ["NAME", "ROLES", "BUCKET", "COLLECTION"].map(str::to_owned);
    let rows: Vec<[String; 4]> = std::iter::once(header).chain(rows).collect();
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

fn remove(data_dir: &Path, name: &str) -> anyhow::Result<()> {
    if !UserFile::path(data_dir).exists() || !UserFile::edit(data_dir, |file| file.remove(name))? {
        bail!("there is no user {name:?} in {}", data_dir.display());
    }
    eprintln!("removed user {name}");
    Ok(())
}

fn read_password(from_stdin: bool) -> anyhow::Result<Vec<u8>> {
    if from_stdin {
        return read_line();
    }
    if let Some(password) = std::env::var_os(PASSWORD_VARIABLE) {
        return Ok(std::os::unix::ffi::OsStringExt::into_vec(password));
    }
    if !stdin().is_terminal() {
        bail!("no password: use --password-stdin, or set {PASSWORD_VARIABLE}");
    }
    let password = prompt("Password: ")?;
    if prompt("Again: ")? != password {
        bail!("the passwords differ");
    }
    Ok(password)
}

fn read_line() -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    stdin().lock().read_until(b'\n', &mut line).context("cannot read the password")?;
    while line.ends_with(b"\n") || line.ends_with(b"\r") {
        line.pop();
    }
    Ok(line)
}

fn prompt(text: &str) -> anyhow::Result<Vec<u8>> {
    // First, because it discards what was typed before.
    let _silence = EchoOff::new()?;
    eprint!("{text}");
    stderr().flush()?;
    let line = read_line();
    eprintln!();
    line
}

/// Stops the terminal from showing what is typed, until it is dropped.
struct EchoOff {
    before: Termios,
}

impl EchoOff {
    fn new() -> anyhow::Result<EchoOff> {
        let before = tcgetattr(stdin()).context("cannot ask the terminal for its modes")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &silent)
            .context("cannot stop the terminal from showing the password")?;
        Ok(EchoOff { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // The terminal is gone when this fails, and with it everything that could be told.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
