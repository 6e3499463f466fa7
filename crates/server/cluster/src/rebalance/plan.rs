//! The moves that spread the copies of a bucket evenly.
//!
//! Owns: that decision, as a pure function of the present copies. The plan is a sequence of moves,
//! each chosen by the copies as the moves before it leave them, so a leader that plans again after
//! any of them continues with the rest. Order: copies leave nodes that are ejected; copies move
//! from the fullest node to the emptiest; active roles pass to replicas; where no replica can take
//! a role, two copies change places. Invariants: the copies of a vbucket are on distinct nodes;
//! their number does not change, unless too few nodes stay; at the end the numbers of copies of two
//! nodes that stay differ by at most one, those of active copies likewise.

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::copies::placement::CopyChain;

/// A node that takes part in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlanNode {
    /// True when all copies leave the node.
    pub(crate) is_ejected: bool,
    /// Copies of all buckets on it: decides between nodes that have equally many of this one.
    pub(crate) total: usize,
}

/// The change of one vbucket; nodes are positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedMove {
    pub(crate) vbucket: usize,
    pub(crate) add: Option<usize>,
    pub(crate) remove: Option<usize>,
    /// The node that has the active copy afterwards.
    pub(crate) active: usize,
}

impl PlannedMove {
    fn apply(&self, chain: &mut CopyChain) {
        chain.extend(self.add);
        chain.retain(|node| Some(*node) != self.remove);
        let at = chain.iter().position(|node| *node == self.active);
        chain.swap(0, at.expect("the active copy is one of the copies"));
    }
}

/// Copies and active copies on each node.
struct Plan<'n> {
    nodes: &'n [PlanNode],
    chains: Vec<CopyChain>,
    copies: Vec<usize>,
    active: Vec<usize>,
}

/// The moves of one bucket. `chains` holds the nodes of each vbucket's copies, the active first.
pub(crate) fn plan(chains: &[CopyChain], nodes: &[PlanNode]) -> Vec<PlannedMove> {
    let mut plan = Plan::new(chains.to_vec(), nodes);
    let mut moves = Vec::new();
    if nodes.iter().all(|node| node.is_ejected) {
        return moves;
    }
    while let Some(next) = plan.next() {
        assert!(!next.is_empty(), "a step of a plan moves something");
        for step in next {
            plan.apply(step);
            moves.push(step);
        }
    }
    debug_assert!(plan.is_even(), "{:?} {:?}", plan.copies, plan.active);
    moves
}

impl<'n> Plan<'n> {
    fn new(chains: Vec<CopyChain>, nodes: &'n [PlanNode]) -> Plan<'n> {
        let mut plan =
            Plan { nodes, chains, copies: vec![0; nodes.len()], active: vec![0; nodes.len()] };
        for chain in &plan.chains {
            debug_assert!(chain.iter().all(|node| *node < nodes.len()), "a copy is on a node");
            chain.iter().for_each(|node| plan.copies[*node] += 1);
            chain.first().iter().for_each(|node| plan.active[**node] += 1);
        }
        plan
    }

    fn apply(&mut self, step: PlannedMove) {
        assert!(step.add.is_none() || step.add != step.remove, "a copy moves to another node");
        assert!(step.remove != Some(step.active), "the active copy stays");
        let chain = &mut self.chains[step.vbucket];
        self.active[chain[0]] -= 1;
        chain.iter().for_each(|node| self.copies[*node] -= 1);
        step.apply(chain);
        self.active[chain[0]] += 1;
        chain.iter().for_each(|node| self.copies[*node] += 1);
    }

    fn next(&self) -> Option<Vec<PlannedMove>> {
        let one = self.leaving().or_else(|| self.evening());
        one.map(|one| vec![one]).or_else(|| self.passing()).or_else(|| self.exchange())
    }

    fn staying(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.nodes.len()).filter(|node| !self.nodes[*node].is_ejected)
    }

    fn is_even(&self) -> bool {
        let spread = |counts: &[usize]| {
            let counts = self.staying().map(|node| counts[node]);
            counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
        };
        let is_full = |chain: &CopyChain| chain.len() >= self.staying().count();
        let has_left = |chain: &CopyChain| !chain.iter().any(|node| self.nodes[*node].is_ejected);
        // Where every node has a copy of everything, copies are even, too.
        let is_free = self.chains.iter().all(|chain| !is_full(chain));
        self.chains.iter().all(has_left)
            && spread(&self.active) <= 1
            && (spread(&self.copies) <= 1 || !is_free)
    }

