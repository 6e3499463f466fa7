//! The settings of a node in a cluster, and of the advertised host and ports.
//!
//! Rows of the table in `table`; `oribi-cluster` describes their effect.

use super::form::{SettingValue, ValueForm, path_value};
use super::setting::Setting;

const CLUSTER: &str = "Cluster";
const NETWORK: &str = "Network";
const ADVERTISED_PORT: ValueForm = ValueForm::Integer { min: 1, max: 65_535 };

pub(super) const ETCD: Setting = Setting {
    name: "cluster_etcd",
    heading: CLUSTER,
    value_name: "URL,...",
    help: "Members of the etcd through which the nodes of a cluster agree, as http://HOST:PORT or https://HOST:PORT; \
           this node is alone when not given",
    form: ValueForm::Names,
    get: |s| Some(SettingValue::Names(s.cluster_etcd.clone())),
    set: |s, value| s.cluster_etcd = value.names(),
};

pub(super) const ETCD_CA: Setting = Setting {
    name: "cluster_etcd_ca",
    heading: CLUSTER,
    value_name: "FILE",
    help: "PEM file with the certificate authorities of etcd's members; the system's when not given",
    form: ValueForm::Text,
    get: |s| s.cluster_etcd_ca.as_deref().map(path_value),
    set: |s, value| s.cluster_etcd_ca = Some(value.path()),
};

pub(super) const ETCD_CERTIFICATE: Setting = Setting {
    name: "cluster_etcd_certificate",
    heading: CLUSTER,
    value_name: "FILE",
    help: "PEM file with this node's certificate chain for etcd",
    form: ValueForm::Text,
    get: |s| s.cluster_etcd_certificate.as_deref().map(path_value),
    set: |s, value| s.cluster_etcd_certificate = Some(value.path()),
};

pub(super) const ETCD_KEY: Setting = Setting {
    name: "cluster_etcd_key",
    heading: CLUSTER,
    value_name: "FILE",
    help: "PEM file with the private key of that certificate",
    form: ValueForm::Text,
    get: |s| s.cluster_etcd_key.as_deref().map(path_value),
    set: |s, value| s.cluster_etcd_key = Some(value.path()),
};

pub(super) const ETCD_USER: Setting = Setting {
    name: "cluster_etcd_user",
    heading: CLUSTER,
    value_name: "NAME",
    help: "This node's user in etcd",
    form: ValueForm::Text,
    get: |s| s.cluster_etcd_user.clone().map(SettingValue::Text),
    set: |s, value| s.cluster_etcd_user = Some(value.text()),
};

pub(super) const ETCD_PASSWORD_FILE: Setting = Setting {
    name: "cluster_etcd_password_file",
    heading: CLUSTER,
    value_name: "FILE",
    help: "File with that user's password",
    form: ValueForm::Text,
    get: |s| s.cluster_etcd_password_file.as_deref().map(path_value),
    set: |s, value| s.cluster_etcd_password_file = Some(value.path()),
};

pub(super) const SECRET_FILE: Setting = Setting {
    name: "cluster_secret_file",
    heading: CLUSTER,
    value_name: "FILE",
    help: "File with the secret by which the nodes of the cluster know each other, the same on every node and \
           readable by this user only",
    form: ValueForm::Text,
    get: |s| s.cluster_secret_file.as_deref().map(path_value),
    set: |s, value| s.cluster_secret_file = Some(value.path()),
};

pub(super) const NAME: Setting = Setting {
    name: "cluster_name",
    heading: CLUSTER,
    value_name: "NAME",
    help: "Name of the cluster in that etcd",
    form: ValueForm::Text,
    get: |s| Some(SettingValue::Text(s.cluster_name.clone())),
    set: |s, value| s.cluster_name = value.text(),
};

pub(super) const LEASE_S: Setting = Setting {
    name: "cluster_lease_s",
    heading: CLUSTER,
    value_name: "SECONDS",
    help: "Lease of this node; when it is not renewed in time, other nodes take over its vbuckets",
    form: ValueForm::Integer { min: 2, max: 600 },
    get: |s| Some(SettingValue::Integer(s.cluster_lease_s)),
    set: |s, value| s.cluster_lease_s = value.integer(),
};

