//! Many operations in flight on one connection.
//!
//! [`Pipeline::queue`] sends without waiting, [`Pipeline::next`] yields results in the order in which
//! operations were queued, whatever order the server answered in. The caller keeps memory bounded by
//! taking results while [`Pipeline::is_full`]:
//!
//! ```no_run
//! # use oribi_client::{Client, ClientError, Operation, WriteOptions, pipeline::PipelineOptions};
//! # async fn load(client: &Client, rows: Vec<(Vec<u8>, bytes::Bytes)>) -> Result<(), ClientError> {
//! let mut pipeline = client.pipeline(PipelineOptions::default());
//! for (key, value) in rows {
//!     while pipeline.is_full() {
//!         pipeline.next().await.expect("a full pipeline has results to come").1?;
//!     }
//!     let operation = Operation::upsert(&key, value, &WriteOptions::default());
//!     pipeline.queue(client.default_collection(), &operation)?;
//! }
//! while let Some((_number, result)) = pipeline.next().await {
//!     result?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing is retried here: a refused operation is a result, and whoever still has its key and value
//! can run it again by [`Client::run`].

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::client::{Client, Collection};
use crate::error::ClientError;
use crate::multiplexer::{Answer, Waiter};
use crate::operation::{Encoder, Operation, Reply};

/// How much may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipelineOptions {
    /// Operations.
    pub operations_max: usize,
    /// Bytes of keys and values. One operation may exceed it, when it is alone.
    pub bytes_max: usize,
}

impl Default for PipelineOptions {
    /// Enough to keep a server busy over a local network, with a few megabytes of memory.
    fn default() -> PipelineOptions {
        PipelineOptions { operations_max: 4096, bytes_max: 8 * 1024 * 1024 }
    }
}

/// One operation in flight.
struct Slot {
    bytes: usize,
    answer: Option<Answer>,
}

/// Operations in flight together; see the module. Dropping it forgets their results.
pub struct Pipeline<'c> {
    client: &'c Client,
    options: PipelineOptions,
    encoder: Encoder,
    sender: mpsc::UnboundedSender<(u64, Answer)>,
    answers: mpsc::UnboundedReceiver<(u64, Answer)>,
    /// Operations whose result was not taken, oldest first.
    slots: VecDeque<Slot>,
    /// Number of the oldest of them.
    oldest: u64,
    /// Sum of their bytes.
    bytes: usize,
}

impl<'c> Pipeline<'c> {
    pub(crate) fn new(client: &'c Client, options: PipelineOptions) -> Pipeline<'c> {
        let (sender, answers) = mpsc::unbounded_channel();
        Pipeline {
            client,
            options,
            encoder: Encoder::default(),
            sender,
            answers,
            slots: VecDeque::new(),
            oldest: 0,
            bytes: 0,
        }
    }

    /// True when as much is in flight as the options allow.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= self.options.operations_max || self.bytes >= self.options.bytes_max
    }

    /// Operations whose result was not taken yet.
    pub fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// Sends an operation and returns its number; numbers count up from 0. Fails when the operation
    /// cannot be sent at all; it then has no number and no result.
    pub fn queue(
        &mut self,
        collection: &Collection,
        operation: &Operation<'_>,
    ) -> Result<u64, ClientError> {
        let number = self.oldest + self.slots.len() as u64;
        let waiter = Waiter::Numbered(self.sender.clone(), number);
        self.client.submit(&mut self.encoder, collection, operation, waiter)?;
        let bytes = operation.key().len() + operation.value().len();
        self.slots.push_back(Slot { bytes, answer: None });
        self.bytes += bytes;
        Ok(number)
    }

    /// The oldest operation's result, once it is there; `None` when nothing is in flight.
    pub async fn next(&mut self) -> Option<(u64, Result<Reply, ClientError>)> {
        while self.slots.front()?.answer.is_none() {
            let timeout = self.client.operation_timeout();
            // The pipeline holds a sender itself, so the channel never ends.
            match tokio::time::timeout(timeout, self.answers.recv()).await {
                Ok(Some((number, answer))) => self.place(number, answer),
                Ok(None) | Err(_) => self.place(self.oldest, Err(self.client.timed_out())),
            }
        }
        self.take_oldest()
    }

    /// The oldest operation's result if it is there already.
    pub fn try_next(&mut self) -> Option<(u64, Result<Reply, ClientError>)> {
        while let Ok((number, answer)) = self.answers.try_recv() {
            self.place(number, answer);
        }
        self.take_oldest()
    }

    fn place(&mut self, number: u64, answer: Answer) {
        // An answer to an operation that was given up as timed out has no slot any more.
        let Some(index) = number.checked_sub(self.oldest) else { return };
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.answer.get_or_insert(answer);
        }
    }

    fn take_oldest(&mut self) -> Option<(u64, Result<Reply, ClientError>)> {
        let slot = self.slots.front_mut()?;
        let answer = slot.answer.take()?;
        let number = self.oldest;
        self.oldest += 1;
        self.bytes -= slot.bytes;
        self.slots.pop_front();
        Some((number, answer.and_then(|response| Reply::from_response(&response))))
    }
}
