//! The table of settings: name, help, form of the value, and the field it goes to.
//!
//! Owns: [`SETTINGS`], the only place where a setting is named. Invariant: every field of
//! [`Settings`] has exactly one row (a test counts them). Callers: `resolve` and `print`.

use std::net::IpAddr;
use std::path::PathBuf;

use super::{Settings, tls_setting};
use crate::buckets::BucketStorage;
use crate::limits::PREFETCH_KEYS_MAX;

/// One row of the table.
pub(super) struct Setting {
    /// TOML key; the flag has dashes, the variable is `ORIBI_` and capitals.
    pub(super) name: &'static str,
    /// Heading of the group in `--help`.
    pub(super) heading: &'static str,
    pub(super) value_name: &'static str,
    pub(super) help: &'static str,
    pub(super) form: Form,
    /// The value in force; `None` when the setting is not set.
    pub(super) get: fn(&Settings) -> Option<Value>,
    /// Takes a value that has passed [`Form::check`].
    pub(super) set: fn(&mut Settings, Value),
}

/// Form of a value.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Text,
    Address,
    Integer { min: u64, max: u64 },
    Flag,
    Names,
    Choice(&'static [&'static str]),
}

/// A value on its way from text or TOML into a field, or back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Text(String),
    Address(IpAddr),
    Integer(u64),
    Flag(bool),
    Names(Vec<String>),
}

impl Setting {
    pub(super) fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    pub(super) fn variable(&self) -> String {
        format!("ORIBI_{}", self.name.to_ascii_uppercase())
    }
}

impl Form {
    /// Reads a flag or variable.
    pub(super) fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Form::Text => self.check(Value::Text(text.to_owned())),
            Form::Address => match text.parse() {
                Ok(address) => Ok(Value::Address(address)),
                Err(_) => Err(format!("{text:?} is not an IP address")),
            },
            Form::Integer { .. } => match text.parse() {
                Ok(number) => self.check(Value::Integer(number)),
                Err(_) => Err(format!("{text:?} is not a whole number")),
            },
            Form::Flag => match text {
                "true" | "1" => Ok(Value::Flag(true)),
                "false" | "0" => Ok(Value::Flag(false)),
                _ => Err(format!("{text:?} is neither true nor false")),
            },
            Form::Choice(_) => self.check(Value::Text(text.to_owned())),
            Form::Names => {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                Ok(Value::Names(names.map(str::to_owned).collect()))
            }
        }
    }

    /// Takes a TOML value.
    pub(super) fn take(self, value: &toml::Value) -> Result<Value, String> {
        let wrong = |expected: &str| Err(format!("{value} is not {expected}"));
        match (self, value) {
            (Form::Text | Form::Choice(_), toml::Value::String(text)) => {
                self.check(Value::Text(text.clone()))
            }
            (Form::Address, toml::Value::String(text)) => self.parse(text),
            (Form::Integer { .. }, toml::Value::Integer(number)) => match u64::try_from(*number) {
                Ok(number) => self.check(Value::Integer(number)),
                Err(_) => wrong("a number of 0 or more"),
            },
            (Form::Flag, toml::Value::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Form::Names, toml::Value::Array(entries)) => {
                let names: Option<Vec<String>> =
                    entries.iter().map(|entry| entry.as_str().map(str::to_owned)).collect();
                names.map_or_else(|| wrong("a list of strings"), |names| Ok(Value::Names(names)))
            }
            (Form::Text | Form::Choice(_), _) => wrong("a string"),
            (Form::Address, _) => wrong("an IP address in quotes"),
            (Form::Integer { .. }, _) => wrong("a whole number"),
            (Form::Flag, _) => wrong("true or false"),
            (Form::Names, _) => wrong("a list of strings"),
        }
    }

    fn check(self, value: Value) -> Result<Value, String> {
        match (self, &value) {
            (Form::Integer { min, max }, Value::Integer(number))
                if !(min..=max).contains(number) =>
            {
                Err(format!("{number} is not between {min} and {max}"))
            }
            (Form::Text, Value::Text(text)) if text.is_empty() => {
                Err("it must not be empty".to_owned())
            }
            (Form::Choice(choices), Value::Text(text)) if !choices.contains(&text.as_str()) => {
                Err(format!("{text:?} is not one of {}", choices.join(", ")))
            }
            _ => Ok(value),
        }
    }
}

impl Value {
    /// The value as TOML writes it.
    pub(super) fn to_toml(&self) -> toml::Value {
        match self {
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Address(address) => toml::Value::String(address.to_string()),
            Value::Integer(number) => {
                toml::Value::Integer(i64::try_from(*number).unwrap_or(i64::MAX))
            }
            Value::Flag(flag) => toml::Value::Boolean(*flag),
            Value::Names(names) => {
                toml::Value::Array(names.iter().cloned().map(toml::Value::String).collect())
            }
        }
    }

