//! TLS as in Kudu: a cluster has its own certificate authority. Its certificates name the user that
//! a server runs as, but no name to compare with an address.
//!
//! It owns the verifier and two configurations. One checks a server's chain up to the cluster's
//! authority, for connections that authenticate by token. The other accepts any certificate, for
//! connections that authenticate by user name. The latter encrypt without proving the server's
//! identity: a client does not have the authority before a master has sent it. Like Kudu's own
//! clients, it never checks host names. It supports TLS 1.2 and 1.3. The negotiation calls it.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// The configurations of a client's connections.
#[derive(Clone, Debug)]
pub(crate) struct TlsConfigs {
    any_server: Arc<ClientConfig>,
    cluster_only: Option<Arc<ClientConfig>>,
}

impl TlsConfigs {
    /// Configurations for a cluster with these authorities; none are known before a master's first
    /// answer. Unreadable certificates are left out: the others may suffice.
    pub(crate) fn new(ca_certs_der: &[Vec<u8>]) -> Self {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            ca_certs_der.iter().map(|der| CertificateDer::from(der.as_slice())),
        );
        let any_server = config(&provider, None);
        let cluster_only = (!roots.is_empty()).then(|| config(&provider, Some(roots)));
        Self { any_server, cluster_only }
    }

    /// True when the client can verify a server's certificate, which authentication by token
    /// requires.
    pub(crate) fn knows_cluster(&self) -> bool {
        self.cluster_only.is_some()
    }

    /// Begins a handshake with a server. With `verify`, the server must prove that it belongs to
    /// the cluster; that fails without a known authority.
    pub(crate) fn connect(&self, peer: IpAddr, verify: bool) -> Result<ClientConnection, Error> {
        let config = match (&self.cluster_only, verify) {
            (_, false) => &self.any_server,
            (Some(config), true) => config,
            (None, true) => {
                return Err(Error::General("the cluster's authority is unknown".into()));
            }
        };
        // The name is neither sent nor checked; an address always has a valid form.
        ClientConnection::new(config.clone(), ServerName::IpAddress(peer.into()))
    }
}

fn config(provider: &Arc<CryptoProvider>, roots: Option<RootCertStore>) -> Arc<ClientConfig> {
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has suites for both versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ClusterVerifier { roots, algorithms }))
        .with_no_client_auth();
    // A resumed session would keep the verdict of an older set of authorities.
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Checks the chain of a certificate, but no name.
#[derive(Debug)]
struct ClusterVerifier {
    /// `None` accepts every chain.
    roots: Option<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for ClusterVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                self.algorithms.all,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
