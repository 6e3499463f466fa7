//! The messenger: calls to any server, over one connection per server.
//!
//! Invariants: all clones share the connections and the credentials. A connection's task starts on
//! the runtime of the first call that needs it, and again on another when that runtime has ended.
//! Links opened later use new credentials. Every part of the client that talks to a server calls
//! it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;

use super::connection::RpcConnection;
use super::error::RpcError;
use super::frame::{FrameError, ReplyFrame};
use super::options::MessengerOptions;
use super::shared::{RpcCredentials, Shared};
use super::tls::TlsConfigs;
use super::{CallOptions, Method, RpcReply};
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
    /// Authenticated by any method.
    any: HashMap<HostPort, Arc<RpcConnection>>,
    /// Authenticated without a token.
    primary: HashMap<HostPort, Arc<RpcConnection>>,
}

impl Messenger {
    /// A messenger without connections.
    pub(crate) fn new(options: MessengerOptions) -> Self {
        let credentials = RpcCredentials { tls_configs: TlsConfigs::new(&[]), authn_token: None };
        Self { shared: Arc::new(Shared::new(options, credentials)), connections: Arc::default() }
    }

    /// Sets the credentials of a master's answer to `ConnectToMaster`: the cluster's certificate
    /// authorities and a token. Open links keep theirs.
    pub(crate) fn set_credentials(
        &self,
        ca_cert_der: Vec<Vec<u8>>,
        authn_token: Option<SignedTokenPb>,
    ) {
        let tls_configs = TlsConfigs::new(&ca_cert_der);
        self.shared.set_credentials(RpcCredentials { tls_configs, authn_token });
    }

    /// Calls a method with a message.
    pub(crate) async fn call<Q: Message, R: Message + Default>(
        &self,
        server: &HostPort,
        method: &Method,
        request: &Q,
        options: &CallOptions,
    ) -> Result<RpcReply<R>, RpcError> {
        let body = Bytes::from(request.encode_to_vec());
        self.call_pieces(server, method, vec![body], options).await
    }

    /// Calls a method with an encoded message, in pieces that are sent end to end without a copy.
    pub(crate) async fn call_pieces<R: Message + Default>(
        &self,
        server: &HostPort,
        method: &Method,
        pieces: Vec<Bytes>,
        options: &CallOptions,
    ) -> Result<RpcReply<R>, RpcError> {
        let connection = self.connection(server, options.primary_credentials);
        let frame = connection.call(method, pieces, options).await?;
        decode(frame).map_err(|source| RpcError::Malformed { server: server.clone(), source })
    }

    /// The connection of a server.
    fn connection(&self, server: &HostPort, primary_credentials: bool) -> Arc<RpcConnection> {
        let mut connections = self.connections.lock();
        let connections =
            if primary_credentials { &mut connections.primary } else { &mut connections.any };
        if let Some(connection) = connections.get(server)
            && !connection.is_dead()
        {
            return connection.clone();
        }
        let connection =
            RpcConnection::spawn(server.clone(), self.shared.clone(), primary_credentials);
        let connection = Arc::new(connection);
        connections.insert(server.clone(), connection.clone());
        connection
    }
}

fn decode<R: Message + Default>(frame: ReplyFrame) -> Result<RpcReply<R>, FrameError> {
    let (body, sidecars) = frame.into_parts()?;
    let message = R::decode(body).map_err(|_| FrameError::Undecodable("reply"))?;
    Ok(RpcReply { message, sidecars })
}

#[cfg(test)]
mod kudu_tests;
#[cfg(test)]
mod tests;
