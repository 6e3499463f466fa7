//! A whole server: starts and stops its parts in order.
//!
//! Owns: the order.
//! - Start: lock the data directory, read users, refuse unsafe settings, bind the ports (a taken
//!   port is reported before anything is opened), open buckets, start workers, acceptor and admin
//!   HTTP. Users of the initial state are created before the settings are checked, its buckets and
//!   documents before the first connection is accepted.
//! - Stop: accept no more connections, let the workers send pending output and end, flush the
//!   buckets and mark them clean, release the lock.
//!
//! Callers: the `oribi` binary and tests.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oribi_auth::audit::{Actor, AuditLog, AuditOptions, AuditThread, Event};
use oribi_auth::{UserFileError, UserStore};
use oribi_cluster::identity::ClusterIdentity;
use oribi_cluster::secret::{ClusterSecret, ClusterSecretError};
use oribi_cluster::topology::TopologyNode;
use oribi_cluster::{ClusterError, ClusterHost, ClusterMember, ClusterSettings};
use oribi_config::SlowThresholds;
use oribi_config::eviction;
use oribi_config::{Settings, SettingsError};
use oribi_system::clock::wall_clock;
use oribi_system::data_dir::{DataDir, DataDirError};
use oribi_system::data_file::DataFileError;
use oribi_system::random::random_bytes;
use oribi_types::Timestamp;
use parking_lot::Mutex;

