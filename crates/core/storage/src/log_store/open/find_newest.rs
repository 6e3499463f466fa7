//! Finds the newest segment of a log, and what its root says where the root is damaged.
//!
//! Owns: the choice of the segment, and a root's replacement when damage is accepted. The root of a
//! segment says what the one before it says at its end. So the last segment before it whose root is
//! whole, and all frames from there on, say it again. Where segments in between were removed, their
//! newer states and removals are missing.

use std::collections::BTreeMap;

use super::{LogOpening, system_error};
use crate::StoreError;
use crate::log_store::layout::{SEGMENT_HEADER_BYTES, decode_segment_header};
use crate::log_store::newest::{Newest, NewestFault, Root, Salvage, read_newest};
use crate::log_store::read::{damaged, read_error};
use crate::log_store::reader::ReadFault;
use crate::log_store::writer::segment_name;

impl LogOpening<'_> {
    /// Reads the newest segment, or the one before when the newest was still being made.
    pub(super) fn newest(&self) -> Result<Newest, StoreError> {
        let Some((last, earlier)) = self.ids.split_last() else {
            return Err(StoreError::Corrupt("there is no segment".into()));
        };
        let fault = match (self.read_or_rebuild(*last, earlier), earlier.split_last()) {
            (Ok(newest), _) => return Ok(newest),
            (Err(NewestFault::Unfinished), Some((before, earlier))) => {
                match self.read_or_rebuild(*before, earlier) {
                    Ok(newest) => {
                        tracing::warn!(segment = last, "a segment was still being made at the end");
                        self.directory
                            .remove(&segment_name(*last))
                            .map_err(|error| system_error(&error))?;
                        self.directory.sync().map_err(|error| system_error(&error))?;
                        return Ok(newest);
                    }
                    Err(fault) => (*before, fault),
                }
            }
            (Err(fault), _) => (*last, fault),
        };
        Err(match fault {
            (id, NewestFault::Fault(fault)) => read_error(id, &fault),
            (id, NewestFault::Unfinished) => damaged(id, SEGMENT_HEADER_BYTES as u64, "no root"),
        })
    }

    /// Reads a segment as the newest one; those in `earlier` are before it.
    fn read_or_rebuild(&self, id: u32, earlier: &[u32]) -> Result<Newest, NewestFault> {
        if !self.options.accepts_damage {
            return self.read(id, Salvage::No);
        }
        match self.read(id, Salvage::BehindTheRoot) {
            Err(NewestFault::Fault(ReadFault::Bad { .. })) => {
                let root = self.rebuilt_root(id, earlier)?;
                if root.states.is_empty() && root.locals.is_empty() {
                    tracing::warn!(
                        segment = id,
                        "no root of the log is whole: states of vbuckets and the list of \
                         collections are what later commits say"
                    );
                }
                self.read(id, Salvage::WithRoot(&root))
            }
            read => read,
        }
    }

    fn read(&self, id: u32, salvage: Salvage<'_>) -> Result<Newest, NewestFault> {
        let file = self.directory.open(&segment_name(id))?;
        read_newest(file, id, self.seed_but_of(id), salvage, self.planted)
    }

    /// The entries of segment `id`'s root for earlier segments.
    fn rebuilt_root(&self, id: u32, earlier: &[u32]) -> Result<Root, NewestFault> {
        let mut root = Root::default();
        let mut without_root = Vec::new();
        let mut last = None;
        for before in earlier.iter().rev() {
            match self.read(*before, Salvage::BehindTheRoot) {
                Ok(newest) => {
                    root = newest.into_root();
                    last = Some(*before);
                    break;
                }
                Err(NewestFault::Fault(ReadFault::Io(error))) => return Err(error.into()),
                Err(fault @ NewestFault::Fault(ReadFault::Foreign(_))) => return Err(fault),
                Err(_) => without_root.push(*before),
            }
        }
        while let Some(next) = without_root.pop() {
            root.segments = self.segments_at(next, last, root.segments)?;
            match self.read(next, Salvage::WithRoot(&root)) {
                Ok(newest) => root = newest.into_root(),
                Err(fault @ NewestFault::Fault(ReadFault::Foreign(_))) => return Err(fault),
                Err(_) => {}
            }
            last = Some(next);
        }
        root.segments = self.segments_at(id, last, root.segments)?;
        Ok(root)
    }

    /// The segments when `id` was begun after `last`, which knew of those in `listed`.
    fn segments_at(
        &self,
        id: u32,
        last: Option<u32>,
        mut listed: BTreeMap<u32, u64>,
    ) -> Result<BTreeMap<u32, u64>, NewestFault> {
        let bytes_of = |id: u32| self.directory.open(&segment_name(id))?.bytes();
        match last {
            Some(last) => {
                listed.insert(last, bytes_of(last)?);
                // A segment between them may have said that others were removed.
                if last.checked_add(1) != Some(id) {
                    listed.retain(|listed, _| self.ids.contains(listed));
                }
            }
            None => {
                for earlier in self.ids.iter().filter(|earlier| **earlier < id) {
                    listed.insert(*earlier, bytes_of(*earlier)?);
                }
            }
        }
        listed.insert(id, 0);
        Ok(listed)
    }

    /// The store's seed, as another segment says it.
    fn seed_but_of(&self, id: u32) -> Option<u64> {
        self.ids.iter().rev().filter(|other| **other != id).find_map(|other| self.seed_of(*other))
    }

    fn seed_of(&self, id: u32) -> Option<u64> {
        let file = self.directory.open(&segment_name(id)).ok()?;
        let mut header = [0; SEGMENT_HEADER_BYTES];
        file.read_at(&mut header, 0).ok()?;
        decode_segment_header(&header, id).ok()
    }
}
