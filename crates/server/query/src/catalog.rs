//! The `system:` keyspaces: their names, and the parts of the service that they use.

use crate::value::QueryValue;

/// Rows with their keys.
pub type CatalogRows = Vec<(QueryValue, QueryValue)>;

/// The prepared statements, as `system:prepareds` shows them.
pub trait PreparedCatalog: Sync {
    /// Those of one user.
    fn prepared_rows(&self, owner: &str) -> CatalogRows;
}

#[derive(Clone, Debug, PartialEq)]
pub enum SystemKeyspace {
    Datastores,
    Namespaces,
    Buckets,
    Scopes,
    Keyspaces,
    Indexes,
    Dual,
    Prepareds,
    /// Rows come from the store.
    Store(&'static str),
}

const STORE_NAMES: [&str; 9] = [
    "active_requests",
    "completed_requests",
    "my_user_info",
    "user_info",
    "nodes",
    "applicable_roles",
    "functions",
    "transactions",
    "vitals",
];

impl SystemKeyspace {
    /// The keyspace of a name after `system:`.
    pub fn named(name: &str) -> Option<SystemKeyspace> {
        Some(match name {
            "datastores" => SystemKeyspace::Datastores,
            "namespaces" => SystemKeyspace::Namespaces,
            "buckets" => SystemKeyspace::Buckets,
            "scopes" | "all_scopes" => SystemKeyspace::Scopes,
            "keyspaces" | "all_keyspaces" => SystemKeyspace::Keyspaces,
            "indexes" | "all_indexes" => SystemKeyspace::Indexes,
            "dual" => SystemKeyspace::Dual,
            "prepareds" => SystemKeyspace::Prepareds,
            _ => SystemKeyspace::Store(STORE_NAMES.iter().find(|known| **known == name)?),
        })
    }
}
