//! A TCP proxy for HTTP that fails: it cuts connections, answers in the server's place, and stalls.
//!
//! For clients with one request per connection: the fault of a connection is that of its request.
//! Owns the listening socket and two threads for each connection; ends with the value.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// A fault of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyFault {
    None,
    /// It is closed when this many bytes of the request have come.
    CutRequest(usize),
    /// The server gets the whole request, and the client this many bytes of the answer.
    CutAnswer(usize),
    /// The client gets this status, and the server nothing.
    Status(u16),
    /// Each piece of the answer comes later by this much.
    Slow(Duration),
    Silent,
}

/// Chooses the fault of each connection.
type Choice = Box<dyn FnMut() -> ProxyFault + Send>;

/// See the module text.
pub struct FailingProxy {
    address: SocketAddr,
    choice: Arc<Mutex<Choice>>,
    faults: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl FailingProxy {
    /// A proxy in front of the port `target` of the loopback interface.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn start(target: u16, choice: impl FnMut() -> ProxyFault + Send + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let proxy = FailingProxy {
            address: listener.local_addr().context("a socket without an address")?,
            choice: Arc::new(Mutex::new(Box::new(choice))),
            faults: Arc::default(),
            ended: Arc::default(),
        };
        let (choice, faults) = (proxy.choice.clone(), proxy.faults.clone());
        let ended = proxy.ended.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                let Ok(client) = client else { continue };
                let fault = choice.lock().unwrap_or_else(PoisonError::into_inner)();
                if fault != ProxyFault::None {
                    faults.fetch_add(1, Ordering::Relaxed);
                }
                let ended = ended.clone();
                // A connection that fails is what the proxy is for.
                thread::spawn(move || drop(serve(client, target, fault, &ended)));
            }
        });
        Ok(proxy)
    }

    /// Port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections that had a fault so far.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    /// Chooses differently from now on.
    pub fn choose(&self, choice: impl FnMut() -> ProxyFault + Send + 'static) {
        *self.choice.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(choice);
    }
}

impl Drop for FailingProxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the listening thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    mut client: TcpStream,
    target: u16,
    fault: ProxyFault,
    ended: &AtomicBool,
) -> std::io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    match fault {
        ProxyFault::Status(status) => {
            let _ = client.read(&mut buffer)?;
            let text = "<Error><Code>Fault</Code><Message>the proxy says so</Message></Error>";
            let length = text.len();
            write!(
                client,
                "HTTP/1.1 {status} Fault\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}"
            )?;
            return client.shutdown(Shutdown::Write);
        }
        ProxyFault::CutRequest(bytes) => {
            let mut read = 0;
            while read < bytes {
                match client.read(&mut buffer)? {
                    0 => break,
                    count => read += count,
                }
            }
            return Ok(());
        }
        ProxyFault::Silent => {
            while !ended.load(Ordering::Acquire) && client.read(&mut buffer)? > 0 {}
            return Ok(());
        }
        ProxyFault::None | ProxyFault::CutAnswer(_) | ProxyFault::Slow(_) => {}
    }
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target))?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        to.shutdown(Shutdown::Write)
    });
    let mut left = if let ProxyFault::CutAnswer(bytes) = fault { bytes } else { usize::MAX };
    while left > 0 {
        let count = server.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        if let ProxyFault::Slow(delay) = fault {
            thread::sleep(delay);
        }
        let count = count.min(left);
        client.write_all(&buffer[..count])?;
        left -= count;
    }
    // The other direction ends as well.
    server.shutdown(Shutdown::Both)?;
    client.shutdown(Shutdown::Both)
}
