//! The state of a server's vbuckets, as the server reports it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::CollectionIdExtras;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Seqno, VbUuid, Vbid};

use crate::ack_log::VbucketReport;
use crate::raw_connection::{RawConnection, Request};

/// High seqno and failover table of every vbucket.
pub(super) fn recovered(connection: &mut RawConnection) -> Result<BTreeMap<Vbid, VbucketReport>> {
    let mut found: BTreeMap<Vbid, VbucketReport> = BTreeMap::new();
    for (name, value) in connection.stat("vbucket-seqno")? {
        if let (vbid, "high_seqno") = parts(&name)? {
            found.entry(vbid).or_default().high_seqno = Seqno(number(&name, &value)?);
        }
    }
    let mut tables: BTreeMap<(Vbid, usize), (VbUuid, Seqno)> = BTreeMap::new();
    for (name, value) in connection.stat("failovers")? {
        let (vbid, rest) = parts(&name)?;
        let Some((index, field)) = rest.split_once(':') else { continue };
        let index = index.parse().with_context(|| format!("stat {name}"))?;
        let entry = tables.entry((vbid, index)).or_default();
        match field {
            "id" => entry.0 = VbUuid(number(&name, &value)?),
            "seq" => entry.1 = Seqno(number(&name, &value)?),
            _ => {}
        }
    }
    // In order of the index, which is the order of age.
    for ((vbid, _), entry) in tables {
        found.entry(vbid).or_default().histories.push(entry);
    }
    if found.is_empty() || found.values().any(|vbucket| vbucket.histories.is_empty()) {
        bail!("the server shows no failover tables");
    }
    Ok(found)
}

/// Id of the collection `path`, as `scope.collection`.
pub(super) fn collection_id(connection: &mut RawConnection, path: &str) -> Result<CollectionId> {
    let response = connection.call(&Request::new(Opcode::CollectionsGetId).value(path))?;
    if response.status() != Status::Success {
        bail!("{path}: {:?}", response.status());
    }
    let extras = CollectionIdExtras::decode(&response.extras).context("no collection id")?;
    Ok(extras.collection)
}

fn parts(name: &str) -> Result<(Vbid, &str)> {
    let (vbid, rest) = name
        .strip_prefix("vb_")
        .and_then(|rest| rest.split_once(':'))
        .with_context(|| format!("stat {name}"))?;
    Ok((Vbid(vbid.parse().with_context(|| format!("stat {name}"))?), rest))
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.parse().with_context(|| format!("stat {name} is {value}"))
}
