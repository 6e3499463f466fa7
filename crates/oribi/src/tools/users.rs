//! Users of a running server in a build without the feature `tools`, which cannot reach one.

use anyhow::bail;
use clap::{ArgMatches, Command};
use oribi_auth::Role;

/// The users are those of the data directory.
pub const ARE_REACHABLE: bool = false;

/// A user as it is listed.
pub struct UserListing {
    pub name: String,
    pub roles: Vec<String>,
    pub bucket: Option<String>,
    pub collection: Option<String>,
}

/// Changes; `None` leaves a setting.
pub struct UserUpdate {
    pub password: Option<Vec<u8>>,
    pub roles: Option<Vec<Role>>,
    pub bucket: Option<String>,
    pub collection: Option<String>,
}

pub enum UserServer {}

pub fn with_arguments(command: Command) -> Command {
    command
}

pub fn names_server(_: &ArgMatches) -> bool {
    false
}

impl UserServer {
    pub fn of(_: &ArgMatches) -> anyhow::Result<UserServer> {
        bail!("this build reaches no servers: use --data-dir")
    }

    pub fn list(&self) -> anyhow::Result<Vec<UserListing>> {
        match *self {}
    }

    pub fn change(&self, _: &str, _: UserUpdate, _: bool) -> anyhow::Result<()> {
        match *self {}
    }

    pub fn remove(&self, _: &str) -> anyhow::Result<()> {
        match *self {}
    }
}
