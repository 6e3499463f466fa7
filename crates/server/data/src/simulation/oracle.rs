//! What clients may see of a document: a register, checked at each answer.
//!
//! Owns: the values that a document may have now, given all answers so far. A write takes effect at
//! one moment between its request and its answer, or, without an answer, at any later one. A state
//! is a value together with the writes that took effect; each answer leaves the states that explain
//! it, and an answer that none explains is a violation. So a read is linearizable, a prepare
//! invisible, and an acknowledged write stays.
//!
//! Plain writes, and durable ones of more memories than may be lost, are lost where a history
//! begins before them: [`Register::begin_history`] admits the values of then. So are writes without
//! an answer, also when they were read.

use std::collections::BTreeSet;

use oribi_types::{DurabilityLevel, Seqno};

/// The number of a write; `None` when there is no document.
pub(super) type Content = Option<u64>;

/// Writes that may take effect at the same time; a document with more is not used any more.
pub(super) const OPEN_MAX: usize = 6;

/// Lost memories that a write in the memory of a majority survives.
const LOST_MEMORIES_MAX: u32 = 1;

#[derive(Debug, Clone, Copy)]
struct OpenWrite {
    bit: u32,
    to: Content,
    /// It takes effect only on this content.
    only_on: Option<Content>,
    level: DurabilityLevel,
    /// Since it was sent.
    lost_memories: u32,
}

#[derive(Debug, Clone, Copy)]
struct Acknowledged {
    to: Content,
    seqno: Seqno,
    level: DurabilityLevel,
    lost_memories: u32,
}

impl Acknowledged {
    fn stays(&self) -> bool {
        survives(self.level, self.lost_memories)
    }
}

/// What a level of a write in the memory of one copy is worth.
fn on_one_copy(level: DurabilityLevel) -> DurabilityLevel {
    match level {
        DurabilityLevel::PersistToMajority => level,
        _ => DurabilityLevel::None,
    }
}

/// True when a committed write of this level is in every later active.
fn survives(level: DurabilityLevel, lost_memories: u32) -> bool {
    match level {
        DurabilityLevel::None => false,
        DurabilityLevel::PersistToMajority => true,
        _ => lost_memories <= LOST_MEMORIES_MAX,
    }
}

type State = (Content, u32);

/// See the module text.
#[derive(Debug)]
pub(super) struct Register {
    pub(super) key: Vec<u8>,
    states: BTreeSet<State>,
    open: Vec<OpenWrite>,
    /// In order of seqno.
    acknowledged: Vec<Acknowledged>,
    /// The content before the first of these.
    first: Content,
    /// One copy commits writes, so its memory is all that has them.
    is_on_one_copy: bool,
}

/// An answer that no state explains.
pub(super) type Violation = String;

