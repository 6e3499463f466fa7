//! Readers of documents of 0 B to 20 MiB, of every kind that the server has.
//!
//! Owns: a writer that overwrites the documents, and readers of each kind that read as fast as they
//! can, slowly, or not at all. A reader that reads is never disconnected, and finishes: refused for
//! lack of memory, it asks again. A stalled reader may be disconnected.

mod requests;
mod stalled;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use serde_json::json;

use super::shared::{SoakShared, connect};
use crate::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER, RawConnection, Request};
use crate::stream_connection::MessageKind;
use crate::{PATIENCE, Random, poll_until};
use requests::{
    DOCUMENT_BYTES, EVENTS, RequestKind, admin, begin_scan, consumer, key, keys, vbuckets,
};

/// Pause between two writes.
const WRITE_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that a slow reader takes at once, and its pause then: some 3 MiB/s.
const SLOW_BYTES: usize = 64 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(20);
/// The largest document that statements read.
const QUERY_BYTES_MAX: usize = 8 << 20;
/// Pause before a refused request is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// All kinds that the server under test may have.
const KINDS: [RequestKind; 9] = [
    RequestKind::Get,
    RequestKind::Tls,
    RequestKind::Text,
    RequestKind::Scan,
    RequestKind::Dcp,
    RequestKind::Events,
    RequestKind::Http,
    RequestKind::Query,
    RequestKind::Backup,
];

/// Runs the writer and `stalled` stalled readers of each kind, next to readers that read.
pub(super) fn run(shared: &SoakShared<'_>, stalled: usize, mut random: Random) -> Result<()> {
    let mut writer = connect(shared.server.port(), "default")?;
    for number in 0..DOCUMENT_BYTES.len() {
        write(&mut writer, number, 0, shared)?;
    }
    std::thread::scope(|scope| {
        for kind in KINDS {
            scope.spawn(move || {
                read_on(shared, kind).unwrap_or_else(|error| shared.fail(error));
            });
        }
        for kind in [
            RequestKind::Get,
            RequestKind::Scan,
            RequestKind::Dcp,
            RequestKind::Events,
            RequestKind::Http,
        ] {
            scope.spawn(move || {
                read_slowly(shared, kind).unwrap_or_else(|error| shared.fail(error));
            });
        }
        scope.spawn(move || stalled::run(shared, stalled));
        let written = overwrite(&mut writer, &mut random, shared);
        written.unwrap_or_else(|error| shared.fail(error));
    });
    Ok(())
}

fn overwrite(
    writer: &mut RawConnection,
    random: &mut Random,
    shared: &SoakShared<'_>,
) -> Result<()> {
    while !shared.is_over() {
        let number = random.below(DOCUMENT_BYTES.len() as u64) as usize;
        write(writer, number, random.below(256) as u8, shared)?;
        std::thread::park_timeout(WRITE_PAUSE);
    }
    Ok(())
}

/// Stores a document, as soon as the server has memory for it.
fn write(
    writer: &mut RawConnection,
    number: usize,
    byte: u8,
    shared: &SoakShared<'_>,
) -> Result<()> {
    let set = Request::set(key(number), vec![byte; DOCUMENT_BYTES[number]]);
    while !shared.is_over() {
        match writer.call(&set).context("the writer is disconnected")?.status() {
            Status::Success => return Ok(()),
            Status::Etmpfail | Status::Enomem | Status::Ebusy => {
                shared.refused.fetch_add(1, Ordering::Relaxed);
                std::thread::park_timeout(RETRY_PAUSE);
            }
            status => bail!("a write is answered {status:?}"),
        }
    }
    Ok(())
}

