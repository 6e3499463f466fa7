//! The settings of a server: values, defaults, and the checks that need more than one value.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use oribi_tls::MinimumVersion;
use oribi_tls::client::ClientOptions;
use oribi_tls::server::{ClientCertificates, ServerOptions};
use oribi_types::policy::{CompressionMode, ConflictResolution, EvictionPolicy, MemoryTier};

use super::bucket_name::is_bucket_name;
use super::bucket_storage::BucketStorage;
use super::collection_path::CollectionPath;
use super::etcd_settings::EtcdSettings;
use super::eviction;
use super::log_setting::LogFormat;
use super::machine_memory;
use super::name_rule::{NameRule, NameRuleError};
use super::slow_thresholds::SlowThresholds;
use super::subnet::Subnet;

/// All settings of a server. The table in `table` describes the meaning of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Directory with all durable state.
    pub data_dir: PathBuf,
    /// Buckets created at start when they do not exist.
    pub buckets: Vec<String>,
    /// File with the initial state, applied before the server is ready.
    pub init: Option<PathBuf>,
    /// Administrator that is there from the start.
    pub admin_user: Option<String>,
    /// File with that administrator's password.
    pub admin_password_file: Option<PathBuf>,
    /// Where new buckets keep their documents.
    pub storage: BucketStorage,
    /// vbuckets of a new bucket: a power of two, 1 to 1024.
    pub vbuckets: u16,
    /// Logs of a new bucket's store; by processors and quota when not given.
    pub logs: Option<usize>,
    /// Memory quota of a new bucket in MiB; a share of the machine's when not set.
    pub memory_quota_mib: Option<u64>,
    /// Eviction policy of a new bucket; the storage's default when not set.
    pub eviction: Option<EvictionPolicy>,
    /// When a new bucket compresses values.
    pub compression_mode: CompressionMode,
    /// What a new bucket does with cold values before they leave memory.
    pub memory_tier: MemoryTier,
    /// How a new bucket resolves conflicts.
    pub conflict_resolution: ConflictResolution,
    /// Whether new buckets can be flushed.
    pub flush_enabled: bool,
    /// Whether a bucket with a damaged log is opened without the records after the damage.
    pub accept_damaged_log: bool,
    /// Part of the quota, in per cent, above which a bucket starts to evict.
    pub high_watermark_percent: u8,
    /// Part of the quota, in per cent, at which eviction stops.
    pub low_watermark_percent: u8,
    /// Part of the quota, in per cent, for the mutation queues.
    pub checkpoint_quota_percent: u8,
    /// Seconds between two runs of the expiry pager.
    pub expiry_pager_interval_s: u32,
    /// Seconds that tombstones stay in the store.
    pub tombstone_purge_age_s: u32,
    /// Address for key-value clients.
    pub listen: IpAddr,
    /// Port for key-value clients; 0 takes a free one.
    pub port: u16,
    /// Address of the admin HTTP; `listen` when not set.
    pub admin_listen: Option<IpAddr>,
    /// Port of the admin HTTP; 0 takes a free one.
    pub admin_port: u16,
    /// Port of SQL++ over HTTP, at the address of the admin HTTP; 0 for none.
    pub query_port: u16,
    /// PEM file with the server's certificate chain; TLS is enabled when it is set.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    pub tls_key: Option<PathBuf>,
    /// Address of the ports with TLS; `listen` when not set.
    pub tls_listen: Option<IpAddr>,
    /// Port for key-value clients with TLS; 0 takes a free one.
    pub tls_port: u16,
    /// Port of the admin HTTP with TLS; 0 takes a free one.
    pub tls_admin_port: u16,
    /// Port of SQL++ over HTTP with TLS; 0 for none.
    pub tls_query_port: u16,
    /// Balancers whose connections begin with the PROXY protocol, as [`Subnet`] reads them; it is
    /// not spoken when the list is empty.
    pub proxy_protocol: Vec<String>,
    /// Bucket of clients that select none, unless their user has one.
    pub memcached_bucket: Option<String>,
    /// Collection of clients that select none, unless their user has a bucket or a collection.
    pub memcached_collection: Option<CollectionPath>,
    /// Minimum version of TLS.
    pub tls_minimum_version: MinimumVersion,
    /// Whether clients are asked for a certificate.
    pub tls_client_certificates: ClientCertificates,
    /// PEM file with the certificate authorities of clients.
    pub tls_client_ca: Option<PathBuf>,
    /// Where a client's certificate names its user. [`NameRule`] reads it.
    pub tls_client_names: Vec<String>,
    /// `http://HOST:PORT` or `https://HOST:PORT` of etcd's members; the node is alone when the list
    /// is empty.
    pub cluster_etcd: Vec<String>,
    /// PEM file with the certificate authorities of etcd's members; the system's when not set.
    pub cluster_etcd_ca: Option<PathBuf>,
    /// PEM file with this node's certificate for etcd.
    pub cluster_etcd_certificate: Option<PathBuf>,
    /// PEM file with the key of that certificate.
    pub cluster_etcd_key: Option<PathBuf>,
    pub cluster_etcd_user: Option<String>,
    /// File with that user's password.
    pub cluster_etcd_password_file: Option<PathBuf>,
    /// File with the secret that the nodes of the cluster share.
    pub cluster_secret_file: Option<PathBuf>,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Seconds that this node's lease lasts without being renewed.
    pub cluster_lease_s: u64,
    /// Milliseconds without a beacon of a node before other copies are promoted.
    pub cluster_failover_ms: u64,
    /// Name of this node in the cluster; host and port when not set.
    pub node_name: Option<String>,
    /// Host name or address at which clients and other nodes reach this one; `listen` when not set.
    pub advertise_host: Option<String>,
    /// Port that clients use instead of `port`.
    pub advertise_port: Option<u16>,
    /// Port that clients use instead of `admin_port`.
    pub advertise_admin_port: Option<u16>,
    /// Port that clients use instead of `query_port`.
    pub advertise_query_port: Option<u16>,
    /// Port that clients use instead of `tls_port`.
    pub advertise_tls_port: Option<u16>,
    /// Port that clients use instead of `tls_admin_port`.
    pub advertise_tls_admin_port: Option<u16>,
    /// Port that clients use instead of `tls_query_port`.
    pub advertise_tls_query_port: Option<u16>,
    /// Connections accepted at the same time.
    pub connections_max: usize,
    /// Time to authenticate after connecting.
    pub auth_deadline_ms: u64,
    /// Time for a started frame to arrive.
    pub frame_deadline_ms: u64,
    /// Time for a client to read some of its pending answers.
    pub send_deadline_ms: u64,
    /// Time without a request after which a connection is closed; 0 for never.
    pub idle_timeout_ms: u64,
    /// Pending answers to a client, in KiB, from which on its requests wait (back-pressure).
    pub send_queue_kib: usize,
    /// Connections of `connections_max` that only administrators may use; a hundredth when not set.
    pub connections_reserved: Option<usize>,
    /// Milliseconds from which a read is logged as slow; 0 for never.
    pub slow_read_ms: u64,
    /// Milliseconds from which a write is logged as slow; 0 for never.
    pub slow_write_ms: u64,
    /// Milliseconds from which a write that waits for the store is logged as slow; 0 for never.
    pub slow_durable_ms: u64,
    /// Milliseconds from which anything else is logged as slow; 0 for never.
    pub slow_other_ms: u64,
    /// File for the audit log; none is written when not set.
    pub audit_log: Option<PathBuf>,
    /// Size in MiB at which a new file of the audit log is begun.
    pub audit_log_mib: u64,
    /// Age in seconds at which a new file of the audit log is begun.
    pub audit_log_age_s: u64,
    /// Earlier files of the audit log that are kept.
    pub audit_log_files: usize,
    pub workers: usize,
    /// Pipelined requests whose keys are looked up ahead; 0 for none.
    pub prefetch_keys: usize,
    /// How long writes gather before a flush begins when no durable write waits.
    pub flush_interval_ms: u64,
    /// How long a document is locked when the client does not say, in seconds.
    pub lock_timeout_default_s: u32,
    /// Longest time that a document is locked, in seconds.
    pub lock_timeout_max_s: u32,
    /// Levels of the log: `LEVEL` for everything, `TARGET=LEVEL` for a part, separated by commas.
    pub log: String,
    /// Form of the log's lines.
    pub log_format: LogFormat,
    /// File that is written when the server is ready: `{"pid":..,"port":..,"admin_port":..}`.
    pub ready_file: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        let slow = SlowThresholds::default();
        Settings {
            data_dir: PathBuf::from("./oribi-data"),
            buckets: vec!["default".to_owned()],
            init: None,
            admin_user: None,
            admin_password_file: None,
            storage: BucketStorage::default(),
            vbuckets: 64,
            logs: None,
            memory_quota_mib: None,
            eviction: None,
            compression_mode: CompressionMode::default(),
            memory_tier: MemoryTier::Dense,
            conflict_resolution: ConflictResolution::default(),
            flush_enabled: false,
            accept_damaged_log: false,
            high_watermark_percent: 85,
            low_watermark_percent: 75,
            checkpoint_quota_percent: 20,
            expiry_pager_interval_s: 600,
            tombstone_purge_age_s: 3 * 24 * 60 * 60,
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 11210,
            admin_listen: None,
            admin_port: 8091,
            query_port: 8093,
            proxy_protocol: Vec::new(),
            memcached_bucket: None,
            memcached_collection: None,
            tls_certificate: None,
            tls_key: None,
            tls_listen: None,
            tls_port: 11207,
            tls_admin_port: 18091,
            tls_query_port: 18093,
            tls_minimum_version: MinimumVersion::Tls12,
            tls_client_certificates: ClientCertificates::Off,
            tls_client_ca: None,
            tls_client_names: vec!["subject.cn".to_owned()],
            cluster_etcd: Vec::new(),
            cluster_etcd_ca: None,
            cluster_etcd_certificate: None,
            cluster_etcd_key: None,
            cluster_etcd_user: None,
            cluster_etcd_password_file: None,
            cluster_secret_file: None,
            cluster_name: "oribi".to_owned(),
            cluster_lease_s: 5,
            cluster_failover_ms: 2000,
            node_name: None,
            advertise_host: None,
            advertise_port: None,
            advertise_admin_port: None,
            advertise_query_port: None,
            advertise_tls_port: None,
            advertise_tls_admin_port: None,
            advertise_tls_query_port: None,
            connections_max: 10_000,
            auth_deadline_ms: 10_000,
            frame_deadline_ms: 60_000,
            send_deadline_ms: 60_000,
            idle_timeout_ms: 0,
            audit_log: None,
            audit_log_mib: 64,
            audit_log_age_s: 7 * 24 * 60 * 60,
            audit_log_files: 8,
            send_queue_kib: 1024,
            connections_reserved: None,
            slow_read_ms: slow.read_ms,
            slow_write_ms: slow.write_ms,
            slow_durable_ms: slow.durable_ms,
            slow_other_ms: slow.other_ms,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            prefetch_keys: 16,
            flush_interval_ms: 20,
            lock_timeout_default_s: 15,
            lock_timeout_max_s: 30,
            log: "info".to_owned(),
            log_format: LogFormat::default(),
            ready_file: None,
        }
    }
}

