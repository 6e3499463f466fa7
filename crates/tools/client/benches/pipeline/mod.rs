//! SETs and GETs with many in flight: by a pipeline of the shared client, and by a connection that
//! the task owns, which is the least that the same work can cost.
//!
//! The server is a thread that answers what the tests' scripted server answers. What is compared is
//! the processor time of the client's one thread, kernel included, per operation.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::io::Write;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use oribi_client::{
    Client, ConnectOptions, Connection, Operation, Pipeline, PipelineOptions, WriteOptions,
};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, SetExtras};
use oribi_protocol::status::Status;
use serde::Serialize;

use crate::measure::{self, Options, Spent, Stopwatch};
use support::{Then, answer, handshake, opcode, serve};

/// Value sizes, in bytes.
const VALUE_BYTES: [usize; 3] = [32, 512, 4096];

/// Operations of a sample, unless bytes are asked for.
const OPERATIONS: usize = 300_000;

/// Operations in flight.
const IN_FLIGHT: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Pipeline,
    Connection,
}

#[derive(Serialize)]
struct Sample {
    bench: &'static str,
    round: u32,
    way: Way,
    operation: &'static str,
    size_bytes: usize,
    operations: usize,
    cpu_ns_per_operation: f64,
    #[serde(flatten)]
    spent: Spent,
}

/// Measures everything and writes a line per sample.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let sizes = options.sizes.clone().unwrap_or_else(|| VALUE_BYTES.to_vec());
    let runtime = measure::runtime()?;
    for round in 0..options.rounds {
        for &size_bytes in &sizes {
            let server = serve_values(size_bytes);
            let operations = options.sample_bytes.map_or(OPERATIONS, |bytes| bytes / size_bytes);
            let work = Work { operations, value: Bytes::from(vec![b'v'; size_bytes]) };
            for (way, opcode) in [
                (Way::Pipeline, Opcode::Set),
                (Way::Connection, Opcode::Set),
                (Way::Pipeline, Opcode::Get),
                (Way::Connection, Opcode::Get),
            ] {
                let spent = match way {
                    Way::Pipeline => runtime.block_on(work.by_pipeline(server.clone(), opcode))?,
                    Way::Connection => runtime.block_on(work.by_connection(&server, opcode))?,
                };
                let sample = Sample {
                    bench: "pipeline",
                    round,
                    way,
                    operation: opcode.name(),
                    size_bytes,
                    operations,
                    cpu_ns_per_operation: spent.cpu_ns as f64 / operations.max(1) as f64,
                    spent,
                };
                measure::emit(out, &sample)?;
            }
        }
    }
    Ok(())
}

/// A server that answers every GET with a value of this size and every SET with a mutation token.
pub fn serve_values(size_bytes: usize) -> ConnectOptions {
    let value = vec![b'v'; size_bytes];
    serve(move |frame, out| {
        match opcode(frame) {
            Opcode::Get => answer(out, frame, Status::Success, b"\0\0\0\0", &value),
            Opcode::Set => answer(out, frame, Status::Success, &[1; 16], b""),
            _ => assert!(handshake(out, frame)),
        }
        Then::GoOn
    })
}

struct Work {
    operations: usize,
    value: Bytes,
}

impl Work {
    async fn by_pipeline(&self, server: ConnectOptions, opcode: Opcode) -> Result<Spent> {
        let client = Client::connect(server).await?;
        let write = WriteOptions::default();
        let limits = PipelineOptions::new().operations_max(IN_FLIGHT).bytes_max(usize::MAX);
        let mut pipeline = client.pipeline(limits);
        let watch = Stopwatch::start();
        for number in 0..self.operations {
            while pipeline.is_full() {
                self.take_one(&mut pipeline, opcode).await?;
            }
            let key = key_of(number);
            let operation = match opcode {
                Opcode::Get => Operation::get(&key),
                _ => Operation::upsert(&key, self.value.clone(), &write),
            };
            pipeline.queue(client.default_collection(), &operation)?;
        }
        while pipeline.in_flight() > 0 {
            self.take_one(&mut pipeline, opcode).await?;
        }
        Ok(watch.read())
    }

    async fn take_one(&self, pipeline: &mut Pipeline<'_>, opcode: Opcode) -> Result<()> {
        let reply = pipeline.next().await.context("something is in flight")?.result;
        let reply = reply?;
        match opcode {
            Opcode::Get => ensure!(reply.value.len() == self.value.len(), "another value came"),
            _ => ensure!(reply.mutation.is_some(), "no token came"),
        }
        Ok(())
    }

    async fn by_connection(&self, server: &ConnectOptions, opcode: Opcode) -> Result<Spent> {
        let mut connection = Connection::open(server).await?;
        let extras = SetExtras::default().encode();
        let watch = Stopwatch::start();
        let mut sent = 0;
        let mut answered = 0;
        while answered < self.operations {
            // As in a pipeline: whatever was answered makes room for as many more.
            while sent < self.operations && sent - answered < IN_FLIGHT {
                let key = key_of(sent);
                let opaque = sent as u32;
                let parts = RequestParts { opaque, key: &key, ..RequestParts::new(opcode) };
                match opcode {
                    Opcode::Get => connection.push(&parts),
                    _ => {
                        let parts = RequestParts { extras: &extras, ..parts };
                        connection.push_value(&parts, &self.value);
                    }
                }
                sent += 1;
            }
            connection.flush().await?;
            let mut opaque = connection.next().await?.header.opaque;
            loop {
                ensure!(opaque == answered as u32, "answers come in order");
                answered += 1;
                match connection.try_next()? {
                    Some(frame) => opaque = frame.header.opaque,
                    None => break,
                }
            }
        }
        Ok(watch.read())
    }
}

/// A key of sixteen bytes; the first one takes part of a collection's prefix.
fn key_of(number: usize) -> [u8; 16] {
    let mut key = *b"\0key-0000000000-";
    key[5..13].copy_from_slice(&(number as u64).to_be_bytes());
    key
}
