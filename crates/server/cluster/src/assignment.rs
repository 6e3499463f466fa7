//! Assignment of vbuckets to nodes.
//!
//! Owns: that decision, as a pure function of the present nodes and the present owners. Invariants:
//! every vbucket has a node if there is one; the numbers of any two nodes differ by at most one; a
//! vbucket moves only if its node is gone or has more than its share, so a node that joins or
//! leaves moves no more than its own part. Called by the leading node.

/// Assigns every vbucket to one of `nodes`, as position in that list. `before` holds the present
/// owners; names in it that are not in `nodes` are gone. The result is empty when there is no node.
pub fn assign(before: &[Option<&str>], nodes: &[&str]) -> Vec<usize> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let position = |name: &str| nodes.iter().position(|node| *node == name);
    let mut owners: Vec<Option<usize>> =
        before.iter().map(|name| name.and_then(position)).collect();
    let mut counts = vec![0_usize; nodes.len()];
    owners.iter().flatten().for_each(|owner| counts[*owner] += 1);
    let quotas = quotas(&counts, owners.len());
    debug_assert!(counts.iter().sum::<usize>() <= owners.len(), "a vbucket has one owner");
    let mut kept = vec![0; nodes.len()];
    for slot in &mut owners {
        let Some(owner) = *slot else { continue };
        if kept[owner] == quotas[owner] {
            *slot = None;
        } else {
            kept[owner] += 1;
        }
    }
    // The quotas add up to the number of vbuckets, so there is a place for each remaining vbucket.
    let mut places =
        (0..nodes.len()).flat_map(|node| std::iter::repeat_n(node, quotas[node] - kept[node]));
    owners
        .into_iter()
        .map(|owner| owner.or_else(|| places.next()).expect("quotas add up"))
        .collect()
}

/// How many vbuckets each node gets: equal shares, with the larger shares for the nodes that have
/// most.
fn quotas(counts: &[usize], vbuckets: usize) -> Vec<usize> {
    let (share, rest) = (vbuckets / counts.len(), vbuckets % counts.len());
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|node| std::cmp::Reverse(counts[*node]));
    let mut quotas = vec![share; counts.len()];
    order.into_iter().take(rest).for_each(|node| quotas[node] += 1);
    assert_eq!(quotas.iter().sum::<usize>(), vbuckets, "quotas add up to the vbuckets");
    quotas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::assign;

    fn counts(owners: &[usize], nodes: usize) -> Vec<usize> {
        (0..nodes).map(|node| owners.iter().filter(|owner| **owner == node).count()).collect()
    }

    #[test]
    fn a_node_that_joins_takes_its_share_and_no_more() {
        let before = vec![Some("a"); 64];
        let owners = assign(&before, &["a", "b"]);
        assert_eq!(counts(&owners, 2), [32, 32]);
    }

    #[test]
    fn without_a_node_vbuckets_are_unassigned() {
        assert!(assign(&[None, Some("a")], &[]).is_empty());
    }

    proptest! {
        #[test]
        fn shares_are_even_and_moves_are_few(
            before in prop::collection::vec(0_usize..6, 1..200),
            alive in prop::collection::btree_set(0_usize..6, 1..6),
        ) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let nodes: Vec<&str> = alive.iter().map(|node| names[*node]).collect();
            let old: Vec<Option<&str>> = before.iter().map(|node| Some(names[*node])).collect();
            let owners = assign(&old, &nodes);
            prop_assert_eq!(owners.len(), before.len());
            let counts = counts(&owners, nodes.len());
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", counts);
            // Moves that no balanced assignment can avoid: the vbuckets of gone nodes, and those
            // above a share.
            let moved = (0..before.len()).filter(|vb| old[*vb] != Some(nodes[owners[*vb]])).count();
            let mut had: Vec<usize> = nodes
                .iter()
                .map(|node| old.iter().filter(|owner| **owner == Some(*node)).count())
                .collect();
            had.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
            let (share, rest) = (before.len() / nodes.len(), before.len() % nodes.len());
            let kept: usize = had
                .iter()
                .enumerate()
                .map(|(rank, had)| (*had).min(share + usize::from(rank < rest)))
                .sum();
            prop_assert_eq!(moved, before.len() - kept);
            // A second assignment moves nothing.
            let now: Vec<Option<&str>> = owners.iter().map(|owner| Some(nodes[*owner])).collect();
            prop_assert_eq!(assign(&now, &nodes), owners);
        }
    }
}
