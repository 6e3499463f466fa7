//! Rows as pieces of an answer.
//!
//! Owns: the piece in progress, the beginning of the answer, and its last line. It runs on the
//! statement's thread and waits there for memory and for the client; after the last row a task
//! waits until the client has it. Invariants: a piece is reserved before rows are written into it,
//! and a row that needs more than a piece has its own; every wait ends with the statement's time,
//! its client or the server, and pieces end when their client lags while others wait for memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hyper::StatusCode;
use hyper::body::Bytes;
use oribi_query::QueryError;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

use crate::body::READING_DEADLINE;
use crate::changes::piece::{Outgoing, StreamPiece};
use crate::limits::{ROW_BYTES_MAX, ROW_PIECE_BYTES};
use crate::statement_control::{StatementControl, StatementEnd};
use crate::statement_memory::ClientPace;
use crate::statement_places::StatementResources;

/// Rows are sent at the latest this long after the ones before, when another comes.
const SEND_INTERVAL: Duration = Duration::from_millis(100);

/// Interval between two looks whether a wait for the client has to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Longest answer that is sent as a whole, with one wake-up of the runtime and one write. It waits
/// for a client that does not read, as all short replies do.
const WHOLE_BYTES_MAX: usize = 16 << 10;
const _: () = assert!(WHOLE_BYTES_MAX <= ROW_PIECE_BYTES, "a small answer is one piece");

/// How long the last line waits for a client that does not read.
const LAST_LINE_PATIENCE: Duration = Duration::from_millis(500);
const _: () = assert!(LOOK_INTERVAL.as_millis() < LAST_LINE_PATIENCE.as_millis());
const _: () = assert!(LOOK_INTERVAL.as_millis() <= SEND_INTERVAL.as_millis());

/// How a statement began.
pub(crate) enum StatementStart {
    Streams,
    /// The whole answer, which was short.
    Whole(Bytes),
    /// The statement failed before its first row.
    Failed(StatusCode, String),
}

/// How the client takes the pieces that were sent.
pub(super) fn pace_of_client(rows: &Outgoing) -> ClientPace {
    match rows.held_bytes() > 0 {
        false => ClientPace::HasAll,
        true if rows.is_client_behind() => ClientPace::Lags,
        true => ClientPace::Reads,
    }
}

/// See the module text.
pub(crate) struct StatementAnswer {
    // The first field, so that a panic gives the place back before the client hears of it.
    occupied: StatementResources,
    /// The server's end waits for it.
    open: watch::Receiver<()>,
    control: Arc<StatementControl>,
    runtime: Handle,
    outgoing: Arc<Outgoing>,
    begun: Option<oneshot::Sender<StatementStart>>,
    piece: Option<StreamPiece>,
    sent: Instant,
}

impl StatementAnswer {
    pub fn new(
        control: Arc<StatementControl>,
        runtime: Handle,
        outgoing: Arc<Outgoing>,
        begun: oneshot::Sender<StatementStart>,
        (occupied, open): (StatementResources, watch::Receiver<()>),
    ) -> StatementAnswer {
        StatementAnswer {
            occupied,
            open,
            control,
            runtime,
            outgoing,
            begun: Some(begun),
            piece: None,
            sent: Instant::now(),
        }
    }

    /// Answers with a status, of which nothing was sent yet.
    pub fn refuse(self, status: StatusCode, why: String) {
        let StatementAnswer { begun, occupied, .. } = self;
        drop(occupied);
        if let Some(begun) = begun {
            // Without a receiver the client is gone.
            let _ = begun.send(StatementStart::Failed(status, why));
        }
    }

    /// Sends the rest and `last`, after the statement's thread has ended.
    pub fn end(mut self, last: String) {
        let mut piece = self.piece.take();
        let last = match &mut piece {
            // A small answer is one piece.
            Some(piece) if piece.room() >= last.len() => {
                piece.bytes.extend_from_slice(last.as_bytes());
                None
            }
            _ => Some(Bytes::from(last)),
        };
        if let (Some(short), None) = (&piece, &last)
            && short.bytes.len() <= WHOLE_BYTES_MAX
            && let Some(begun) = self.begun.take()
        {
            drop(self.occupied);
            // Without a receiver the client is gone.
            let _ = piece.map(|piece| begun.send(StatementStart::Whole(piece.into_bytes())));
            return;
        }
        self.announce();
        let StatementAnswer { control, runtime, occupied, open, outgoing, .. } = self;
        let pieces = [piece.map(StreamPiece::into_bytes), last];
        runtime.spawn(async move {
            let _kept = open;
            conclude(pieces, control, occupied, outgoing).await;
        });
    }

    /// Writes a part of the answer. Waits for memory and for the client.
    ///
    /// # Errors
    /// When the statement has to end, or a row needs more memory than it may have (5500).
    pub fn write(&mut self, parts: &[&[u8]]) -> Result<(), Box<QueryError>> {
        self.append(parts).map_err(|error| {
            let code = self.control.ending().and_then(StatementEnd::query_code);
            QueryError::datastore(code.unwrap_or(5500), format!("{error:#}"))
        })
    }

