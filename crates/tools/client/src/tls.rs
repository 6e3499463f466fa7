//! TLS for a client's connections: what it is set up from, and what comes of that.
//!
//! Wraps the crates that do TLS, so that none of their types is part of this crate's interface.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use oribi_tls::MinimumVersion;
use oribi_tls::client::{ClientOptions, Config};
use oribi_tls::files::FileError;

/// Configuration of TLS.
///
/// ```no_run
/// use oribi_client::{ClientTls, TlsOptions};
///
/// let tls = ClientTls::load(&TlsOptions::new().ca("/etc/oribi/ca.pem"))?;
/// assert!(!tls.has_identity());
/// # Ok::<(), oribi_client::TlsError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsOptions(ClientOptions);

impl TlsOptions {
    /// Trusts the authorities that the system trusts.
    pub fn new() -> TlsOptions {
        TlsOptions::default()
    }

    /// Trusts only the authorities in this PEM file.
    pub fn ca(mut self, path: impl Into<PathBuf>) -> TlsOptions {
        self.0.ca = Some(path.into());
        self
    }

    /// Authenticates by the certificate chain and the private key in these PEM files. No password
    /// is sent then.
    pub fn identity(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> TlsOptions {
        self.0.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Accepts any server, or only one that proves its name. Accepting any protects against
    /// eavesdroppers, but not against an attacker between client and server.
    pub fn insecure(mut self, accept_any: bool) -> TlsOptions {
        self.0.is_insecure = accept_any;
        self
    }

    /// Refuses TLS 1.2.
    pub fn tls13_only(mut self) -> TlsOptions {
        self.0.minimum_version = MinimumVersion::Tls13;
        self
    }
}

/// TLS, made from files once and used for every connection.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<Config>,
    has_identity: bool,
    is_insecure: bool,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn load(options: &TlsOptions) -> Result<ClientTls, TlsError> {
        let TlsOptions(options) = options;
        Ok(ClientTls {
            config: options.load().map_err(TlsError)?,
            has_identity: options.identity.is_some(),
            is_insecure: options.is_insecure,
        })
    }

    /// True when the client has a certificate, which is then all that it authenticates by.
    pub fn has_identity(&self) -> bool {
        self.has_identity
    }

    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.config
    }
}

/// Without keys.
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_identity", &self.has_identity)
            .field("is_insecure", &self.is_insecure)
            .finish_non_exhaustive()
    }
}

/// Why TLS cannot be set up; the text names the file and what is wrong with it.
#[derive(Debug)]
pub struct TlsError(FileError);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for TlsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
