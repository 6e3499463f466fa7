//! Revisions for documents that an import writes with their attributes.
//!
//! Such a document is written with its metadata, which is the one write that replaces value and
//! attributes at once. The writer chooses the revision, and one that is not higher than the
//! server's would lose against older versions in a copy of the bucket. So each is one more than
//! what the server has, deleted documents included.

use anyhow::Context;
use oribi_client::{
    Client, ClientError, Collection, DocumentMeta, Operation, PipelineOptions, RejectionKind, Reply,
};
use oribi_types::RevSeqno;

const WHAT: &str =
    "asking for the revision of a document with attributes (which needs the right meta-read)";

/// The next revision of each document, many reads in flight.
pub async fn next_revisions(
    client: &Client,
    documents: &[(&Collection, &[u8])],
) -> anyhow::Result<Vec<RevSeqno>> {
    const FIRST: RevSeqno = RevSeqno(1);
    let mut pipeline = client.pipeline(PipelineOptions::new().operations_max(usize::MAX));
    let mut is_asked = Vec::with_capacity(documents.len());
    for (collection, key) in documents {
        is_asked.push(match pipeline.queue(collection, &Operation::get_meta(key)) {
            Ok(_) => true,
            // The write will say so.
            Err(ClientError::InvalidKey { .. }) => false,
            Err(error) => return Err(error).context(WHAT),
        });
    }
    let mut revisions = Vec::with_capacity(documents.len());
    for ((collection, key), is_asked) in documents.iter().zip(is_asked) {
        if !is_asked {
            revisions.push(FIRST);
            continue;
        }
        let mut result = pipeline.next().await.context("no read is in flight")?.result;
        if result.as_ref().is_err_and(|error| error.rejection() != Some(RejectionKind::NotFound)) {
            result = client.run(collection, &Operation::get_meta(key)).await;
        }
        revisions.push(RevSeqno(revision_of(result).context(WHAT)? + 1));
    }
    Ok(revisions)
}

fn revision_of(result: Result<Reply, ClientError>) -> Result<u64, ClientError> {
    match result {
        Ok(reply) => Ok(reply.meta().map_or(0, |meta: DocumentMeta| meta.rev_seqno.0)),
        Err(ClientError::Rejected(RejectionKind::NotFound)) => Ok(0),
        Err(error) => Err(error),
    }
}
