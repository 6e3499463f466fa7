//! A network of its own for a test: hosts behind a bridge, each of which can be cut off.
//!
//! Owns the bridge and the hosts. A test that wants one runs itself again, in a network namespace ([`inside_own_network`]), so that
//! nothing of it is left on the machine however the test ends, and all that it starts is in there by itself.
//! A host is a namespace with one interface; what is started on it ([`crate::ServerOptions::on_host`]) reaches the rest
//! through the bridge. A cable that is pulled loses packets without a word, as a proxy cannot: what was sent before it
//! was pulled may still arrive long after. That needs root and `ip` (Debian's iproute2); elsewhere tests are left out
//! and say so, or fail with `ORIBI_NETNS_REQUIRED` set.

use std::env;
use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::poll::{PATIENCE, poll_until};

const REQUIRED: &str = "ORIBI_NETNS_REQUIRED";
/// Set for the test that runs in its own network.
const INSIDE: &str = "ORIBI_NETNS_INSIDE";
const BRIDGE: &str = "bridge";
/// One that is administered locally.
const BRIDGE_ADDRESS: &str = "02:00:00:00:00:01";

/// Runs the test `name` (as `--exact` takes it) again in a network of its own. True inside of that: go on. False outside, when the
/// test has run there, or cannot and was left out.
///
/// # Panics
/// When the test failed there, or cannot run although `ORIBI_NETNS_REQUIRED` is set.
pub fn inside_own_network(name: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    if !is_possible() {
        assert!(env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, but there are no namespaces");
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {name} needs root, unshare and ip");
        return false;
    }
    let program = env::current_exe().expect("a test is a program");
    let status = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
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

/// The bridge of this process's network, with the addresses of what runs in it directly.
#[derive(Debug)]
pub struct Network(());

impl Network {
    /// Where a test itself is, and so what it starts without a host.
    pub const TEST: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 1);
    /// A second address of the same place, for the store.
    pub const STORE: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 2);
    /// A third one, for what nodes agree through.
    pub const REGISTRY: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 3);

    /// Sets the bridge up. Once, inside of [`inside_own_network`].
    ///
    /// # Errors
    /// Those of `ip`.
    pub fn set_up() -> Result<Network> {
        ip(&["link", "set", "lo", "up"])?;
        // Without an address of its own a bridge has the lowest of its ports', so that pulling one cable would change
        // it, and all others would send to where nobody is until they ask for it again, up to a minute later.
        ip(&["link", "add", "name", BRIDGE, "address", BRIDGE_ADDRESS, "type", "bridge"])?;
        for address in [Network::TEST, Network::STORE, Network::REGISTRY] {
            ip(&["address", "add", &format!("{address}/24"), "dev", BRIDGE])?;
        }
        ip(&["link", "set", BRIDGE, "up"])?;
        Ok(Network(()))
    }

    /// A host, connected. `number` tells hosts apart, from 10.
    ///
    /// # Errors
    /// Those of `ip` and `unshare`.
    pub fn host(&self, number: u8) -> Result<Host> {
        // It has nothing to do but to be there; it ends with its input, which ends with this process.
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

/// A machine of the network. Ends with the value; what runs on it has to end before.
#[derive(Debug)]
pub struct Host {
    holder: Child,
    address: Ipv4Addr,
    /// Its place at the bridge.
    port: String,
}

impl Host {
    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The beginning of a command line that runs the rest on this host, as the same process.
    pub(crate) fn prefix(&self) -> Vec<String> {
        let namespace = format!("--net=/proc/{}/ns/net", self.holder.id());
        vec!["nsenter".to_owned(), namespace, "--".to_owned()]
    }

    /// Puts the cable in.
    ///
    /// # Errors
    /// Those of `ip`.
    pub fn connect(&self) -> Result<()> {
        ip(&["link", "set", &self.port, "master", BRIDGE])
    }

    /// Pulls the cable: from here on packets are lost in both directions, and no connection is closed.
    ///
    /// # Errors
    /// Those of `ip`.
    pub fn cut_off(&self) -> Result<()> {
        ip(&["link", "set", &self.port, "nomaster"])
    }

    /// From here on the host cannot send to this address.
    ///
    /// # Errors
    /// Those of `ip`.
    pub fn lose(&self, address: Ipv4Addr) -> Result<()> {
        self.ip(&["route", "add", "blackhole", &address.to_string()])
    }

    /// It can again.
    ///
    /// # Errors
    /// Those of `ip`.
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
