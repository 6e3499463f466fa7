//! The location of documents: connections to the nodes, and the node of each vbucket.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use oribi_client::{ClientError, ClusterMap, ConnectOptions, Connection, KvNode, RejectionKind};
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::response::CollectionIdExtras;
use oribi_types::{CollectionId, Vbid};

use super::key::KeyField;
use super::options::KvArgs;
use super::protocol::Protocol;
use super::wire::Wire;
use super::wire::socket::TextSocket;
use super::wire::text::{TextCommands, TextWire};
use crate::target::DurabilityArgument;

/// The server's properties before the load starts.
pub struct Discovery {
    pub options: ConnectOptions,
    /// The cluster map; `None` for a server of memcached's protocols.
    pub config: Option<ClusterMap>,
    /// Ids of the collections, in the order of the command line. `None` where keys have no
    /// collection.
    pub collections: Vec<Option<CollectionId>>,
}

impl Discovery {
    /// Queries the named server.
    pub async fn run(args: &KvArgs) -> anyhow::Result<Discovery> {
        // Durable writes then do not block later operations; otherwise order is cheaper.
        let is_unordered = args.durability != DurabilityArgument::None;
        let options =
            args.target.options()?.unordered_execution(is_unordered).snappy(args.compress);
        if args.protocol != Protocol::Binary {
            TextSocket::open(&options, args.target.user.is_some()).await?;
            return Ok(Discovery { options, config: None, collections: vec![None] });
        }
        if args.memcached {
            open_plain(&options).await?;
            return Ok(Discovery { options, config: None, collections: vec![None] });
        }
        let mut connection = args.target.connection(&options).await?;
        for (wanted, feature, option) in [
            (args.compress, Feature::Snappy, "--compress"),
            (!args.collection.is_empty(), Feature::Collections, "--collection"),
            (args.durability != DurabilityArgument::None, Feature::SyncReplication, "--durability"),
        ] {
            if wanted && !connection.has(feature) {
                bail!("the server does not offer what {option} needs ({feature:?})");
            }
        }
        let config = connection.cluster_config().await.context("fetching the cluster map")?;
        let collections = match connection.has(Feature::Collections) {
            true => look_up_all(&mut connection, &args.collections()).await?,
            false => vec![None],
        };
        Ok(Discovery { options, config: Some(config), collections })
    }
}

async fn look_up_all(
    connection: &mut Connection,
    paths: &[String],
) -> anyhow::Result<Vec<Option<CollectionId>>> {
    let mut ids = Vec::with_capacity(paths.len());
    for path in paths {
        let id = look_up(connection, path).await.with_context(|| {
            format!("--collection {path} (collections `oribi collection create` creates it)")
        })?;
        ids.push(Some(id));
    }
    Ok(ids)
}

async fn look_up(connection: &mut Connection, path: &str) -> anyhow::Result<CollectionId> {
    let parts = RequestParts::new(Opcode::CollectionsGetId);
    let response = connection.call(&parts, &Bytes::copy_from_slice(path.as_bytes())).await?;
    match response.outcome() {
        Err(RejectionKind::Invalid) => bail!("a collection is named as scope.collection"),
        outcome => outcome?,
    }
    let extras = CollectionIdExtras::decode(response.extras());
    Ok(extras.context("the server's answer is not a collection's id")?.collection)
}

async fn open_plain(options: &ConnectOptions) -> Result<Connection, ClientError> {
    let mut connection = Connection::connect(options).await?;
    connection.set_timeout(options.operation_timeout);
    // Checks for a server of this protocol before any measurement.
    connection.call(&RequestParts::new(Opcode::Noop), &Bytes::new()).await?.outcome()?;
    Ok(connection)
}

/// Where one worker's operations go: positions in its list of connections.
pub struct Routes {
    /// Nodes of the connections, in their order.
    nodes: Vec<KvNode>,
    /// Per vbucket, the connection; `None` where no node is active. Empty when keys are not hashed.
    of_vbucket: Vec<Option<u16>>,
}

impl Routes {
    /// Routes to one server that has no vbuckets.
    pub fn single(node: KvNode) -> Routes {
        Routes { nodes: vec![node], of_vbucket: Vec::new() }
    }

