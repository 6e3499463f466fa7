//! The settings of a node that is one of a cluster.
//!
//! Rows of the table in `setting`; what they do is in [`crate::cluster`].

use super::form::{Form, Value};
use super::setting::Setting;

const CLUSTER: &str = "Cluster";

pub(super) const ETCD: Setting = Setting {
    name: "cluster_etcd",
    heading: CLUSTER,
    value_name: "URL,...",
    help: "Members of the etcd through which the nodes of a cluster agree, as http://HOST:PORT; this node \
           is alone when not given",
    form: Form::Names,
    get: |s| Some(Value::Names(s.cluster_etcd.clone())),
    set: |s, value| s.cluster_etcd = value.names(),
};

pub(super) const NAME: Setting = Setting {
    name: "cluster_name",
    heading: CLUSTER,
    value_name: "NAME",
    help: "Which cluster in that etcd",
    form: Form::Text,
    get: |s| Some(Value::Text(s.cluster_name.clone())),
    set: |s, value| s.cluster_name = value.text(),
};

pub(super) const LEASE_S: Setting = Setting {
    name: "cluster_lease_s",
    heading: CLUSTER,
    value_name: "SECONDS",
    help: "Time after which other nodes take over what this one had when nothing is heard of it",
    form: Form::Integer { min: 2, max: 600 },
    get: |s| Some(Value::Integer(s.cluster_lease_s)),
    set: |s, value| s.cluster_lease_s = value.integer(),
};

pub(super) const NODE_NAME: Setting = Setting {
    name: "node_name",
    heading: CLUSTER,
    value_name: "NAME",
    help: "Name of this node, unlike that of any other; host and port when not given",
    form: Form::Text,
    get: |s| s.node_name.clone().map(Value::Text),
    set: |s, value| s.node_name = Some(value.text()),
};

pub(super) const ADVERTISE_HOST: Setting = Setting {
    name: "advertise_host",
    heading: CLUSTER,
    value_name: "HOST",
    help: "Host name or address at which clients reach this node; --listen when not given",
    form: Form::Text,
    get: |s| s.advertise_host.clone().map(Value::Text),
    set: |s, value| s.advertise_host = Some(value.text()),
};
