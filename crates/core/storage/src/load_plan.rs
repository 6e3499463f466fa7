//! How a load of all records is split, so that several threads can share it.
//!
//! Owns: the plan and its parts. A part is either everything of one vbucket, which every store can
//! visit, or something that only the store which made it can read, such as a stretch of a log.
//! Invariants: the parts of one plan have every record once between them; a part stays readable
//! whatever is committed or compacted, and shows records as they were when the plan was
//! made, or later. Callers: warmup makes a plan, and its threads take part after part.

use std::any::Any;
use std::ops::ControlFlow;

use oribi_types::Vbid;

use crate::Record;

/// Receives records with their vbuckets and the sizes of their values, in no particular order;
/// `Break` ends the load early without error.
pub type LoadVisitor<'v> = dyn FnMut(Vbid, Record<'_>, usize) -> ControlFlow<()> + 'v;

/// Whether a load or a scan shows values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadValues {
    /// Records have their values.
    Read,
    /// A load leaves values out, a scan may. A store that has them apart from keys and metadata
    /// does not read them.
    Skip,
}

impl LoadValues {
    /// Shows a record with or without its value.
    pub fn show(
        self,
        vbid: Vbid,
        record: Record<'_>,
        visit: &mut LoadVisitor<'_>,
    ) -> ControlFlow<()> {
        let value = if self == LoadValues::Read { record.value } else { &[] };
        visit(vbid, Record { value, ..record }, record.value.len())
    }
}

/// All records of a store, in parts.
#[derive(Default)]
pub struct LoadPlan {
    /// In the order in which they are best visited: the newest records first, where the store
    /// knows.
    pub parts: Vec<LoadPart>,
    /// Records of each vbucket, tombstones included, where the store knows without reading them.
    pub records: Vec<(Vbid, u64)>,
    /// Records of all vbuckets; an estimate, and 0 when the store has none.
    pub records_estimate: u64,
}

impl LoadPlan {
    /// A plan that visits each vbucket by itself.
    pub fn by_vbucket(vbids: impl Iterator<Item = Vbid>) -> LoadPlan {
        LoadPlan { parts: vbids.map(LoadPart::vbucket).collect(), ..LoadPlan::default() }
    }
}

/// A part of a plan, for [`crate::KvStore::load_part`] of the store that made it.
pub struct LoadPart(pub(crate) LoadPartKind);

pub(crate) enum LoadPartKind {
    Vbucket(Vbid),
    Own(Box<dyn Any + Send>),
}

impl LoadPart {
    /// Everything of one vbucket. Any store can load this part.
    pub fn vbucket(vbid: Vbid) -> LoadPart {
        LoadPart(LoadPartKind::Vbucket(vbid))
    }

    /// A part that only the store can load which made it.
    pub(crate) fn own(part: Box<dyn Any + Send>) -> LoadPart {
        LoadPart(LoadPartKind::Own(part))
    }

    /// The vbucket of which this part is everything; `None` for a part that has some records of
    /// any.
    pub fn whole_vbucket(&self) -> Option<Vbid> {
        match &self.0 {
            LoadPartKind::Vbucket(vbid) => Some(*vbid),
            LoadPartKind::Own(_) => None,
        }
    }
}
