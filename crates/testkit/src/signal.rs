//! Sends signals to processes that this test started.

use std::fs;
use std::io;
use std::path::Path;

use crate::poll::{PATIENCE, poll_until};

/// The signals that tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Requests an orderly end.
    Terminate,
    Interrupt,
    /// Says that the terminal is gone; servers reload.
    HangUp,
    /// Suspends the process until it is continued.
    Stop,
    /// Resumes a suspended process.
    Continue,
}

/// Sends `signal` to the process `pid`.
///
/// The caller owns the process as a [`std::process::Child`] that it has not waited for, so the
/// number cannot have been reused.
pub(crate) fn send(pid: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Interrupt => libc::SIGINT,
        Signal::HangUp => libc::SIGHUP,
        Signal::Stop => libc::SIGSTOP,
        Signal::Continue => libc::SIGCONT,
    };
    let pid = libc::pid_t::try_from(pid)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a process number"))?;
    // SAFETY: kill(2) takes two integers and touches no memory of this process.
    let result = unsafe { libc::kill(pid, number) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Suspends a process and returns when no thread of it runs any more. The signal takes effect when
/// a thread of the process is next scheduled, which on a busy machine is long after it was sent.
pub(crate) fn stop(pid: u32) -> io::Result<()> {
    send(pid, Signal::Stop)?;
    let stopped = poll_until(PATIENCE, || is_stopped(pid).then_some(()));
    stopped.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the process does not stop"))
}

fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    // A thread that ends concurrently does not run either.
    threads.flatten().all(|thread| state_of(&thread.path()).is_none_or(|state| state == 'T'))
}

/// The letter of a thread's state, which follows its name in parentheses.
fn state_of(thread: &Path) -> Option<char> {
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
