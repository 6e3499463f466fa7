//! A TCP proxy that a test can cut, to simulate a network outage.
//!
//! Owns the listening socket and a thread for each direction of each connection. While it is cut,
//! it holds every byte back and does not answer new connections, as behind a cut cable. When it is
//! restored, it closes all of these, because the ends may have given each other up. It ends with
//! the value.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};

const OPEN: u8 = 0;
const CUT: u8 = 1;
const ENDED: u8 = 2;

/// How often a held-back connection checks whether the proxy is restored.
const LOOK: Duration = Duration::from_millis(5);

/// See the module text.
pub struct TcpProxy {
    address: SocketAddr,
    state: Arc<AtomicU8>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl TcpProxy {
    /// A proxy on a free port of the loopback interface in front of the port `target` there.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn start(target: u16) -> Result<TcpProxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
        let address = listener.local_addr().context("a socket without an address")?;
        let state = Arc::new(AtomicU8::new(OPEN));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let proxy =
            TcpProxy { address, state: Arc::clone(&state), connections: Arc::clone(&connections) };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if state.load(Ordering::Acquire) == ENDED {
                    return;
                }
                let Ok(client) = client else { continue };
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                forward(&client, &server, &state, &connections);
                forward(&server, &client, &state, &connections);
            }
        });
        Ok(proxy)
    }

    /// Port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts the network: from here on nothing gets through.
    pub fn cut(&self) {
        self.state.store(CUT, Ordering::Release);
    }

    /// Restores the network: new connections get through, and those that were cut are closed.
    pub fn mend(&self) {
        self.close_all();
        self.state.store(OPEN, Ordering::Release);
    }

    fn close_all(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.drain(..) {
            // The connection may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.state.store(ENDED, Ordering::Release);
        self.close_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn forward(
    from: &TcpStream,
    to: &TcpStream,
    state: &Arc<AtomicU8>,
    connections: &Arc<Mutex<Vec<TcpStream>>>,
) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    if let Ok(known) = from.try_clone() {
        connections.lock().unwrap_or_else(PoisonError::into_inner).push(known);
    }
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count) = from.read(&mut bytes) {
            let was_cut = state.load(Ordering::Acquire) == CUT;
            while state.load(Ordering::Acquire) == CUT {
                std::thread::sleep(LOOK);
            }
            // Bytes held back are lost with their connection.
            if count == 0 || was_cut || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
