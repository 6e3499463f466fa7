//! Sending a signal to a process that this test started.

use std::fs;
use std::io;
use std::path::Path;

use crate::poll::{PATIENCE, poll_until};

/// The signals that tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Asks for an orderly end.
    Terminate,
    /// What Ctrl-C sends.
    Interrupt,
    /// Keeps it from running until it is continued.
    Stop,
    /// Lets a stopped process run again.
    Continue,
}

/// Sends `signal` to the process `pid`.
///
/// The caller owns the process as a [`std::process::Child`] that it has not waited for, so the number
/// cannot have been given to somebody else.
pub(crate) fn send(pid: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Interrupt => libc::SIGINT,
        Signal::Stop => libc::SIGSTOP,
        Signal::Continue => libc::SIGCONT,
    };
    let pid = libc::pid_t::try_from(pid)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "not a process number"))?;
    // SAFETY: kill(2) takes two integers and touches no memory of this process.
    let result = unsafe { libc::kill(pid, number) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Stops a process and returns when nothing of it runs any more. The signal begins to work when a thread of the process
/// is next scheduled, which on a busy machine is long after it was sent.
pub(crate) fn stop(pid: u32) -> io::Result<()> {
    send(pid, Signal::Stop)?;
    let stopped = poll_until(PATIENCE, || is_stopped(pid).then_some(()));
    stopped.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "the process does not stop"))
}

fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    // A thread that ends meanwhile does not run either.
    threads.flatten().all(|thread| state_of(&thread.path()).is_none_or(|state| state == 'T'))
}

/// The letter of a thread's state, which stands behind its name in parentheses.
fn state_of(thread: &Path) -> Option<char> {
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
