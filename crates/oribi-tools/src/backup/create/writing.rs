//! The thread that writes a backup, and the queue to it.
//!
//! Invariant: messages are carried out in their order, so a token that is sent behind changes
//! covers exactly them. The queue holds a few batches; a full one makes the stream wait.

use std::sync::Arc;

use anyhow::Context;
use oribi_backup::manifest::{CollectionEvent, Manifest};
use oribi_backup::writer::BackupWriter;
use oribi_backup::{Archive, ArchiveError, Record, RecordKind};
use oribi_client::{Change, ChangeKind, Vbid};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::super::clock::now_s;

/// Bytes that go to the thread together.
const BATCH_BYTES: usize = 256 * 1024;

/// Messages between the stream and the thread.
const QUEUE: usize = 8;

/// What the window of a node and a record count besides key and value.
const CHANGE_BYTES: usize = 64;

enum Message {
    Changes(Vec<Change>),
    Event(CollectionEvent),
    Cut(String),
    Reset(Vbid, String),
    Finish(String),
}

/// The thread.
pub struct Writing {
    begun: oneshot::Receiver<String>,
    thread: JoinHandle<Result<Option<Manifest>, ArchiveError>>,
}

/// The way to it. Dropping it ends the thread.
pub struct Queue {
    messages: mpsc::Sender<Message>,
    batch: Vec<Change>,
    batch_bytes: usize,
}

/// A [`Writing`] whose beginning was asked for.
pub struct Begun {
    thread: JoinHandle<Result<Option<Manifest>, ArchiveError>>,
    token: Option<String>,
}

impl Writing {
    /// Starts the thread; `begin` makes the writer there.
    pub fn start(
        archive: Arc<Archive>,
        begin: impl FnOnce(&Archive) -> Result<BackupWriter<'_>, ArchiveError> + Send + 'static,
    ) -> (Writing, Queue) {
        let (messages, received) = mpsc::channel(QUEUE);
        let (sender, begun) = oneshot::channel();
        let thread = tokio::task::spawn_blocking(move || {
            let writer = begin(&archive)?;
            // Without a receiver the program is on its way out.
            let _ = sender.send(writer.token().to_owned());
            write(writer, received)
        });
        (Writing { begun, thread }, Queue { messages, batch: Vec::new(), batch_bytes: 0 })
    }

    /// Waits for the beginning.
    pub async fn begun(self) -> Begun {
        Begun { token: self.begun.await.ok(), thread: self.thread }
    }
}

impl Begun {
    /// Token to begin the stream at; `None` when the thread failed.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// What came of it: the manifest if it was finished.
    pub async fn outcome(self) -> anyhow::Result<Option<Manifest>> {
        Ok(self.thread.await.context("the thread that writes the archive")??)
    }
}

fn write(
    mut writer: BackupWriter<'_>,
    mut received: mpsc::Receiver<Message>,
) -> Result<Option<Manifest>, ArchiveError> {
    while let Some(message) = received.blocking_recv() {
        match message {
            Message::Changes(changes) => {
                for change in &changes {
                    writer.push(&record_of(change))?;
                }
            }
            Message::Event(event) => writer.event(event),
            Message::Cut(token) => writer.cut(&token)?,
            Message::Reset(vbid, token) => writer.reset(vbid, &token)?,
            Message::Finish(token) => return writer.finish(&token, now_s()).map(Some),
        }
    }
    Ok(None)
}

fn record_of(change: &Change) -> Record<'_> {
    let kind = match change.kind {
        ChangeKind::Deletion => RecordKind::Deletion,
        ChangeKind::Expiration => RecordKind::Expiration,
        _ => RecordKind::Mutation,
    };
    let expiry = match kind {
        RecordKind::Mutation => change.expiry,
        _ => change.deleted_at.unwrap_or(0),
    };
    Record {
        kind,
        vbid: change.vbid(),
        seqno: change.seqno(),
        cas: change.cas,
        rev: change.rev,
        flags: change.flags,
        expiry,
        collection: change.collection,
        datatype: change.datatype,
        key: &change.key,
        value: &change.raw_value,
    }
}

impl Queue {
    /// Adds a change; returns its bytes.
    pub async fn change(&mut self, change: Change) -> anyhow::Result<u64> {
        let bytes = change.key.len() + change.raw_value.len() + CHANGE_BYTES;
        self.batch.push(change);
        self.batch_bytes += bytes;
        if self.batch_bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(bytes as u64)
    }

    /// Adds a collection that came or went.
    pub async fn event(&mut self, event: CollectionEvent) -> anyhow::Result<()> {
        self.flush().await?;
        self.send(Message::Event(event)).await
    }

    /// Has everything so far made durable; `token` is the stream's.
    pub async fn cut(&mut self, token: String) -> anyhow::Result<()> {
        self.flush().await?;
        self.send(Message::Cut(token)).await
    }

    /// Voids what the vbucket has had so far.
    pub async fn reset(&mut self, vbid: Vbid, token: String) -> anyhow::Result<()> {
        self.flush().await?;
        self.send(Message::Reset(vbid, token)).await
    }

    /// Finishes the backup.
    pub async fn finish(&mut self, token: String) -> anyhow::Result<()> {
        self.flush().await?;
        self.send(Message::Finish(token)).await
    }

    async fn flush(&mut self) -> anyhow::Result<()> {
        self.batch_bytes = 0;
        match std::mem::take(&mut self.batch) {
            batch if batch.is_empty() => Ok(()),
            batch => self.send(Message::Changes(batch)).await,
        }
    }

    async fn send(&self, message: Message) -> anyhow::Result<()> {
        // The thread's own error is the one that says why.
        self.messages.send(message).await.ok().context("the archive takes nothing more")
    }
}