/// Why a combination of settings is refused.
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
    /// Only one of TLS's certificate and key is set.
    #[error("tls_certificate and tls_key go together: {0} is missing")]
    TlsHalf(&'static str),
    /// The server would ask for client certificates without an authority to verify them.
    #[error(
        "tls_client_certificates is {0}, so tls_client_ca has to name the clients' authorities"
    )]
    TlsClientAuthority(&'static str),
    /// An entry that is no network of balancers.
    #[error("proxy_protocol: {0}")]
    ProxyProtocol(String),
    /// An invalid rule for names.
    #[error("tls_client_names: {0}")]
    TlsClientName(#[from] NameRuleError),
    /// An eviction policy that the storage does not support.
    #[error("eviction {0:?} does not go with storage {1:?}")]
    Eviction(&'static str, String),
    /// No connection is left for users.
    #[error("connections_reserved is {0}, but it must be below connections_max, {1}")]
    ReservedConnections(usize, usize),
    /// The low watermark is not below the high one.
    #[error("low_watermark_percent is {0}, but it must be below high_watermark_percent, {1}")]
    Watermarks(u8, u8),
    /// A node without an address that others could use.
    #[error(
        "listen is {0}, so advertise_host has to say where clients and other nodes reach this one"
    )]
    AdvertiseHost(IpAddr),
    /// An initial state for a node of a cluster.
    #[error("init is for a server that is alone, and cluster_etcd is set: leave one out")]
    InitInCluster,
    /// Only one of two settings for etcd that belong together is set.
    #[error("{0} and {1} go together: one of them is missing")]
    EtcdHalf(&'static str, &'static str),
    /// A secret for links to other nodes on a node without cluster.
    #[error("cluster_secret_file is set, but this node is in no cluster: set cluster_etcd")]
    SecretWithoutCluster,
    /// A cluster name that cannot be part of a key.
    #[error("{0:?} is no name: 1 to 100 letters, digits and ._:%-")]
    ClusterName(String),
    /// A public address while the public development password is accepted.
    #[error(
        "no user is configured, so the server would accept the development password from {0}; \
         set ORIBI_ADMIN_USER and ORIBI_ADMIN_PASSWORD, add a user with `oribi user create NAME \
         --role admin --data-dir DIR`, or listen on 127.0.0.1"
    )]
    ExposedDevelopment(IpAddr),
}

