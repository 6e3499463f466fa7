//! Certificates and keys in PEM files.
//!
//! Owns: reading them, and errors that name the file and its fault. Invariants: a file is read
//! whole at most once per call; text around the PEM blocks is ignored, as other programs do.

use std::io;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificate::MalformedCertificate;

/// Why TLS cannot be set up from some files.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file lacks the expected content.
    #[error("{path} holds no {wanted}")]
    Missing {
        /// Which file.
        path: PathBuf,
        /// The expected content.
        wanted: &'static str,
    },
    /// A PEM block is damaged.
    #[error("{path}: {detail}")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// The cause.
        detail: String,
    },
    /// A certificate cannot be parsed.
    #[error("{path}: {error}")]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// The cause.
        error: MalformedCertificate,
    },
    /// The parts do not match, for instance certificate and key.
    #[error("{path}: {error}")]
    Unsuitable {
        /// The file with the certificate.
        path: PathBuf,
        /// The error of rustls.
        error: rustls::Error,
    },
}

/// The certificates of a file, in file order; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let text = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| damaged(path, &error))?;
    match certificates.is_empty() {
        true => Err(FileError::Missing { path: path.to_owned(), wanted: "certificate" }),
        false => Ok(certificates),
    }
}

/// The first private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileError> {
    let text = read(path)?;
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => {
            Err(FileError::Missing { path: path.to_owned(), wanted: "private key" })
        }
        Err(error) => Err(damaged(path, &error)),
    }
}

/// The authorities of a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| FileError::Unsuitable { path: path.to_owned(), error })?;
    }
    Ok(roots)
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    std::fs::read(path).map_err(|error| FileError::Read { path: path.to_owned(), error })
}

fn damaged(path: &Path, error: &pem::Error) -> FileError {
    FileError::Damaged { path: path.to_owned(), detail: error.to_string() }
}
