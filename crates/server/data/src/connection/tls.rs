//! TLS of the server: the configuration in force, its replacement, and the users of certificates.
//!
//! Owns: the configuration for new connections, and the thread that checks every two seconds
//! whether its files have changed. Invariants: a replacement is checked as a whole before it takes
//! effect. One that is unusable, or whose certificate has expired, is refused with a log line, and
//! the old one stays in force. Connections keep the configuration they started with. Callers:
//! workers and the admin HTTP (new connections), the `oribi` binary (SIGHUP) and an admin route
//! (reload). `oribi_tls` is the protocol itself.

#[cfg(test)]
pub mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use oribi_config::NameRule;
use oribi_system::clock::wall_clock;
use oribi_tls::Session;
use oribi_tls::certificate;
use oribi_tls::files::FileError;
use oribi_tls::server::{ClientCertificates, ServerOptions, ServerTls};
use parking_lot::Mutex;

use oribi_auth::{Identity, UserStore};

/// Interval of checks for changed files.
const POLL: Duration = Duration::from_secs(2);

/// Minimum time between two logged failures; failures in between are counted only.
const FAILURE_LOG_PAUSE: Duration = Duration::from_secs(1);
const _: () = assert!(!FAILURE_LOG_PAUSE.is_zero() && !POLL.is_zero());

/// Why new files were refused.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The files are unusable.
    #[error(transparent)]
    Files(#[from] FileError),
    /// The certificate has expired, so no client would accept it.
    #[error("{0}: the certificate has expired")]
    Expired(String),
}

/// The user of a client's certificate.
#[derive(Debug)]
pub enum CertificateUser {
    /// No certificate, or one that names no user; the client may authenticate by other means.
    Nobody,
    User(Arc<Identity>),
    /// No user, although certificates are mandatory.
    Refused,
}

/// Inode, size and modification time of a file; `None` when the file does not exist.
type FileStamp = Option<(u64, u64, i64, i64)>;

/// See the module text.
pub struct Tls {
    options: ServerOptions,
    rules: Vec<NameRule>,
    current: ArcSwap<ServerTls>,
    /// Stamps of the files at the last check, in the order of [`ServerOptions::paths`].
    stamps: Mutex<Vec<FileStamp>>,
    failure_log: Mutex<FailureLog>,
}

#[derive(Default)]
struct FailureLog {
    last: Option<Instant>,
    suppressed: u64,
}

/// The running file watch; dropping it ends it.
pub struct FileWatch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn open(options: ServerOptions, rules: Vec<NameRule>) -> Result<Tls, FileError> {
        // Taken first, so that a change in between is detected.
        let stamps = stamps(&options);
        let current = options.load()?;
        if has_expired(&current) {
            tracing::warn!(certificate = %options.certificate.display(), "the certificate has expired");
        }
        Ok(Tls {
            options,
            rules,
            current: ArcSwap::from_pointee(current),
            stamps: Mutex::new(stamps),
            failure_log: Mutex::default(),
        })
    }

    /// The configuration for new connections.
    pub fn current(&self) -> Arc<ServerTls> {
        self.current.load_full()
    }

    /// The server's end of a new connection.
    pub fn session(&self) -> Result<Session, oribi_tls::Error> {
        Session::server(Arc::clone(&self.current.load().config))
    }

    /// Makes new connections use the current content of the files.
    ///
    /// # Errors
    /// Why the files are unusable; the configuration stays as it is.
    pub fn reload(&self) -> Result<(), ReloadError> {
        let mut last = self.stamps.lock();
        *last = stamps(&self.options);
        self.replace()
    }

    /// Reloads if the files have changed, and logs the outcome.
    pub fn reload_if_changed(&self) {
        let mut last = self.stamps.lock();
        let now = stamps(&self.options);
        if *last != now {
            *last = now;
            // `replace` logs the outcome.
            let _ = self.replace();
        }
    }

    fn replace(&self) -> Result<(), ReloadError> {
        let path = self.options.certificate.display();
        let loaded = self.options.load().map_err(ReloadError::from).and_then(|new| {
            let expired = || ReloadError::Expired(path.to_string());
            if has_expired(&new) { Err(expired()) } else { Ok(new) }
        });
        match loaded {
            Ok(new) => {
                let not_after_unix_s = new.certificate.not_after_unix_s;
                tracing::info!(certificate = %path, not_after_unix_s, "TLS certificates reloaded");
                self.current.store(Arc::new(new));
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "cannot reload TLS certificates; those loaded before stay");
                Err(error)
            }
        }
    }

    /// The user of a client's certificate. The handshake has verified its chain.
    pub fn certified(&self, certificate: Option<&[u8]>, users: &UserStore) -> CertificateUser {
        let found = certificate.and_then(|der| {
            let certificate = certificate::read(der).ok()?;
            let name = oribi_auth::certificate_user(&self.rules, &certificate)?;
            let user = users.certified(name);
            if user.is_none() {
                tracing::info!(?name, "a client's certificate names a user that does not exist");
            }
            user
        });
        match found {
            Some(identity) => CertificateUser::User(identity),
            None if self.options.client_certificates == ClientCertificates::Mandatory => {
                CertificateUser::Refused
            }
            None => CertificateUser::Nobody,
        }
    }

    /// Whether to log a failed handshake, and then the number of unlogged ones since the last.
    pub fn may_log_failure(&self) -> Option<u64> {
        let mut log = self.failure_log.lock();
        let now = Instant::now();
        if log.last.is_some_and(|last| now.duration_since(last) < FAILURE_LOG_PAUSE) {
            log.suppressed += 1;
            return None;
        }
        log.last = Some(now);
        Some(std::mem::take(&mut log.suppressed))
    }
}

impl FileWatch {
    /// Starts to watch the files for changes.
    pub fn start(tls: Arc<Tls>) -> std::io::Result<FileWatch> {
        let (stop, stopped) = mpsc::channel();
        let thread = oribi_supervisor::spawn("oribi-tls-files", move || {
            while stopped.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                tls.reload_if_changed();
            }
        })?;
        Ok(FileWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that watches certificates panicked");
        }
    }
}

fn has_expired(tls: &ServerTls) -> bool {
    tls.certificate.not_after_unix_s < i64::from(wall_clock().unix_s())
}

fn stamps(options: &ServerOptions) -> Vec<FileStamp> {
    options.paths().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
