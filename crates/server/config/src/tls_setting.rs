//! The TLS rows of the table of settings.

use oribi_tls::MinimumVersion;
use oribi_tls::server::ClientCertificates;

use super::form::{SettingValue, ValueForm, path_value};
use super::setting::{PORT as PORT_FORM, Setting};

const HEADING: &str = "TLS";
const VERSIONS: [&str; 2] = ["1.2", "1.3"];

pub(super) const CERTIFICATE: Setting = Setting {
    name: "tls_certificate",
    heading: HEADING,
    value_name: "FILE",
    help: "PEM file with the server's certificate and those up to its authority; turns TLS on",
    form: ValueForm::Text,
    get: |s| s.tls_certificate.as_deref().map(path_value),
    set: |s, value| s.tls_certificate = Some(value.path()),
};

pub(super) const KEY: Setting = Setting {
    name: "tls_key",
    heading: HEADING,
    value_name: "FILE",
    help: "PEM file with the private key of the certificate",
    form: ValueForm::Text,
    get: |s| s.tls_key.as_deref().map(path_value),
    set: |s, value| s.tls_key = Some(value.path()),
};

pub(super) const LISTEN: Setting = Setting {
    name: "tls_listen",
    heading: HEADING,
    value_name: "ADDRESS",
    help: "Address of the ports with TLS; the same as --listen when not given",
    form: ValueForm::Address,
    get: |s| s.tls_listen.map(SettingValue::Address),
    set: |s, value| s.tls_listen = Some(value.address()),
};

pub(super) const PORT: Setting = Setting {
    name: "tls_port",
    heading: HEADING,
    value_name: "PORT",
    help: "Port for key-value clients with TLS; 0 takes a free one",
    form: PORT_FORM,
    get: |s| Some(SettingValue::Integer(s.tls_port.into())),
    set: |s, value| s.tls_port = value.integer(),
};

pub(super) const ADMIN_PORT: Setting = Setting {
    name: "tls_admin_port",
    heading: HEADING,
    value_name: "PORT",
    help: "Port of the admin HTTP with TLS; 0 takes a free one",
    form: PORT_FORM,
    get: |s| Some(SettingValue::Integer(s.tls_admin_port.into())),
    set: |s, value| s.tls_admin_port = value.integer(),
};

pub(super) const QUERY_PORT: Setting = Setting {
    name: "tls_query_port",
    heading: HEADING,
    value_name: "PORT",
    help: "Port of SQL++ queries with TLS; 0 turns it off",
    form: PORT_FORM,
    get: |s| Some(SettingValue::Integer(s.tls_query_port.into())),
    set: |s, value| s.tls_query_port = value.integer(),
};

pub(super) const MINIMUM_VERSION: Setting = Setting {
    name: "tls_minimum_version",
    heading: HEADING,
    value_name: "1.2|1.3",
    help: "Oldest version of TLS that is spoken",
    form: ValueForm::Choice(&VERSIONS),
    get: |s| {
        let name = match s.tls_minimum_version {
            MinimumVersion::Tls12 => VERSIONS[0],
            MinimumVersion::Tls13 => VERSIONS[1],
        };
        Some(SettingValue::Text(name.to_owned()))
    },
    set: |s, value| {
        s.tls_minimum_version = match value.text() == VERSIONS[1] {
            true => MinimumVersion::Tls13,
            false => MinimumVersion::Tls12,
        };
    },
};

pub(super) const CLIENT_CERTIFICATES: Setting = Setting {
    name: "tls_client_certificates",
    heading: HEADING,
    value_name: "off|enable|mandatory",
    help: "Whether clients are asked for a certificate, which then says who they are; with mandatory, \
           nobody connects over TLS without one",
    form: ValueForm::Choice(&ClientCertificates::NAMES),
    get: |s| Some(SettingValue::Text(s.tls_client_certificates.name().to_owned())),
    set: |s, value| {
        s.tls_client_certificates =
            ClientCertificates::from_name(&value.text()).expect("the choices are the names");
    },
};

pub(super) const CLIENT_CA: Setting = Setting {
    name: "tls_client_ca",
    heading: HEADING,
    value_name: "FILE",
    help: "PEM file with the authorities that vouch for clients",
    form: ValueForm::Text,
    get: |s| s.tls_client_ca.as_deref().map(path_value),
    set: |s, value| s.tls_client_ca = Some(value.path()),
};

pub(super) const CLIENT_NAMES: Setting = Setting {
    name: "tls_client_names",
    heading: HEADING,
    value_name: "RULE,...",
    help: "Where a client's certificate names its user: subject.cn, san.email, san.dns or san.uri, and \
           perhaps |PREFIX to leave out and |CHARACTERS any of which ends the name, as in san.email||@",
    form: ValueForm::Names,
    get: |s| Some(SettingValue::Names(s.tls_client_names.clone())),
    set: |s, value| s.tls_client_names = value.names(),
};
