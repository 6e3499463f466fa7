//! The server and the user: the arguments that client subcommands share.
//!
//! The subcommands use the key-value protocol only, so they work against any server that speaks it.

mod tls;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use oribi_client::{Client, ClientError, Collection, ConnectOptions, Connection, RejectionKind};
use oribi_types::DurabilityLevel;
use serde::Serialize;

use crate::duration;
use tls::TlsArgs;

/// Ports of the key-value protocol without TLS and with.
const PORT: u16 = 11210;
const TLS_PORT: u16 = 11207;

/// Prefixes of a host: without TLS, and with TLS.
const SCHEME: &str = "couchbase://";
const TLS_SCHEME: &str = "couchbases://";

/// The user when none is named.
const USER: &str = "Administrator";

/// Heading of these options in the help.
const HEADING: &str = "Server";

/// Where the server is, whom to be there, and a bucket.
#[derive(Args, Clone, Debug)]
pub struct Target {
    #[command(flatten)]
    server: ServerTarget,
    /// Bucket; an empty name selects none, which is enough for figures of the server itself.
    #[arg(long, help_heading = HEADING, default_value = "default")]
    pub bucket: String,
}

/// Where the server is, and whom to be there.
#[derive(Args, Clone, Debug)]
pub struct ServerTarget {
    /// Host name or address, with a port or without; couchbases://HOST for TLS.
    #[arg(long, help_heading = HEADING, env = "ORIBI_HOST", default_value = "127.0.0.1", value_parser = parse_host)]
    host: Host,
    /// Port of the key-value protocol [default: 11210, with TLS 11207] [env: ORIBI_PORT].
    #[arg(long, help_heading = HEADING)]
    port: Option<u16>,
    /// The port where neither --port nor --host names one. It is an argument for its checks and
    /// messages.
    #[arg(long, hide = true, env = "ORIBI_PORT")]
    usual_port: Option<u16>,
    #[command(flatten)]
    tls: TlsArgs,
    /// User to authenticate as [default: Administrator].
    #[arg(long, help_heading = HEADING, env = "ORIBI_USER")]
    pub user: Option<String>,
    /// Password of the user. Set it in the environment: other users of the machine can read
    /// arguments.
    #[arg(long, help_heading = HEADING, env = "ORIBI_PASSWORD", hide_env_values = true, default_value = "password")]
    #[arg(hide_default_value = true)]
    pub password: String,
    /// Time limit for an answer, such as 60 (seconds) or 500ms.
    #[arg(long, help_heading = HEADING, value_name = "TIME", default_value_t = 60.0, value_parser = parse_seconds)]
    pub timeout: f64,
}

impl std::ops::Deref for Target {
    type Target = ServerTarget;

    fn deref(&self) -> &ServerTarget {
        &self.server
    }
}

/// A host as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Host {
    name: String,
    port: Option<u16>,
    with_tls: bool,
}

/// `HOST[:PORT]`, which may stand after `couchbase://` or `couchbases://`.
fn parse_host(text: &str) -> Result<Host, String> {
    let (address, with_tls) = match (text.strip_prefix(SCHEME), text.strip_prefix(TLS_SCHEME)) {
        (Some(address), _) => (address, false),
        (_, Some(address)) => (address, true),
        (None, None) => (text, false),
    };
    if let Some((scheme, _)) = address.split_once("://") {
        return Err(format!("{scheme}:// is not known here, only {SCHEME} and {TLS_SCHEME}"));
    }
    let (name, port) = match address.rsplit_once(':') {
        // The colons of an address without brackets belong to it.
        Some((name, port)) if name.ends_with(']') || !name.contains(':') => {
            (name, Some(port.parse().map_err(|_| format!("{port:?} is not a port"))?))
        }
        _ => (address, None),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() || name.contains(['/', '?', ',']) {
        return Err("one host is needed, as in db.example.org, db.example.org:11210 or \
                    couchbases://db.example.org"
            .to_owned());
    }
    Ok(Host { name: name.to_owned(), port, with_tls })
}

/// When a write counts as done.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityArgument {
    /// In memory.
    None,
    /// In the memory of a majority of replicas.
    Majority,
    /// The same, and on the disk of the active node.
    MajorityAndPersist,
    /// On the disks of a majority of replicas.
    Persist,
}

impl From<DurabilityArgument> for DurabilityLevel {
    fn from(durability: DurabilityArgument) -> DurabilityLevel {
        match durability {
            DurabilityArgument::None => DurabilityLevel::None,
            DurabilityArgument::Majority => DurabilityLevel::Majority,
            DurabilityArgument::MajorityAndPersist => DurabilityLevel::MajorityAndPersistOnMaster,
            DurabilityArgument::Persist => DurabilityLevel::PersistToMajority,
        }
    }
}

