//! The users of this node and those of its cluster, each as the other sees it.
//!
//! Owns: the two adapters between `oribi-auth`, which knows users, and `oribi-cluster`, which knows
//! the other nodes. Caller: the start of the server.

use std::sync::{Arc, Weak};

use oribi_auth::{SharedUsers, SharedUsersChange, UserChangeError, UserStore};
use oribi_cluster::ClusterMember;
use oribi_cluster::users::{ClusterUsers, UsersChangeError, UsersFailure};

/// This node's users, for the cluster.
pub(crate) struct NodeUsers(pub(crate) Arc<UserStore>);

impl ClusterUsers for NodeUsers {
    fn follow(
        &self,
        cluster: &str,
        agreed: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, UsersFailure> {
        Ok(self.0.follow_cluster(cluster, agreed)?)
    }

    fn generation(&self) -> u64 {
        self.0.reload_if_changed();
        self.0.generation()
    }
}

/// The cluster, for this node's users. Weak, because the cluster has them.
pub(crate) struct AgreedUsers(pub(crate) Weak<ClusterMember>);

impl SharedUsers for AgreedUsers {
    fn change(&self, change: &mut SharedUsersChange<'_>) -> Result<(), UserChangeError> {
        let stopping = || UserChangeError::Cluster("this node is stopping".to_owned());
        let member = self.0.upgrade().ok_or_else(stopping)?;
        member.change_users(change).map_err(|error| match error {
            UsersChangeError::Rejected(error) => error,
            UsersChangeError::Agreement(error) => UserChangeError::Cluster(format!(
                "{error}; look whether the change was made, and repeat it if it was not"
            )),
            other => UserChangeError::Cluster(other.to_string()),
        })
    }

    fn refresh(&self) {
        if let Some(member) = self.0.upgrade() {
            member.refresh_users();
        }
    }

    fn note_reload(&self) {
        if let Some(member) = self.0.upgrade() {
            member.wake();
        }
    }
}
