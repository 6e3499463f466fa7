//! The settings that an operator can change, and their effect on a server.
//!
//! The parts are `settings` (values, defaults, and checks across values), `table` (names, help
//! texts and forms), `explicit` (explicitly configured values, and which differ), `resolve` (flags
//! over environment over file) and `print` (`oribi config`). Invariant: a setting has one name, in
//! the table; its flag, variable and TOML key follow from it. Callers: the `oribi` binary resolves,
//! `Server::start` checks and reads. This crate opens only the configuration file.

#![forbid(unsafe_code)]

pub mod compression;
pub mod conflict;
pub mod eviction;
pub mod limits;
pub mod memory_tier;

mod bucket_name;
mod bucket_storage;
mod cluster_setting;
mod collection_path;
mod etcd_settings;
mod explicit;
mod form;
mod init_setting;
mod log_setting;
mod machine_memory;
mod memcached_setting;
mod name_rule;
#[cfg(not(feature = "kudu"))]
mod no_kudu;
mod print;
mod resolve;
mod setting;
mod settings;
mod slow_thresholds;
mod subnet;
mod table;
#[cfg(test)]
mod tests;
mod tls_setting;
mod variable_names;

pub use bucket_name::is_bucket_name;
pub use bucket_storage::BucketStorage;
pub use collection_path::{CollectionPath, is_collection_name};
pub use etcd_settings::EtcdSettings;
pub use explicit::{ExplicitValue, SettingChange};
pub use log_setting::LogFormat;
pub use name_rule::{NameField, NameRule, NameRuleError};
#[cfg(not(feature = "kudu"))]
pub use no_kudu::KuduUrl;
pub use print::{to_json, to_toml};
pub use resolve::{ConfigError, ResolvedSettings, Source, arguments, arguments_named, resolve};
pub use settings::{Settings, SettingsError};
pub use slow_thresholds::SlowThresholds;
pub use subnet::Subnet;
pub use table::listed;
pub use variable_names::misspelt_variables;