/// Exit status of a command that Ctrl-C has ended, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// Longest interval between two rounds, and longest timeout.
const DAY: Duration = Duration::from_secs(86_400);

/// The interval between two rounds, such as `1s`, `500ms` or `2` (seconds).
pub fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text);
    interval
        .filter(|interval| (Duration::from_millis(10)..=DAY).contains(interval))
        .ok_or_else(|| "a time from 10ms to 24h is needed, such as 1s or 500ms".to_owned())
}

/// Seconds to wait for something.
fn parse_seconds(text: &str) -> Result<f64, String> {
    parse_timeout(text).map(|timeout| timeout.as_secs_f64())
}

/// A time to wait for something.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration::parse(text);
    timeout
        .filter(|timeout| (Duration::from_millis(1)..=DAY).contains(timeout))
        .ok_or_else(|| "a time from 1ms to 24h is needed, such as 60, 60s or 500ms".to_owned())
}

impl ServerTarget {
    /// Host name or address of the server.
    pub fn host(&self) -> &str {
        &self.host.name
    }

    /// Port of the key-value protocol.
    pub fn port(&self) -> u16 {
        let default = if self.with_tls() { TLS_PORT } else { PORT };
        self.port.or(self.host.port).or(self.usual_port).unwrap_or(default)
    }

    /// The user to authenticate as.
    pub fn user(&self) -> &str {
        self.user.as_deref().unwrap_or(USER)
    }

    /// True when TLS is asked for.
    pub fn with_tls(&self) -> bool {
        self.host.with_tls || self.tls.is_wanted()
    }

    /// TLS for connections that are not the client library's; `None` without.
    ///
    /// # Errors
    /// When it cannot be set up.
    pub fn tls_config(&self) -> anyhow::Result<Option<Arc<oribi_tls::client::Config>>> {
        match self.with_tls() {
            true => self.tls.config().map(Some),
            false => Ok(None),
        }
    }
}

impl Target {
    /// A server without a bucket.
    pub fn without_bucket(server: &ServerTarget) -> Target {
        Target { server: server.clone(), bucket: String::new() }
    }

    /// Another server with the same options: `couchbase[s]://[USER@]HOST[:PORT]/BUCKET`.
    ///
    /// # Errors
    /// When the text is something else.
    pub fn at(&self, url: &str, password: Option<&str>) -> Result<Target, String> {
        let form = || "couchbase://[USER@]HOST[:PORT]/BUCKET is needed".to_owned();
        let (address, bucket) = url.rsplit_once('/').ok_or_else(form)?;
        let (scheme, address) = address.split_once("://").ok_or_else(form)?;
        let (user, address) = match address.rsplit_once('@') {
            Some((user, address)) => (Some(user.to_owned()), address),
            None => (self.user.clone(), address),
        };
        let host = parse_host(&format!("{scheme}://{address}"))?;
        if bucket.is_empty() || !matches!(scheme, "couchbase" | "couchbases") {
            return Err(form());
        }
        // Options of TLS that only make sense with it must not turn it on for this server.
        let tls = if host.with_tls { self.tls.clone() } else { TlsArgs::default() };
        let password = password.unwrap_or(&self.password).to_owned();
        let bucket = bucket.to_owned();
        let server = self.server.clone();
        let server =
            ServerTarget { host, port: None, usual_port: None, tls, user, password, ..server };
        Ok(Target { server, bucket })
    }

    /// Options for connecting, which a subcommand may change first.
    ///
    /// # Errors
    /// When TLS is asked for and cannot be set up.
    pub fn options(&self) -> anyhow::Result<ConnectOptions> {
        let timeout = Duration::from_secs_f64(self.timeout);
        let mut options = ConnectOptions::new(self.user(), &self.password, &self.bucket)
            .host(self.host())
            .port(self.port())
            .connect_timeout(timeout.min(Duration::from_secs(10)))
            .operation_timeout(timeout)
            .agent(concat!("oribi/", env!("CARGO_PKG_VERSION")))
            .bucket(Some(&*self.bucket).filter(|bucket| !bucket.is_empty()));
        if self.with_tls() {
            options = options.tls(self.tls.load()?);
        }
        Ok(options)
    }

    /// A client of the bucket.
    pub async fn client(&self, options: ConnectOptions) -> anyhow::Result<Client> {
        Client::connect(options).await.map_err(|error| self.explain(error))
    }

    /// A task's connection to the named node.
    pub async fn connection(&self, options: &ConnectOptions) -> anyhow::Result<Connection> {
        Connection::open(options).await.map_err(|error| self.explain(error))
    }

    /// A failed connection, with what to do about it.
    pub fn explain(&self, error: ClientError) -> anyhow::Error {
        let context = format!("{}{}", self.describe(), self.hint(&error));
        anyhow::Error::from(error).context(context)
    }