use crate::admin_api::{AdminService, AdminSockets, AdminStart};
use crate::buckets::{
    BucketError, BucketOptions, Buckets, ClusteredBuckets, CopyLinks, MemcachedPlace,
};
use crate::cluster_config::address::{NodeAddress, own_ip};
use crate::cluster_config::{ClusterConfig, QueryPorts, TlsPorts};
use crate::connection::file_limit::FileLimits;
use crate::connection::tls::{FileWatch, Tls};
use crate::diagnostics::counters::ServerCounters;
use crate::init::{Administrator, Init, InitError};
use crate::replication::links::LinkWorker;
use crate::runtime::blocking_thread::BlockingThreads;
use crate::runtime::listener::Listener;
use crate::runtime::mailbox::WorkerMessage;
use crate::runtime::progress::Progress;
use crate::runtime::worker::Worker;
use crate::server_context::{ConnectionLimits, LockTimeouts, ServerContext};
use crate::shared_users::{AgreedUsers, NodeUsers};

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// TLS cannot be set up from the configured files.
    #[error(transparent)]
    Tls(#[from] oribi_tls::files::FileError),
    /// The initial state cannot be made.
    #[error(transparent)]
    Init(#[from] InitError),
    /// The cluster's identity cannot be read.
    #[error(transparent)]
    Identity(#[from] DataFileError),
    /// The users cannot be read.
    #[error(transparent)]
    Users(#[from] UserFileError),
    /// The settings are inconsistent.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A bucket cannot be opened.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// The server cannot join its cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The cluster's secret cannot be read.
    #[error(transparent)]
    Secret(#[from] ClusterSecretError),
    /// An address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The audit log cannot be written.
    #[error("cannot open the audit log {path}")]
    Audit {
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The operating system refused a thread or a poll.
    #[error("cannot start threads")]
    Threads(#[from] std::io::Error),
}

/// Addresses of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    pub kv: SocketAddr,
    /// Admin HTTP; port 0 in a server without it.
    pub admin: SocketAddr,
    /// The same with TLS, if enabled.
    pub tls: Option<TlsAddresses>,
    /// Queries: that of the admin HTTP when the port was taken; none where there are none.
    pub query: Option<SocketAddr>,
    /// The same with TLS.
    pub query_tls: Option<SocketAddr>,
}

/// Addresses of a server with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsAddresses {
    pub kv: SocketAddr,
    /// Admin HTTP; port 0 in a server without it.
    pub admin: SocketAddr,
}

/// The bound sockets of a server.
struct Sockets {
    kv: TcpListener,
    kv_tls: Option<TcpListener>,
    admin: Option<AdminSockets>,
    has_queries: bool,
}

pub struct Server {
    context: Arc<ServerContext>,
    addresses: Addresses,
    listener: Listener,
    workers: Vec<Worker>,
    blocking: BlockingThreads,
    admin: Option<Box<dyn AdminService>>,
    audit: Option<AuditThread>,
    _tls_files: Option<FileWatch>,
    _data_dir: DataDir,
}

impl Server {
    /// Starts a server without the admin HTTP; it serves when this returns.
    ///
    /// # Errors
    /// The reason that prevents the start, in words for an operator. The process should then end:
    /// the parts already started are not stopped in order, and no write was acknowledged yet.
    pub fn start(settings: &Settings) -> Result<Server, StartError> {
        Server::start_with(settings, None, None)
    }

    /// [`Server::start`] with an administrator's password from elsewhere than the settings, and
    /// with an admin HTTP.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        settings: &Settings,
        administrator: Option<Administrator>,
        start_admin: Option<AdminStart>,
    ) -> Result<Server, StartError> {
        let started = wall_clock();
        let mut init = Init::read(settings, administrator)?;
        let data_dir = DataDir::open(&settings.data_dir)?;
        let users = Arc::new(UserStore::open(data_dir.path())?);
        init.apply_users(&users)?;
        if let Some(bucket) = &settings.memcached_bucket {
            users.admit_anonymous_to(bucket);
        }
        check_users(settings, &users)?;
        let tls = open_tls(settings)?;
        let sockets = Sockets::bind(settings, start_admin)?;
        let addresses = sockets.addresses(settings)?;
        let buckets = Buckets::open_with(data_dir.path(), settings, &init.new_buckets())?;
        init.apply_buckets(&buckets, data_dir.path())?;
        let buckets = Arc::new(buckets);
        let mut context = context(settings, addresses, buckets, users, started);
        context.cluster.config.set_identity(ClusterIdentity::open(data_dir.path())?);
        context.cluster.config.set_address(NodeAddress::open(data_dir.path())?);
        context.cluster.own_ip = own_ip(settings.listen);
        context.cluster.data_dir = Mutex::new(Some(data_dir.path().to_owned()));
        context.access.tls = tls.clone();
        context.connections.proxies = settings.proxies()?;
        context.memcached = MemcachedPlace {
            bucket: settings.memcached_bucket.clone(),
            collection: settings.memcached_collection.clone(),
        };
        context.diagnostics.reference_seed = u64::from_ne_bytes(random_bytes());
        context.buckets.set_links(Arc::clone(&context.cluster.links) as Arc<dyn CopyLinks>);
        context.cluster.node = join_cluster(settings, addresses, &context)?;
        let audit = open_audit(settings, &mut context)?;
        let context = Arc::new(context);
        let (blocking, queue) = BlockingThreads::start()?;
        let mut workers = Vec::new();
        for index in 0..settings.workers {
            workers.push(Worker::start(index, Arc::clone(&context), queue.clone())?);
        }
        let mailboxes: Vec<_> = workers.iter().map(|worker| Arc::clone(worker.mailbox())).collect();
        let homes = mailboxes.iter().map(|mailbox| Arc::clone(mailbox) as Arc<dyn LinkWorker>);
        context.cluster.links.attach(homes.collect());
        let announced = mailboxes.clone();
        context.cluster.config.on_change(Box::new(move || {
            announced.iter().for_each(|mailbox| mailbox.post(WorkerMessage::ClusterMapChanged));
        }));
        let started = start_admin.zip(sockets.admin);
        let admin = started.map(|(admin, sockets)| (admin.start)(sockets, Arc::clone(&context)));
        let admin = admin.transpose()?;
        let (kv, kv_tls) = (sockets.kv, sockets.kv_tls);
        let listener = Listener::start(kv, kv_tls, Arc::clone(&context), mailboxes)?;
        let _tls_files = tls.map(FileWatch::start).transpose()?;
        let _data_dir = data_dir;
        let server = Server {
            context,
            addresses,
            listener,
            workers,
            blocking,
            admin,
            audit,
            _tls_files,
            _data_dir,
        };
        server.announce();
        Ok(server)
    }

    /// Addresses of the server.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// State that the server's parts share.
    pub fn context(&self) -> &Arc<ServerContext> {
        &self.context
    }

    /// Checks that the workers make progress.
    pub fn progress(&self) -> Progress {
        Progress::of(self.workers.iter().map(|worker| Arc::clone(worker.mailbox())).collect())
    }

    /// Stops in order; every acknowledged write is on disk when this returns `Ok`.
    ///
    /// # Errors
    /// The first bucket that could not be flushed. The other parts are stopped all the same.
    pub fn shutdown(self) -> Result<(), BucketError> {
        let Server { context, listener, workers, blocking, admin, audit, .. } = self;
        tracing::info!("stopping");
        if let Some(node) = &context.cluster.node {
            // While the server can still redirect clients.
            node.leave();
        }
        listener.stop();
        context.buckets.end_waits();
        if let Some(admin) = admin {
            admin.stop();
        }
        for worker in &workers {
            worker.mailbox().post(WorkerMessage::Stop);
        }
        for worker in workers {
            worker.join();
        }
        blocking.join();
        context.cluster.links.shut_down();
        let stopped = context.buckets.stop_all();
        if let Some(node) = &context.cluster.node {
            node.stop();
        }
        context.access.audit.record(Actor::default(), Event::Stopping);
        if let Some(audit) = audit {
            audit.stop();
        }
        tracing::info!(clean = stopped.is_ok(), "stopped");
        stopped
    }

    fn announce(&self) {
        if self.context.access.users.is_development() {
            tracing::warn!(
                "DEVELOPMENT MODE: no user is configured. Anybody on this machine may log in as \
                 Administrator with the password \"password\", and memcached clients may use bucket \
                 \"default\" without logging in. Add a user with `oribi user create` to end this."
            );
        }
        for bucket in self.context.buckets.list() {
            let (name, engine) = (bucket.name(), bucket.bucket());
            let quota_mib = engine.memory_quota_bytes() >> 20;
            let (storage, eviction) =
                (bucket.storage().name(), eviction::setting_name(engine.eviction()));
            let (vbuckets, flushers) = (bucket.vbuckets(), engine.flusher_count());
            tracing::info!(
                bucket = name,
                quota_mib,
                eviction,
                storage,
                vbuckets,
                flushers,
                "bucket is open"
            );
        }
    }
}

impl Sockets {
    fn bind(settings: &Settings, admin: Option<AdminStart>) -> Result<Sockets, StartError> {
        let with_admin = admin.is_some();
        let has_queries = admin.is_some_and(|admin| admin.has_queries);
        let kv = bind(SocketAddr::new(settings.listen, settings.port))?;
        let admin_address = SocketAddr::new(settings.admin_address(), settings.admin_port);
        let plain = with_admin.then(|| bind(admin_address)).transpose()?;
        let (mut kv_tls, mut admin_tls) = (None, None);
        if settings.tls_options().is_some() {
            let address = settings.tls_address();
            kv_tls = Some(bind(SocketAddr::new(address, settings.tls_port))?);
            let admin_address = SocketAddr::new(address, settings.tls_admin_port);
            admin_tls = with_admin.then(|| bind(admin_address)).transpose()?;
        }
        let (mut query, mut query_tls) = (None, None);
        if has_queries {
            query = bind_query(settings.admin_address(), settings.query_port);
            let tls_address = kv_tls.as_ref().map(|_| settings.tls_address());
            query_tls =
                tls_address.and_then(|address| bind_query(address, settings.tls_query_port));
        }
        let admin = plain.map(|plain| AdminSockets { plain, tls: admin_tls, query, query_tls });
        Ok(Sockets { kv, kv_tls, admin, has_queries })
    }

    fn addresses(&self, settings: &Settings) -> std::io::Result<Addresses> {
        let address = |socket: Option<&TcpListener>, ip| match socket {
            Some(socket) => socket.local_addr(),
            None => Ok(SocketAddr::new(ip, 0)),
        };
        let admin = self.admin.as_ref();
        let mut tls = None;
        if let Some(kv) = &self.kv_tls {
            let admin_tls = admin.and_then(|admin| admin.tls.as_ref());
            let admin = address(admin_tls, settings.tls_address())?;
            tls = Some(TlsAddresses { kv: kv.local_addr()?, admin });
        }
        // A port for queries that was taken is replaced by that of the admin HTTP.
        let query_address =
            |port: u16, socket: Option<&TcpListener>, instead: Option<SocketAddr>| match socket {
                Some(socket) => socket.local_addr().map(Some),
                None => Ok(instead.filter(|_| port != 0 && self.has_queries)),
            };
        let query = self.admin.as_ref().and_then(|admin| admin.query.as_ref());
        let query_tls = self.admin.as_ref().and_then(|admin| admin.query_tls.as_ref());
        let admin = address(admin.map(|admin| &admin.plain), settings.admin_address())?;
        let query = query_address(settings.query_port, query, Some(admin))?;
        let query_tls =
            query_address(settings.tls_query_port, query_tls, tls.map(|tls| tls.admin))?;
        Ok(Addresses { kv: self.kv.local_addr()?, admin, tls, query, query_tls })
    }
}

/// Opens the audit log if one is configured, and records the settings in force.
fn open_audit(
    settings: &Settings,
    context: &mut ServerContext,
) -> Result<Option<AuditThread>, StartError> {
    let Some(path) = settings.audit_log.clone() else { return Ok(None) };
    let options = AuditOptions {
        path: path.clone(),
        file_bytes_max: settings.audit_log_mib * 1024 * 1024,
        file_age_max: Duration::from_secs(settings.audit_log_age_s),
        files_max: settings.audit_log_files,
    };
    let started = AuditLog::start(options);
    let (log, thread) = started.map_err(|source| StartError::Audit { path, source })?;
    let listed =
        oribi_config::listed(settings).map(|(name, value)| (name.to_owned(), value.into()));
    log.record(Actor::default(), Event::Started(listed.collect()));
    context.access.audit = log;
    Ok(Some(thread))
}

fn open_tls(settings: &Settings) -> Result<Option<Arc<Tls>>, StartError> {
    let Some(options) = settings.tls_options() else { return Ok(None) };
    let rules = settings.tls_name_rules().map_err(SettingsError::from)?;
    Ok(Some(Arc::new(Tls::open(options, rules)?)))
}

/// Rejects settings that would expose development mode. A node whose cluster has the users waits
/// for them, and admits no client until then.
fn check_users(settings: &Settings, users: &UserStore) -> Result<(), SettingsError> {
    let exposed = settings.check_exposure(users.is_development());
    if exposed.is_err() && settings.is_clustered() && settings.cluster_secret_file.is_some() {
        tracing::warn!(
            "no user is known here: every login fails until the users of the cluster are here. In a \
             new cluster, create one with `oribi user create` and --data-dir"
        );
        users.await_cluster();
        return Ok(());
    }
    exposed
}

/// Makes the server join its cluster, if one is configured.
fn join_cluster(
    settings: &Settings,
    addresses: Addresses,
    context: &ServerContext,
) -> Result<Option<Arc<ClusterMember>>, StartError> {
    if !settings.is_clustered() {
        return Ok(None);
    }
    let secret = settings.cluster_secret_file.as_deref().map(ClusterSecret::read).transpose()?;
    if let Some(secret) = &secret {
        context.access.users.admit_nodes(secret.bytes());
    }
    let host = settings.advertise_host.clone().unwrap_or_else(|| settings.listen.to_string());
    let default_name = || format!("{host}:{}", addresses.kv.port());
    let shown = advertised_ports(settings, addresses);
    let node = TopologyNode {
        name: settings.node_name.clone().unwrap_or_else(default_name),
        host,
        kv: shown.kv,
        mgmt: shown.mgmt,
        kv_tls: shown.tls.map(|tls| tls.kv),
        mgmt_tls: shown.tls.map(|tls| tls.mgmt),
        query: shown.queries.plain,
        query_tls: shown.queries.tls,
    };
    if let Some(secret) = &secret {
        context.cluster.links.set_identity(&node.name, secret.bytes());
    }
    let config = Arc::clone(&context.cluster.config);
    let cluster = ClusterSettings {
        etcd: settings.etcd(),
        name: settings.cluster_name.clone(),
        secret,
        disk: config.identity().uuid.clone(),
        lease_s: settings.cluster_lease_s,
        failover_after_ms: settings.cluster_failover_ms,
        node,
    };
    let beacons = cluster.secret.as_ref().map(|_| bind_beacons(addresses.kv)).transpose()?;
    let host = ClusterHost {
        beacons,
        buckets: Arc::new(ClusteredBuckets::new(
            Arc::clone(&context.buckets),
            context.bucket_defaults.clone(),
        )),
        identity: ClusterIdentity::clone(&config.identity()),
        publish: Box::new(move |identity, topology| {
            config.set_identity(identity.clone());
            config.set_topology(topology);
        }),
        users: Some(Arc::new(NodeUsers(Arc::clone(&context.access.users)))),
    };
    let member = ClusterMember::start(cluster, host)?;
    if member.has_links() {
        let agreed = AgreedUsers(Arc::downgrade(&member));
        context.access.users.share(Arc::new(agreed));
    }
    Ok(Some(member))
}

/// The socket of beacons: the port of the key-value listener, or another one where that is taken.
/// The other nodes read in this node's record which it is.
fn bind_beacons(address: SocketAddr) -> Result<UdpSocket, StartError> {
    let bound = UdpSocket::bind(address);
    let bound = bound.or_else(|_| UdpSocket::bind(SocketAddr::new(address.ip(), 0)));
    bound.map_err(|source| StartError::Bind { address, source })
}

/// The ports announced to clients.
struct AdvertisedPorts {
    kv: u16,
    mgmt: u16,
    tls: Option<TlsPorts>,
    queries: QueryPorts,
}

/// The ports that the settings name, where something maps them, or those that are bound.
fn advertised_ports(settings: &Settings, addresses: Addresses) -> AdvertisedPorts {
    let tls = addresses.tls.map(|tls| TlsPorts {
        kv: settings.advertise_tls_port.unwrap_or(tls.kv.port()),
        mgmt: settings.advertise_tls_admin_port.unwrap_or(tls.admin.port()),
    });
    let mgmt = settings.advertise_admin_port.unwrap_or(addresses.admin.port());
    // The admin HTTP serves queries as well. So its mapped port replaces a port for queries that
    // is not mapped, which clients could not reach.
    let query = |own: Option<SocketAddr>, mapped: Option<u16>, mapped_admin: Option<u16>| {
        own.map(|own| mapped.or(mapped_admin).unwrap_or(own.port()))
    };
    let (mapped, mapped_admin) = (settings.advertise_query_port, settings.advertise_admin_port);
    let plain = query(addresses.query, mapped, mapped_admin);
    let mapped = settings.advertise_tls_query_port;
    let queries = QueryPorts {
        plain,
        tls: query(addresses.query_tls, mapped, settings.advertise_tls_admin_port),
    };
    AdvertisedPorts {
        kv: settings.advertise_port.unwrap_or(addresses.kv.port()),
        mgmt,
        tls,
        queries,
    }
}

/// Binds a port for queries, unless it is 0. A taken port stops no server: it may be that of a
/// Couchbase Server next to this one, and the admin HTTP serves queries as well.
fn bind_query(address: IpAddr, port: u16) -> Option<TcpListener> {
    if port == 0 {
        return None;
    }
    let address = SocketAddr::new(address, port);
    let bound = TcpListener::bind(address);
    let warn = |error: &std::io::Error| {
        tracing::warn!(
            %address,
            %error,
            "cannot listen for queries: the admin HTTP serves them instead, and clients are told \
             its port. Set query_port (with TLS tls_query_port) to a free port, or to 0 for none"
        );
    };
    bound.inspect_err(warn).ok()
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).map_err(|source| StartError::Bind { address, source })
}

fn context(
    settings: &Settings,
    addresses: Addresses,
    buckets: Arc<Buckets>,
    users: Arc<UserStore>,
    started: Timestamp,
) -> ServerContext {
    let shown = advertised_ports(settings, addresses);
    let cluster = ClusterConfig::new(shown.kv, shown.mgmt, started.unix_s())
        .with_tls(shown.tls)
        .with_queries(shown.queries);
    let cluster = Arc::new(cluster);
    let counters = Arc::new(ServerCounters::new(settings.workers));
    let limits = ConnectionLimits {
        auth_deadline_ms: settings.auth_deadline_ms,
        frame_deadline_ms: settings.frame_deadline_ms,
        send_deadline_ms: settings.send_deadline_ms,
        idle_timeout_ms: settings.idle_timeout_ms,
        send_queue_bytes_max: settings.send_queue_kib * 1024,
        connections_max: settings.connections_max,
        connections_reserved: settings.reserved_connections(),
        files: FileLimits::of_process(),
        slow: SlowThresholds {
            read_ms: settings.slow_read_ms,
            write_ms: settings.slow_write_ms,
            durable_ms: settings.slow_durable_ms,
            other_ms: settings.slow_other_ms,
        },
        prefetch_keys: settings.prefetch_keys,
        lock_timeouts: LockTimeouts {
            default_s: settings.lock_timeout_default_s.min(settings.lock_timeout_max_s),
            max_s: settings.lock_timeout_max_s,
        },
    };
    let bucket_defaults = BucketOptions::from_settings(settings);
    ServerContext::new(buckets, users, cluster, counters, limits, bucket_defaults, started)
}
