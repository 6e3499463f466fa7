//! Placement of copies: which node gets the active copy and the replicas of each vbucket.
//!
//! Owns: that decision, as a pure function of the present nodes and copies. Invariants: the copies
//! of a vbucket are on distinct nodes; each vbucket has as many copies as asked for, or one on
//! every node; the numbers of active copies on two nodes differ by at most one, those of all copies
//! likewise; a copy that may stay does not move; a second placement changes nothing. Called by the
//! leading node.

use crate::assignment::assign;

/// Positions of the nodes that have a vbucket's copies, the active one first.
pub(crate) type CopyChain = Vec<usize>;

/// Places `copies` copies of every vbucket on `nodes` nodes. `before` holds the present chains;
/// positions that are not below `nodes` are of nodes that are gone.
pub(crate) fn place(before: &[CopyChain], nodes: usize, copies: usize) -> Vec<CopyChain> {
    if nodes == 0 {
        return vec![Vec::new(); before.len()];
    }
    let copies = copies.clamp(1, nodes);
    let names: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let owner = |chain: &CopyChain| chain.first().and_then(|node| names.get(*node).copied());
    let owners: Vec<Option<&str>> = before.iter().map(owner).collect();
    let mut chains: Vec<CopyChain> =
        assign(&owners, &names).into_iter().map(|node| vec![node]).collect();
    for (chain, before) in chains.iter_mut().zip(before) {
        // A former active copy stays as a replica.
        let kept = before.iter().copied().filter(|node| *node < nodes && *node != chain[0]);
        let kept: Vec<usize> = kept.take(copies - 1).collect();
        chain.extend(kept);
    }
    let mut load = vec![0_usize; nodes];
    chains.iter().flatten().for_each(|node| load[*node] += 1);
    for chain in &mut chains {
        while chain.len() < copies {
            let free = (0..nodes).filter(|node| !chain.contains(node));
            let node = free.min_by_key(|node| (load[*node], distance(chain[0], *node, nodes)));
            let node = node.expect("there are fewer copies than nodes");
            load[node] += 1;
            chain.push(node);
        }
    }
    even(&mut chains, &mut load);
    debug_assert_eq!(
        load.iter().sum::<usize>(),
        copies * chains.len(),
        "the load counts each copy"
    );
    assert_eq!(chains.len(), before.len(), "each vbucket has copies");
    debug_assert!(chains.iter().all(|chain| chain.len() == copies), "no copy is missing");
    chains
}

/// Spreads the replicas of one node over all others.
fn distance(active: usize, node: usize, nodes: usize) -> usize {
    debug_assert!(active < nodes && node < nodes, "a node is on the ring");
    (node + nodes - active) % nodes
}

/// Moves replicas until the numbers of copies differ by at most one.
fn even(chains: &mut [CopyChain], load: &mut [usize]) {
    while let Some((vbucket, from, to)) = uneven(chains, load) {
        let replica = chains[vbucket][1..].iter_mut().find(|node| **node == from);
        *replica.expect("it was found there") = to;
        debug_assert!(load[from] > load[to] + 1, "a move evens the load");
        load[from] -= 1;
        load[to] += 1;
    }
}

/// A replica on a node with more copies than its share, and a node with fewer for it.
fn uneven(chains: &[CopyChain], load: &[usize]) -> Option<(usize, usize, usize)> {
    let mut fullest: Vec<usize> = (0..load.len()).collect();
    fullest.sort_by_key(|node| std::cmp::Reverse(load[*node]));
    for from in &fullest {
        for to in fullest.iter().rev() {
            if load[*from] <= load[*to] + 1 {
                break;
            }
            let moves = |chain: &CopyChain| chain[1..].contains(from) && !chain.contains(to);
            if let Some(vbucket) = chains.iter().position(moves) {
                return Some((vbucket, *from, *to));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CopyChain, place};

    fn spread(counts: &[usize]) -> usize {
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    }

    fn counts(
        chains: &[CopyChain],
        nodes: usize,
        is_counted: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let of = |node| {
            let places = chains.iter().flat_map(|chain| chain.iter().enumerate());
            places.filter(|(rank, at)| **at == node && is_counted(*rank)).count()
        };
        (0..nodes).map(of).collect()
    }

    #[test]
    fn a_lost_node_moves_only_its_copies() {
        let before = place(&vec![Vec::new(); 64], 3, 2);
        assert_eq!(counts(&before, 3, |_| true), [43, 43, 42]);
        // The last node is gone.
        let after = place(&before, 2, 2);
        for (old, new) in before.iter().zip(&after) {
            assert!(old.iter().filter(|node| **node < 2).all(|node| new.contains(node)));
        }
    }

    #[test]
    fn one_node_has_one_copy_of_each() {
        assert_eq!(place(&vec![Vec::new(); 4], 1, 3), vec![vec![0]; 4]);
        assert!(place(&[vec![0]], 0, 1)[0].is_empty());
    }

    proptest! {
        #[test]
        fn copies_are_distinct_even_and_stay(
            before in prop::collection::vec(prop::collection::vec(0_usize..7, 0..4), 1..150),
            nodes in 1_usize..7,
            copies in 1_usize..5,
        ) {
            let before: Vec<CopyChain> = before
                .into_iter()
                .map(|mut chain| {
                    let mut seen = Vec::new();
                    chain.retain(|node| !seen.contains(node) && { seen.push(*node); true });
                    chain
                })
                .collect();
            let chains = place(&before, nodes, copies);
            prop_assert_eq!(chains.len(), before.len());
            for chain in &chains {
                let mut distinct = chain.clone();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), chain.len());
                prop_assert_eq!(chain.len(), copies.min(nodes));
                prop_assert!(chain.iter().all(|node| *node < nodes));
            }
            prop_assert!(spread(&counts(&chains, nodes, |rank| rank == 0)) <= 1);
            prop_assert!(spread(&counts(&chains, nodes, |_| true)) <= 1, "{:?}", chains);
            prop_assert_eq!(&place(&chains, nodes, copies), &chains);
        }
    }
}
