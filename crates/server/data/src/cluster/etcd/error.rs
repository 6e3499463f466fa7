//! Errors of requests to etcd.

/// Why a request to etcd failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// An endpoint is not `http://HOST:PORT` or `https://HOST:PORT`.
    #[error("{0:?} is not http://HOST:PORT or https://HOST:PORT")]
    Endpoint(String),
    /// Certificates, or the file with the password, cannot be read.
    #[error("etcd's {0}")]
    File(String),
    /// No answer, or none in time.
    #[error("etcd at {endpoint} does not answer: {detail}")]
    Unreachable { endpoint: String, detail: String },
    /// etcd refused the request.
    #[error("etcd refuses {path}: {detail}")]
    Refused {
        /// Path of the request.
        path: &'static str,
        /// Error text from etcd.
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
