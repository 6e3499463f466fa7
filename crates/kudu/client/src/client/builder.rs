//! The builder of a client.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::time::Instant;

use super::{Client, ClientShared};
use crate::error::Error;
use crate::master::{Authentication, Masters};
use crate::meta_cache::MetaCache;
use crate::request_tracker::RequestTracker;
use crate::rpc::{EncryptionPolicy, Messenger, MessengerOptions};
use crate::types::{HostPort, HostPortError};

/// The timeout of a write or a read, with all its attempts.
const RPC_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a table change.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Sets up a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    masters: Vec<HostPort>,
    rpc_timeout: Duration,
    admin_timeout: Duration,
    messenger: MessengerOptions,
}

impl ClientBuilder {
    /// A client of the cluster with these masters. One is enough to find the others, but the client
    /// cannot start while that one is down.
    pub fn new(masters: impl IntoIterator<Item = HostPort>) -> ClientBuilder {
        ClientBuilder {
            masters: masters.into_iter().collect(),
            rpc_timeout: RPC_TIMEOUT,
            admin_timeout: ADMIN_TIMEOUT,
            messenger: MessengerOptions::new(user_of_process()),
        }
    }

    /// Like [`ClientBuilder::new`], from addresses separated by commas; a missing port is 7051.
    pub fn from_addresses(masters: &str) -> Result<ClientBuilder, HostPortError> {
        let masters = masters
            .split(',')
            .map(|master| master.trim().parse::<HostPort>())
            .collect::<Result<Vec<_>, _>>()?;
        Ok(ClientBuilder::new(masters))
    }

    /// The user name that the client claims where the cluster does not require authentication. The
    /// default is the user name of the process.
    pub fn user(mut self, user: impl Into<String>) -> ClientBuilder {
        self.messenger.user = user.into();
        self
    }

    /// The timeout of a write or a read with all its attempts, unless the call sets its own; 10
    /// seconds by default.
    pub fn rpc_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.rpc_timeout = timeout;
        self
    }

    /// The timeout of a table change, and of finding the leading master; 30 seconds by default.
    pub fn admin_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.admin_timeout = timeout;
        self
    }

    /// The timeout of opening a connection; 3 seconds by default.
    pub fn negotiation_timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.messenger.negotiation_timeout = timeout;
        self
    }

    /// When connections are encrypted.
    pub fn encryption(mut self, policy: EncryptionPolicy) -> ClientBuilder {
        self.messenger.encryption = policy;
        self
    }

    /// Largest message in either direction, in bytes; 50 MiB by default. It should equal the
    /// servers' `--rpc_max_message_size`.
    pub fn message_bytes_max(mut self, bytes: usize) -> ClientBuilder {
        self.messenger.message_bytes_max = bytes;
        self
    }

    /// How long an idle connection stays open; 65 seconds by default.
    pub fn keep_alive(mut self, keep_alive: Duration) -> ClientBuilder {
        self.messenger.keep_alive = keep_alive;
        self
    }

    /// Finds the leading master. It must run inside a Tokio runtime.
    pub async fn build(self) -> Result<Client, Error> {
        if self.masters.is_empty() {
            return Err(Error::InvalidArgument(
                "a client needs the address of a master".to_owned(),
            ));
        }
        let requests = RequestTracker::new().map_err(|error| {
            Error::InvalidArgument(format!("no random numbers for the client's id: {error}"))
        })?;
        let messenger = Messenger::new(self.messenger);
        let shared = ClientShared {
            masters: Masters::new(messenger.clone(), self.masters),
            messenger,
            meta_cache: MetaCache::new(),
            requests,
            last_observed_timestamp: AtomicU64::new(0),
            rpc_timeout: self.rpc_timeout,
            admin_timeout: self.admin_timeout,
        };
        shared
            .masters
            .leader(None, Authentication::Any, Instant::now() + self.admin_timeout)
            .await?;
        Ok(Client { shared: Arc::new(shared) })
    }
}

/// The user name of the process. The C++ client does the same, and this user owns the tables that
/// the client creates. The environment counts only if this machine does not list the user: it names
/// the login user, or is empty.
fn user_of_process() -> String {
    let named =
        |variable: &str| std::env::var(variable).ok().filter(|name| !name.trim().is_empty());
    let listed = || {
        let uid = std::fs::metadata("/proc/self").ok()?.uid();
        user_in(&std::fs::read_to_string("/etc/passwd").ok()?, uid)
    };
    let user = listed().or_else(|| named("USER")).or_else(|| named("LOGNAME"));
    user.unwrap_or_else(|| "kudu".to_owned())
}

/// The name of the first user of this number in a list in the form of passwd(5).
fn user_in(users: &str, uid: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n\n#:\nkv:x:999:999::/:/bin/false\nb:x:999:1::/:";
        assert_eq!(user_in(users, 0).as_deref(), Some("root"));
        assert_eq!(user_in(users, 999).as_deref(), Some("kv"));
        assert_eq!(user_in(users, 1), None);
        assert_eq!(user_in("", 0), None);
    }
}