    /// The value as `--help` shows it.
    pub(super) fn to_text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Address(address) => address.to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Names(names) => names.join(","),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Value::Text(text) => text,
            other => unreachable_form(&other),
        }
    }

    pub(super) fn path(self) -> PathBuf {
        PathBuf::from(self.text())
    }

    pub(super) fn address(self) -> IpAddr {
        match self {
            Value::Address(address) => address,
            other => unreachable_form(&other),
        }
    }

    /// The number, in the type of the field. The bounds in the table fit the field.
    pub(super) fn integer<T: TryFrom<u64>>(self) -> T {
        match self {
            Value::Integer(number) => {
                T::try_from(number).ok().expect("the bounds in the table fit the field")
            }
            other => unreachable_form(&other),
        }
    }

    fn flag(self) -> bool {
        match self {
            Value::Flag(flag) => flag,
            other => unreachable_form(&other),
        }
    }

    pub(super) fn names(self) -> Vec<String> {
        match self {
            Value::Names(names) => names,
            other => unreachable_form(&other),
        }
    }
}

fn unreachable_form(value: &Value) -> ! {
    unreachable!("a row's setter and form disagree about {value:?}; a test sets every row")
}

pub(super) fn path_value(path: &std::path::Path) -> Value {
    Value::Text(path.to_string_lossy().into_owned())
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const MILLISECONDS: Form = Form::Integer { min: 1, max: DAY_MS };
pub(super) const PORT: Form = Form::Integer { min: 0, max: 65_535 };

const DATA: &str = "Data";
const NETWORK: &str = "Network";
const LIMITS: &str = "Limits";
const RUNNING: &str = "Running";

/// Every setting, in the order in which help and `oribi config` list them.
pub(super) static SETTINGS: &[Setting] = &[
    Setting {
        name: "data_dir",
        heading: DATA,
        value_name: "DIR",
        help: "Directory with all durable state; created when missing",
        form: Form::Text,
        get: |s| Some(path_value(&s.data_dir)),
        set: |s, value| s.data_dir = value.path(),
    },
    Setting {
        name: "buckets",
        heading: DATA,
        value_name: "NAME,...",
        help: "Buckets to create at start when they do not exist",
        form: Form::Names,
        get: |s| Some(Value::Names(s.buckets.clone())),
        set: |s, value| s.buckets = value.names(),
    },
    Setting {
        name: "storage",
        heading: DATA,
        value_name: "embedded|log|memory",
        help: "Where a new bucket keeps documents: on disk too (in sorted tables, or in a log), or in memory \
               only and gone at the end",
        form: Form::Choice(&BucketStorage::NAMES),
        get: |s| Some(Value::Text(s.storage.name().to_owned())),
        set: |s, value| {
            s.storage = BucketStorage::from_name(&value.text()).expect("the choices are the names");
        },
    },
    Setting {
        name: "vbuckets",
        heading: DATA,
        value_name: "COUNT",
        help: "vbuckets of a new bucket, a power of two; fixed once the bucket exists",
        form: Form::Integer { min: 1, max: 1024 },
        get: |s| Some(Value::Integer(s.vbuckets.into())),
        set: |s, value| s.vbuckets = value.integer(),
    },
    Setting {
        name: "memory_quota_mib",
        heading: DATA,
        value_name: "MIB",
        help: "Memory for the documents of a new bucket; writes beyond it are refused for a time",
        form: Form::Integer { min: 1, max: 1 << 24 },
        get: |s| Some(Value::Integer(s.memory_quota_mib)),
        set: |s, value| s.memory_quota_mib = value.integer(),
    },
    Setting {
        name: "flush_enabled",
        heading: DATA,
        value_name: "true|false",
        help: "Allow emptying a new bucket by the flush command and doFlush",
        form: Form::Flag,
        get: |s| Some(Value::Flag(s.flush_enabled)),
        set: |s, value| s.flush_enabled = value.flag(),
    },
    Setting {
        name: "accept_damaged_journal",
        heading: DATA,
        value_name: "true|false",
        help: "Open buckets with a damaged journal and give up what stands behind the damage; for one \
               start after a power loss",
        form: Form::Flag,
        get: |s| Some(Value::Flag(s.accept_damaged_journal)),
        set: |s, value| s.accept_damaged_journal = value.flag(),
    },
    Setting {
        name: "listen",
        heading: NETWORK,
        value_name: "ADDRESS",
        help: "Address of the memcached binary protocol; only loopback while no user is configured",
        form: Form::Address,
        get: |s| Some(Value::Address(s.listen)),
        set: |s, value| s.listen = value.address(),
    },
    Setting {
        name: "port",
        heading: NETWORK,
        value_name: "PORT",
        help: "Port of the memcached binary protocol; 0 takes a free one",
        form: PORT,
        get: |s| Some(Value::Integer(s.port.into())),
        set: |s, value| s.port = value.integer(),
    },
    Setting {
        name: "admin_listen",
        heading: NETWORK,
        value_name: "ADDRESS",
        help: "Address of the admin HTTP; the same as --listen when not given",
        form: Form::Address,
        get: |s| s.admin_listen.map(Value::Address),
        set: |s, value| s.admin_listen = Some(value.address()),
    },
    Setting {
        name: "admin_port",
        heading: NETWORK,
        value_name: "PORT",
        help: "Port of the admin HTTP; 0 takes a free one",
        form: PORT,
        get: |s| Some(Value::Integer(s.admin_port.into())),
        set: |s, value| s.admin_port = value.integer(),
    },
    tls_setting::CERTIFICATE,
    tls_setting::KEY,
    tls_setting::LISTEN,
    tls_setting::PORT,
    tls_setting::ADMIN_PORT,
    tls_setting::MINIMUM_VERSION,
    tls_setting::CLIENT_CERTIFICATES,
    tls_setting::CLIENT_CA,
    tls_setting::CLIENT_NAMES,
    Setting {
        name: "connections_max",
        heading: LIMITS,
        value_name: "COUNT",
        help: "Client connections at the same time; further ones are closed at once",
        form: Form::Integer { min: 1, max: 1_000_000 },
        get: |s| Some(Value::Integer(s.connections_max as u64)),
        set: |s, value| s.connections_max = value.integer(),
    },
    Setting {
        name: "auth_deadline_ms",
        heading: LIMITS,
        value_name: "MS",
        help: "Time for a client to authenticate after connecting",
        form: MILLISECONDS,
        get: |s| Some(Value::Integer(s.auth_deadline_ms)),
        set: |s, value| s.auth_deadline_ms = value.integer(),
    },
    Setting {
        name: "frame_deadline_ms",
        heading: LIMITS,
        value_name: "MS",
        help: "Time for a request that has begun to arrive completely",
        form: MILLISECONDS,
        get: |s| Some(Value::Integer(s.frame_deadline_ms)),
        set: |s, value| s.frame_deadline_ms = value.integer(),
    },
    Setting {
        name: "send_deadline_ms",
        heading: LIMITS,
        value_name: "MS",
        help: "Time for a client to take some of the answers waiting for it",
        form: MILLISECONDS,
        get: |s| Some(Value::Integer(s.send_deadline_ms)),
        set: |s, value| s.send_deadline_ms = value.integer(),
    },
    Setting {
        name: "workers",
        heading: RUNNING,
        value_name: "COUNT",
        help: "Worker threads; as many as there are processors when not given",
        form: Form::Integer { min: 1, max: 1024 },
        get: |s| Some(Value::Integer(s.workers as u64)),
        set: |s, value| s.workers = value.integer(),
    },
    Setting {
        name: "prefetch_keys",
        heading: RUNNING,
        value_name: "COUNT",
        help: "Pipelined requests whose documents are brought into the processor's cache together, \
               before they are served; 0 for none",
        form: Form::Integer { min: 0, max: PREFETCH_KEYS_MAX as u64 },
        get: |s| Some(Value::Integer(s.prefetch_keys as u64)),
        set: |s, value| s.prefetch_keys = value.integer(),
    },
    Setting {
        name: "flush_interval_ms",
        heading: RUNNING,
        value_name: "MS",
        help: "Longest time a write stays in memory only, when it is not a durable write",
        form: MILLISECONDS,
        get: |s| Some(Value::Integer(s.flush_interval_ms)),
        set: |s, value| s.flush_interval_ms = value.integer(),
    },
    Setting {
        name: "log",
        heading: RUNNING,
        value_name: "FILTER",
        help: "What to log to standard error: error, warn, info, debug, trace, or MODULE=LEVEL,...",
        form: Form::Text,
        get: |s| Some(Value::Text(s.log.clone())),
        set: |s, value| s.log = value.text(),
    },
    Setting {
        name: "ready_file",
        heading: RUNNING,
        value_name: "FILE",
        help: "JSON file with pid, port and admin_port, written once the server serves",
        form: Form::Text,
        get: |s| s.ready_file.as_deref().map(path_value),
        set: |s, value| s.ready_file = Some(value.path()),
    },
];