    /// How full a node is: compared by copies of this bucket, then of all.
    fn fullness(&self, node: usize) -> (usize, usize) {
        (self.copies[node], self.nodes[node].total)
    }

    /// A copy leaves a node that is ejected; with no node to go to, its vbucket has one fewer.
    fn leaving(&self) -> Option<PlannedMove> {
        let leaves =
            |chain: &CopyChain| chain.iter().copied().find(|node| self.nodes[*node].is_ejected);
        let all = || {
            self.chains
                .iter()
                .enumerate()
                .filter_map(|(at, chain)| Some((at, chain, leaves(chain)?)))
        };
        let mut emptiest: Vec<usize> = self.staying().collect();
        emptiest
            .sort_by_key(|node| (self.copies[*node], self.active[*node], self.nodes[*node].total));
        // The copy goes first whose other choices are fullest: it may have none later.
        let choice = |chain: &CopyChain, to: usize| {
            let others = self.staying().filter(|node| *node != to && !chain.contains(node));
            others.map(|node| self.copies[node]).min().unwrap_or(usize::MAX)
        };
        let to = |node: &usize| {
            let fitting = all().filter(|(_, chain, _)| !chain.contains(node));
            let rank =
                |(at, chain, _): &(usize, &CopyChain, usize)| (choice(chain, *node), Reverse(*at));
            Some((fitting.max_by_key(rank)?, *node))
        };
        let found = emptiest.iter().find_map(to);
        let add = found.map(|(_, node)| node);
        let (vbucket, chain, remove) =
            found.map(|(leaving, _)| leaving).or_else(|| all().next())?;
        let was_active = chain[0] == remove;
        let left = chain.iter().copied().filter(|node| !self.nodes[*node].is_ejected);
        let heirs = left.chain(add);
        let active = match was_active {
            true => heirs.min_by_key(|node| (self.active[*node], Some(*node) != add))?,
            false => chain[0],
        };
        Some(PlannedMove { vbucket, add, remove: Some(remove), active })
    }

    /// A copy moves from a node that has too many to the emptiest that can have it.
    fn evening(&self) -> Option<PlannedMove> {
        let mut fullest: Vec<usize> = self.staying().collect();
        fullest.sort_by_key(|node| Reverse((self.fullness(*node), *node)));
        for from in &fullest {
            for to in fullest.iter().rev() {
                if self.copies[*from] <= self.copies[*to] + 1 {
                    break;
                }
                let best = self.best_between(*from, *to);
                if best.is_some() {
                    return best;
                }
            }
        }
        None
    }

    /// The copy to move between two nodes: an active one where that evens the roles, else a
    /// replica.
    fn best_between(&self, from: usize, to: usize) -> Option<PlannedMove> {
        let moves_role = self.active[from] > self.active[to] + 1;
        let movable = self.chains.iter().enumerate();
        let movable = movable.filter(|(_, chain)| chain.contains(&from) && !chain.contains(&to));
        let rank = |chain: &CopyChain| usize::from((chain[0] == from) != moves_role);
        let (vbucket, chain) = movable.min_by_key(|(at, chain)| (rank(chain), *at))?;
        let active = match chain[0] == from {
            false => chain[0],
            true => {
                let heirs = chain.iter().copied().filter(|node| *node != from).chain([to]);
                heirs.min_by_key(|node| (self.active[*node], *node != to)).unwrap_or(to)
            }
        };
        Some(PlannedMove { vbucket, add: Some(to), remove: Some(from), active })
    }

    /// Roles pass along the shortest path of replicas from the node that has most to one that has
    /// two fewer, the last first.
    fn passing(&self) -> Option<Vec<PlannedMove>> {
        let from = self.staying().max_by_key(|node| (self.active[*node], Reverse(*node)))?;
        let mut reached: Vec<Option<PlannedMove>> = vec![None; self.nodes.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if self.active[node] + 1 < self.active[from] {
                return Some(self.path(&reached, from, node));
            }
            let owned = self.chains.iter().enumerate().filter(|(_, chain)| chain[0] == node);
            for (vbucket, chain) in owned {
                for heir in chain[1..].iter().copied().filter(|heir| *heir != from) {
                    if reached[heir].is_none() && !self.nodes[heir].is_ejected {
                        let step = PlannedMove { vbucket, add: None, remove: None, active: heir };
                        reached[heir] = Some(step);
                        queue.push_back(heir);
                    }
                }
            }
        }
        None
    }

