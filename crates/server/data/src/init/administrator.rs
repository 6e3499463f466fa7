//! The administrator that settings and environment name.
//!
//! Owns: the sources of name and password. A password is never a flag, because other users of the
//! machine could read it. It comes from the environment variable `ORIBI_ADMIN_PASSWORD` or from a
//! file. Caller: [`super::Init`].

use std::fs;

use oribi_auth::{Role, UserChange};
use oribi_config::Settings;
use oribi_system::data_file::DataFileError;

use super::error::InitError;

/// The default administrator's name, for a password without a name.
const DEFAULT_NAME: &str = "Administrator";

/// An administrator's password, from the environment of the process.
pub struct Administrator {
    pub password: Vec<u8>,
}

/// A user with the role `admin`.
pub(super) struct NamedAdministrator {
    name: String,
    password: Vec<u8>,
}

/// The administrator, if one is named.
pub(super) fn resolve(
    settings: &Settings,
    given: Option<Administrator>,
) -> Result<Option<NamedAdministrator>, InitError> {
    let from_file = match &settings.admin_password_file {
        None => None,
        Some(path) => {
            let mut password =
                fs::read(path).map_err(|error| DataFileError::io("read", path, error))?;
            while password.ends_with(b"\n") || password.ends_with(b"\r") {
                password.pop();
            }
            Some(password)
        }
    };
    let password = match (from_file, given) {
        (Some(_), Some(_)) => {
            let why = "ORIBI_ADMIN_PASSWORD and admin_password_file are both set: leave one out";
            return Err(InitError::Administrator(why.to_owned()));
        }
        (Some(password), None) => Some(password),
        (None, given) => given.map(|given| given.password),
    };
    match (&settings.admin_user, password) {
        (None, None) => Ok(None),
        (Some(name), None) => Err(InitError::Administrator(format!(
            "admin_user is {name:?} without a password: set ORIBI_ADMIN_PASSWORD, or \
             admin_password_file"
        ))),
        (name, Some(password)) => {
            let name = name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
            Ok(Some(NamedAdministrator { name, password }))
        }
    }
}

impl NamedAdministrator {
    pub(super) fn into_change(self) -> UserChange {
        UserChange {
            name: self.name,
            password: Some(self.password),
            roles: Some(vec![Role::Admin]),
            is_initial: true,
            ..UserChange::default()
        }
    }
}
