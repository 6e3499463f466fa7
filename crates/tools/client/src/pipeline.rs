//! Many operations in flight together, on all nodes, from one task.
//!
//! Owns the order of results, the timeout of each operation, and which map an operation was sent
//! under. Sending and receiving are the connections' business. Called by users of [`Client`].

use std::collections::VecDeque;
use std::sync::Arc;

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::Vbid;
use tokio::time::Instant;

use crate::batch::{NumberedResponse, RequestBatch};
use crate::client::Client;
use crate::cluster::ClusterTopology;
use crate::collection::Collection;
use crate::error::{ClientError, RejectionKind, Site};
use crate::multiplexer::{Multiplexer, ResponseWaiter};
use crate::node::{ClusterNode, ConnectionResult, NodeLink, ParkedCall};
use crate::operation::{Encoder, EncodingTerms, Operation};
use crate::reply::Reply;
use crate::response::ResponseResult;

/// How much may be in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
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

impl PipelineOptions {
    /// The default: 4096 operations, 8 MiB of keys and values.
    pub fn new() -> PipelineOptions {
        PipelineOptions::default()
    }

    /// Limits the operations in flight.
    pub fn operations_max(mut self, operations: usize) -> PipelineOptions {
        self.operations_max = operations;
        self
    }

    /// Limits the bytes of keys and values in flight.
    pub fn bytes_max(mut self, bytes: usize) -> PipelineOptions {
        self.bytes_max = bytes;
        self
    }
}

/// An operation that has its result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Completion {
    /// Number that [`Pipeline::queue`] gave it.
    pub number: u64,
    /// The server's answer, or why there is none.
    pub result: Result<Reply, ClientError>,
}

/// One operation in flight.
struct Slot {
    bytes: usize,
    vbid: Vbid,
    opcode: Opcode,
    deadline: Instant,
    answer: Option<ResponseResult>,
}

/// A cluster map that operations were sent under.
struct Era {
    /// Number of the first of them.
    first: u64,
    /// Keeps the connections open that they were sent on.
    topology: Arc<ClusterTopology>,
}

/// The open connection of each vbucket under the present map, as far as it was needed: looking it
/// up at the node takes a lock and a reference.
#[derive(Default)]
struct Routes(Vec<Option<Arc<Multiplexer>>>);

impl Routes {
    /// Forgets all; `topology` is the present one.
    fn reset(&mut self, topology: &ClusterTopology) {
        self.0.clear();
        self.0.resize(usize::from(topology.config.vbucket_count()), None);
    }

    /// The connection to the node that is active for `vbid`, if it is open.
    fn find(&mut self, topology: &ClusterTopology, vbid: Vbid) -> Option<&Arc<Multiplexer>> {
        let route = self.0.get_mut(usize::from(vbid.0))?;
        if route.as_ref().is_none_or(|connection| connection.is_closed()) {
            let node = topology.active_node(vbid);
            *route = node.and_then(|node| node.link(vbid).open_connection());
        }
        route.as_ref()
    }
}

/// Many operations in flight together, on all nodes, from one task. Dropping it forgets their
/// results.
///
/// [`Pipeline::queue`] sends without waiting, [`Pipeline::next`] yields results in the order in
/// which operations were queued, whatever order the servers answered in. The caller keeps memory
/// bounded by taking results while [`Pipeline::is_full`]:
///
/// ```standalone_crate
/// # #[path = "../tests/support/mod.rs"] mod support;
/// use bytes::Bytes;
/// use oribi_client::{Client, Operation, PipelineOptions, WriteOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let options = support::serve_documents();
/// let client = Client::connect(options).await?;
/// let mut pipeline = client.pipeline(PipelineOptions::default());
/// let mut written = 0;
/// for number in 0..10_000 {
///     while pipeline.is_full() {
///         pipeline.next().await.expect("a full pipeline has results to come").result?;
///         written += 1;
///     }
///     let key = format!("user:{number}");
///     let value = Bytes::from(number.to_string());
///     let operation = Operation::upsert(key.as_bytes(), value, &WriteOptions::default());
///     pipeline.queue(client.default_collection(), &operation)?;
/// }
/// while let Some(completed) = pipeline.next().await {
///     completed.result?;
///     written += 1;
/// }
/// assert_eq!(written, 10_000);
/// # Ok(())
/// # }
/// ```
///
/// An operation for a node that is not connected waits until it is. A pipeline retries nothing: a
/// refusal is a result, and so is a connection that ended. A caller that still has key and value
/// can run the operation again by [`Client::run`]; [`ClientError::was_not_sent`] tells when that is
/// safe for a write. Operations on one key are carried out in the order in which they were queued,
/// unless [`crate::ConnectOptions::unordered_execution`] allows the server another one.
///
/// Each operation has the client's timeout, counted from when it was queued; at its end the
/// operation has a result whatever the server does.
pub struct Pipeline<'c> {
    client: &'c Client,
    options: PipelineOptions,
    encoder: Encoder,
    batch: Arc<RequestBatch>,
    /// Answers taken from the batch, on their way to their slots. Empty between calls.
    arrived: Vec<NumberedResponse>,
    /// Operations whose result was not taken, oldest first.
    slots: VecDeque<Slot>,
    /// Number of the oldest of them.
    oldest: u64,
    /// Sum of their bytes.
    bytes: usize,
    /// Maps that they were sent under, oldest first; the last one is the present one.
    eras: VecDeque<Era>,
    routes: Routes,
    /// The cluster's generation when the last map was taken.
    generation: u64,
}