    fn append(&mut self, parts: &[&[u8]]) -> Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes > ROW_BYTES_MAX {
            bail!("a row of {bytes} bytes is longer than the {ROW_BYTES_MAX} that rows may have");
        }
        let out = self.room(bytes)?;
        parts.iter().for_each(|part| out.extend_from_slice(part));
        self.send_in_time()
    }

    /// Sends a large row at once, and others when the last ones are a while ago.
    fn send_in_time(&mut self) -> Result<()> {
        let is_large = self.piece.as_ref().is_some_and(|piece| piece.bytes.len() > ROW_PIECE_BYTES);
        if is_large || self.sent.elapsed() >= SEND_INTERVAL {
            self.send()?;
        }
        Ok(())
    }

    /// A piece with capacity for so many bytes more.
    fn room(&mut self, bytes: usize) -> Result<&mut Vec<u8>> {
        let has_room = |piece: &StreamPiece| piece.room() >= bytes;
        if !self.piece.as_ref().is_some_and(has_room) {
            self.send()?;
            let wanted = bytes.max(ROW_PIECE_BYTES);
            let most = self.outgoing.largest_piece();
            if wanted > most {
                bail!("a row needs {bytes} bytes of the memory for connections, which has {most}");
            }
            let Some(piece) = self.control.wait_for_memory(&|| self.outgoing.piece(wanted)) else {
                self.control.check()?;
                return Err(self.control.unavailable(
                    "the memory for connections is in use, and a row needs some of it; try again",
                ));
            };
            self.piece = Some(piece);
        }
        match &mut self.piece {
            Some(piece) => {
                debug_assert!(piece.room() >= bytes, "a row is within the reservation");
                Ok(&mut piece.bytes)
            }
            None => bail!("no memory for a row"),
        }
    }

    /// Sends the piece in progress.
    fn send(&mut self) -> Result<()> {
        self.sent = Instant::now();
        let Some(piece) = self.piece.take().filter(|piece| !piece.bytes.is_empty()) else {
            return Ok(());
        };
        self.announce();
        let mut bytes = Some(piece.into_bytes());
        let control = &self.control;
        let mut stopping = control.stopping();
        self.runtime.block_on(async {
            let place = control.pieces().reserve();
            tokio::pin!(place);
            loop {
                tokio::select! {
                    place = &mut place => {
                        // An error means that the client is gone, which the control sees itself.
                        if let (Ok(place), Some(bytes)) = (place, bytes.take()) {
                            place.send(bytes);
                        }
                        return;
                    }
                    _ = stopping.wait_for(|stop| *stop) => return,
                    () = tokio::time::sleep_until(control.deadline().into()) => return,
                    () = tokio::time::sleep(LOOK_INTERVAL) => {
                        if control.has_to_end() {
                            return;
                        }
                    }
                }
            }
        });
        self.control.check()
    }

    /// Lets the answer begin.
    fn announce(&mut self) {
        if let Some(begun) = self.begun.take() {
            let _ = begun.send(StatementStart::Streams);
        }
    }
}

/// Sends the last pieces and waits until the client has them. Closes the connection of a client
/// that does not read in time, or while others wait for the memory of its rows. The place is free
/// before the client sees the end.
async fn conclude(
    pieces: [Option<Bytes>; 2],
    control: Arc<StatementControl>,
    occupied: StatementResources,
    outgoing: Arc<Outgoing>,
) {
    let connection = occupied.connection();
    let (memory, deadline) = (Arc::clone(control.memory()), control.deadline());
    let soon = Instant::now() + LAST_LINE_PATIENCE;
    let is_over = |deadline: Instant| {
        Instant::now() >= soon && (Instant::now() >= deadline || memory.is_in_the_way())
    };
    let close = || {
        tracing::info!("closed a statement's connection: the client does not read");
        connection.close();
    };
    let mut occupied = Some(occupied);
    let mut pieces = pieces.into_iter().flatten().peekable();
    while let Some(bytes) = pieces.next() {
        let place = loop {
            match tokio::time::timeout(LOOK_INTERVAL, control.pieces().reserve()).await {
                Ok(Ok(place)) => break place,
                // The client is gone.
                Ok(Err(_)) => return,
                Err(_) if is_over(deadline) => return close(),
                // Others wait for its place, which they get without the last line having been read.
                Err(_) if control.ending() == Some(StatementEnd::InTheWay) => {
                    drop(occupied.take());
                }
                Err(_) => {}
            }
        };
        if pieces.peek().is_none() {
            drop(occupied.take());
        }
        place.send(bytes);
    }
    // The body ends when the sender is dropped.
    drop(control);
    while outgoing.held_bytes() > 0 {
        if is_over(deadline + READING_DEADLINE) {
            return close();
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
