//! Every write that was ever attempted, and the acknowledged ones that are still there: what a
//! stream of changes may and must show.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use oribi_types::{Cas, Seqno, Vbid};

use super::evidence::Acknowledgement;

/// A value in a few bytes; `None` is a deletion.
pub type ValueHash = Option<u64>;

/// The hash of a value.
pub fn value_hash(value: Option<&[u8]>) -> ValueHash {
    value.map(|value| {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub name: Vec<u8>,
    pub value: ValueHash,
    pub cas: Cas,
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Writes {
    attempted: HashMap<(Vbid, Vec<u8>), HashSet<ValueHash>>,
    /// In the order of seqnos. Of lives that have ended, the newest write of each document.
    acknowledged: BTreeMap<Vbid, BTreeMap<Seqno, Write>>,
}

impl Writes {
    pub(super) fn attempt(&mut self, vbid: Vbid, name: &[u8], value: ValueHash) {
        self.attempted.entry((vbid, name.to_vec())).or_default().insert(value);
    }

    pub(super) fn acknowledged(
        &mut self,
        vbid: Vbid,
        name: &[u8],
        value: ValueHash,
        ack: Acknowledgement,
    ) {
        let write = Write { name: name.to_vec(), value, cas: ack.cas };
        self.acknowledged.entry(vbid).or_default().insert(ack.seqno, write);
    }

    /// Forgets what a crash has lost, and what was written over.
    pub(super) fn restarted(&mut self, vbid: Vbid, high: Seqno) {
        let Some(writes) = self.acknowledged.get_mut(&vbid) else { return };
        writes.split_off(&Seqno(high.0.saturating_add(1)));
        let newest: HashMap<Vec<u8>, Seqno> =
            writes.iter().map(|(seqno, write)| (write.name.clone(), *seqno)).collect();
        writes.retain(|seqno, write| newest.get(&write.name) == Some(seqno));
    }

    /// True when a write of this value to the document was ever sent.
    pub fn was_attempted(&self, vbid: Vbid, name: &[u8], value: ValueHash) -> bool {
        self.attempted.get(&(vbid, name.to_vec())).is_some_and(|values| values.contains(&value))
    }

    /// The acknowledged write with this seqno.
    pub fn at(&self, vbid: Vbid, seqno: Seqno) -> Option<&Write> {
        self.acknowledged.get(&vbid)?.get(&seqno)
    }

    /// Acknowledged writes up to a seqno.
    pub fn up_to(&self, vbid: Vbid, seqno: Seqno) -> impl Iterator<Item = (Seqno, &Write)> {
        let writes = self.acknowledged.get(&vbid);
        writes.into_iter().flat_map(move |writes| writes.range(..=seqno)).map(|(at, it)| (*at, it))
    }
}