impl Settings {
    /// Address of the admin HTTP.
    pub fn admin_address(&self) -> IpAddr {
        self.admin_listen.unwrap_or(self.listen)
    }

    /// Address of the ports with TLS.
    pub fn tls_address(&self) -> IpAddr {
        self.tls_listen.unwrap_or(self.listen)
    }

    /// True when this node is in a cluster.
    pub fn is_clustered(&self) -> bool {
        !self.cluster_etcd.is_empty()
    }

    /// The endpoints of etcd, and this node's credentials there.
    pub fn etcd(&self) -> EtcdSettings {
        let identity = self.cluster_etcd_certificate.clone().zip(self.cluster_etcd_key.clone());
        let ca = self.cluster_etcd_ca.clone();
        assert_eq!(
            identity.is_some(),
            self.cluster_etcd_key.is_some(),
            "a certificate goes with its key"
        );
        EtcdSettings {
            urls: self.cluster_etcd.clone(),
            tls: ClientOptions { ca, identity, ..ClientOptions::default() },
            login: self.cluster_etcd_user.clone().zip(self.cluster_etcd_password_file.clone()),
        }
    }

    /// The options of TLS, if it is enabled.
    pub fn tls_options(&self) -> Option<ServerOptions> {
        Some(ServerOptions {
            certificate: self.tls_certificate.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone(),
            client_certificates: self.tls_client_certificates,
            minimum_version: self.tls_minimum_version,
        })
    }

