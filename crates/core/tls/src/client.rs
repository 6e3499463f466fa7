//! TLS configuration of a client.
//!
//! Owns: [`ClientOptions`] and their conversion. Invariants: a server has to prove its name by a
//! chain up to an authority unless the caller explicitly disables that; without authorities from
//! the caller, the system's authorities count. Called once per client, not per connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use rustls::ClientConfig as Config;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::files::{self, FileError};
use crate::{MinimumVersion, provider};

/// Usual places of the system's trusted authorities.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Environment variable with another file of the system's authorities.
const SYSTEM_AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// TLS options of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// PEM file with the authorities for the server's certificate; the system's when not set.
    pub ca: Option<PathBuf>,
    /// Accept any server: protects against passive listeners, not against a man in the middle.
    pub is_insecure: bool,
    /// PEM files with the client's own certificate chain and its private key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Minimum version of the protocol.
    pub minimum_version: MinimumVersion,
}

impl ClientOptions {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn load(&self) -> Result<Arc<ClientConfig>, FileError> {
        let of_path = |error| {
            let paths = [self.identity.as_ref().map(|identity| &identity.0), self.ca.as_ref()];
            let path = paths.into_iter().flatten().next().cloned().unwrap_or_default();
            FileError::Unsuitable { path, error }
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(self.minimum_version.versions())
            .map_err(of_path)?;
        let builder = match self.is_insecure {
            true => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServer(provider()))),
            false => builder.with_root_certificates(self.authorities()?),
        };
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(files::certificates(certificate)?, files::private_key(key)?)
                .map_err(of_path)?,
        };
        Ok(Arc::new(config))
    }

    fn authorities(&self) -> Result<RootCertStore, FileError> {
        if let Some(path) = &self.ca {
            return files::authorities(path);
        }
        let named = std::env::var_os(SYSTEM_AUTHORITIES_VARIABLE).map(PathBuf::from);
        let usual = SYSTEM_AUTHORITIES.into_iter().map(PathBuf::from).find(|path| path.exists());
        let Some(path) = named.or(usual) else {
            let path = PathBuf::from(SYSTEM_AUTHORITIES[0]);
            return Err(FileError::Missing { path, wanted: "certificate of an authority" });
        };
        system_authorities(&path)
    }
}

/// A single unreadable certificate among the system's is skipped; the others count.
fn system_authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(files::certificates(path)?);
    Ok(roots)
}

/// Accepts every certificate, provided that the server proves possession of its key.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
