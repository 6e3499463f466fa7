//! The steps of the agent and of the member for the users that all nodes share.
//!
//! Owns: when the agent's tick follows the record, and the member's calls for the server. The
//! record itself is in `users_record`.

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::AgreementError;
use crate::identity::ClusterIdentity;
use crate::member::ClusterMember;
pub use crate::users_record::{ClusterUsers, UsersChange, UsersChangeError, UsersFailure};

impl Agent {
    /// Brings the users here up to date with the cluster's, and the other way round.
    pub(crate) async fn follow_users(&self, view: &ClusterView) -> Result<(), AgreementError> {
        let Some(users) = &self.users else { return Ok(()) };
        users.set_admitted(true);
        let identity = view.identity.as_ref().and_then(understood::<ClusterIdentity>);
        let Some(identity) = identity else { return Ok(()) };
        users.follow(&identity.uuid, view.users_revision, self.limit()).await
    }
}

impl ClusterMember {
    /// Changes the users of all nodes; in force on this node when it returns. `change` runs again
    /// when another node was faster. Blocks; do not call it from an event loop.
    ///
    /// # Errors
    /// See [`UsersChangeError`].
    pub fn change_users<E>(
        &self,
        change: &mut UsersChange<'_, E>,
    ) -> Result<(), UsersChangeError<E>> {
        let Some(users) = &self.users else { return Err(UsersChangeError::NotJoined) };
        self.runtime.block_on(users.change(change))
    }

    /// Brings the users here up to date with what another node may have changed. Without an answer
    /// of the agreement they stay as they are. Blocks; do not call it from an event loop.
    pub fn refresh_users(&self) {
        let Some(users) = &self.users else { return };
        if let Err(error) = self.runtime.block_on(users.refresh()) {
            tracing::debug!(%error, "the users here may be older than the cluster's");
        }
    }
}
