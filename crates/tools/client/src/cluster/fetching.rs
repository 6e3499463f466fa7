//! Fetching the map.
//!
//! Owns which nodes to ask, and for how long. It asks every node, because a node cut off from the
//! cluster keeps offering its stale map as the newest. The fetch ends when a node gives a newer
//! map, or when the nodes that answer have none; once one has answered, it waits only briefly for
//! the others. The cluster calls it, one fetch at a time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{ConfigVersion, RequestParts};
use oribi_types::Vbid;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ClusterNodes;
use crate::config::ClusterMap;
use crate::error::{ClientError, Site};
use crate::node::ClusterNode;

/// How long nodes may take to give their maps when none has answered.
const FETCH_TIMEOUT: Duration = Duration::from_millis(2500);

/// How long the other ones may take when one has answered that it has nothing newer.
const STRAGGLER_PATIENCE: Duration = Duration::from_millis(100);

/// Result of a request for the map.
enum MapAnswer {
    /// There is a newer one now.
    Newer,
    /// Some node answered, and none had a newer one.
    NothingNewer,
}

impl ClusterNodes {
    /// Asks the nodes. Those without a connection are waited for only if no other answers; else
    /// they are connected to for the next time.
    pub(super) async fn fetch(&self, deadline: Instant) -> Result<(), ClientError> {
        let topology = self.topology();
        let is_ready = |node: &&Arc<ClusterNode>| node.open_connection().is_some();
        let (ready, others): (Vec<_>, Vec<_>) = topology.nodes.iter().partition(is_ready);
        let mut failure = None;
        for nodes in [&ready, &others] {
            match self.fetch_from(nodes, topology.version(), deadline).await {
                Ok(MapAnswer::Newer) => return Ok(()),
                Ok(MapAnswer::NothingNewer) => {
                    others.iter().for_each(|node| node.connect(Opcode::GetClusterConfig));
                    return Ok(());
                }
                Err(error) => failure = error.or(failure),
            }
        }
        Err(failure.unwrap_or_else(|| self.no_node(Opcode::GetClusterConfig)))
    }

    /// Asks these nodes at once, until one has given a newer map, or those that answer have none;
    /// an error when none answers.
    async fn fetch_from(
        &self,
        nodes: &[&Arc<ClusterNode>],
        present: ConfigVersion,
        deadline: Instant,
    ) -> Result<MapAnswer, Option<ClientError>> {
        let mut limit = deadline.min(Instant::now() + FETCH_TIMEOUT);
        let is_tls = self.options.tls.is_some();
        let mut asked = JoinSet::new();
        for node in nodes {
            let node = Arc::clone(node);
            let asking = async move {
                let answer = map_of(&node, present, is_tls, limit).await;
                (node, answer)
            };
            asked.spawn_on(asking, &self.runtime);
        }
        let (mut has_answered, mut failure) = (false, None);
        // The end of the time ends the loop; who has not answered by then is not asked any more.
        while let Ok(Some(Ok((node, answer)))) =
            tokio::time::timeout_at(limit, asked.join_next()).await
        {
            match answer.map(|found| found.is_some_and(|map| self.learn(map, node.address()))) {
                Ok(true) => return Ok(MapAnswer::Newer),
                Ok(false) => {
                    has_answered = true;
                    limit = limit.min(Instant::now() + STRAGGLER_PATIENCE);
                }
                Err(error) => failure = Some(error),
            }
        }
        if has_answered { Ok(MapAnswer::NothingNewer) } else { Err(failure) }
    }
}

/// The map of one node; none when the node says that `present` is as new as its own.
async fn map_of(
    node: &ClusterNode,
    present: ConfigVersion,
    is_tls: bool,
    deadline: Instant,
) -> Result<Option<ClusterMap>, ClientError> {
    let opcode = Opcode::GetClusterConfig;
    let connection = node.link(Vbid(0)).connection(opcode, deadline, FETCH_TIMEOUT).await?;
    let extras = present.encode();
    let can_compare = connection.features().has(Feature::GetClusterConfigWithKnownVersion)
        && present.epoch >= 1
        && present.revision >= 1;
    let extras = if can_compare { &extras[..] } else { &[] };
    let parts = RequestParts { extras, ..RequestParts::new(opcode) };
    let response = connection.call(&parts, &Bytes::new(), deadline, FETCH_TIMEOUT).await?;
    response.outcome()?;
    let value = response.value();
    if can_compare && value.is_empty() {
        return Ok(None);
    }
    let config = ClusterMap::parse_for(&value, &node.address().host, is_tls);
    config.map(Some).map_err(|error| {
        error.at(Site { peer: connection.peer().clone(), operation: opcode.name() })
    })
}
