//! TLS configuration of a server, built from files.
//!
//! Owns: [`ServerOptions`] and their conversion. Invariants: a certificate that does not match its
//! key is an error here and not at the first handshake; sessions are resumed by tickets whose keys
//! live as long as the configuration, so a session with a replaced certificate is never resumed.
//! Called at the start and whenever the files changed. This module does not watch them.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};

use crate::certificate::{self, Certificate};
use crate::files::{self, FileError};
use crate::{MinimumVersion, provider};

/// Whether the server asks clients for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// The server does not ask.
    #[default]
    Off,
    /// The server requests one; a client may have none, and a bad one ends the handshake.
    Enable,
    /// A client without a certificate cannot connect.
    Mandatory,
}

impl ClientCertificates {
    /// Names in settings.
    pub const NAMES: [&'static str; 3] = ["off", "enable", "mandatory"];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Enable => "enable",
            Self::Mandatory => "mandatory",
        }
    }

    /// The value of this name.
    pub fn from_name(name: &str) -> Option<ClientCertificates> {
        [Self::Off, Self::Enable, Self::Mandatory].into_iter().find(|value| value.name() == name)
    }
}

/// TLS options of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// PEM file with the server's certificate and the intermediate certificates.
    pub certificate: PathBuf,
    /// PEM file with the private key.
    pub key: PathBuf,
    /// PEM file with the authorities of clients; needed unless the server does not ask clients.
    pub client_ca: Option<PathBuf>,
    /// Whether the server asks clients for a certificate.
    pub client_certificates: ClientCertificates,
    /// Minimum version of the protocol.
    pub minimum_version: MinimumVersion,
}

/// A configuration, ready for connections.
#[derive(Debug)]
pub struct ServerTls {
    /// For [`crate::Session::server`] and other TLS code.
    pub config: Arc<ServerConfig>,
    /// The server's own certificate.
    pub certificate: Certificate,
    /// DER of the certificates that the server sends: its own, then those of issuers.
    pub chain: Vec<Vec<u8>>,
}

impl ServerOptions {
    /// Every file that a configuration is built from.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn load(&self) -> Result<ServerTls, FileError> {
        let path = &self.certificate;
        let chain = files::certificates(path)?;
        let key = files::private_key(&self.key)?;
        let certificate = certificate::read(&chain[0])
            .map_err(|error| FileError::Certificate { path: path.clone(), error })?;
        let sent = chain.iter().map(|certificate| certificate.to_vec()).collect();
        let unsuitable = |error| FileError::Unsuitable { path: path.clone(), error };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(self.minimum_version.versions())
            .map_err(unsuitable)?
            .with_client_cert_verifier(self.client_verifier()?)
            .with_single_cert(chain, key)
            .map_err(unsuitable)?;
        // A client needs one ticket to resume; each ticket costs a key derivation and an
        // encryption.
        config.send_tls13_tickets = 1;
        config.ticketer = ring::Ticketer::new().map_err(unsuitable)?;
        Ok(ServerTls { config: Arc::new(config), certificate, chain: sent })
    }

    fn client_verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, FileError> {
        let Some(path) = &self.client_ca else { return Ok(Arc::new(NoClientAuth)) };
        if self.client_certificates == ClientCertificates::Off {
            return Ok(Arc::new(NoClientAuth));
        }
        let roots = Arc::new(files::authorities(path)?);
        let mut builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
        if self.client_certificates == ClientCertificates::Enable {
            builder = builder.allow_unauthenticated();
        }
        builder
            .build()
            .map_err(|error| FileError::Damaged { path: path.clone(), detail: error.to_string() })
    }
}
