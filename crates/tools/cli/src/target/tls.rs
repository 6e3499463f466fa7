//! TLS as the client subcommands' arguments ask for it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use oribi_client::{ClientTls, TlsOptions};
use oribi_tls::client::{ClientOptions, Config};

/// Heading of these options in the help.
const HEADING: &str = "TLS";

/// Whether to speak TLS, and whom to believe.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsArgs {
    /// Use TLS; implied by --host couchbases://HOST.
    #[arg(long, help_heading = HEADING)]
    pub tls: bool,
    /// PEM file with trusted certificate authorities [default: the system's].
    #[arg(long, help_heading = HEADING, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Do not verify the server's certificate. Anyone in between can then read and change
    /// everything, the password included.
    #[arg(long, help_heading = HEADING, conflicts_with = "tls_ca")]
    pub tls_insecure: bool,
    /// PEM file with a client certificate, which replaces user name and password.
    #[arg(long, help_heading = HEADING, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[arg(long, help_heading = HEADING, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// True when any of them asks for TLS.
    pub fn is_wanted(&self) -> bool {
        let TlsArgs { tls, tls_ca, tls_insecure, tls_certificate, .. } = self;
        *tls || *tls_insecure || tls_ca.is_some() || tls_certificate.is_some()
    }

    /// The same for connections that are not the client library's.
    pub fn config(&self) -> anyhow::Result<Arc<Config>> {
        let identity = self.tls_certificate.clone().zip(self.tls_key.clone());
        let options = ClientOptions {
            ca: self.tls_ca.clone(),
            is_insecure: self.tls_insecure,
            identity,
            ..ClientOptions::default()
        };
        options.load().context("cannot set TLS up")
    }

    /// Reads the files.
    pub fn load(&self) -> anyhow::Result<ClientTls> {
        if self.tls_insecure {
            eprintln!(
                "WARNING: --tls-insecure: the server's certificate is NOT verified. Anybody between here \
                 and the server can read and change everything."
            );
        }
        let mut options = TlsOptions::new().insecure(self.tls_insecure);
        if let Some(ca) = &self.tls_ca {
            options = options.ca(ca);
        }
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            options = options.identity(certificate, key);
        }
        ClientTls::load(&options).context("cannot set TLS up")
    }
}