    fn path(
        &self,
        reached: &[Option<PlannedMove>],
        from: usize,
        mut node: usize,
    ) -> Vec<PlannedMove> {
        let mut steps = Vec::new();
        while node != from {
            let step = reached[node].expect("the path leads back to its beginning");
            steps.push(step);
            node = self.chains[step.vbucket][0];
        }
        steps
    }

    /// An active copy and a replica change places, between nodes that share no copies by which the
    /// role could pass.
    fn exchange(&self) -> Option<Vec<PlannedMove>> {
        let from = self.staying().max_by_key(|node| (self.active[*node], Reverse(*node)))?;
        let to = self.staying().min_by_key(|node| (self.active[*node], *node))?;
        if self.active[from] <= self.active[to] + 1 {
            return None;
        }
        let chains = || self.chains.iter().enumerate();
        let (first, _) = chains().find(|(_, chain)| chain[0] == from && !chain.contains(&to))?;
        let goes_back = |chain: &CopyChain| chain[1..].contains(&to) && !chain.contains(&from);
        let (second, chain) = chains().find(|(_, chain)| goes_back(chain))?;
        let there = PlannedMove { vbucket: first, add: Some(to), remove: Some(from), active: to };
        let back =
            PlannedMove { vbucket: second, add: Some(from), remove: Some(to), active: chain[0] };
        Some(vec![there, back])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(staying: usize, ejected: usize) -> Vec<PlanNode> {
        let node = |at| PlanNode { is_ejected: at >= staying, total: 0 };
        (0..staying + ejected).map(node).collect()
    }

    fn apply(chains: &mut [CopyChain], moves: &[PlannedMove]) {
        moves.iter().for_each(|step| step.apply(&mut chains[step.vbucket]));
    }

    fn transfers(moves: &[PlannedMove]) -> usize {
        moves.iter().filter(|step| step.add.is_some()).count()
    }

    fn spread(
        chains: &[CopyChain],
        staying: usize,
        ranks: impl Fn(&CopyChain) -> Vec<usize>,
    ) -> usize {
        let mut counts = vec![0_usize; staying];
        chains.iter().flat_map(ranks).for_each(|node| counts[node] += 1);
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    }

    fn assert_even(chains: &[CopyChain], staying: usize) {
        assert!(chains.iter().flatten().all(|node| *node < staying), "{chains:?}");
        assert!(spread(chains, staying, |chain| vec![chain[0]]) <= 1, "{chains:?}");
        assert!(spread(chains, staying, Clone::clone) <= 1, "{chains:?}");
    }

    /// Every chain of `copies` copies on `nodes` nodes; the order of replicas says nothing.
    fn all_chains(nodes: usize, copies: usize) -> Vec<CopyChain> {
        let mut all: Vec<CopyChain> = vec![Vec::new()];
        for _ in 0..copies {
            let longer = |chain: &CopyChain| {
                let free: Vec<usize> = (0..nodes).filter(|node| !chain.contains(node)).collect();
                free.into_iter().map(|node| [&chain[..], &[node]].concat()).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).collect();
        }
        all.retain(|chain| chain[1..].is_sorted());
        all
    }

    /// Every placement of `vbuckets` vbuckets.
    fn placements(chains: &[CopyChain], vbuckets: usize) -> Vec<Vec<CopyChain>> {
        let mut all: Vec<Vec<CopyChain>> = vec![Vec::new()];
        for _ in 0..vbuckets {
            let longer = |placed: &Vec<CopyChain>| {
                chains
                    .iter()
                    .map(|chain| [&placed[..], std::slice::from_ref(chain)].concat())
                    .collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    fn is_even(chains: &[CopyChain], staying: usize) -> bool {
        chains.iter().flatten().all(|node| *node < staying)
            && spread(chains, staying, |chain| vec![chain[0]]) <= 1
            && spread(chains, staying, Clone::clone) <= 1
    }

    /// How many transfers a plan makes above the least of all even placements: (most, sum).
    fn excess(
        (vbuckets, copies): (usize, usize),
        (staying, ejected): (usize, usize),
    ) -> (usize, usize) {
        let chains = all_chains(staying + ejected, copies);
        let all = placements(&chains, vbuckets);
        let even: Vec<&Vec<CopyChain>> = all.iter().filter(|one| is_even(one, staying)).collect();
        let nodes = nodes(staying, ejected);
        let (mut most, mut sum) = (0, 0);
        for before in &all {
            let moves = plan(before, &nodes);
            let new = |after: &[CopyChain]| -> usize {
                let pairs = before.iter().zip(after);
                let new = |(old, new): (&CopyChain, &CopyChain)| {
                    new.iter().filter(|node| !old.contains(node)).count()
                };
                pairs.map(new).sum()
            };
            let least = even.iter().map(|after| new(after)).min().expect("an even placement");
            let above = transfers(&moves) - least;
            most = most.max(above);
            sum += above;
        }
        (most, sum)
    }

    #[test]
    fn small_plans_move_as_few_copies_as_possible() {
        for (size, nodes) in [
            ((4, 1), (2, 0)),
            ((4, 1), (3, 0)),
            ((3, 2), (3, 0)),
            ((4, 2), (3, 0)),
            ((3, 2), (3, 1)),
            ((3, 3), (4, 0)),
            ((3, 1), (2, 2)),
            ((2, 2), (4, 0)),
        ] {
            assert_eq!(excess(size, nodes), (0, 0), "{size:?} {nodes:?}");
        }
    }

    #[test]
    fn a_third_node_gets_its_share() {
        let before: Vec<CopyChain> = (0..64).map(|at| vec![at % 2, (at + 1) % 2]).collect();
        let moves = plan(&before, &nodes(3, 0));
        let mut after = before.clone();
        apply(&mut after, &moves);
        assert_even(&after, 3);
        assert_eq!(transfers(&moves), 42);
        let handed_over = moves.iter().filter(|step| step.active != before[step.vbucket][0]);
        assert_eq!(handed_over.count(), 21, "roles move with their copies");
    }

    #[test]
    fn a_node_that_is_ejected_keeps_nothing() {
        let before: Vec<CopyChain> = (0..64).map(|at| vec![at % 3, (at + 1) % 3]).collect();
        let mut after = before.clone();
        let moves = plan(&before, &nodes(2, 1));
        apply(&mut after, &moves);
        assert_even(&after, 2);
        assert!(after.iter().all(|chain| chain.len() == 2));
        // With one node left, each vbucket has one copy.
        let before = after;
        let mut after = before.clone();
        apply(&mut after, &plan(&before, &nodes(1, 1)));
        assert!(after.iter().all(|chain| *chain == [0]));
        assert!(plan(&before, &nodes(0, 2)).is_empty(), "nothing leaves the last node");
    }

    proptest! {
        #[test]
        fn plans_are_even_and_continue(
            before in prop::collection::vec(prop::sample::subsequence((0..6).collect::<Vec<usize>>(), 1..4).prop_shuffle(), 1..60),
            staying in 4_usize..7,
            copies in 1_usize..4,
            at in any::<prop::sample::Index>(),
        ) {
            let before: Vec<CopyChain> = before
                .into_iter()
                .map(|mut chain| {
                    let missing = (0..6).filter(|node| !chain.contains(node)).collect::<Vec<_>>();
                    chain.extend(missing);
                    chain.truncate(copies);
                    chain
                })
                .collect();
            let nodes = nodes(staying, 6 - staying);
            let moves = plan(&before, &nodes);
            let mut after = before.clone();
            for step in &moves {
                let copies = after[step.vbucket].len();
                step.apply(&mut after[step.vbucket]);
                let mut distinct = after[step.vbucket].clone();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!((distinct.len(), after[step.vbucket].len()), (copies, copies));
            }
            assert_even(&after, staying);
            prop_assert!(plan(&after, &nodes).is_empty(), "an even bucket stays as it is");
            // Another leader continues after any move, and needs no more of them.
            if !moves.is_empty() {
                let done = at.index(moves.len());
                let mut midway = before.clone();
                apply(&mut midway, &moves[..done]);
                let rest = plan(&midway, &nodes);
                prop_assert_eq!(transfers(&rest), transfers(&moves[done..]));
                apply(&mut midway, &rest);
                assert_even(&midway, staying);
            }
        }
    }
}
