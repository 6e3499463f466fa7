//! TLS for both ends of the key-value protocol, without I/O, and its configuration files.
//!
//! Owns: [`Session`], one connection's TLS as a state machine over bytes; [`server`] and
//! [`client`], the configurations built from PEM files; [`certificate`], the few fields of a
//! certificate that Oribi reads. rustls with ring does the cryptography, the protocol and the
//! verification of chains. Callers: the server's workers and its admin HTTP, the client's
//! connections. This crate deliberately does not depend on sockets, frames or users: the server
//! interprets the names in a certificate.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod certificate;
pub mod client;
pub mod files;
pub mod server;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

mod sealed_bytes;
mod session;

pub use rustls::Error;
pub use rustls::pki_types::ServerName;
pub use sealed_bytes::SealedBytes;
pub use session::Session;

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, ring};

/// Minimum version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinimumVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    Tls12,
    /// TLS 1.3 only.
    Tls13,
}

/// Newest first.
static VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS13, &rustls::version::TLS12];

impl MinimumVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::Tls12 => &VERSIONS,
            Self::Tls13 => &VERSIONS[..1],
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
