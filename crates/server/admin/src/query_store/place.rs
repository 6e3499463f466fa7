//! A keyspace as one user's statement reaches it: what reads and changes share.
//!
//! Owns: the rights in the collection, and the codes of reads that fail.

use std::sync::Arc;

use oribi_auth::{Privilege, PrivilegeSet};
use oribi_query::{KeyspaceName, QueryError, Result};
use oribi_types::CollectionId;

use crate::statement_control::{StatementControl, StatementEnd};
use oribi_server::admin_api::rights::Rights;
use oribi_server::buckets::BucketHandle;
use oribi_server::server_context::ServerContext;

/// See the module text.
pub(super) struct KeyspacePlace {
    pub server: Arc<ServerContext>,
    pub control: Arc<StatementControl>,
    pub handle: Arc<BucketHandle>,
    pub name: KeyspaceName,
    pub collection: CollectionId,
}

impl KeyspacePlace {
    /// The keyspace's full name.
    pub(super) fn path(&self) -> String {
        match &self.name.collection {
            None => format!("default:{}", self.name.bucket),
            Some((scope, collection)) => {
                format!("default:{}.{scope}.{collection}", self.name.bucket)
            }
        }
    }

    /// Refuses a user who lacks one of the privileges (13014).
    pub(super) fn check_rights(&self, needed: &[Privilege]) -> Result<()> {
        debug_assert!(!needed.is_empty(), "each statement needs a right");
        let mut rights = Rights::of(self.control.identity(), self.handle.name());
        let held = rights.within(self.collection, self.handle.bucket().manifest());
        match needed.iter().find(|one| !held.holds(PrivilegeSet::of(&[**one]))) {
            None => Ok(()),
            Some(lacking) => Err(QueryError::datastore(
                13014,
                format!(
                    "User does not have credentials to run queries on {}: it lacks the privilege \
                     {lacking:?}",
                    self.path()
                ),
            )),
        }
    }

    /// The error of a read or scan that failed with `error`.
    pub(super) fn read_error(&self, error: &anyhow::Error) -> Box<QueryError> {
        let code = self.control.ending().and_then(StatementEnd::query_code);
        QueryError::datastore(code.unwrap_or(12008), format!("{error:#}"))
    }
}