    /// The parts of a client's certificate that may name its user, in order of preference.
    pub fn tls_name_rules(&self) -> Result<Vec<NameRule>, NameRuleError> {
        self.tls_client_names.iter().map(|rule| rule.parse()).collect()
    }

    /// The balancers that pass on clients.
    pub fn proxies(&self) -> Result<Vec<Subnet>, SettingsError> {
        let networks = self.proxy_protocol.iter().map(|text| text.parse::<Subnet>());
        networks.collect::<Result<_, _>>().map_err(SettingsError::ProxyProtocol)
    }

    /// Connections that only administrators may use.
    pub fn reserved_connections(&self) -> usize {
        self.connections_reserved.unwrap_or(self.connections_max / 100)
    }

    /// Memory quota of a new bucket in MiB.
    pub fn new_bucket_quota_mib(&self) -> u64 {
        assert_ne!(self.memory_quota_mib, Some(0), "the bounds of the table leave a bucket memory");
        self.memory_quota_mib.unwrap_or_else(|| machine_memory::quota_mib(self.buckets.len()))
    }

    /// Checks the rules that a single value's form cannot express. Called when settings are
    /// resolved.
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
        if let Some(bad) = self.memcached_bucket.as_ref().filter(|name| !is_bucket_name(name)) {
            return Err(SettingsError::BucketName(bad.clone()));
        }
        self.proxies()?;
        let misfit = self.eviction.filter(|policy| !policy.fits(self.storage.of_engine()));
        if let Some(policy) = misfit {
            let (policy, storage) = (eviction::setting_name(policy), self.storage.name());
            return Err(SettingsError::Eviction(policy, storage));
        }
        let (low, high) = (self.low_watermark_percent, self.high_watermark_percent);
        if low >= high {
            return Err(SettingsError::Watermarks(low, high));
        }
        self.check_cluster()?;
        if self.reserved_connections() >= self.connections_max {
            let reserved = self.reserved_connections();
            return Err(SettingsError::ReservedConnections(reserved, self.connections_max));
        }
        self.check_tls()
    }

    fn check_cluster(&self) -> Result<(), SettingsError> {
        let is_name = |name: &str| {
            (1..=100).contains(&name.len())
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._:%-[]".contains(&byte))
        };
        let names = [Some(&self.cluster_name), self.node_name.as_ref()];
        if let Some(bad) = names.into_iter().flatten().find(|name| !is_name(name)) {
            return Err(SettingsError::ClusterName(bad.clone()));
        }
        if self.cluster_etcd_certificate.is_some() != self.cluster_etcd_key.is_some() {
            return Err(SettingsError::EtcdHalf("cluster_etcd_certificate", "cluster_etcd_key"));
        }
        if self.cluster_etcd_user.is_some() != self.cluster_etcd_password_file.is_some() {
            let (user, password) = ("cluster_etcd_user", "cluster_etcd_password_file");
            return Err(SettingsError::EtcdHalf(user, password));
        }
        if self.cluster_secret_file.is_some() && !self.is_clustered() {
            return Err(SettingsError::SecretWithoutCluster);
        }
        if self.is_clustered() && self.init.is_some() {
            return Err(SettingsError::InitInCluster);
        }
        if self.is_clustered() && self.advertise_host.is_none() && self.listen.is_unspecified() {
            return Err(SettingsError::AdvertiseHost(self.listen));
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), SettingsError> {
        match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => return Err(SettingsError::TlsHalf("tls_key")),
            (None, Some(_)) => return Err(SettingsError::TlsHalf("tls_certificate")),
            _ => {}
        }
        let asked = self.tls_client_certificates;
        if asked != ClientCertificates::Off && self.tls_client_ca.is_none() {
            return Err(SettingsError::TlsClientAuthority(asked.name()));
        }
        self.tls_name_rules()?;
        Ok(())
    }

    /// Refuses to serve the development password on anything but a loopback address. Called by
    /// `Server::start` before it binds.
    pub fn check_exposure(&self, is_development: bool) -> Result<(), SettingsError> {
        let tls = self.tls_certificate.is_some().then(|| self.tls_address());
        let addresses = [self.listen, self.admin_address()].into_iter().chain(tls);
        let exposed = addresses.into_iter().find(|a| !a.is_loopback());
        match exposed {
            Some(address) if is_development => Err(SettingsError::ExposedDevelopment(address)),
            _ => Ok(()),
        }
    }
}
