//! TLS for a client's connections.

use std::fmt;
use std::sync::Arc;

pub use oribi_tls::client::ClientOptions as TlsOptions;
use oribi_tls::client::Config;
pub use oribi_tls::files::FileError as TlsFileError;

/// TLS, made from files once and used for every connection.
#[derive(Clone)]
pub struct Tls {
    config: Arc<Config>,
    has_identity: bool,
    is_insecure: bool,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn load(options: &TlsOptions) -> Result<Tls, TlsFileError> {
        Ok(Tls {
            config: options.load()?,
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
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_identity", &self.has_identity)
            .field("is_insecure", &self.is_insecure)
            .finish_non_exhaustive()
    }
}
