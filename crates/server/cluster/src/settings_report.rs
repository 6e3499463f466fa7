//! What a node reports of the settings of its buckets: plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The settings that a node has in force, by the bucket's uuid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingsReport {
    pub(crate) buckets: BTreeMap<String, SettingsInForce>,
}

/// The last record of a bucket's settings that a node has seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SettingsInForce {
    pub(crate) revision: i64,
    /// Revision of the bucket's collections that are in force; 0 while there are none of the
    /// cluster.
    #[serde(default)]
    pub(crate) manifest_revision: i64,
    /// Why the settings of this revision are not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}