impl Register {
    pub(super) fn new(key: Vec<u8>) -> Register {
        Register {
            key,
            states: BTreeSet::from([(None, 0)]),
            open: Vec::new(),
            acknowledged: Vec::new(),
            first: None,
            is_on_one_copy: false,
        }
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    /// A write was sent. Returns its name here.
    pub(super) fn begin(
        &mut self,
        (to, only_on): (Content, Option<Content>),
        level: DurabilityLevel,
    ) -> u32 {
        assert!(!self.is_crowded(), "few writes are open");
        let used = self.open.iter().fold(0, |used, open| used | open.bit);
        let bit = 1 << (!used).trailing_zeros();
        let level = if self.is_on_one_copy { on_one_copy(level) } else { level };
        self.open.push(OpenWrite { bit, to, only_on, level, lost_memories: 0 });
        bit
    }

    /// The states after any of the open writes took effect, too.
    fn reachable(&self) -> BTreeSet<State> {
        let mut all = self.states.clone();
        let mut next: Vec<State> = all.iter().copied().collect();
        while let Some((content, done)) = next.pop() {
            for open in self.open.iter().filter(|open| done & open.bit == 0) {
                let state = match open.only_on.is_none_or(|only_on| only_on == content) {
                    true => (open.to, done | open.bit),
                    false => continue,
                };
                if all.insert(state) {
                    next.push(state);
                }
            }
        }
        all
    }

    fn keep(&mut self, what: &str, holds: impl Fn(&State) -> bool) -> Result<(), Violation> {
        let kept: BTreeSet<State> = self.reachable().into_iter().filter(|it| holds(it)).collect();
        if kept.is_empty() {
            return Err(format!("{what}, but only this explains the answers before: {self:?}"));
        }
        self.states = kept;
        Ok(())
    }

    /// A read was answered.
    pub(super) fn read(&mut self, content: Content) -> Result<(), Violation> {
        self.keep(&format!("{content:?} was read"), |state| state.0 == content)
    }

    /// A write was rejected because the content is not this one; `None` for none at all.
    pub(super) fn differed(&mut self, from: Content) -> Result<(), Violation> {
        self.keep(&format!("it was not {from:?}"), |state| state.0 != from && state.0.is_some())
    }

    /// A write was acknowledged.
    pub(super) fn done(
        &mut self,
        bit: u32,
        (seqno, level): (Seqno, DurabilityLevel),
    ) -> Result<(), Violation> {
        let open = *self.open.iter().find(|open| open.bit == bit).expect("it was begun");
        self.keep(&format!("{:?} was acknowledged", open.to), |state| state.1 & bit != 0)?;
        self.forget(bit);
        let (to, lost_memories) = (open.to, open.lost_memories);
        let is_weak = open.level == DurabilityLevel::None;
        let level = if is_weak { on_one_copy(level) } else { level };
        // Answers may come in another order than the writes took effect.
        let at = self.acknowledged.partition_point(|write| write.seqno < seqno);
        self.acknowledged.insert(at, Acknowledged { to, seqno, level, lost_memories });
        Ok(())
    }

    /// A write was rejected and had no effect.
    pub(super) fn rejected(&mut self, bit: u32) -> Result<(), Violation> {
        let to = self.open.iter().find(|open| open.bit == bit).expect("it was begun").to;
        self.states.retain(|state| state.1 & bit == 0);
        if self.states.is_empty() {
            return Err(format!("{to:?} was rejected, and was read before: {self:?}"));
        }
        self.forget(bit);
        Ok(())
    }

    fn forget(&mut self, bit: u32) {
        self.open.retain(|open| open.bit != bit);
        self.states = self.states.iter().map(|(content, done)| (*content, done & !bit)).collect();
    }

    /// A node has lost its memory.
    pub(super) fn lose_memory(&mut self) {
        self.acknowledged.iter_mut().for_each(|write| write.lost_memories += 1);
        self.open.iter_mut().for_each(|write| write.lost_memories += 1);
    }

    /// Whether one copy commits writes from here on.
    pub(super) fn note_copies(&mut self, is_on_one_copy: bool) {
        self.is_on_one_copy = is_on_one_copy;
        if is_on_one_copy {
            self.acknowledged.iter_mut().for_each(|write| write.level = on_one_copy(write.level));
            self.open.iter_mut().for_each(|write| write.level = on_one_copy(write.level));
        }
    }

    /// Everything is on every disk.
    pub(super) fn settle(&mut self) {
        if let Some(last) = self.acknowledged.last_mut() {
            last.level = DurabilityLevel::PersistToMajority;
        }
        self.open.iter_mut().for_each(|write| write.level = DurabilityLevel::PersistToMajority);
        self.cut_acknowledged();
    }

    /// A history began after `start`. True when a plain write was lost.
    pub(super) fn begin_history(&mut self, start: Seqno) -> bool {
        self.cut_acknowledged();
        let is_lost = |write: &Acknowledged| !write.stays() && write.seqno > start;
        // The present content may be that of a write without an answer.
        let is_unknown = |open: &OpenWrite| {
            let is_present = |state: &State| state.0 == open.to && state.1 & open.bit != 0;
            !survives(open.level, open.lost_memories) && self.states.iter().any(is_present)
        };
        if !self.acknowledged.iter().any(is_lost) && !self.open.iter().any(is_unknown) {
            return false;
        }
        let before = self.acknowledged.first().filter(|write| write.stays());
        let first = before.map_or(self.first, |write| write.to);
        let contents: BTreeSet<Content> = std::iter::once(first)
            .chain(self.acknowledged.iter().map(|write| write.to))
            .chain(self.states.iter().map(|state| state.0))
            .chain(self.open.iter().map(|open| open.to))
            .collect();
        let dones: BTreeSet<u32> = self.states.iter().map(|state| state.1).collect();
        let of = |content: Content| dones.iter().map(move |done| (content, *done));
        self.states = contents.into_iter().flat_map(of).collect();
        self.acknowledged.retain(|write| !is_lost(write));
        true
    }

    /// Forgets acknowledged writes before the last one that stays.
    fn cut_acknowledged(&mut self) {
        if let Some(last) = self.acknowledged.iter().rposition(Acknowledged::stays) {
            self.acknowledged.drain(..last);
        }
    }
}

#[cfg(test)]
mod tests {
    use oribi_types::{DurabilityLevel, Seqno};

    use super::Register;

    const PLAIN: DurabilityLevel = DurabilityLevel::None;
    const IN_MEMORY: DurabilityLevel = DurabilityLevel::Majority;

    #[test]
    fn a_write_without_an_answer_may_come_once() {
        let mut register = Register::new(b"k".to_vec());
        let lost = register.begin((Some(1), None), IN_MEMORY);
        register.read(None).unwrap();
        let second = register.begin((Some(2), None), IN_MEMORY);
        register.done(second, (Seqno(2), IN_MEMORY)).unwrap();
        register.read(Some(2)).unwrap();
        register.read(Some(1)).unwrap();
        assert!(register.read(Some(2)).is_err(), "it was overwritten");
        assert!(register.rejected(lost).is_err(), "it was read");
    }

    #[test]
    fn a_durable_write_is_never_taken_back() {
        let mut register = Register::new(b"k".to_vec());
        let first = register.begin((Some(1), None), IN_MEMORY);
        register.done(first, (Seqno(5), IN_MEMORY)).unwrap();
        register.lose_memory();
        assert!(!register.begin_history(Seqno(1)));
        assert!(register.read(None).is_err());
        let second = register.begin((Some(2), Some(Some(1))), PLAIN);
        register.done(second, (Seqno(6), PLAIN)).unwrap();
        assert!(!register.begin_history(Seqno(6)) && register.begin_history(Seqno(5)));
        register.read(Some(1)).unwrap();
        assert!(register.read(None).is_err());
    }

    // Both memories that had it were lost, and its client had no answer.
    #[test]
    fn a_write_that_was_only_read_survives_no_more() {
        let mut register = Register::new(b"k".to_vec());
        register.begin((Some(1), None), IN_MEMORY);
        register.read(Some(1)).unwrap();
        register.lose_memory();
        assert!(!register.begin_history(Seqno(1)) && register.read(None).is_err());
        register.lose_memory();
        assert!(register.begin_history(Seqno(1)));
        register.read(None).unwrap();
    }
}
