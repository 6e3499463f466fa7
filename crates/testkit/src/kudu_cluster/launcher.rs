//! Starts processes that cannot outlive this one.
//!
//! A shared cluster lives in a `static`, which is never dropped, and a test run can be killed. So
//! the kernel ends the servers (the parent-death signal). A guardian removes their directory: a
//! shell that waits for the end of a pipe that only this process holds open.
//!
//! Linux sends the parent-death signal when the *thread* that forked ends, and a test's thread ends
//! with the test. Therefore one thread that lasts as long as the process starts all servers.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context, Result};

/// Waits for the end of its input and then removes the given directory. The servers end at the same
/// moment and may still be writing, hence the retries.
const GUARD: &str = r#"cat >/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" 2>/dev/null && exit 0
    sleep 0.2
done"#;

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// Starts `command` as a process that is killed when this one ends, however it ends.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    static LAUNCHER: OnceLock<Sender<Order>> = OnceLock::new();
    let launcher = LAUNCHER.get_or_init(|| {
        let (orders, received) = channel::<Order>();
        std::thread::spawn(move || {
            for mut order in received {
                let child = die_with_parent(&mut order.command).spawn();
                // The caller waits for the answer, so this fails only when its thread died.
                let _ = order.answer.send(child);
            }
        });
        orders
    });
    let (answer, answered) = channel();
    launcher.send(Order { command, answer }).expect("the launcher ends only with the process");
    answered.recv().expect("the launcher answers every order")
}

fn die_with_parent(command: &mut Command) -> &mut Command {
    // Terminals send Ctrl-C to a whole group, but only the kernel and the owner may end a server.
    command.process_group(0);
    #[cfg(target_os = "linux")]
    {
        let ask = || {
            // SAFETY: prctl(2) with PR_SET_PDEATHSIG takes integers and touches no memory.
            let result =
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) };
            if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        // SAFETY: the closure runs between fork and exec and makes one system call: it neither
        // allocates nor takes a lock.
        unsafe { command.pre_exec(ask) };
    }
    command
}

/// Removes a directory if this process ends without having done so.
pub(super) struct Guardian {
    child: Child,
}

impl Guardian {
    pub(super) fn of(directory: &Path) -> Result<Guardian> {
        let child = Command::new("sh")
            .args(["-c", GUARD, "guardian"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start a shell")?;
        Ok(Guardian { child })
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Waiting closes the pipe first; the directory is gone already, so the shell ends at once.
        let _ = self.child.wait();
    }
}
