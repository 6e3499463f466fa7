//! The table of settings: name, help, form of the value, and the field it goes to.
//!
//! Owns: [`SETTINGS`], the only place where a setting is named. Invariant: every field of
//! [`Settings`] has exactly one row (a test counts them). Callers: `resolve` and `print`.

use super::bucket_storage::BucketStorage;
use super::compression::{self, COMPRESSION_NAMES};
use super::conflict::{self, CONFLICT_RESOLUTION_NAMES};
use super::eviction::{self, EVICTION_NAMES};
use super::form::{SettingValue, ValueForm, path_value};
use super::limits::{LOGS_MAX, PREFETCH_KEYS_MAX, SEND_QUEUE_BYTES_MIN};
use super::log_setting::{self, LOG_FORMATS, LogFormat};
use super::memory_tier::{self, MEMORY_TIER_NAMES};
use super::setting::{PORT, Setting};
use super::settings::Settings;
use super::{cluster_setting, init_setting, memcached_setting, tls_setting};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// For locks: an hour is far more than a client should hold one.
const LOCK_TIMEOUT: ValueForm = ValueForm::Integer { min: 1, max: 3600 };
const MILLISECONDS: ValueForm = ValueForm::Integer { min: 1, max: DAY_MS };
const MILLISECONDS_OR_NEVER: ValueForm = ValueForm::Integer { min: 0, max: DAY_MS };
const MONTH_S: u64 = 30 * 24 * 60 * 60;
const PERCENT: ValueForm = ValueForm::Integer { min: 1, max: 100 };

const DATA: &str = "Data";
const NETWORK: &str = "Network";
const LIMITS: &str = "Limits";
const MEMORY: &str = "Memory";
const RUNNING: &str = "Running";