    /// The usual cause of a failed connection, in parentheses, or nothing.
    fn hint(&self, error: &ClientError) -> &'static str {
        match error {
            // The server answers alike for a missing bucket and for one without a right.
            ClientError::Rejected(RejectionKind::AccessDenied) if !self.bucket.is_empty() => {
                " (no such bucket, or no right in it)"
            }
            ClientError::Authentication(_) => {
                " (--user or ORIBI_USER names the user, ORIBI_PASSWORD has the password)"
            }
            ClientError::Connect { error, .. } => match error.kind() {
                ErrorKind::ConnectionRefused => {
                    " (is the server running? `oribi serve` starts one)"
                }
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset if self.with_tls() => {
                    " (is this the port with TLS, usually 11207?)"
                }
                _ => "",
            },
            // The first letter of an HTTP answer.
            ClientError::Protocol { reason, .. } if reason.contains("unknown magic 0x48") => {
                " (this port speaks HTTP; --port takes the key-value port, usually 11210)"
            }
            // The first byte of a TLS alert.
            ClientError::Protocol { reason, .. } if reason.contains("unknown magic 0x15") => {
                " (this port speaks TLS: use couchbases://HOST or --tls)"
            }
            _ => "",
        }
    }

    /// The error context for a failed connection.
    pub fn describe(&self) -> String {
        let (bucket, user) = (&self.bucket, self.user());
        let (host, port) = (self.host(), self.port());
        match bucket.is_empty() {
            true => format!("cannot connect to {host}:{port} as \"{user}\""),
            false => format!("cannot open bucket \"{bucket}\" at {host}:{port} as \"{user}\""),
        }
    }
}

/// Looks a collection up by its path, `scope.collection`; the default one without a path.
pub async fn find_collection(client: &Client, path: Option<&str>) -> anyhow::Result<Collection> {
    let Some(path) = path else { return Ok(client.default_collection().clone()) };
    if path.is_empty() {
        bail!("a collection is named as scope.collection");
    }
    client.collection(path).await.map_err(|error| {
        let hint = match error.rejection() {
            Some(RejectionKind::UnknownScope | RejectionKind::UnknownCollection) => {
                " (`oribi collection create` creates it)"
            }
            _ => "",
        };
        anyhow::Error::from(error).context(format!("collection \"{path}\"{hint}"))
    })
}

#[cfg(test)]
mod tests {
    //! Times as people type them.

    use super::*;

    #[test]
    fn hosts_may_say_how_to_speak_to_them() {
        let host = |name: &str, port, with_tls| Ok(Host { name: name.to_owned(), port, with_tls });
        for (text, expected) in [
            ("db.example", host("db.example", None, false)),
            ("::1", host("::1", None, false)),
            ("db:7", host("db", Some(7), false)),
            ("[::1]:7", host("::1", Some(7), false)),
            ("couchbase://db", host("db", None, false)),
            ("couchbases://db", host("db", None, true)),
            ("couchbases://db:1207", host("db", Some(1207), true)),
            ("couchbases://[::1]:7", host("::1", Some(7), true)),
            ("couchbases://[::1]", host("::1", None, true)),
        ] {
            assert_eq!(parse_host(text), expected, "{text}");
        }
        for text in ["", "db:", "db:x", "db:70000", "http://db"] {
            parse_host(text).expect_err(text);
        }
        let refused = parse_host("http://db").unwrap_err();
        assert!(refused.starts_with("http:// is not known"), "{refused}");
        for text in ["couchbases://", "couchbases://a,b", "couchbases://a:b", "couchbases://a/b"] {
            parse_host(text).expect_err(text);
        }
    }

    #[test]
    fn another_server_is_named_by_one_text() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            target: Target,
        }
        let line = <Line as clap::Parser>::parse_from(["x", "--user", "u", "--password", "p"]);
        let found = line.target.at("couchbase://me@db:7/b", Some("q")).expect("a server");
        assert_eq!((found.host(), found.port(), found.user()), ("db", 7, "me"));
        assert_eq!((&*found.bucket, &*found.password, found.with_tls()), ("b", "q", false));
        let found = line.target.at("couchbases://db/b", None).expect("a server");
        assert_eq!((found.user(), &*found.password, found.with_tls()), ("u", "p", true));
        for text in ["", "db", "couchbase://db", "couchbase://db/", "http://db/b", "couchbase:///b"]
        {
            assert!(line.target.at(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn intervals_have_units() {
        for (text, milliseconds) in
            [("1s", 1000), ("500ms", 500), ("2", 2000), ("0.25s", 250), ("2m", 120_000)]
        {
            assert_eq!(parse_interval(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse_interval("24h"), Ok(DAY));
        for text in ["", "s", "0", "-1s", "25h", "9ms", "NaN", "inf", "ms", "1 s"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
        for (text, seconds) in [("60", 60.0), ("60s", 60.0), ("1ms", 0.001), ("0.5", 0.5)] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["0", "25h", "x", "-1"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
