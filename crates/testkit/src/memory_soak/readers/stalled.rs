//! Readers that ask for all documents and then read nothing.
//!
//! Owns: their connections, all of which are opened anew after a while. The server may end any.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;

use super::requests::{DOCUMENT_BYTES, EVENTS, RequestKind, admin, begin_scan, consumer, key};
use crate::memory_soak::shared::{SoakShared, connect};
use crate::raw_connection::{DEFAULT_VBUCKETS, Request};

/// Time after which all connections are opened anew.
const LIFE: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);
const KINDS: [RequestKind; 7] = [
    RequestKind::Get,
    RequestKind::Text,
    RequestKind::Scan,
    RequestKind::Dcp,
    RequestKind::Events,
    RequestKind::Http,
    RequestKind::Query,
];

/// Keeps `count` readers of each kind until the run is over.
pub(super) fn run(shared: &SoakShared<'_>, count: usize) {
    while !shared.is_over() {
        let mut readers: Vec<(RequestKind, Option<TcpStream>)> =
            KINDS.iter().flat_map(|kind| (0..count).map(|_| (*kind, None))).collect();
        let begun = Instant::now();
        while !shared.is_over() && begun.elapsed() < LIFE {
            for (number, (kind, reader)) in readers.iter_mut().enumerate() {
                if reader.is_none() && !shared.is_over() {
                    let name = format!("stalled {number}");
                    *reader = begin(shared, *kind, &name).ok().flatten();
                    shared.hostile_opened.fetch_add(u64::from(reader.is_some()), Ordering::Relaxed);
                }
            }
            std::thread::park_timeout(PAUSE);
        }
        drop(readers);
    }
}

/// Asks for all documents; `None` when the server refuses the client for now.
pub(super) fn begin(
    shared: &SoakShared<'_>,
    kind: RequestKind,
    name: &str,
) -> Result<Option<TcpStream>> {
    let stream = match kind {
        RequestKind::Dcp => {
            consumer(shared, &format!("{name}, DCP"))?.raw().stream().try_clone()?
        }
        RequestKind::Events => admin(shared).begin_get(EVENTS)?,
        RequestKind::Http => {
            let path = "/pools/default/buckets/default/docs/sized%206?raw=true";
            admin(shared).begin_get(path)?
        }
        RequestKind::Text => {
            let mut stream = TcpStream::connect(("127.0.0.1", shared.server.port()))?;
            let last = DOCUMENT_BYTES.len() - 1;
            (0..4).try_for_each(|_| stream.write_all(format!("get text{last}\r\n").as_bytes()))?;
            stream
        }
        RequestKind::Scan => {
            let mut connection = connect(shared.server.port(), "default")?;
            let vbid = vbucket_of(key(DOCUMENT_BYTES.len() - 1).as_bytes(), DEFAULT_VBUCKETS);
            let Some(extras) = begin_scan(&mut connection, vbid)? else { return Ok(None) };
            let go = Request::new(Opcode::RangeScanContinue).vbucket(vbid).extras(&extras);
            connection.send(&go)?;
            connection.stream().try_clone()?
        }
        RequestKind::Query => {
            let statement = br#"{"statement": "SELECT RAW d FROM `default` d"}"#;
            admin(shared).send("POST", "/query/service", "application/json", statement)?
        }
        RequestKind::Get | RequestKind::Tls | RequestKind::Backup => {
            let mut connection = connect(shared.server.port(), "default")?;
            let requests: Vec<Request> =
                (0..2 * DOCUMENT_BYTES.len()).map(|at| Request::get(key(at / 2))).collect();
            connection.send_all(&requests.iter().collect::<Vec<_>>())?;
            connection.stream().try_clone()?
        }
    };
    Ok(Some(stream))
}
