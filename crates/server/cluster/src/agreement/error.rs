//! Errors of the agreement.

/// Why a request to the agreement failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgreementError {
    /// An endpoint is not `http://HOST:PORT` or `https://HOST:PORT`.
    #[error("{0:?} is not http://HOST:PORT or https://HOST:PORT")]
    Endpoint(String),
    /// Certificates, or the file with the password, cannot be read.
    #[error("etcd's {0}")]
    File(String),
    /// No answer, or none in time. A transaction may have been applied.
    #[error("etcd at {endpoint} does not answer: {detail}")]
    Unreachable { endpoint: String, detail: String },
    /// The request was refused.
    #[error("etcd refuses {path}: {detail}")]
    Refused {
        /// Path of the request.
        path: &'static str,
        /// Error text from the agreement.
        detail: String,
    },
    /// The answer cannot be parsed.
    #[error("etcd's answer to {path} is not understood: {detail}")]
    Answer {
        /// Path of the request.
        path: &'static str,
        detail: String,
    },
}
