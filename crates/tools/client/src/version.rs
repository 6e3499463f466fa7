//! Versions of documents that were made elsewhere, and come with their metadata: what restoring a
//! backup and copying between clusters write.
//!
//! Owns the extras and options of SET_WITH_META and DEL_WITH_META, as Couchbase documents them for
//! replication between clusters (XDCR).

use oribi_protocol::opcode::Opcode;
use oribi_types::{Cas, Datatype, RevSeqno};

/// Most bytes of attributes; servers keep 1 MiB of them.
pub(crate) const ATTRIBUTE_BYTES_MAX: usize = 1024 * 1024;

/// The sender knows that the bucket resolves conflicts by time. Such a bucket demands it, any other
/// refuses it.
const FORCE: u32 = 1 << 0;
/// The server makes a CAS, as for any other write.
const REGENERATE_CAS: u32 = 1 << 2;
/// No comparison with the version that is there.
const SKIP_CONFLICT_RESOLUTION: u32 = 1 << 3;
/// The removal was an expiration.
const IS_EXPIRATION: u32 = 1 << 4;

/// Kind of the version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum VersionKind {
    /// A document.
    Mutation,
    /// A deleted document.
    Deletion,
    /// A document whose time was over.
    Expiration,
}

/// How the server's bucket decides between two versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum ResolutionMode {
    /// The higher revision wins: the default of buckets.
    #[default]
    Revision,
    /// The higher CAS wins ("last write wins", `conflictResolutionType=lww`).
    Time,
}

/// A version's metadata.
///
/// The server stores it unless it has the same version or a newer one, which it answers with
/// [`crate::RejectionKind::Exists`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DocumentVersion {
    /// Kind of the version.
    pub kind: VersionKind,
    /// Its CAS, which it keeps unless the server makes a new one.
    pub cas: Cas,
    /// Its revision, which it keeps.
    pub rev: RevSeqno,
    /// Flags.
    pub flags: u32,
    /// Expiry as UNIX time, 0 for none; of a removal, when that was, 0 for now.
    pub expiry: u32,
    /// Type of the value: attributes first, Snappy around both.
    pub datatype: Datatype,
    /// Store it whatever the server has.
    pub overwrite: bool,
    /// The server makes a CAS, and stores the version whatever it has.
    pub new_cas: bool,
    /// The bucket's conflict resolution; a bucket refuses versions that name the other one.
    pub resolution: ResolutionMode,
}

impl DocumentVersion {
    /// A version with this CAS and revision, and neither flags nor expiry, of an uncompressed value
    /// without attributes.
    pub fn new(kind: VersionKind, cas: Cas, rev: RevSeqno) -> DocumentVersion {
        DocumentVersion {
            kind,
            cas,
            rev,
            flags: 0,
            expiry: 0,
            datatype: Datatype::RAW,
            overwrite: false,
            new_cas: false,
            resolution: ResolutionMode::Revision,
        }
    }

    /// Sets the flags.
    pub fn flags(mut self, flags: u32) -> DocumentVersion {
        self.flags = flags;
        self
    }

    /// Sets the expiry as UNIX time, 0 for none; of a removal, when that was.
    pub fn expiry(mut self, expiry: u32) -> DocumentVersion {
        self.expiry = expiry;
        self
    }

    /// Sets the type of the value.
    pub fn datatype(mut self, datatype: Datatype) -> DocumentVersion {
        self.datatype = datatype;
        self
    }

    /// Stores it whatever the server has, or only if it is newer.
    pub fn overwrite(mut self, is_wanted: bool) -> DocumentVersion {
        self.overwrite = is_wanted;
        self
    }

    /// Lets the server make a CAS; buckets of either resolution store such a version, whatever they
    /// have.
    pub fn new_cas(mut self, is_wanted: bool) -> DocumentVersion {
        self.new_cas = is_wanted;
        self
    }

    /// Sets what the bucket does about conflicts.
    pub fn resolution(mut self, resolution: ResolutionMode) -> DocumentVersion {
        self.resolution = resolution;
        self
    }

    pub(crate) fn opcode(&self) -> Opcode {
        match self.kind {
            VersionKind::Mutation => Opcode::SetWithMeta,
            VersionKind::Deletion | VersionKind::Expiration => Opcode::DelWithMeta,
        }
    }

    /// Appends the extras of its request: flags, expiry, revision, CAS, and options where there are
    /// some. For callers that put requests together themselves.
    pub fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
        out.extend_from_slice(&self.rev.0.to_be_bytes());
        out.extend_from_slice(&self.cas.0.to_be_bytes());
        let mut options = 0;
        for (is_wanted, option) in [
            (self.resolution == ResolutionMode::Time, FORCE),
            (self.new_cas, REGENERATE_CAS),
            (self.overwrite || self.new_cas, SKIP_CONFLICT_RESOLUTION),
            (self.kind == VersionKind::Expiration, IS_EXPIRATION),
        ] {
            options |= if is_wanted { option } else { 0 };
        }
        if options != 0 {
            out.extend_from_slice(&options.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    //! The bytes of the extras.

    use super::*;

    #[test]
    fn extras_have_options_only_where_they_are_needed() {
        let version =
            DocumentVersion::new(VersionKind::Mutation, Cas(4), RevSeqno(3)).flags(1).expiry(2);
        let extras = |version: &DocumentVersion| {
            let mut out = Vec::new();
            version.write_extras(&mut out);
            out
        };
        let plain = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4];
        assert_eq!(extras(&version), plain);
        assert_eq!(version.opcode(), Opcode::SetWithMeta);
        let options = |version: DocumentVersion| extras(&version)[24..].to_vec();
        assert_eq!(options(version.overwrite(true)), [0, 0, 0, 8]);
        assert_eq!(options(version.resolution(ResolutionMode::Time)), [0, 0, 0, 1]);
        assert_eq!(options(version.new_cas(true)), [0, 0, 0, 12]);
        let expired = DocumentVersion { kind: VersionKind::Expiration, ..version };
        assert_eq!((options(expired), expired.opcode()), (vec![0, 0, 0, 16], Opcode::DelWithMeta));
    }
}
