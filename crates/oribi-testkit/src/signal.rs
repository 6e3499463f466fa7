//! Sending a signal to a process that this test started.

use std::io;

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