/// Every setting, in the order in which help and `oribi config` list them.
pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        name: "data_dir",
        heading: DATA,
        value_name: "DIR",
        help: "Directory with all durable state; created when missing",
        form: ValueForm::Text,
        get: |s| Some(path_value(&s.data_dir)),
        set: |s, value| s.data_dir = value.path(),
    },
    Setting {
        name: "buckets",
        heading: DATA,
        value_name: "NAME,...",
        help: "Buckets to create at start when they do not exist",
        form: ValueForm::Names,
        get: |s| Some(SettingValue::Names(s.buckets.clone())),
        set: |s, value| s.buckets = value.names(),
    },
    init_setting::INIT,
    init_setting::ADMIN_USER,
    init_setting::ADMIN_PASSWORD_FILE,
    Setting {
        name: "storage",
        heading: DATA,
        value_name: "log|memory|kudu://HOST:PORT",
        help: "Where a new bucket keeps documents: in a log on disk too, in memory only and gone at the \
               end, or in a table of Apache Kudu \
               (kudu://MASTER[,MASTER...][/DATABASE][?tablets=16&replicas=3])",
        form: ValueForm::Checked(|text| BucketStorage::from_name(text).map(|_| ())),
        get: |s| Some(SettingValue::Text(s.storage.name())),
        set: |s, value| {
            s.storage = BucketStorage::from_name(&value.text()).expect("the form has checked it");
        },
    },
    Setting {
        name: "vbuckets",
        heading: DATA,
        value_name: "COUNT",
        help: "vbuckets of a new bucket, a power of two; fixed once the bucket exists",
        form: ValueForm::Integer { min: 1, max: 1024 },
        get: |s| Some(SettingValue::Integer(s.vbuckets.into())),
        set: |s, value| s.vbuckets = value.integer(),
    },
    Setting {
        name: "logs",
        heading: DATA,
        value_name: "COUNT",
        help: "Logs of a new bucket with storage = log, which are written side by side; fixed once the bucket \
               exists. Each takes up to 9 MiB beside the quota. When not given, one for every four processors \
               that has 512 MiB of the quota",
        form: ValueForm::Integer { min: 1, max: LOGS_MAX as u64 },
        get: |s| s.logs.map(|logs| SettingValue::Integer(logs as u64)),
        set: |s, value| s.logs = Some(value.integer()),
    },
    Setting {
        name: "memory_quota_mib",
        heading: DATA,
        value_name: "MIB",
        help: "Memory for the documents of a new bucket; what does not fit is read from disk. When not given, \
               the buckets together get half of the machine's",
        form: ValueForm::Integer { min: 1, max: 1 << 24 },
        get: |s| s.memory_quota_mib.map(SettingValue::Integer),
        set: |s, value| s.memory_quota_mib = Some(value.integer()),
    },
    Setting {
        name: "eviction",
        heading: DATA,
        value_name: "value|full|none|nru",
        help: "What a new bucket takes out of memory when it runs short: values, whole documents, nothing \
               (writes are refused instead), or, in memory only, documents that are not used (they are \
               deleted). When not given, value, and in memory only none",
        form: ValueForm::Choice(&EVICTION_NAMES),
        get: |s| {
            s.eviction.map(|policy| SettingValue::Text(eviction::setting_name(policy).to_owned()))
        },
        set: |s, value| s.eviction = eviction::from_setting(&value.text()),
    },
    Setting {
        name: "compression_mode",
        heading: DATA,
        value_name: "off|passive|active",
        help: "What a new bucket does about Snappy: inflate compressed values when they are stored, store \
               values as they come, or compress them itself where that saves enough",
        form: ValueForm::Choice(&COMPRESSION_NAMES),
        get: |s| Some(SettingValue::Text(compression::name_of(s.compression_mode).to_owned())),
        set: |s, value| {
            s.compression_mode = compression::mode_named(&value.text()).unwrap_or_default();
        },
    },
    Setting {
        name: "memory_tier",
        heading: DATA,
        value_name: "off|dense",
        help: "What a new bucket does with values that are not used before it evicts: nothing, or compress them in \
               memory with a dictionary of their collection",
        form: ValueForm::Choice(&MEMORY_TIER_NAMES),
        get: |s| Some(SettingValue::Text(memory_tier::name_of(s.memory_tier).to_owned())),
        set: |s, value| {
            s.memory_tier = memory_tier::tier_named(&value.text()).unwrap_or_default();
        },
    },
    Setting {
        name: "conflict_resolution",
        heading: DATA,
        value_name: "seqno|lww",
        help: "Which of two versions from different clusters a new bucket keeps: the one that was changed more \
               often, or the one that was written last",
        form: ValueForm::Choice(&CONFLICT_RESOLUTION_NAMES),
        get: |s| Some(SettingValue::Text(conflict::name_of(s.conflict_resolution).to_owned())),
        set: |s, value| {
            s.conflict_resolution = conflict::resolution_named(&value.text()).unwrap_or_default();
        },
    },
    Setting {
        name: "flush_enabled",
        heading: DATA,
        value_name: "true|false",
        help: "Allow emptying a new bucket by the flush command and doFlush",
        form: ValueForm::Flag,
        get: |s| Some(SettingValue::Flag(s.flush_enabled)),
        set: |s, value| s.flush_enabled = value.flag(),
    },
    memcached_setting::BUCKET,
    memcached_setting::COLLECTION,
    Setting {
        name: "accept_damaged_log",
        heading: DATA,
        value_name: "true|false",
        help: "Open buckets with a damaged log without what cannot be read, and say in the log \
               what is lost; for one start",
        form: ValueForm::Flag,
        get: |s| Some(SettingValue::Flag(s.accept_damaged_log)),
        set: |s, value| s.accept_damaged_log = value.flag(),
    },
    Setting {
        name: "high_watermark_percent",
        heading: MEMORY,
        value_name: "PERCENT",
        help: "Part of its quota beyond which a bucket evicts",
        form: PERCENT,
        get: |s| Some(SettingValue::Integer(s.high_watermark_percent.into())),
        set: |s, value| s.high_watermark_percent = value.integer(),
    },
    Setting {
        name: "low_watermark_percent",
        heading: MEMORY,
        value_name: "PERCENT",
        help: "Part of its quota at which it stops, and up to which values are loaded at start",
        form: PERCENT,
        get: |s| Some(SettingValue::Integer(s.low_watermark_percent.into())),
        set: |s, value| s.low_watermark_percent = value.integer(),
    },
    Setting {
        name: "checkpoint_quota_percent",
        heading: MEMORY,
        value_name: "PERCENT",
        help: "Part of its quota that a bucket's mutation queues may take",
        form: PERCENT,
        get: |s| Some(SettingValue::Integer(s.checkpoint_quota_percent.into())),
        set: |s, value| s.checkpoint_quota_percent = value.integer(),
    },
    Setting {
        name: "listen",
        heading: NETWORK,
        value_name: "ADDRESS",
        help: "Address for key-value clients; only loopback while no user is configured",
        form: ValueForm::Address,
        get: |s| Some(SettingValue::Address(s.listen)),
        set: |s, value| s.listen = value.address(),
    },
    Setting {
        name: "port",
        heading: NETWORK,
        value_name: "PORT",
        help: "Port for key-value clients; 0 takes a free one",
        form: PORT,
        get: |s| Some(SettingValue::Integer(s.port.into())),
        set: |s, value| s.port = value.integer(),
    },
    Setting {
        name: "admin_listen",
        heading: NETWORK,
        value_name: "ADDRESS",
        help: "Address of the admin HTTP; the same as --listen when not given",
        form: ValueForm::Address,
        get: |s| s.admin_listen.map(SettingValue::Address),
        set: |s, value| s.admin_listen = Some(value.address()),
    },
    Setting {
        name: "admin_port",
        heading: NETWORK,
        value_name: "PORT",
        help: "Port of the admin HTTP; 0 takes a free one",
        form: PORT,
        get: |s| Some(SettingValue::Integer(s.admin_port.into())),
        set: |s, value| s.admin_port = value.integer(),
    },
    Setting {
        name: "query_port",
        heading: NETWORK,
        value_name: "PORT",
        help: "Port of SQL++ queries, at the address of the admin HTTP; 0 turns it off",
        form: PORT,
        get: |s| Some(SettingValue::Integer(s.query_port.into())),
        set: |s, value| s.query_port = value.integer(),
    },
    cluster_setting::ADVERTISE_PORT,
    cluster_setting::ADVERTISE_ADMIN_PORT,
    cluster_setting::ADVERTISE_QUERY_PORT,
    cluster_setting::ADVERTISE_TLS_PORT,
    cluster_setting::ADVERTISE_TLS_ADMIN_PORT,
    cluster_setting::ADVERTISE_TLS_QUERY_PORT,
    memcached_setting::PROXY_PROTOCOL,
    tls_setting::CERTIFICATE,
    tls_setting::KEY,
    tls_setting::LISTEN,
    tls_setting::PORT,
    tls_setting::ADMIN_PORT,
    tls_setting::QUERY_PORT,
    tls_setting::MINIMUM_VERSION,
    tls_setting::CLIENT_CERTIFICATES,
    tls_setting::CLIENT_CA,
    tls_setting::CLIENT_NAMES,
    cluster_setting::ETCD,
    cluster_setting::ETCD_CA,
    cluster_setting::ETCD_CERTIFICATE,
    cluster_setting::ETCD_KEY,
    cluster_setting::ETCD_USER,
    cluster_setting::ETCD_PASSWORD_FILE,
    cluster_setting::SECRET_FILE,
    cluster_setting::NAME,
    cluster_setting::LEASE_S,
    cluster_setting::FAILOVER_MS,
    cluster_setting::NODE_NAME,
    cluster_setting::ADVERTISE_HOST,
    Setting {
        name: "connections_max",
        heading: LIMITS,
        value_name: "COUNT",
        help: "Client connections at the same time; further ones are closed at once",
        form: ValueForm::Integer { min: 1, max: 1_000_000 },
        get: |s| Some(SettingValue::Integer(s.connections_max as u64)),
        set: |s, value| s.connections_max = value.integer(),
    },
    Setting {
        name: "connections_reserved",
        heading: LIMITS,
        value_name: "COUNT",
        help: "Of these, connections that only administrators may use; a hundredth when not given",
        form: ValueForm::Integer { min: 0, max: 1_000_000 },
        get: |s| s.connections_reserved.map(|count| SettingValue::Integer(count as u64)),
        set: |s, value| s.connections_reserved = Some(value.integer()),
    },
    Setting {
        name: "auth_deadline_ms",
        heading: LIMITS,
        value_name: "MS",
        help: "Time for a client to authenticate after connecting",
        form: MILLISECONDS,
        get: |s| Some(SettingValue::Integer(s.auth_deadline_ms)),
        set: |s, value| s.auth_deadline_ms = value.integer(),
    },
    Setting {
        name: "frame_deadline_ms",
        heading: LIMITS,
        value_name: "MS",
        help: "Time for a request that has begun to arrive completely",
        form: MILLISECONDS,
        get: |s| Some(SettingValue::Integer(s.frame_deadline_ms)),
        set: |s, value| s.frame_deadline_ms = value.integer(),
    },
    Setting {
        name: "send_deadline_ms",
        heading: LIMITS,
        value_name: "MS",
        help: "Time for a client to take some of the answers waiting for it",
        form: MILLISECONDS,
        get: |s| Some(SettingValue::Integer(s.send_deadline_ms)),
        set: |s, value| s.send_deadline_ms = value.integer(),
    },
    Setting {
        name: "lock_timeout_default_s",
        heading: LIMITS,
        value_name: "SECONDS",
        help: "How long a client that does not say locks a document",
        form: LOCK_TIMEOUT,
        get: |s| Some(SettingValue::Integer(s.lock_timeout_default_s.into())),
        set: |s, value| s.lock_timeout_default_s = value.integer(),
    },
    Setting {
        name: "lock_timeout_max_s",
        heading: LIMITS,
        value_name: "SECONDS",
        help: "Longest lock; a client that asks for more gets the default",
        form: LOCK_TIMEOUT,
        get: |s| Some(SettingValue::Integer(s.lock_timeout_max_s.into())),
        set: |s, value| s.lock_timeout_max_s = value.integer(),
    },
    Setting {
        name: "idle_timeout_ms",
        heading: LIMITS,
        value_name: "MS",
        help: "Time without a request after which a client's connection is closed; 0 for never",
        form: MILLISECONDS_OR_NEVER,
        get: |s| Some(SettingValue::Integer(s.idle_timeout_ms)),
        set: |s, value| s.idle_timeout_ms = value.integer(),
    },
    Setting {
        name: "send_queue_kib",
        heading: LIMITS,
        value_name: "KIB",
        help: "Answers to a client that does not read them, from which on its requests wait",
        form: ValueForm::Integer { min: SEND_QUEUE_BYTES_MIN as u64 / 1024, max: 1 << 20 },
        get: |s| Some(SettingValue::Integer(s.send_queue_kib as u64)),
        set: |s, value| s.send_queue_kib = value.integer(),
    },
    Setting {
        name: "workers",
        heading: RUNNING,
        value_name: "COUNT",
        help: "Worker threads; as many as there are processors when not given",
        form: ValueForm::Integer { min: 1, max: 1024 },
        get: |s| Some(SettingValue::Integer(s.workers as u64)),
        set: |s, value| s.workers = value.integer(),
    },
    Setting {
        name: "prefetch_keys",
        heading: RUNNING,
        value_name: "COUNT",
        help: "Pipelined requests whose documents are brought into the processor's cache together, \
               before they are served; 0 for none",
        form: ValueForm::Integer { min: 0, max: PREFETCH_KEYS_MAX as u64 },
        get: |s| Some(SettingValue::Integer(s.prefetch_keys as u64)),
        set: |s, value| s.prefetch_keys = value.integer(),
    },
    Setting {
        name: "flush_interval_ms",
        heading: RUNNING,
        value_name: "MS",
        help: "How long writes gather in memory before a flush begins, when no durable write waits",
        form: MILLISECONDS,
        get: |s| Some(SettingValue::Integer(s.flush_interval_ms)),
        set: |s, value| s.flush_interval_ms = value.integer(),
    },
    Setting {
        name: "expiry_pager_interval_s",
        heading: RUNNING,
        value_name: "SECONDS",
        help: "How often expired documents are deleted that no client reads",
        form: ValueForm::Integer { min: 1, max: MONTH_S },
        get: |s| Some(SettingValue::Integer(s.expiry_pager_interval_s.into())),
        set: |s, value| s.expiry_pager_interval_s = value.integer(),
    },
    Setting {
        name: "tombstone_purge_age_s",
        heading: RUNNING,
        value_name: "SECONDS",
        help: "How long the store remembers that a document was deleted",
        form: ValueForm::Integer { min: 1, max: 12 * MONTH_S },
        get: |s| Some(SettingValue::Integer(s.tombstone_purge_age_s.into())),
        set: |s, value| s.tombstone_purge_age_s = value.integer(),
    },
    Setting {
        name: "slow_read_ms",
        heading: RUNNING,
        value_name: "MS",
        help: "Time from which a read of a document is logged as slow; 0 for never",
        form: MILLISECONDS_OR_NEVER,
        get: |s| Some(SettingValue::Integer(s.slow_read_ms)),
        set: |s, value| s.slow_read_ms = value.integer(),
    },
    Setting {
        name: "slow_write_ms",
        heading: RUNNING,
        value_name: "MS",
        help: "Time from which a write of a document is logged as slow; 0 for never",
        form: MILLISECONDS_OR_NEVER,
        get: |s| Some(SettingValue::Integer(s.slow_write_ms)),
        set: |s, value| s.slow_write_ms = value.integer(),
    },
    Setting {
        name: "slow_durable_ms",
        heading: RUNNING,
        value_name: "MS",
        help: "Time from which a write that waits for the store is logged as slow; 0 for never",
        form: MILLISECONDS_OR_NEVER,
        get: |s| Some(SettingValue::Integer(s.slow_durable_ms)),
        set: |s, value| s.slow_durable_ms = value.integer(),
    },
    Setting {
        name: "slow_other_ms",
        heading: RUNNING,
        value_name: "MS",
        help: "Time from which anything else is logged as slow; 0 for never",
        form: MILLISECONDS_OR_NEVER,
        get: |s| Some(SettingValue::Integer(s.slow_other_ms)),
        set: |s, value| s.slow_other_ms = value.integer(),
    },
    Setting {
        name: "audit_log",
        heading: RUNNING,
        value_name: "FILE",
        help: "File for the audit log: logins, refusals and changes by administrators; none when not given",
        form: ValueForm::Text,
        get: |s| s.audit_log.as_deref().map(path_value),
        set: |s, value| s.audit_log = Some(value.path()),
    },
    Setting {
        name: "audit_log_mib",
        heading: RUNNING,
        value_name: "MIB",
        help: "Size at which a new file of the audit log is begun",
        form: ValueForm::Integer { min: 1, max: 1 << 20 },
        get: |s| Some(SettingValue::Integer(s.audit_log_mib)),
        set: |s, value| s.audit_log_mib = value.integer(),
    },
    Setting {
        name: "audit_log_age_s",
        heading: RUNNING,
        value_name: "SECONDS",
        help: "Age at which a new file of the audit log is begun",
        form: ValueForm::Integer { min: 60, max: 12 * MONTH_S },
        get: |s| Some(SettingValue::Integer(s.audit_log_age_s)),
        set: |s, value| s.audit_log_age_s = value.integer(),
    },
    Setting {
        name: "audit_log_files",
        heading: RUNNING,
        value_name: "COUNT",
        help: "Earlier files of the audit log that are kept",
        form: ValueForm::Integer { min: 0, max: 1000 },
        get: |s| Some(SettingValue::Integer(s.audit_log_files as u64)),
        set: |s, value| s.audit_log_files = value.integer(),
    },
    Setting {
        name: "log",
        heading: RUNNING,
        value_name: "FILTER",
        help: "What to log to standard error: error, warn, info, debug, trace, or MODULE=LEVEL,...",
        form: ValueForm::Checked(log_setting::check_filter),
        get: |s| Some(SettingValue::Text(s.log.clone())),
        set: |s, value| s.log = value.text(),
    },
    Setting {
        name: "log_format",
        heading: RUNNING,
        value_name: "text|json",
        help: "Form of the log's lines",
        form: ValueForm::Choice(&LOG_FORMATS),
        get: |s| Some(SettingValue::Text(s.log_format.name().to_owned())),
        set: |s, value| s.log_format = LogFormat::named(&value.text()),
    },
    Setting {
        name: "ready_file",
        heading: RUNNING,
        value_name: "FILE",
        help: "JSON file with pid, port and admin_port, written once the server serves",
        form: ValueForm::Text,
        get: |s| s.ready_file.as_deref().map(path_value),
        set: |s, value| s.ready_file = Some(value.path()),
    },
];

/// Every setting that is set, with its value as help shows it. No setting is a secret.
pub fn listed(settings: &Settings) -> impl Iterator<Item = (&'static str, String)> {
    SETTINGS.iter().filter_map(|one| Some((one.name, (one.get)(settings)?.to_text())))
}
