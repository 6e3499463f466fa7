//! A private network for a test: hosts behind a bridge, each of which can be cut off.
//!
//! Owns the bridge and the hosts. A test that needs one runs itself again in a network namespace
//! ([`inside_own_network`]). So it leaves nothing on the machine however it ends, and all processes
//! that it starts are in the namespace, too. A host is a namespace with one interface; a process
//! started on it ([`crate::ServerOptions::on_host`]) reaches the others through the bridge.
//!
//! A cut cable loses packets silently, which a proxy cannot do: bytes sent before the cut may still
//! arrive long after. This needs root and `ip` (Debian's iproute2). Elsewhere tests are skipped and
//! say so, or fail with `ORIBI_NETNS_REQUIRED` set.

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::poll::{PATIENCE, poll_until};
use crate::skip::{self, skip};

const REQUIRED: &str = "ORIBI_NETNS_REQUIRED";
/// Set for the test that runs in its own network.
const INSIDE: &str = "ORIBI_NETNS_INSIDE";
const BRIDGE: &str = "bridge";
/// A locally administered address.
const BRIDGE_ADDRESS: &str = "02:00:00:00:00:01";

/// Runs the test `name` (as `--exact` takes it) again in its own network. Returns true inside of
/// it: continue. Returns false outside, when the test has run there, or was skipped.
///
/// # Panics
/// When the test failed there, or cannot run although `ORIBI_NETNS_REQUIRED` is set.
pub fn inside_own_network(name: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    if !is_possible() {
        let how = "run as root with unshare and ip (Debian package iproute2)";
        skip(REQUIRED, "network namespaces", how);
        return false;
    }
    let program = env::current_exe().expect("a test is a program");
    let status = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .env(skip::RUN, skip::run())
        .status();
    let status = status.expect("unshare was there just now");
    assert!(status.success(), "{name} failed in its own network, see above");
    false
}

fn is_possible() -> bool {
    let probe = ["--net", "--", "ip", "link", "add", "name", "probe", "type", "bridge"];
    let output = Command::new("unshare").args(probe).stderr(Stdio::null()).status();
    output.is_ok_and(|status| status.success())
}

/// The bridge of this process's network, with the addresses of processes outside the hosts.
#[derive(Debug)]
pub struct Network(());

impl Network {
    /// Address of the test itself, and of processes that it starts without a host.
    pub const TEST: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
    /// A second address there, for the store.
    pub const STORE: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 2);
    /// A third one, for etcd.
    pub const REGISTRY: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 3);

    /// Sets the bridge up. Call it once, inside of [`inside_own_network`].
    ///
    /// # Errors
    /// Errors of `ip`.
    pub fn set_up() -> Result<Network> {
        ip(&["link", "set", "lo", "up"])?;
        // Without its own address a bridge has the lowest of its ports'. Then cutting one cable
        // would change it, and all others would send to a stale address until they resolve it
        // again, up to a minute later.
        ip(&["link", "add", "name", BRIDGE, "address", BRIDGE_ADDRESS, "type", "bridge"])?;
        for address in [Network::TEST, Network::STORE, Network::REGISTRY] {
            ip(&["address", "add", &format!("{address}/24"), "dev", BRIDGE])?;
        }
        ip(&["link", "set", BRIDGE, "up"])?;
        Ok(Network(()))
    }

    /// A connected host. `number`, from 10, distinguishes hosts.
    ///
    /// # Errors
    /// Errors of `ip` and `unshare`.
    pub fn host(&self, number: u8) -> Result<Host> {
        // This process only holds the namespace; it ends with its input, which ends with this
        // process.
        let holder = Command::new("unshare")
            .args(["--net", "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot make a network namespace")?;
        let address = Ipv4Addr::new(10, 231, 0, number);
        let host = Host { holder, address, port: format!("port{number}") };
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let (pid, own) = (host.holder.id().to_string(), namespace("self"));
        let is_apart = || namespace(&pid).filter(|found| Some(found) != own.as_ref());
        poll_until(PATIENCE, is_apart).context("no network namespace was made")?;
        ip(&["link", "add", &host.port, "type", "veth", "peer", "name", "net", "netns", &pid])?;
        ip(&["link", "set", &host.port, "up"])?;
        host.ip(&["link", "set", "lo", "up"])?;
        host.ip(&["address", "add", &format!("{address}/24"), "dev", "net"])?;
        host.ip(&["link", "set", "net", "up"])?;
        host.connect()?;
        Ok(host)
    }
}

/// A machine of the network. It ends with the value; its processes have to end before.
#[derive(Debug)]
pub struct Host {
    holder: Child,
    address: Ipv4Addr,
    /// Its port at the bridge.
    port: String,
}

impl Host {
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The beginning of a command line that runs the rest on this host, as the same process.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.id());
        vec!["nsenter".to_owned(), namespace, "--".to_owned()]
    }

    /// Connects the cable.
    ///
    /// # Errors
    /// Errors of `ip`.
    pub fn connect(&self) -> Result<()> {
        ip(&["link", "set", &self.port, "master", BRIDGE])
    }

    /// Cuts the cable: from here on packets are lost in both directions, and no connection is
    /// closed.
    ///
    /// # Errors
    /// Errors of `ip`.
    pub fn cut_off(&self) -> Result<()> {
        ip(&["link", "set", &self.port, "nomaster"])
    }

    /// Blocks the route to an address: from here on the host cannot send to it.
    ///
    /// # Errors
    /// Errors of `ip`.
    pub fn lose(&self, address: Ipv4Addr) -> Result<()> {
        self.ip(&["route", "add", "blackhole", &address.to_string()])
    }

    /// Restores the route to an address.
    ///
    /// # Errors
    /// Errors of `ip`.
    pub fn find(&self, address: Ipv4Addr) -> Result<()> {
        self.ip(&["route", "delete", "blackhole", &address.to_string()])
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        let prefix = self.prefix();
        run(Command::new(&prefix[0]).args(&prefix[1..]).arg("ip").args(arguments))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail only when the process has ended and been waited for already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("cannot run ip")?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