impl Client {
    /// A batch of operations in flight together; see [`Pipeline`].
    pub fn pipeline(&self, options: PipelineOptions) -> Pipeline<'_> {
        Pipeline::new(self, options)
    }
}

impl<'c> Pipeline<'c> {
    fn new(client: &'c Client, options: PipelineOptions) -> Pipeline<'c> {
        let generation = client.cluster().generation();
        let topology = client.cluster().topology();
        let mut routes = Routes::default();
        routes.reset(&topology);
        Pipeline {
            client,
            options,
            encoder: Encoder::default(),
            batch: Arc::default(),
            arrived: Vec::new(),
            slots: VecDeque::new(),
            oldest: 0,
            bytes: 0,
            eras: VecDeque::from([Era { first: 0, topology }]),
            routes,
            generation,
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
        operation.check(collection.id())?;
        self.follow_cluster();
        let number = self.oldest + self.slots.len() as u64;
        let topology = &self.eras.back().expect("the present map is always there").topology;
        let vbid = topology.config.vbucket_of(operation.key());
        let bytes = operation.key().len() + operation.value().len();
        let deadline = Instant::now() + self.client.options().operation_timeout;
        let mut slot = Slot { bytes, vbid, opcode: operation.opcode(), deadline, answer: None };
        let waiter = ResponseWaiter::Numbered(self.batch.clone(), number);
        if let Some(connection) = self.routes.find(topology, vbid) {
            let terms =
                EncodingTerms::of(connection.features(), self.client.options().compress_writes);
            let (parts, value) = self.encoder.encode(operation, vbid, collection.id(), terms)?;
            connection.submit(&parts, value, waiter);
        } else if let Some(node) = topology.active_node(vbid) {
            park(self.client, node.link(vbid), collection, operation, &slot, waiter);
        } else {
            slot.answer = Some(Err(RejectionKind::NotMyVbucket.into()));
        }
        self.push(slot);
        Ok(number)
    }

    fn push(&mut self, slot: Slot) {
        self.bytes += slot.bytes;
        self.slots.push_back(slot);
    }

    /// The oldest operation's result, once it is there; `None` when nothing is in flight.
    pub async fn next(&mut self) -> Option<Completion> {
        loop {
            let oldest = self.slots.front()?;
            if oldest.answer.is_some() {
                return self.take_oldest();
            }
            let answers = self.batch.take(&mut self.arrived);
            let is_late = tokio::time::timeout_at(oldest.deadline, answers).await.is_err();
            self.place_arrived();
            if is_late {
                self.give_up_oldest();
            }
        }
    }

    /// The oldest operation's result if it is there already.
    pub fn try_next(&mut self) -> Option<Completion> {
        if self.slots.front()?.answer.is_none() {
            self.batch.try_take(&mut self.arrived);
            self.place_arrived();
        }
        self.take_oldest()
    }

    fn place_arrived(&mut self) {
        let mut arrived = std::mem::take(&mut self.arrived);
        for (number, answer) in arrived.drain(..) {
            self.place(number, answer);
        }
        self.arrived = arrived;
    }

    fn place(&mut self, number: u64, answer: ResponseResult) {
        // An answer to an operation that was given up as timed out has no slot any more.
        let Some(index) = number.checked_sub(self.oldest) else { return };
        let Some(slot) = self.slots.get(index as usize) else { return };
        if let Ok(response) = &answer
            && response.header.vbucket_or_status == Status::NotMyVbucket.code()
        {
            let source = self.node_of(number, slot.vbid).map(|node| node.address().clone());
            let learned = source
                .is_some_and(|source| self.client.cluster().learn_from_refusal(response, &source));
            if !learned {
                self.client.cluster().refresh_soon();
            }
        }
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.answer.get_or_insert(answer);
        }
    }

    /// The node that operation `number` went to.
    fn node_of(&self, number: u64, vbid: Vbid) -> Option<&Arc<ClusterNode>> {
        let era = self.eras.iter().rev().find(|era| era.first <= number)?;
        era.topology.active_node(vbid)
    }

    /// The oldest operation's time is up.
    fn give_up_oldest(&mut self) {
        let Some(slot) = self.slots.front() else { return };
        if slot.answer.is_some() {
            return;
        }
        let after = self.client.options().operation_timeout;
        let Some(node) = self.node_of(self.oldest, slot.vbid) else { return };
        let link = node.link(slot.vbid);
        let error = match link.open_connection() {
            Some(connection) => {
                connection.note_timeout();
                let at = Site { peer: link.peer().clone(), operation: slot.opcode.name() };
                ClientError::Timeout { at, after }
            }
            None => link.not_connected(slot.opcode, after),
        };
        // The connection may have ended just now, with a better answer for all that was on it.
        self.batch.try_take(&mut self.arrived);
        self.place_arrived();
        if let Some(slot) = self.slots.front_mut() {
            slot.answer.get_or_insert(Err(error));
        }
    }

    fn take_oldest(&mut self) -> Option<Completion> {
        let answer = self.slots.front_mut()?.answer.take()?;
        let slot = self.slots.pop_front()?;
        let number = self.oldest;
        self.oldest += 1;
        self.bytes -= slot.bytes;
        let result = answer.and_then(|response| {
            Reply::from_response(response, slot.vbid).map_err(|unusable| {
                unusable.at(|| {
                    let node = self.node_of(number, slot.vbid);
                    let peer = node.map(|node| node.link(slot.vbid).peer().clone());
                    Site { peer: peer.unwrap_or_default(), operation: slot.opcode.name() }
                })
            })
        });
        // Maps without operations in flight go, and their connections with them.
        while self.eras.get(1).is_some_and(|next| next.first <= self.oldest) {
            self.eras.pop_front();
        }
        Some(Completion { number, result })
    }

    /// Takes over the present map if it is another one.
    fn follow_cluster(&mut self) {
        let generation = self.client.cluster().generation();
        if generation != self.generation {
            self.generation = generation;
            let first = self.oldest + self.slots.len() as u64;
            let topology = self.client.cluster().topology();
            self.routes.reset(&topology);
            self.eras.push_back(Era { first, topology });
        }
    }
}

/// Has an operation sent as soon as its node is connected.
fn park(
    client: &Client,
    link: &Arc<NodeLink>,
    collection: &Collection,
    operation: &Operation<'_>,
    slot: &Slot,
    waiter: ResponseWaiter,
) {
    let key = operation.key().to_vec();
    let operation = operation.with_key(&[]);
    let collection = collection.clone();
    let compress_writes = client.options().compress_writes;
    let Slot { vbid, opcode, deadline, .. } = *slot;
    let resume = Box::new(move |opened: ConnectionResult<'_>| {
        let connection = match opened {
            Ok(connection) => connection,
            Err(error) => return waiter.answer(Err(error)),
        };
        // Its caller already has the error that it was not sent.
        if Instant::now() >= deadline {
            return;
        }
        let mut encoder = Encoder::default();
        let operation = operation.with_key(&key);
        let terms = EncodingTerms::of(connection.features(), compress_writes);
        match encoder.encode(&operation, vbid, collection.id(), terms) {
            Ok((parts, value)) => connection.submit(&parts, value, waiter),
            Err(error) => waiter.answer(Err(error)),
        }
    });
    link.park(ParkedCall { deadline, opcode, resume });
}
