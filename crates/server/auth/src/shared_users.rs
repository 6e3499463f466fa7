//! The users of a cluster's nodes, as one node changes them.
//!
//! Owns: the interface of the agreement between nodes. The server implements it.

use super::user_change_error::UserChangeError;

/// A change of the agreed users: returns them as they are to be, or `None` to leave them.
pub type SharedUsersChange<'c> =
    dyn FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, UserChangeError> + 'c;

/// The agreement of the nodes on their users.
pub trait SharedUsers: Send + Sync {
    /// Applies `change` to the agreed users, again when another node was faster. When it returns
    /// `Ok`, this node follows them. Blocks.
    ///
    /// # Errors
    /// Those of `change`; [`UserChangeError::Cluster`] when the nodes cannot agree now.
    fn change(&self, change: &mut SharedUsersChange<'_>) -> Result<(), UserChangeError>;

    /// Brings the users here up to date, if the agreement answers soon. Blocks.
    fn refresh(&self);

    /// Called after users were loaded. Does not block.
    fn note_reload(&self);
}
