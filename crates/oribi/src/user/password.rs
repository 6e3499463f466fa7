//! Where a password comes from: standard input, the environment, or a person.
//!
//! Invariants: a password is never an argument, where other users of the machine could read it, and
//! is not echoed.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use anyhow::{Context, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Environment variable with the password of a user that is added or changed.
const NEW_PASSWORD_VARIABLE: &str = "ORIBI_NEW_PASSWORD";

/// The same where no server is asked. With one, it is the password of the administrator.
const PASSWORD_VARIABLE: &str = "ORIBI_PASSWORD";

/// The password in the environment, if there is one.
pub fn in_environment(asks_server: bool) -> Option<Vec<u8>> {
    let usual = || std::env::var_os(PASSWORD_VARIABLE).filter(|_| !asks_server);
    let password = std::env::var_os(NEW_PASSWORD_VARIABLE).or_else(usual)?;
    Some(std::os::unix::ffi::OsStringExt::into_vec(password))
}

/// Reads the password of a user.
pub fn read(from_stdin: bool, asks_server: bool) -> anyhow::Result<Vec<u8>> {
    if from_stdin {
        return read_line();
    }
    if let Some(password) = in_environment(asks_server) {
        return Ok(password);
    }
    if !stdin().is_terminal() {
        bail!("no password: use --password-stdin, or set {NEW_PASSWORD_VARIABLE}");
    }
    let password = prompt("Password: ")?;
    if prompt("Again: ")? != password {
        bail!("the passwords differ");
    }
    Ok(password)
}

fn read_line() -> anyhow::Result<Vec<u8>> {
    let mut line = Vec::new();
    stdin().lock().read_until(b'\n', &mut line).context("cannot read the password")?;
    while line.ends_with(b"\n") || line.ends_with(b"\r") {
        line.pop();
    }
    Ok(line)
}

fn prompt(text: &str) -> anyhow::Result<Vec<u8>> {
    // First, because it discards what was typed before.
    let _silence = EchoOff::new()?;
    eprint!("{text}");
    stderr().flush()?;
    let line = read_line();
    eprintln!();
    line
}

/// Stops the terminal from showing what is typed, until it is dropped.
struct EchoOff {
    before: Termios,
}

impl EchoOff {
    fn new() -> anyhow::Result<EchoOff> {
        let before = tcgetattr(stdin()).context("cannot ask the terminal for its modes")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &silent)
            .context("cannot stop the terminal from showing the password")?;
        Ok(EchoOff { before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // The terminal is gone when this fails, and with it everything that could be told.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
