//! Whether the writes to a bucket are durable.
//!
//! A server that crashes loses writes that it has acknowledged but not persisted, and its vbuckets
//! begin new histories. So versions are safe when their vbuckets still have the histories from
//! before the first of them, and everything is on disk.

use std::time::Duration;

use anyhow::Context;
use futures_util::future::try_join_all;
use oribi_client::{Client, ClientError, MutationToken, Persistence, VbUuid, Vbid};

use crate::admin::Admin;

/// Vbuckets that are asked about at the same time.
const IN_FLIGHT: usize = 64;

/// Pause between two looks whether something has happened.
const POLL: Duration = Duration::from_millis(20);

/// How often a question is repeated whose connection ended.
const ATTEMPTS: usize = 10;

/// The histories of a bucket's vbuckets at one moment.
#[derive(PartialEq, Eq)]
pub struct Histories(Vec<(Vbid, VbUuid)>);

impl Histories {
    pub async fn of(client: &Client) -> anyhow::Result<Histories> {
        let vbids: Vec<Vbid> = (0..client.config().vbucket_count()).map(Vbid).collect();
        let mut histories = Vec::with_capacity(vbids.len());
        for some in vbids.chunks(IN_FLIGHT) {
            let last = try_join_all(some.iter().map(|vbid| last(client, *vbid))).await?;
            histories.extend(last.into_iter().map(|last| (last.vbid, last.vb_uuid)));
        }
        Ok(Histories(histories))
    }

    /// True when they continue, so that nothing acknowledged since then was lost. With `on_disk` it
    /// waits until all of it is on disk.
    pub async fn go_on(&self, client: &Client, on_disk: bool) -> anyhow::Result<bool> {
        for some in self.0.chunks(IN_FLIGHT) {
            let go_on = some.iter().map(|history| goes_on(client, *history, on_disk));
            if try_join_all(go_on).await?.contains(&false) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

async fn goes_on(
    client: &Client,
    (vbid, history): (Vbid, VbUuid),
    on_disk: bool,
) -> anyhow::Result<bool> {
    let last = last(client, vbid).await?;
    if last.vb_uuid != history {
        return Ok(false);
    }
    if !on_disk || last.seqno.0 == 0 {
        return Ok(true);
    }
    loop {
        match repeated(|| client.persistence(&last)).await? {
            Persistence::Persisted => return Ok(true),
            Persistence::Pending => tokio::time::sleep(POLL).await,
            _ => return Ok(false),
        }
    }
}

async fn last(client: &Client, vbid: Vbid) -> anyhow::Result<MutationToken> {
    repeated(|| client.last_mutation(vbid)).await
}

/// Repeats the request when the connection ended.
async fn repeated<T, F>(question: impl Fn() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut attempts = 1;
    loop {
        match question().await {
            Err(error) if error.was_interrupted() && attempts < ATTEMPTS => attempts += 1,
            answer => return answer.context("asking what is on disk"),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// False for a bucket in memory only, as far as the server says so.
pub async fn has_disk(admin: Option<&Admin>, bucket: &str) -> bool {
    let Some(admin) = admin else { return true };
    !admin.bucket(bucket).await.is_ok_and(|settings| settings["bucketType"] == "ephemeral")
}
