//! Decodes the master's answer about tablets into the cache's types.
//!
//! The bytes come from the network, so the decoder checks each index into the list of servers. A
//! tablet without a partition, or with an id that is not text, invalidates the whole answer: a map
//! with a hole would misroute rows.

use super::locations::LocatedTablet;
use super::tablet::Replica;
use crate::partition::Partition;
use crate::proto::master::{
    GetTableLocationsResponsePb, InternedReplicaPb, RaftRolePb, TabletLocationsPb, TsInfoPb,
};
use crate::types::HostPort;

/// The tablets of an answer, in the answer's order.
pub(crate) fn located_tablets(
    response: GetTableLocationsResponsePb,
) -> Result<Vec<LocatedTablet>, &'static str> {
    let servers = response.ts_infos;
    let tablets: Vec<LocatedTablet> = response
        .tablet_locations
        .into_iter()
        .map(|tablet| located_tablet(tablet, &servers))
        .collect::<Result<_, _>>()?;
    // An empty end belongs to the last tablet, and is greater than every start.
    let is_inverted = |tablet: &LocatedTablet| {
        let Partition { start, end, .. } = &tablet.partition;
        !end.is_empty() && end <= start
    };
    if tablets.iter().any(is_inverted) {
        return Err("a tablet ends before it starts");
    }
    let is_ordered = tablets.windows(2).all(|pair| {
        let end = &pair[0].partition.end;
        !end.is_empty() && *end <= pair[1].partition.start
    });
    if is_ordered { Ok(tablets) } else { Err("the tablets are not in order") }
}

fn located_tablet(
    tablet: TabletLocationsPb,
    servers: &[TsInfoPb],
) -> Result<LocatedTablet, &'static str> {
    let partition = tablet.partition.as_ref().ok_or("a tablet has no partition")?;
    Ok(LocatedTablet {
        id: text(&tablet.tablet_id)?,
        partition: Partition::from_pb(partition),
        replicas: tablet
            .interned_replicas
            .iter()
            .map(|replica| located_replica(replica, servers))
            .collect::<Result<_, _>>()?,
    })
}

fn located_replica(
    replica: &InternedReplicaPb,
    servers: &[TsInfoPb],
) -> Result<Replica, &'static str> {
    let server = servers
        .get(replica.ts_info_idx as usize)
        .ok_or("a replica is on a server that is not listed")?;
    let address = server.rpc_addresses.first().ok_or("a server has no address")?;
    let port = u16::try_from(address.port).map_err(|_| "a server has an impossible port")?;
    Ok(Replica {
        server_uuid: text(&server.permanent_uuid)?,
        address: HostPort::new(address.host.clone(), port),
        location: server.location.clone().unwrap_or_default(),
        is_leader: replica.role == RaftRolePb::Leader as i32,
    })
}

fn text(bytes: &[u8]) -> Result<String, &'static str> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "an id is not text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::common::{HostPortPb, PartitionPb};

    fn tablet(start: &'static [u8], end: &'static [u8]) -> TabletLocationsPb {
        TabletLocationsPb {
            tablet_id: "abc".into(),
            partition: Some(PartitionPb {
                hash_buckets: vec![1],
                partition_key_start: Some(start.into()),
                partition_key_end: Some(end.into()),
            }),
            interned_replicas: vec![InternedReplicaPb {
                ts_info_idx: 0,
                role: RaftRolePb::Leader as i32,
                dimension_label: None,
            }],
        }
    }

    fn answer(tablets: Vec<TabletLocationsPb>) -> GetTableLocationsResponsePb {
        let address = HostPortPb { host: "h".to_owned(), port: 7050 };
        let server = TsInfoPb {
            permanent_uuid: "u".into(),
            rpc_addresses: vec![address],
            location: Some("/l".to_owned()),
        };
        GetTableLocationsResponsePb {
            tablet_locations: tablets,
            ts_infos: vec![server],
            ..Default::default()
        }
    }

    #[test]
    fn replicas_are_looked_up_in_the_list_of_servers() {
        let tablets = located_tablets(answer(vec![tablet(b"a", b"b"), tablet(b"b", b"")])).unwrap();
        assert_eq!(tablets.len(), 2);
        assert_eq!(tablets[0].partition.hash_buckets, [1]);
        let replica = &tablets[0].replicas[0];
        assert_eq!(
            (replica.address.to_string().as_str(), replica.location.as_str(), replica.is_leader),
            ("h:7050", "/l", true)
        );
    }

    #[test]
    fn a_nonsensical_answer_is_refused() {
        let mut out_of_range = tablet(b"a", b"b");
        out_of_range.interned_replicas[0].ts_info_idx = 1;
        let mut without_partition = tablet(b"a", b"b");
        without_partition.partition = None;
        let mut bad_id = tablet(b"a", b"b");
        bad_id.tablet_id = vec![0xff].into();
        for bad in [out_of_range, without_partition, bad_id] {
            assert!(located_tablets(answer(vec![bad])).is_err());
        }
        for unordered in [
            vec![tablet(b"b", b"c"), tablet(b"a", b"b")],
            vec![tablet(b"a", b""), tablet(b"b", b"c")],
        ] {
            assert!(located_tablets(answer(unordered)).is_err());
        }
        assert!(located_tablets(answer(vec![tablet(b"b", b"a")])).is_err());
        assert!(located_tablets(answer(vec![tablet(b"b", b"b")])).is_err());
        let mut without_address = answer(vec![tablet(b"a", b"b")]);
        without_address.ts_infos[0].rpc_addresses.clear();
        assert!(located_tablets(without_address).is_err());
    }
}
