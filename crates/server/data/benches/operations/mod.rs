//! One connection over an in-memory bucket executes pipelined operations of one kind: no sockets,
//! no threads, no clock, so two runs execute the same instructions.
//!
//! The fixed cost of a run (start, documents, two checked batches) does not depend on the number of
//! operations. The difference between two runs of different length is therefore the cost of the
//! operations and of the harness, which copies input and output: about twenty instructions for half
//! a kilobyte. A NOOP run measures the cost of any request.
//!
//! Owns the requests and the check of the answers. It measures nothing by itself.

use oribi_protocol::frame::Header;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, SetExtras, encode_request};
use oribi_protocol::status::Status;
use oribi_server::harness::{ConnectionHarness, HARNESS_VBUCKETS};

const USAGE: &str = "options: [--operation noop|get|get_miss|set] [--value-bytes BYTES] \
                     [--batch OPERATIONS] [--batches COUNT]";

/// Documents: few enough to stay in the cache, because instructions are counted and not time.
const DOCUMENTS: usize = 10_000;

/// The largest batch: what it delivers at once fits one read of a connection many times over.
const BATCH_MAX: usize = 1000;

/// The largest value: all documents together have to fit into memory, as requests as well.
const VALUE_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Noop,
    Get,
    GetMiss,
    Set,
}

#[derive(Clone, Debug)]
struct Options {
    operation: Operation,
    value_bytes: usize,
    batch: usize,
    batches: usize,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        // Small, so that a test can run it as it is.
        let mut options =
            Options { operation: Operation::Get, value_bytes: 32, batch: 10, batches: 10 };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            // Cargo adds it to whatever it runs as a bench.
            if argument == "--bench" {
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            match argument.as_str() {
                "--operation" => options.operation = operation_named(&value)?,
                "--value-bytes" => options.value_bytes = number(&value, VALUE_BYTES_MAX)?,
                "--batch" => options.batch = number(&value, BATCH_MAX)?,
                "--batches" => options.batches = number(&value, usize::MAX)?,
                _ => return Err(format!("unknown option {argument}; {USAGE}")),
            }
        }
        Ok(options)
    }
}

fn operation_named(name: &str) -> Result<Operation, String> {
    match name {
        "noop" => Ok(Operation::Noop),
        "get" => Ok(Operation::Get),
        "get_miss" => Ok(Operation::GetMiss),
        "set" => Ok(Operation::Set),
        _ => Err(format!("unknown operation {name}; {USAGE}")),
    }
}

fn number(text: &str, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("{text} is not a number from 1 to {max}; {USAGE}"))
}

/// Runs the bench that the arguments describe; an error is text for the user.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    let mut harness = ConnectionHarness::new();
    let mut answers = Vec::new();
    if options.operation != Operation::GetMiss {
        for batch in requests(Operation::Set, &options) {
            feed(&mut harness, &batch, &mut answers);
        }
    }
    let inputs = requests(options.operation, &options);
    feed(&mut harness, &inputs[0], &mut answers);
    check(&answers, &options)?;
    for input in inputs.iter().cycle().take(options.batches) {
        feed(&mut harness, input, &mut answers);
    }
    check(&answers, &options)
}

fn feed(harness: &mut ConnectionHarness, input: &[u8], answers: &mut Vec<u8>) {
    answers.clear();
    harness.feed_into(input, answers);
}

/// Batches over all documents, each batch the bytes of its requests.
fn requests(operation: Operation, options: &Options) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    for first in (0..DOCUMENTS).step_by(options.batch) {
        let mut batch = Vec::new();
        for number in first..first + options.batch {
            // Documents are taken in an order in which neighbours are not, as clients do.
            let number = number * 7919 % DOCUMENTS;
            request(&mut batch, operation, number, options.value_bytes, HARNESS_VBUCKETS);
        }
        batches.push(batch);
    }
    batches
}

/// Appends a request about one document.
fn request(
    batch: &mut Vec<u8>,
    operation: Operation,
    number: usize,
    value_bytes: usize,
    vbuckets: u16,
) {
    let key = format!("{number:016}").into_bytes();
    let (value, extras) = (vec![b'v'; value_bytes], SetExtras::default().encode());
    let vbid = vbucket_of(&key, vbuckets);
    let (opcode, key, extras, value): (_, &[u8], &[u8], &[u8]) = match operation {
        Operation::Noop => (Opcode::Noop, &[], &[], &[]),
        Operation::Get | Operation::GetMiss => (Opcode::Get, &key, &[], &[]),
        Operation::Set => (Opcode::Set, &key, &extras, &value),
    };
    let parts = RequestParts { vbid, key, extras, value, ..RequestParts::new(opcode) };
    encode_request(batch, &parts);
}

/// Checks that every operation of the last batch was answered and succeeded.
fn check(answers: &[u8], options: &Options) -> Result<(), String> {
    let (status, value_bytes) = match options.operation {
        Operation::Get => (Status::Success, options.value_bytes),
        Operation::GetMiss => (Status::KeyEnoent, 0),
        Operation::Noop | Operation::Set => (Status::Success, 0),
    };
    let mut rest = answers;
    let mut answered = 0;
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(header).map_err(|error| error.to_string())?;
        let body_bytes = header.body_bytes as usize;
        if header.vbucket_or_status != status.code() || body_bytes < value_bytes {
            let found = header.vbucket_or_status;
            return Err(format!("answer {answered}: status {found:#x}, {body_bytes} bytes"));
        }
        rest = behind.get(body_bytes..).ok_or("an answer is cut off")?;
        answered += 1;
    }
    match answered == options.batch && rest.is_empty() {
        true => Ok(()),
        false => Err(format!("{answered} answers to {} operations", options.batch)),
    }
}
