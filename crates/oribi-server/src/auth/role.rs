//! What a user may do: roles as an administrator writes them, and the questions the server asks.
//!
//! Owns: the text form of a role (`admin`, `read-write:BUCKET`, `read-only:BUCKET`, `*` for every
//! bucket) and [`Access`], its answerable form. Invariants: an administrator may do everything;
//! who may write a bucket may read it; without a role nothing is allowed. Callers: `user_file`
//! (text), connection and admin HTTP (questions). It does not know how a user proved who they are.

use std::fmt;
use std::str::FromStr;

use crate::config::is_bucket_name;

/// One right of one user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Everything: all buckets, and changes of buckets, scopes, collections and users.
    Admin,
    /// Reads and writes documents of one bucket, or of all (`*`).
    ReadWrite(String),
    /// Reads documents of one bucket, or of all (`*`).
    ReadOnly(String),
}

/// Why a role's text was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoleError {
    /// Not one of the three kinds.
    #[error("unknown role {0:?}: write admin, read-write:BUCKET or read-only:BUCKET ('*' for all)")]
    UnknownRole(String),
    /// The part after the colon is neither `*` nor a bucket name.
    #[error("{0:?} is not a bucket name")]
    BadBucket(String),
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Role, RoleError> {
        if text == "admin" {
            return Ok(Role::Admin);
        }
        let Some((kind, bucket)) = text.split_once(':') else {
            return Err(RoleError::UnknownRole(text.to_owned()));
        };
        let role = match kind {
            "read-write" => Role::ReadWrite(bucket.to_owned()),
            "read-only" => Role::ReadOnly(bucket.to_owned()),
            _ => return Err(RoleError::UnknownRole(text.to_owned())),
        };
        if bucket != "*" && !is_bucket_name(bucket) {
            return Err(RoleError::BadBucket(bucket.to_owned()));
        }
        Ok(role)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Admin => f.write_str("admin"),
            Role::ReadWrite(bucket) => write!(f, "read-write:{bucket}"),
            Role::ReadOnly(bucket) => write!(f, "read-only:{bucket}"),
        }
    }
}

/// The rights of one user, asked when a bucket is selected and by every admin HTTP request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    roles: Vec<Role>,
}

impl Access {
    /// Rights made of `roles`; an empty list allows nothing.
    pub fn new(roles: Vec<Role>) -> Access {
        Access { roles }
    }

    /// True when the user may change buckets, scopes and collections, and do everything else.
    pub fn is_admin(&self) -> bool {
        self.roles.contains(&Role::Admin)
    }

    /// True when documents of `bucket` may be read.
    pub fn can_read(&self, bucket: &str) -> bool {
        self.roles.iter().any(|role| match role {
            Role::Admin => true,
            Role::ReadWrite(of) | Role::ReadOnly(of) => covers(of, bucket),
        })
    }

    /// True when documents of `bucket` may be changed.
    pub fn can_write(&self, bucket: &str) -> bool {
        self.roles.iter().any(|role| match role {
            Role::Admin => true,
            Role::ReadWrite(of) => covers(of, bucket),
            Role::ReadOnly(_) => false,
        })
    }

    /// The roles this was made of, in the order in which they were given.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }
}

/// Somebody who has proved who they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// User name.
    pub name: String,
    /// What this user may do.
    pub access: Access,
}

fn covers(granted: &str, bucket: &str) -> bool {
    granted == "*" || granted == bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in ["admin", "read-write:default", "read-only:*", "read-only:a-b_c.d%20"] {
            assert_eq!(text.parse::<Role>().unwrap().to_string(), text);
        }
        for text in ["", "Admin", "read-write", "read-write:", "read-only:a b", "writer:x"] {
            assert!(text.parse::<Role>().is_err(), "{text:?} must be refused");
        }
    }

    #[test]
    fn rights_follow_the_roles() {
        let access = Access::new(vec![
            Role::ReadWrite("orders".to_owned()),
            Role::ReadOnly("default".to_owned()),
        ]);
        assert!(access.can_read("orders") && access.can_write("orders"));
        assert!(access.can_read("default") && !access.can_write("default"));
        assert!(!access.can_read("other") && !access.can_write("other"));
        assert!(!access.is_admin());

        let admin = Access::new(vec![Role::Admin]);
        assert!(admin.is_admin() && admin.can_read("x") && admin.can_write("x"));

        let everywhere = Access::new(vec![Role::ReadOnly("*".to_owned())]);
        assert!(everywhere.can_read("x") && !everywhere.can_write("x"));
        assert!(!Access::default().can_read("x"));
    }
}
