//! The shared state of a messenger's connections: its options, and the newest credentials.

use std::sync::Arc;

use parking_lot::RwLock;

use super::options::MessengerOptions;
use super::tls::TlsConfigs;
use crate::proto::rpc::SignedTokenPb;

/// The shared state of a messenger's connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub options: MessengerOptions,
    credentials: RwLock<Arc<RpcCredentials>>,
}

/// The credentials for a cluster.
#[derive(Debug)]
pub(super) struct RpcCredentials {
    pub tls_configs: TlsConfigs,
    pub authn_token: Option<SignedTokenPb>,
}

impl Shared {
    /// Fixed options, and the first credentials.
    pub(super) fn new(options: MessengerOptions, credentials: RpcCredentials) -> Self {
        Self { options, credentials: RwLock::new(Arc::new(credentials)) }
    }

    /// Replaces the credentials; open links keep theirs.
    pub(super) fn set_credentials(&self, credentials: RpcCredentials) {
        *self.credentials.write() = Arc::new(credentials);
    }

    /// The current credentials.
    pub(super) fn credentials(&self) -> Arc<RpcCredentials> {
        self.credentials.read().clone()
    }
}
