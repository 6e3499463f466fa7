//! Numbers of nodes: a name together with a disk.
//!
//! Owns: the record `c/roster`. A number is given once. A node whose disk was replaced keeps its
//! name and gets another number, so its empty disk is taken for no copy that the old one had.

use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Roster {
    version: u32,
    /// By number, from 1.
    nodes: Vec<RosterNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RosterNode {
    name: String,
    disk: String,
}

impl Default for Roster {
    fn default() -> Roster {
        Roster { version: VERSION, nodes: Vec::new() }
    }
}

impl Roster {
    /// The number of a node, if it has one.
    pub(crate) fn number(&self, name: &str, disk: &str) -> Option<u16> {
        let at = self.nodes.iter().position(|node| node.name == name && node.disk == disk)?;
        u16::try_from(at + 1).ok()
    }

    /// The name of a node.
    pub(crate) fn name(&self, number: u16) -> Option<&str> {
        let at = usize::from(number).checked_sub(1)?;
        self.nodes.get(at).map(|node| node.name.as_str())
    }

    /// Names of all nodes, each once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.nodes.iter().map(|node| node.name.as_str());
        names.collect::<std::collections::BTreeSet<&str>>().into_iter()
    }

    /// True when a later disk has the name of this number.
    pub(crate) fn is_replaced(&self, number: u16) -> bool {
        let Some(name) = self.name(number) else { return true };
        self.nodes[usize::from(number)..].iter().any(|later| later.name == name)
    }

    /// The roster with numbers for these nodes, if one of them has none.
    pub(crate) fn with<'n>(
        &self,
        nodes: impl Iterator<Item = (&'n str, &'n str)>,
    ) -> Option<Roster> {
        let mut next = self.clone();
        for (name, disk) in nodes {
            if next.number(name, disk).is_none() && next.nodes.len() < usize::from(u16::MAX) {
                next.nodes.push(RosterNode { name: name.to_owned(), disk: disk.to_owned() });
            }
        }
        assert!(next.nodes.starts_with(&self.nodes), "a number is never given twice");
        (next != *self).then_some(next)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a plain struct")
    }

    pub(crate) fn decode(text: &[u8]) -> Result<Roster, String> {
        let roster: Roster = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match roster.version {
            VERSION => Ok(roster),
            other => Err(format!("version {other}, this program reads {VERSION}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Roster;

    #[test]
    fn a_new_disk_under_an_old_name_gets_a_number() {
        let roster = Roster::default().with([("a", "1"), ("b", "2")].into_iter()).unwrap();
        assert_eq!((roster.number("a", "1"), roster.number("b", "2")), (Some(1), Some(2)));
        assert_eq!(roster.with([("b", "2")].into_iter()), None);
        let roster = roster.with([("a", "3")].into_iter()).unwrap();
        assert_eq!((roster.number("a", "1"), roster.number("a", "3")), (Some(1), Some(3)));
        assert!(roster.is_replaced(1) && !roster.is_replaced(2) && !roster.is_replaced(3));
        assert_eq!((roster.name(0), roster.name(3), roster.name(4)), (None, Some("a"), None));
        assert_eq!(Roster::decode(&roster.encode()), Ok(roster));
    }
}
