//! Authentication, authorization and audit: users, roles, SASL, HTTP Basic.
//!
//! Owns: the list of mechanisms and the re-exports that the rest of the server uses. The parts are
//! `privilege` and `role` (a user's rights), `verifier` (stored instead of a password), `user_file`
//! (the file `users.json`), `user_store` (the users of a running server), `user_change` (changes by
//! a running server), `user_sharing` (users of all nodes of a cluster), `couchbase_role`
//! (Couchbase's names of roles), `scram` (RFC 5802 and RFC 7677, server side) and `sasl` (one
//! exchange of one connection).
//!
//! Invariants: the server never stores or logs a password, and never compares one byte by byte. An
//! unknown user takes the same path as a known user with a wrong password. No input from the
//! network panics. Key derivation (PBKDF2) runs only inside [`SaslStep::Slow`] or
//! [`UserStore::verify_basic`], so a worker thread never runs it by accident.
//!
//! Callers: the connection state machine (SASL), the admin HTTP (Basic), the `oribi user` command
//! (`user_file`). This crate deliberately does not depend on sockets, frames or wire statuses.

#![forbid(unsafe_code)]

pub mod audit;
pub mod couchbase_role;
pub mod redaction;

mod certificate_user;
mod node_login;
mod privilege;
mod role;
mod sasl;
mod scram;
mod shared_users;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod testing;
#[cfg(test)]
mod tests;
mod user_change;
mod user_change_error;
mod user_file;
mod user_sharing;
mod user_store;
mod verifier;

pub use certificate_user::certificate_user;
pub use couchbase_role::{parse_list as parse_roles, parse_role};
pub use node_login::{NodeLogin, NodeLoginError, NodeProof};
pub use privilege::{Privilege, PrivilegeSet};
pub use role::{Access, Identity, Role, RoleError, RoleScope};
pub use sasl::{SaslServer, SaslStep};
pub use shared_users::{SharedUsers, SharedUsersChange};
pub use user_change::UserChange;
pub use user_change_error::UserChangeError;
pub use user_file::{NAME_BYTES_MAX, NODE_NAME, RestoredUsers, check_password};
pub use user_file::{StoredUser, UserFile, UserFileError};
pub use user_sharing::ClusterUsersError;
pub use user_store::{ANONYMOUS_NAME, DEVELOPMENT_NAME, DEVELOPMENT_PASSWORD, UserStore};

/// Mechanisms offered by SASL_LIST_MECHS, best first. Clients split at single spaces, and some
/// refuse an unknown or empty word, so there is no trailing space.
pub fn mechanisms() -> &'static str {
    "SCRAM-SHA512 SCRAM-SHA256 SCRAM-SHA1 PLAIN"
}
