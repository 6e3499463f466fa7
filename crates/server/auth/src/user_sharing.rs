//! Users that the nodes of a cluster share.
//!
//! Owns: how the users file of a node follows the users on which the cluster has agreed, and how
//! changes reach the cluster: those of a running server first, those of the `oribi user` command in
//! the file after they were made. Invariants:
//! 1. The file of a node in a cluster names the cluster, and every user that was changed in it
//!    since. It differs from the agreed users in those only, or is older.
//! 2. Names of changed users are forgotten only when the agreed users have the changes.
//! 3. Users that a node had before it joined are kept in a file next to it, never overwritten by
//!    users of the cluster alone.
//! 4. A change leaves the cluster an administrator if it had one.
//!
//! Callers: `user_change`, and the server for the cluster's agent. This module does not know where
//! the nodes agree.

use std::path::Path;

use oribi_system::data_file::{DataFileError, write_atomically};

use super::role::Role;
use super::shared_users::SharedUsers;
use super::user_change_error::UserChangeError;
use super::user_file::{UserFile, UserFileError};
use super::user_store::UserStore;

/// The users of a node that joined a cluster with other users.
const BEFORE_CLUSTER: &str = "users.json.before-cluster";

/// Bytes of all users together, 780 for one with two roles: etcd takes requests of 1.5 MiB.
const SHARED_BYTES_MAX: usize = 1 << 20;

/// Why this node does not follow the cluster's users.
#[derive(Debug, thiserror::Error)]
pub enum ClusterUsersError {
    #[error(transparent)]
    File(#[from] UserFileError),
    #[error("the users of the cluster are not understood: {0}")]
    Record(String),
    #[error("{bytes} bytes of users are more than {SHARED_BYTES_MAX}, which nodes can share")]
    TooLarge { bytes: usize },
}

impl From<ClusterUsersError> for UserChangeError {
    fn from(error: ClusterUsersError) -> UserChangeError {
        match error {
            ClusterUsersError::File(error) => error.into(),
            other => UserChangeError::Cluster(other.to_string()),
        }
    }
}

impl UserStore {
    /// Makes the users here those on which the cluster of this uuid has agreed. Returns the users
    /// on which it should agree instead, with the changes of this node's file; then nothing changes
    /// here. Blocks.
    ///
    /// # Errors
    /// See [`ClusterUsersError`].
    pub fn follow_cluster(
        &self,
        cluster: &str,
        agreed: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, ClusterUsersError> {
        let Some(data_dir) = self.data_dir() else { return Ok(None) };
        let mut proposal = None;
        UserFile::try_edit(data_dir, |file| {
            let Some(agreed) = agreed else {
                proposal = (!file.is_empty()).then(|| shared(file)).transpose()?;
                return Ok(false);
            };
            let next = next_file(file, cluster, parse(agreed)?, data_dir)?;
            match next {
                NextFile::Proposed(users) => {
                    proposal = Some(shared(&users)?);
                    Ok(false)
                }
                NextFile::Agreed(users) => {
                    let is_new = users.to_text() != file.to_text();
                    *file = *users;
                    Ok::<bool, ClusterUsersError>(is_new)
                }
            }
        })?;
        self.reload_if_changed();
        Ok(proposal)
    }

    /// A change of the users of all nodes.
    pub(super) fn edit_shared(
        &self,
        nodes: &dyn SharedUsers,
        change: &mut dyn FnMut(&mut UserFile) -> Result<bool, UserChangeError>,
    ) -> Result<bool, UserChangeError> {
        let mut changed = false;
        nodes.change(&mut |agreed| {
            // A node with users has made them the cluster's by now.
            let mut users = agreed.map_or_else(|| Ok(UserFile::empty()), parse)?;
            changed = change(&mut users)?;
            changed.then(|| shared(&users)).transpose().map_err(UserChangeError::from)
        })?;
        Ok(changed)
    }

    /// Looks for changes of other nodes.
    pub(super) fn refresh(&self) {
        if let Some(nodes) = self.shared() {
            nodes.refresh();
        }
    }
}

enum NextFile {
    /// The agreed users, which have the changes made here.
    Agreed(Box<UserFile>),
    /// The agreed users with the changes made here.
    Proposed(UserFile),
}

/// What has to become of a node's file.
fn next_file(
    file: &UserFile,
    cluster: &str,
    agreed: UserFile,
    data_dir: &Path,
) -> Result<NextFile, ClusterUsersError> {
    let of_cluster = |mut users: UserFile| {
        users.cluster = Some(cluster.to_owned());
        NextFile::Agreed(Box::new(users))
    };
    if file.cluster.as_deref() != Some(cluster) {
        if !file.is_empty() && file.to_shared_text() != agreed.to_shared_text() {
            keep_before_cluster(file, data_dir)?;
        }
        return Ok(of_cluster(agreed));
    }
    let mut merged = agreed.clone();
    for name in &file.changed_here {
        match file.get(name) {
            Some(user) => merged.put(user.clone()),
            None => merged.remove(name),
        };
    }
    if agreed.has_admin() && !merged.has_admin() {
        let users: Vec<&String> = file.changed_here.iter().collect();
        tracing::warn!(
            ?users,
            "a change of the users file is undone, because no user of the cluster would have the \
             role admin"
        );
        return Ok(of_cluster(agreed));
    }
    assert!(merged.changed_here.is_empty(), "agreed users bear no marks of one node");
    Ok(match merged.to_shared_text() == agreed.to_shared_text() {
        true => of_cluster(agreed),
        false => NextFile::Proposed(merged),
    })
}

fn keep_before_cluster(file: &UserFile, data_dir: &Path) -> Result<(), UserFileError> {
    let path = data_dir.join(BEFORE_CLUSTER);
    write_atomically(&path, file.to_text().as_bytes(), 0o600)
        .map_err(|error| DataFileError::io("write", &path, error))?;
    tracing::warn!(
        kept = %path.display(),
        "this node had other users than the cluster that it joined, and has the cluster's now"
    );
    Ok(())
}

fn parse(agreed: &[u8]) -> Result<UserFile, ClusterUsersError> {
    let text = std::str::from_utf8(agreed).map_err(|_| "no UTF-8".to_owned());
    let users = text.and_then(UserFile::parse).map_err(ClusterUsersError::Record)?;
    match users.cluster.is_none() && users.changed_here.is_empty() {
        true => Ok(users),
        false => Err(ClusterUsersError::Record("they bear marks of one node".to_owned())),
    }
}

fn shared(users: &UserFile) -> Result<Vec<u8>, ClusterUsersError> {
    let text = users.to_shared_text().into_bytes();
    match text.len() <= SHARED_BYTES_MAX {
        true => Ok(text),
        false => Err(ClusterUsersError::TooLarge { bytes: text.len() }),
    }
}

impl UserFile {
    pub(super) fn has_admin(&self) -> bool {
        self.users().any(|user| user.roles.contains(&Role::Admin))
    }
}

#[cfg(test)]
mod tests;
