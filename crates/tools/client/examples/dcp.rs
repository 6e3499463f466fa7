//! A copy of a bucket in memory that follows its changes, and continues after a crash of the
//! server.
//!
//! Needs a server on this machine with its development user, as `oribi serve` starts one:
//! `cargo run --release -p oribi-client --example dcp`.

use std::collections::HashMap;
use std::error::Error;

use oribi_client::{
    Bytes, ChangeKind, Client, CollectionId, ConnectOptions, DcpChange, DcpEvent, DcpStreamOptions,
    Rollback, Seqno, Vbid,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    run(ConnectOptions::new("Administrator", "password", "default"), false).await
}

/// A document of the copy, and the place of its last change.
struct DocumentCopy {
    value: Option<Bytes>,
    vbid: Vbid,
    seqno: Seqno,
}

type Key = (CollectionId, Bytes);

/// Follows all changes; only those that there are already, if it is to end.
pub async fn run(options: ConnectOptions, until_now: bool) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(options).await?;
    let options = DcpStreamOptions::new().from_beginning().until_now(until_now);
    let mut changes = client.dcp_stream(&options).await?;
    let mut copy: HashMap<Key, DocumentCopy> = HashMap::new();
    while let Some(event) = changes.next().await? {
        match event {
            DcpEvent::Change(change) => apply(&mut copy, &change)?,
            DcpEvent::Rollback(rollback) => read_again(&client, &mut copy, rollback).await?,
            DcpEvent::Disconnected(lost) => eprintln!("{}: {}", lost.peer, lost.reason),
            _ => {}
        }
    }
    let documents = copy.values().filter(|copied| copied.value.is_some()).count();
    println!("{documents} documents at {}", changes.token());
    Ok(())
}

fn apply(copy: &mut HashMap<Key, DocumentCopy>, change: &DcpChange) -> Result<(), Box<dyn Error>> {
    let value = match change.kind {
        ChangeKind::Mutation => Some(change.value()?),
        _ => None,
    };
    let copied = DocumentCopy { value, vbid: change.vbid(), seqno: change.seqno() };
    copy.insert((change.collection, change.key.clone()), copied);
    Ok(())
}

/// Changes after the rollback may restore earlier versions.
async fn read_again(
    client: &Client,
    copy: &mut HashMap<Key, DocumentCopy>,
    rollback: Rollback,
) -> Result<(), Box<dyn Error>> {
    let (vbid, to) = (rollback.to.vbid, rollback.to.seqno);
    for ((collection, key), copied) in copy.iter_mut() {
        // A copy of other collections would look them up by their path.
        let is_lost = copied.vbid == vbid && copied.seqno > to;
        if is_lost && *collection == CollectionId::DEFAULT {
            let document = client.get(client.default_collection(), key).await?;
            copied.value = document.map(|document| document.value);
            copied.seqno = to;
        }
    }
    Ok(())
}