    /// Routes by a cluster map; `known` are the nodes with a connection, in order.
    pub fn by_map(config: &ClusterMap, known: &[KvNode]) -> anyhow::Result<Routes> {
        let mut nodes = known.to_vec();
        let mut of_vbucket = Vec::with_capacity(usize::from(config.vbucket_count()));
        for vbid in (0..config.vbucket_count()).map(Vbid) {
            let Some(node) = config.active_node(vbid) else {
                of_vbucket.push(None);
                continue;
            };
            let position = nodes.iter().position(|known| known == node).unwrap_or_else(|| {
                nodes.push(node.clone());
                nodes.len() - 1
            });
            of_vbucket.push(Some(u16::try_from(position).context("a cluster of so many nodes")?));
        }
        ensure!(!nodes.is_empty(), "no vbucket of the bucket is active");
        Ok(Routes { nodes, of_vbucket })
    }

    /// The nodes that need a connection, in order.
    pub fn nodes(&self) -> &[KvNode] {
        &self.nodes
    }

    /// Number of vbuckets; 0 when keys are not hashed.
    pub fn vbuckets(&self) -> u16 {
        // A map has at most 1024.
        self.of_vbucket.len() as u16
    }

    /// The connection that serves a vbucket.
    pub fn connection_of(&self, vbid: Vbid) -> Option<usize> {
        if self.of_vbucket.is_empty() {
            return Some(0);
        }
        self.of_vbucket.get(usize::from(vbid.0)).copied().flatten().map(usize::from)
    }
}

/// Opens a connection of the load to one node. `keys` are those of the only collection that the
/// text protocols have.
pub async fn open(
    discovery: &Discovery,
    node: &KvNode,
    args: &KvArgs,
    keys: &KeyField,
) -> anyhow::Result<Wire> {
    let options = discovery.options.clone().node(node);
    let commands = match args.protocol {
        Protocol::Binary => {
            let connection = match discovery.config {
                None => open_plain(&options).await?,
                Some(_) => Connection::open(&options).await?,
            };
            return Ok(Wire::Binary(Box::new(connection)));
        }
        Protocol::Text => TextCommands::Text { keys_per_get: args.keys_per_get },
        Protocol::Meta => TextCommands::Meta,
    };
    let login = args.target.user.is_some();
    Ok(Wire::Text(Box::new(TextWire::open(&options, login, commands, keys.clone()).await?)))
}

/// The node from the command line.
pub fn named_node(options: &ConnectOptions) -> KvNode {
    KvNode::new(&*options.host, options.port)
}

#[cfg(test)]
mod tests {
    //! Vbuckets lead to the connections of their nodes, also after the map has changed.

    use super::*;

    fn map(vbuckets: &str) -> ClusterMap {
        let json = format!(
            r#"{{"rev":1,"nodesExt":[{{"hostname":"a","services":{{"kv":1}}}},
            {{"hostname":"b","services":{{"kv":2}}}}],"vBucketServerMap":{{"vBucketMap":{vbuckets}}}}}"#
        );
        ClusterMap::parse(json.as_bytes(), "a").unwrap()
    }

    #[test]
    fn vbuckets_lead_to_their_nodes() {
        let routes = Routes::by_map(&map("[[1],[0],[1],[-1]]"), &[]).unwrap();
        let hosts: Vec<&str> = routes.nodes().iter().map(|node| node.host.as_str()).collect();
        assert_eq!((hosts, routes.vbuckets()), (vec!["b", "a"], 4));
        let connections: Vec<_> = (0..5).map(|vb| routes.connection_of(Vbid(vb))).collect();
        assert_eq!(connections, [Some(0), Some(1), Some(0), None, None]);
        // Open connections keep their position.
        let known = routes.nodes().to_vec();
        let routes = Routes::by_map(&map("[[0],[0]]"), &known).unwrap();
        assert_eq!((routes.nodes(), routes.connection_of(Vbid(0))), (&known[..], Some(1)));
    }

    #[test]
    fn a_server_without_vbuckets_gets_everything() {
        let routes = Routes::single(KvNode::new("a", 1));
        assert_eq!((routes.vbuckets(), routes.connection_of(Vbid(0))), (0, Some(0)));
    }
}