pub(super) const FAILOVER_MS: Setting = Setting {
    name: "cluster_failover_ms",
    heading: CLUSTER,
    value_name: "MILLISECONDS",
    help: "Time without a sign of life of a node before other copies of its vbuckets are promoted",
    form: ValueForm::Integer { min: 500, max: 600_000 },
    get: |s| Some(SettingValue::Integer(s.cluster_failover_ms)),
    set: |s, value| s.cluster_failover_ms = value.integer(),
};

pub(super) const NODE_NAME: Setting = Setting {
    name: "node_name",
    heading: CLUSTER,
    value_name: "NAME",
    help: "Name of this node, unique in the cluster; host and port when not given",
    form: ValueForm::Text,
    get: |s| s.node_name.clone().map(SettingValue::Text),
    set: |s, value| s.node_name = Some(value.text()),
};

pub(super) const ADVERTISE_HOST: Setting = Setting {
    name: "advertise_host",
    heading: CLUSTER,
    value_name: "HOST",
    help: "Host name or address at which clients reach this node; --listen when not given",
    form: ValueForm::Text,
    get: |s| s.advertise_host.clone().map(SettingValue::Text),
    set: |s, value| s.advertise_host = Some(value.text()),
};

pub(super) const ADVERTISE_PORT: Setting = Setting {
    name: "advertise_port",
    heading: NETWORK,
    value_name: "PORT",
    help: "Port at which clients reach --port, if a container or NAT maps it; --port when not given",
    form: ADVERTISED_PORT,
    get: |s| s.advertise_port.map(|port| SettingValue::Integer(port.into())),
    set: |s, value| s.advertise_port = Some(value.integer()),
};

pub(super) const ADVERTISE_ADMIN_PORT: Setting = Setting {
    name: "advertise_admin_port",
    heading: NETWORK,
    value_name: "PORT",
    help: "Port at which clients reach --admin-port; --admin-port when not given",
    form: ADVERTISED_PORT,
    get: |s| s.advertise_admin_port.map(|port| SettingValue::Integer(port.into())),
    set: |s, value| s.advertise_admin_port = Some(value.integer()),
};

pub(super) const ADVERTISE_TLS_PORT: Setting = Setting {
    name: "advertise_tls_port",
    heading: NETWORK,
    value_name: "PORT",
    help: "Port at which clients reach --tls-port; --tls-port when not given",
    form: ADVERTISED_PORT,
    get: |s| s.advertise_tls_port.map(|port| SettingValue::Integer(port.into())),
    set: |s, value| s.advertise_tls_port = Some(value.integer()),
};

pub(super) const ADVERTISE_TLS_ADMIN_PORT: Setting = Setting {
    name: "advertise_tls_admin_port",
    heading: NETWORK,
    value_name: "PORT",
    help: "Port at which clients reach --tls-admin-port; --tls-admin-port when not given",
    form: ADVERTISED_PORT,
    get: |s| s.advertise_tls_admin_port.map(|port| SettingValue::Integer(port.into())),
    set: |s, value| s.advertise_tls_admin_port = Some(value.integer()),
};

pub(super) const ADVERTISE_QUERY_PORT: Setting = Setting {
    name: "advertise_query_port",
    heading: NETWORK,
    value_name: "PORT",
    help: "Port at which clients reach --query-port; --query-port when not given",
    form: ADVERTISED_PORT,
    get: |s| s.advertise_query_port.map(|port| SettingValue::Integer(port.into())),
    set: |s, value| s.advertise_query_port = Some(value.integer()),
};

pub(super) const ADVERTISE_TLS_QUERY_PORT: Setting = Setting {
    name: "advertise_tls_query_port",
    heading: NETWORK,
    value_name: "PORT",
    help: "Port at which clients reach --tls-query-port; --tls-query-port when not given",
    form: ADVERTISED_PORT,
    get: |s| s.advertise_tls_query_port.map(|port| SettingValue::Integer(port.into())),
    set: |s, value| s.advertise_tls_query_port = Some(value.integer()),
};
