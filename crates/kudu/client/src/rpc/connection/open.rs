//! Opens links to a server: its addresses, and what to offer it.
//!
//! On the loopback interface the first offer is plain text, which costs one round trip. A server
//! that requires TLS or a token refuses it, and the second offer then has everything; the task
//! remembers that for the next link. On the network the first offer has TLS. Invariants: one
//! deadline covers everything. A link without encryption is returned only if the policy allows it.
//! The connection's task calls it.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::proto::rpc::RpcErrorCodePb;
use crate::rpc::error::{NegotiationError, RpcError};
use crate::rpc::link::{Link, OpenError};
use crate::rpc::negotiation::{NegotiationOffer, TlsOffer};
use crate::rpc::options::is_loopback;
use crate::rpc::shared::Shared;
use crate::types::HostPort;

/// Opens the links of one server.
#[derive(Debug)]
pub(super) struct Opener {
    server: HostPort,
    shared: Arc<Shared>,
    /// Never offer a token.
    primary_credentials: bool,
    /// The server has refused plain text although the client's policy allows it.
    insists_on_tls: bool,
}

impl Opener {
    pub(super) fn new(server: HostPort, shared: Arc<Shared>, primary_credentials: bool) -> Self {
        Self { server, shared, primary_credentials, insists_on_tls: false }
    }

    /// Opens a link.
    pub(super) async fn open(&mut self) -> Result<Link, RpcError> {
        let timeout = self.shared.options.negotiation_timeout;
        let opened = match tokio::time::timeout(timeout, self.open_any()).await {
            Ok(opened) => opened,
            Err(_) => {
                let message = format!("it was not open after {timeout:?}");
                Err(OpenError::Network(io::Error::new(ErrorKind::TimedOut, message)))
            }
        };
        opened.map_err(|error| match error {
            OpenError::Network(source) => RpcError::Network {
                server: self.server.clone(),
                source: Arc::new(source),
                interrupted: Arc::default(),
            },
            OpenError::Negotiation(source) => {
                RpcError::Negotiation { server: self.server.clone(), source }
            }
        })
    }

    /// Tries the addresses of the server's name in turn; it moves on only after a network error.
    async fn open_any(&mut self) -> Result<Link, OpenError> {
        let name = (self.server.host.as_str(), self.server.port);
        let addresses: Vec<_> =
            tokio::net::lookup_host(name).await.map_err(OpenError::Network)?.collect();
        let mut last = io::Error::new(ErrorKind::NotFound, "the host's name has no address");
        for address in addresses {
            match self.open_address(address).await {
                Err(OpenError::Network(error)) => last = error,
                opened => return opened,
            }
        }
        Err(OpenError::Network(last))
    }

    async fn open_address(&mut self, address: SocketAddr) -> Result<Link, OpenError> {
        let socket = Link::connect(address).await?;
        let offer = self.offer(&socket, address, self.insists_on_tls)?;
        let was_plain = offer.tls == TlsOffer::None;
        let link = match Link::negotiate(socket, offer).await {
            Err(OpenError::Negotiation(error)) if was_plain && is_refusal(&error) => {
                let socket = Link::connect(address).await?;
                let offer = self.offer(&socket, address, true)?;
                let link = Link::negotiate(socket, offer).await?;
                self.insists_on_tls = true;
                link
            }
            first => first?,
        };
        tracing::debug!(server = %self.server, encrypted = link.is_encrypted(), "connection open");
        Ok(link)
    }

    /// The client's offer on a connection.
    fn offer(
        &self,
        socket: &TcpStream,
        peer: SocketAddr,
        insists_on_tls: bool,
    ) -> Result<NegotiationOffer, OpenError> {
        let local = socket.local_addr().map_err(OpenError::Network)?;
        let options = &self.shared.options;
        let required = options.encryption.requires(local.ip(), peer.ip());
        let tls = match (required, is_loopback(local.ip(), peer.ip()), insists_on_tls) {
            (true, _, _) => TlsOffer::Required,
            (false, true, false) => TlsOffer::None,
            (false, true, true) => TlsOffer::AuthenticationOnly,
            (false, false, _) => TlsOffer::Optional,
        };
        let credentials = self.shared.credentials();
        Ok(NegotiationOffer {
            user: options.user.clone(),
            tls,
            authn_token: credentials.authn_token.clone().filter(|_| !self.primary_credentials),
            tls_configs: credentials.tls_configs.clone(),
            peer: peer.ip(),
        })
    }
}

/// True when the server might accept an offer with TLS and a token.
fn is_refusal(error: &NegotiationError) -> bool {
    matches!(
        error,
        NegotiationError::Refused { code: RpcErrorCodePb::FatalUnauthorized, .. }
            | NegotiationError::NoPlain
    )
}
