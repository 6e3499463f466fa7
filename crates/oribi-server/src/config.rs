//! What an operator can set, and what a server then does.
//!
//! Owns: [`Settings`], their defaults and the checks that need more than one value. The parts are
//! `setting` (the one table of names, help texts and value forms), `resolve` (flags over environment
//! over file) and `print` (`oribi config`). Invariant: a setting has one name, in the table, from
//! which flag, variable and TOML key follow. Callers: the `oribi` binary resolves, `Server::start`
//! checks and reads. It opens nothing but the configuration file.

mod print;
mod resolve;
mod setting;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crate::buckets::BucketStorage;
pub use print::{to_json, to_toml};
pub use resolve::{ConfigError, Resolved, Source, arguments, arguments_named, resolve};

/// Everything a server can be told. See the table in `setting` for the meaning of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Directory with all durable state.
    pub data_dir: PathBuf,
    /// Buckets created at start when they do not exist.
    pub buckets: Vec<String>,
    /// Where new buckets keep their documents.
    pub storage: BucketStorage,
    /// vbuckets of a new bucket: a power of two, 1 to 1024.
    pub vbuckets: u16,
    /// Memory quota of a new bucket in MiB.
    pub memory_quota_mib: u64,
    /// Whether new buckets can be flushed.
    pub flush_enabled: bool,
    /// Whether a bucket whose journal is damaged is opened without what stands behind the damage.
    pub accept_damaged_journal: bool,
    /// Address of the memcached binary protocol.
    pub listen: IpAddr,
    /// Port of the memcached binary protocol; 0 takes a free one.
    pub port: u16,
    /// Address of the admin HTTP; `listen` when not set.
    pub admin_listen: Option<IpAddr>,
    /// Port of the admin HTTP; 0 takes a free one.
    pub admin_port: u16,
    /// Connections accepted at the same time.
    pub connections_max: usize,
    /// Time to authenticate after connecting.
    pub auth_deadline_ms: u64,
    /// Time for a started frame to arrive.
    pub frame_deadline_ms: u64,
    /// Time for a client to take some of the answers waiting for it.
    pub send_deadline_ms: u64,
    /// Worker threads.
    pub workers: usize,
    /// Pipelined requests whose keys are looked up ahead; 0 for none.
    pub prefetch_keys: usize,
    /// Pause between two commits of a bucket when no durable write waits.
    pub flush_interval_ms: u64,
    /// Log filter in the syntax of `tracing_subscriber::EnvFilter`.
    pub log: String,
    /// File that is written when the server serves: `{"pid":..,"port":..,"admin_port":..}`.
    pub ready_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            data_dir: PathBuf::from("./oribi-data"),
            buckets: vec!["default".to_owned()],
            storage: BucketStorage::Embedded,
            vbuckets: 64,
            memory_quota_mib: 1024,
            flush_enabled: false,
            accept_damaged_journal: false,
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 11210,
            admin_listen: None,
            admin_port: 8091,
            connections_max: 10_000,
            auth_deadline_ms: 10_000,
            frame_deadline_ms: 60_000,
            send_deadline_ms: 60_000,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            prefetch_keys: 16,
            flush_interval_ms: 20,
            log: "info".to_owned(),
            ready_file: None,
        }
    }
}

/// Why a combination of settings cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// vbucket counts that clients cannot route.
    #[error("vbuckets is {0}, but it must be a power of two from 1 to 1024")]
    Vbuckets(u16),
    /// A bucket name that no client could select.
    #[error(
        "{0:?} is not a bucket name: 1 to 100 letters, digits and ._%- that do not start with a dot"
    )]
    BucketName(String),
    /// The same bucket twice.
    #[error("bucket {0:?} is listed twice")]
    BucketTwice(String),
    /// A public address while everybody knows the password.
    #[error(
        "no user is configured, so the server would accept the development password from {0}; \
         add a user with `oribi user add NAME --role admin`, or listen on 127.0.0.1"
    )]
    ExposedDevelopment(IpAddr),
}

impl Settings {
    /// Address of the admin HTTP.
    pub fn admin_address(&self) -> IpAddr {
        self.admin_listen.unwrap_or(self.listen)
    }

    /// Checks what a single value's form cannot tell. Called when settings are resolved.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !self.vbuckets.is_power_of_two() || self.vbuckets > 1024 {
            return Err(SettingsError::Vbuckets(self.vbuckets));
        }
        for (index, name) in self.buckets.iter().enumerate() {
            if !is_bucket_name(name) {
                return Err(SettingsError::BucketName(name.clone()));
            }
            if self.buckets[..index].contains(name) {
                return Err(SettingsError::BucketTwice(name.clone()));
            }
        }
        Ok(())
    }

    /// Refuses to serve the development password on anything but a loopback address. Called by
    /// `Server::start` before it binds.
    pub fn check_exposure(&self, is_development: bool) -> Result<(), SettingsError> {
        let exposed = [self.listen, self.admin_address()].into_iter().find(|a| !a.is_loopback());
        match exposed {
            Some(address) if is_development => Err(SettingsError::ExposedDevelopment(address)),
            _ => Ok(()),
        }
    }
}

/// True for a usable bucket name: 1 to 100 letters, digits and `._%-`, not starting with a dot. The
/// name is also a directory name, hence the last rule.
pub fn is_bucket_name(name: &str) -> bool {
    (1..=100).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._%-".contains(&byte))
}
