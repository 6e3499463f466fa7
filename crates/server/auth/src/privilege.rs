//! Privileges on documents and statistics, and sets of privileges.
//!
//! Owns: the list of privileges, the words used in roles, and the meaning of each word. Invariants:
//! a set is two bytes and takes one instruction to compare, because every request compares one; a
//! word never grants more than the table in `docs/security.md` says. Callers: `role` (words to
//! sets), the dispatcher's rules (what an opcode needs), the connection's rights (what a user
//! holds). Administration is not in this list, because it does not apply within a bucket; see
//! [`super::Role::Admin`].

use std::fmt;

macro_rules! privileges {
    ($($(#[$doc:meta])* $name:ident = $word:literal;)*) => {
        /// One thing that may be done in a collection.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Privilege { $($(#[$doc])* $name,)* }

        impl Privilege {
            pub const ALL: &'static [Privilege] = &[$(Privilege::$name,)*];

            /// Its name in error contexts and logs.
            pub const fn name(self) -> &'static str {
                match self { $(Privilege::$name => stringify!($name),)* }
            }

            /// Its word in a role.
            pub const fn word(self) -> &'static str {
                match self { $(Privilege::$name => $word,)* }
            }
        }
    };
}

privileges! {
    Read = "read";
    Insert = "insert";
    /// Write documents, existing ones included, and their expiry.
    Upsert = "upsert";
    Delete = "delete";
    /// Read a document's metadata, and the state of vbuckets.
    MetaRead = "meta-read";
    /// Write documents with a revision, CAS and deletion time that the caller chooses.
    MetaWrite = "meta-write";
    /// Read attributes whose name begins with `_`.
    SystemXattrRead = "system-xattr-read";
    /// Write attributes whose name begins with `_`.
    SystemXattrWrite = "system-xattr-write";
    /// Scan all keys or documents.
    RangeScan = "range-scan";
    SimpleStats = "simple-stats";
    /// Reset statistics, and read the operator statistics.
    Stats = "operator-stats";
    /// Follow all changes of documents.
    DcpStream = "change-streams";
}

use Privilege::{
    Delete, Insert, MetaRead, MetaWrite, RangeScan, Read, SimpleStats, Stats, SystemXattrRead,
    SystemXattrWrite, Upsert,
};

/// A set of privileges.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PrivilegeSet(u16);

const _: () = assert!(Privilege::ALL.len() <= 16);
const _: () = assert!(PrivilegeSet::READ_WRITE.holds(PrivilegeSet::READ_ONLY));
const _: () = assert!(PrivilegeSet::ALL.without(PrivilegeSet::of(Privilege::ALL)).is_empty());

/// Words that stand for several privileges, largest bundle first.
const BUNDLES: [(&str, PrivilegeSet); 4] = [
    ("read-write", PrivilegeSet::READ_WRITE),
    ("read-only", PrivilegeSet::READ_ONLY),
    ("meta", PrivilegeSet::of(&[MetaRead, MetaWrite])),
    ("stats", PrivilegeSet::of(&[SimpleStats, Stats])),
];

impl PrivilegeSet {
    pub const NONE: PrivilegeSet = PrivilegeSet(0);

    pub const ALL: PrivilegeSet = PrivilegeSet::of(Privilege::ALL);

    /// Privileges of the word `read-only`.
    pub const READ_ONLY: PrivilegeSet =
        PrivilegeSet::of(&[Read, MetaRead, SystemXattrRead, RangeScan, SimpleStats]);

    /// Privileges of the word `read-write`.
    pub const READ_WRITE: PrivilegeSet =
        PrivilegeSet::READ_ONLY.and(PrivilegeSet::of(&[Insert, Upsert, Delete, SystemXattrWrite]));

    /// The set of these privileges.
    pub const fn of(privileges: &[Privilege]) -> PrivilegeSet {
        let mut bits = 0;
        let mut at = 0;
        while at < privileges.len() {
            bits |= 1 << privileges[at] as u8;
            at += 1;
        }
        PrivilegeSet(bits)
    }

    /// The union of both sets.
    pub const fn and(self, other: PrivilegeSet) -> PrivilegeSet {
        PrivilegeSet(self.0 | other.0)
    }

    /// The privileges in this set that are not in `other`.
    pub const fn without(self, other: PrivilegeSet) -> PrivilegeSet {
        PrivilegeSet(self.0 & !other.0)
    }

    /// True when all of `needed` is in this set.
    pub const fn holds(self, needed: PrivilegeSet) -> bool {
        needed.0 & !self.0 == 0
    }

    /// True when the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The privileges in the set, in the order of the list.
    pub fn iter(self) -> impl Iterator<Item = Privilege> {
        let all = Privilege::ALL.iter().copied();
        all.filter(move |privilege| self.holds(PrivilegeSet::of(&[*privilege])))
    }

    /// Privileges of a word of a role.
    pub fn from_word(word: &str) -> Option<PrivilegeSet> {
        let bundle = BUNDLES.iter().find(|(name, _)| *name == word).map(|(_, set)| *set);
        bundle.or_else(|| {
            let single = Privilege::ALL.iter().find(|privilege| privilege.word() == word)?;
            Some(PrivilegeSet::of(&[*single]))
        })
    }

    /// Words that stand for exactly this set, joined with `+`.
    pub fn to_words(self) -> String {
        let mut left = self;
        let mut words = Vec::new();
        for (word, bundle) in BUNDLES {
            // Leave out a bundle that adds nothing to those before it.
            if self.holds(bundle) && !bundle.without(self.without(left)).is_empty() {
                words.push(word);
                left = left.without(bundle);
            }
        }
        debug_assert!(self.holds(left), "words name the privileges of the set");
        words.extend(left.iter().map(Privilege::word));
        words.join("+")
    }
}

impl From<Privilege> for PrivilegeSet {
    fn from(privilege: Privilege) -> PrivilegeSet {
        PrivilegeSet::of(&[privilege])
    }
}

impl fmt::Debug for PrivilegeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The names, separated by commas.
impl fmt::Display for PrivilegeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, privilege) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}", privilege.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_is_written_with_words_that_give_it_back() {
        for bits in 0..1_u16 << Privilege::ALL.len() {
            let set = PrivilegeSet(bits);
            let words = set.to_words();
            let back = words.split('+').filter(|word| !word.is_empty());
            let back = back.fold(PrivilegeSet::NONE, |sum, word| {
                sum.and(PrivilegeSet::from_word(word).expect(word))
            });
            assert_eq!(back, set, "{words}");
        }
        assert_eq!(PrivilegeSet::READ_WRITE.to_words(), "read-write");
        assert_eq!(PrivilegeSet::READ_ONLY.to_words(), "read-only");
    }

    #[test]
    fn words_are_unique() {
        let singles = Privilege::ALL.iter().map(|privilege| privilege.word());
        let mut words: Vec<&str> = BUNDLES.iter().map(|(word, _)| *word).chain(singles).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), BUNDLES.len() + Privilege::ALL.len());
    }

    #[test]
    fn write_roles_include_read_and_nothing_more() {
        assert!(PrivilegeSet::READ_WRITE.holds(PrivilegeSet::READ_ONLY));
        assert!(!PrivilegeSet::READ_WRITE.holds(MetaWrite.into()));
        assert!(!PrivilegeSet::READ_WRITE.holds(Stats.into()));
        assert_eq!(PrivilegeSet::of(&[Read, Upsert]).to_string(), "Read, Upsert");
    }
}