/// Reads all documents again and again until the run is over.
fn read_on(shared: &SoakShared<'_>, kind: RequestKind) -> Result<()> {
    let mut passes = 0;
    let begun = Instant::now();
    // A pass that began is finished.
    while passes == 0 || !shared.is_over() {
        let done = pass(shared, kind, passes).with_context(|| {
            format!("{kind:?} is cut in pass {passes}, after {:?}", begun.elapsed())
        })?;
        if !done {
            ensure!(begun.elapsed() < 2 * PATIENCE, "{kind:?} is refused for ever");
            shared.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::park_timeout(RETRY_PAUSE);
            continue;
        }
        passes += 1;
        shared.answered.fetch_add(1, Ordering::Relaxed);
        if kind == RequestKind::Backup {
            // Each takes a directory and a process.
            std::thread::park_timeout(Duration::from_secs(1));
        }
    }
    shared.passes.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Reads all documents once; false when the server refuses for now.
fn pass(shared: &SoakShared<'_>, kind: RequestKind, number: usize) -> Result<bool> {
    match kind {
        RequestKind::Get => get_all(shared),
        RequestKind::Tls => tls_all(shared),
        RequestKind::Text => text_all(shared),
        RequestKind::Scan => scan_all(shared),
        RequestKind::Dcp => stream_all(shared, &format!("reads {number}")),
        RequestKind::Events => events_all(shared),
        RequestKind::Http => http_all(shared),
        RequestKind::Query => query_all(shared),
        RequestKind::Backup => backup(shared, number),
    }
}

fn get_all(shared: &SoakShared<'_>) -> Result<bool> {
    let mut client = connect(shared.server.port(), "default")?;
    for (number, key) in keys().enumerate() {
        let answer = client.call(&Request::get(&key))?;
        match answer.status() {
            Status::Success => check(number, answer.value.len())?,
            Status::Etmpfail => return Ok(false),
            status => bail!("{status:?}"),
        }
    }
    Ok(true)
}

/// `oribi doc cat` over TLS, which writes all documents one after the other.
fn tls_all(shared: &SoakShared<'_>) -> Result<bool> {
    let port = poll_until(PATIENCE, || {
        let log = shared.server.log();
        let (_, rest) = log.split_once("listening with TLS on ")?;
        let address: SocketAddr = rest.split_once(' ')?.0.parse().ok()?;
        Some(address.port())
    });
    let host = format!("couchbases://localhost:{}", port.context("no port with TLS")?);
    let mut command = Command::new(shared.program);
    command.args(["doc", "cat"]).args(keys());
    command.args(["--host", &host, "--tls-insecure", "--user", DEVELOPMENT_USER]);
    let output =
        command.env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD).stdin(Stdio::null()).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && error.contains("temporary failure") {
        return Ok(false);
    }
    ensure!(output.status.success(), "documents over TLS: {error}");
    let bytes: usize = DOCUMENT_BYTES.iter().sum();
    ensure!(output.stdout.len() == bytes, "{} bytes over TLS", output.stdout.len());
    Ok(true)
}

fn check(number: usize, bytes: usize) -> Result<()> {
    ensure!(bytes == DOCUMENT_BYTES[number], "document {number} has {bytes} bytes");
    Ok(())
}

/// Keys with spaces are none of this protocol, so it has its own documents.
fn text_all(shared: &SoakShared<'_>) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", shared.server.port()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    for (number, bytes) in DOCUMENT_BYTES.into_iter().enumerate() {
        stream.write_all(format!("set text{number} 0 0 {bytes}\r\n").as_bytes())?;
        stream.write_all(&vec![b't'; bytes])?;
        stream.write_all(b"\r\n")?;
        let stored = line(&mut reader)?;
        if stored.starts_with("SERVER_ERROR") {
            return Ok(false);
        }
        ensure!(stored == "STORED\r\n", "{stored:?}");
        stream.write_all(format!("get text{number}\r\n").as_bytes())?;
        let found = line(&mut reader)?;
        // It may have been evicted, or there is no memory for it.
        if found == "END\r\n" || found.starts_with("SERVER_ERROR") {
            return Ok(false);
        }
        ensure!(found == format!("VALUE text{number} 0 {bytes}\r\n"), "{found:?}");
        reader.read_exact(&mut vec![0; bytes + 2])?;
        ensure!(line(&mut reader)? == "END\r\n", "a value without its end");
    }
    Ok(true)
}

fn line(reader: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line)
}

fn scan_all(shared: &SoakShared<'_>) -> Result<bool> {
    let mut client = connect(shared.server.port(), "default")?;
    for vbid in vbuckets() {
        let Some(extras) = begin_scan(&mut client, vbid)? else { return Ok(false) };
        client.send(&Request::new(Opcode::RangeScanContinue).vbucket(vbid).extras(&extras))?;
        loop {
            match client.receive()?.status() {
                Status::Success => {}
                Status::RangeScanComplete => break,
                Status::Etmpfail => return Ok(false),
                status => bail!("a scan continues with {status:?}"),
            }
        }
    }
    Ok(true)
}

