//! Notifications to a service manager (`sd_notify`): ready, reloading, stopping, still alive.
//!
//! It owns the watchdog's thread. Invariants: without NOTIFY_SOCKET nothing is sent; the watchdog
//! is fed only after every worker has taken a message from its mailbox, or while the server stops,
//! which the stop timeout bounds; a message that cannot be sent is logged and changes nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oribi_server::Progress;
use sd_notify::NotifyState;

/// The service manager's view of a running server.
pub struct Notifier {
    is_stopping: Arc<AtomicBool>,
}

impl Notifier {
    /// Says that the server serves, and feeds the watchdog from now on if there is one.
    pub fn ready(progress: Progress) -> Notifier {
        let notifier = Notifier { is_stopping: Arc::new(AtomicBool::new(false)) };
        tell(&[NotifyState::Ready]);
        let patience = sd_notify::watchdog_enabled().filter(|patience| !patience.is_zero());
        if let Some(patience) = patience {
            let is_stopping = Arc::clone(&notifier.is_stopping);
            // Twice in its patience, as sd_watchdog_enabled(3) advises.
            let interval = patience / 2;
            let watched = oribi_supervisor::spawn("oribi-watchdog", move || {
                feed_watchdog(&progress, interval, &is_stopping);
            });
            if let Err(error) = watched {
                tracing::error!(
                    %error,
                    "no thread for the watchdog; the service manager will restart the server"
                );
            }
        }
        notifier
    }

    /// Says that the server reloads its settings while `reload` runs.
    pub fn reloading<T>(&self, reload: impl FnOnce() -> T) -> T {
        match NotifyState::monotonic_usec_now() {
            // The time tells the manager which of two reloads this is (Type=notify-reload).
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
        let reloaded = reload();
        tell(&[NotifyState::Ready]);
        reloaded
    }

    /// Says that the server stops.
    pub fn stopping(&self) {
        self.is_stopping.store(true, Ordering::Release);
        tell(&[NotifyState::Stopping]);
    }
}

/// Feeds the watchdog until the process ends.
fn feed_watchdog(progress: &Progress, interval: Duration, is_stopping: &AtomicBool) {
    loop {
        let began = Instant::now();
        if progress.workers_answer(interval) || is_stopping.load(Ordering::Acquire) {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(?interval, "a worker does not answer; the watchdog is not fed");
        }
        std::thread::sleep(interval.saturating_sub(began.elapsed()));
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell the service manager {states:?}");
    }
}
