//! The protocols in which a load can be put on a server.

use clap::ValueEnum;
use serde::Serialize;

/// A protocol of the load.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The binary key-value protocol.
    Binary,
    /// memcached's text protocol: get and set.
    Text,
    /// memcached's meta commands: mg and ms.
    Meta,
}