fn stream_all(shared: &SoakShared<'_>, name: &str) -> Result<bool> {
    let mut connection = consumer(shared, name)?;
    let mut missing: Vec<String> = keys().collect();
    while !missing.is_empty() {
        match connection.hear()?.what {
            MessageKind::Document(document) => {
                missing.retain(|key| key.as_bytes() != document.key);
            }
            MessageKind::Refused(Status::Etmpfail) => return Ok(false),
            MessageKind::Refused(status) => bail!("a stream is refused: {status:?}"),
            _ => {}
        }
    }
    Ok(true)
}

fn events_all(shared: &SoakShared<'_>) -> Result<bool> {
    let mut stream = admin(shared).begin_get(EVENTS)?;
    let mut end = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let bytes = stream.read(&mut piece)?;
        ensure!(bytes > 0, "the events end without the last one");
        end.extend_from_slice(&piece[..bytes]);
        if end.starts_with(b"HTTP/1.1 503") {
            return Ok(false);
        }
        if end.windows(10).any(|text| text == b"event: end") {
            return Ok(true);
        }
        end.drain(..end.len().saturating_sub(64));
    }
}

fn http_all(shared: &SoakShared<'_>) -> Result<bool> {
    for number in 0..DOCUMENT_BYTES.len() {
        let path = format!("/pools/default/buckets/default/docs/sized%20{number}?raw=true");
        let answer = admin(shared).get(&path)?;
        match answer.status {
            200 => check(number, answer.body.len())?,
            503 => return Ok(false),
            status => bail!("{status}: {}", answer.text()),
        }
    }
    Ok(true)
}

/// Reads the documents that fit: a statement takes twice a document of the memory for connections.
fn query_all(shared: &SoakShared<'_>) -> Result<bool> {
    let fitting = keys().zip(DOCUMENT_BYTES).filter(|(_, bytes)| *bytes <= QUERY_BYTES_MAX);
    let fitting: Vec<String> = fitting.map(|(key, _)| key).collect();
    let statement = "SELECT RAW SUM(LENGTH(d)) FROM `default` d USE KEYS $1";
    let body = json!({ "statement": statement, "args": [fitting] }).to_string();
    let kind = "application/json";
    let answer = admin(shared).request("POST", "/query/service", kind, body.as_bytes())?;
    let text = answer.text();
    let is_for_memory = ["\"code\":5500", "\"code\":12008", "\"code\":1201"];
    match text.contains("\"status\":\"success\"") {
        true => Ok(true),
        false if is_for_memory.iter().any(|code| text.contains(code)) => Ok(false),
        false => bail!("{}: {text}", answer.status),
    }
}

/// `oribi backup create`, which reads everything over DCP.
fn backup(shared: &SoakShared<'_>, number: usize) -> Result<bool> {
    let archive = shared.server.data_dir().with_file_name(format!("backup {number}"));
    let mut command = Command::new(shared.program);
    command.args(["backup", "create"]).arg(&archive);
    command.args(["--port", &shared.server.port().to_string(), "--user", DEVELOPMENT_USER]);
    let output =
        command.env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD).stdin(Stdio::null()).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "a backup fails: {error}");
    std::fs::remove_dir_all(&archive).context("a backup leaves its archive")?;
    Ok(true)
}

/// Reads as slowly as a client may without being disconnected for it.
fn read_slowly(shared: &SoakShared<'_>, kind: RequestKind) -> Result<()> {
    let mut piece = vec![0; SLOW_BYTES];
    while !shared.is_over() {
        let Some(mut stream) = stalled::begin(shared, kind, "slow")? else { continue };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut left = 2 * DOCUMENT_BYTES.iter().sum::<usize>();
        while left > 0 && !shared.is_over() {
            // Nothing more comes of a stream without news.
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            match stream.read(&mut piece) {
                Ok(0) if matches!(kind, RequestKind::Events | RequestKind::Http) => break,
                Ok(0) => bail!("{kind:?} is cut although it reads"),
                Ok(bytes) => left = left.saturating_sub(bytes),
                Err(error) if is_timeout(&error) => break,
                Err(error) => return Err(error).with_context(|| format!("{kind:?} reads slowly")),
            }
            std::thread::park_timeout(SLOW_PAUSE);
        }
    }
    Ok(())
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}
