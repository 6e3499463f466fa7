//! The settings for memcached clients and for load balancers.

use super::collection_path::CollectionPath;
use super::form::{SettingValue, ValueForm};
use super::setting::Setting;

pub(super) const PROXY_PROTOCOL: Setting = Setting {
    name: "proxy_protocol",
    heading: "Network",
    value_name: "ADDRESS[/BITS],...",
    help: "Balancers whose connections to the ports of clients begin with the PROXY protocol, version 1 or 2; \
           nobody else may connect to these ports then. Not spoken when not given",
    form: ValueForm::Names,
    get: |s| Some(SettingValue::Names(s.proxy_protocol.clone())),
    set: |s, value| s.proxy_protocol = value.names(),
};

pub(super) const BUCKET: Setting = Setting {
    name: "memcached_bucket",
    heading: "Data",
    value_name: "NAME",
    help: "Bucket of memcached's clients, which select none, unless their user has one; when not given, the \
           only one in which the user has rights, else default",
    form: ValueForm::Text,
    get: |s| s.memcached_bucket.clone().map(SettingValue::Text),
    set: |s, value| s.memcached_bucket = Some(value.text()),
};

pub(super) const COLLECTION: Setting = Setting {
    name: "memcached_collection",
    heading: "Data",
    value_name: "SCOPE.COLLECTION",
    help: "Collection of memcached's clients in their bucket, unless their user has one; when not given, the \
           default collection",
    form: ValueForm::Checked(|text| text.parse::<CollectionPath>().map(|_| ())),
    get: |s| s.memcached_collection.as_ref().map(|path| SettingValue::Text(path.to_string())),
    set: |s, value| {
        s.memcached_collection = Some(value.text().parse().expect("the form has checked it"));
    },
};
