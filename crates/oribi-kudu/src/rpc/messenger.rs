//! The messenger: calls to any server, over one connection per server.
//!
//! Invariants: all clones share the connections and the credentials; a connection's task is started on
//! the runtime of the call that needs it first, and again elsewhere when that runtime has ended; new
//! credentials are used by links that are opened from then on. Called by every part of the client that
//! talks to a server.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message;

use super::connection::Connection;
use super::error::RpcError;
use super::frame::{FrameError, ReplyFrame};
use super::options::MessengerOptions;
use super::tls::TlsConfigs;
use super::{CallOptions, Method, Reply};
use crate::proto::rpc::SignedTokenPb;
use crate::types::HostPort;

/// Sends calls to servers. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Messenger {
    shared: Arc<Shared>,
    connections: Arc<Mutex<Connections>>,
}

/// The connections of a messenger, by server.
#[derive(Debug, Default)]
struct Connections {
    /// Authenticated in any way.
    any: HashMap<HostPort, Arc<Connection>>,
    /// Authenticated without a token.
    primary: HashMap<HostPort, Arc<Connection>>,
}

/// What the connections of a messenger share.
#[derive(Debug)]
pub(super) struct Shared {
    pub options: MessengerOptions,
    credentials: RwLock<Arc<Credentials>>,
}

/// What a client knows about a cluster that lets it authenticate.
#[derive(Debug)]
pub(super) struct Credentials {
    pub tls_configs: TlsConfigs,
    pub authn_token: Option<SignedTokenPb>,
}

impl Shared {
    /// The credentials as they are now.
    pub(super) fn credentials(&self) -> Arc<Credentials> {
        self.credentials.read().clone()
    }
}

impl Messenger {
    /// A messenger without connections.
    pub(crate) fn new(options: MessengerOptions) -> Self {
        let credentials = Credentials { tls_configs: TlsConfigs::new(&[]), authn_token: None };
        Self {
            shared: Arc::new(Shared { options, credentials: RwLock::new(Arc::new(credentials)) }),
            connections: Arc::default(),
        }
    }

    /// Sets what a master has said in answer to `ConnectToMaster`: the cluster's certificate authorities
    /// and a token. Open links are not affected.
    pub(crate) fn set_credentials(
        &self,
        ca_cert_der: Vec<Vec<u8>>,
        authn_token: Option<SignedTokenPb>,
    ) {
        let tls_configs = TlsConfigs::new(&ca_cert_der);
        *self.shared.credentials.write() = Arc::new(Credentials { tls_configs, authn_token });
    }

    /// Calls a method with a message.
    pub(crate) async fn call<Q: Message, R: Message + Default>(
        &self,
        server: &HostPort,
        method: &Method,
        request: &Q,
        options: &CallOptions,
    ) -> Result<Reply<R>, RpcError> {
        let body = Bytes::from(request.encode_to_vec());
        self.call_pieces(server, method, vec![body], options).await
    }

    /// Calls a method with a message that is encoded already, in pieces that are sent end to end without
    /// being copied.
    pub(crate) async fn call_pieces<R: Message + Default>(
        &self,
        server: &HostPort,
        method: &Method,
        pieces: Vec<Bytes>,
        options: &CallOptions,
    ) -> Result<Reply<R>, RpcError> {
        let connection = self.connection(server, options.primary_credentials);
        let frame = connection.call(method, pieces, options).await?;
        decode(frame).map_err(|source| RpcError::Malformed { server: server.clone(), source })
    }

    /// The connection of a server.
    fn connection(&self, server: &HostPort, primary_credentials: bool) -> Arc<Connection> {
        let mut connections = self.connections.lock();
        let connections =
            if primary_credentials { &mut connections.primary } else { &mut connections.any };
        if let Some(connection) = connections.get(server)
            && !connection.is_dead()
        {
            return connection.clone();
        }
        let connection =
            Connection::spawn(server.clone(), self.shared.clone(), primary_credentials);
        let connection = Arc::new(connection);
        connections.insert(server.clone(), connection.clone());
        connection
    }
}

fn decode<R: Message + Default>(frame: ReplyFrame) -> Result<Reply<R>, FrameError> {
    let (body, sidecars) = frame.into_parts()?;
    let message = R::decode(body).map_err(|_| FrameError::Undecodable("reply"))?;
    Ok(Reply { message, sidecars })
}

#[cfg(test)]
mod kudu_tests;
#[cfg(test)]
mod tests;
