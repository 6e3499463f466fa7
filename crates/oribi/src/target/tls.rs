//! TLS as the client subcommands' arguments ask for it.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use oribi_client::{Tls, TlsOptions};

/// Whether to speak TLS, and whom to believe.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Speak TLS; follows from a host that is given as couchbases://HOST.
    #[arg(long)]
    pub tls: bool,
    /// PEM file with the authorities that may vouch for the server; those of the system when not given.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Accept any server, whatever its certificate. Whoever stands between can then read and change
    /// everything, the password included.
    #[arg(long, conflicts_with = "tls_ca")]
    pub tls_insecure: bool,
    /// PEM file with this client's certificate; it then says who the client is, and no password is sent.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// True when any of them asks for TLS.
    pub fn is_wanted(&self) -> bool {
        let TlsArgs { tls, tls_ca, tls_insecure, tls_certificate, .. } = self;
        *tls || *tls_insecure || tls_ca.is_some() || tls_certificate.is_some()
    }

    /// Reads the files.
    pub fn load(&self) -> anyhow::Result<Tls> {
        if self.tls_insecure {
            eprintln!(
                "WARNING: --tls-insecure: the server's certificate is NOT verified. Anybody between here \
                 and the server can read and change everything."
            );
        }
        let options = TlsOptions {
            ca: self.tls_ca.clone(),
            is_insecure: self.tls_insecure,
            identity: self.tls_certificate.clone().zip(self.tls_key.clone()),
            ..TlsOptions::default()
        };
        Tls::load(&options).context("cannot set TLS up")
    }
}
