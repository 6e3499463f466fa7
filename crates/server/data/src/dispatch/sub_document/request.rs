//! Decodes a sub-document request, and checks that its parts fit each other.
//!
//! Owns: the rules about opcodes, flags, paths and operands together, and their statuses. No rule
//! covers a malformed path: only its own spec fails, and other specs may succeed.

use oribi_auth::{Privilege, PrivilegeSet};
use oribi_protocol::feature::Feature;
use oribi_protocol::status::Status;
use oribi_protocol::sub_document::{DocExtras, DocFlags, PathExtras, PathFlags, Spec};
use oribi_subdoc::limits::{XATTR_BYTES_MAX, XATTR_KEY_BYTES_MAX};
use oribi_subdoc::path::Component;
use oribi_subdoc::xattr::{self, is_virtual};
use oribi_subdoc::{Path, SubdocError};
use smallvec::SmallVec;

use super::action::Action;
use crate::connection::features::Features;

/// Most specs of a request, by the protocol.
const SPECS_MAX: usize = 16;
const _: () = assert!(SPECS_MAX <= u8::MAX as usize, "a result names its path in a byte");

/// One path and its operation.
pub(super) struct PathSpec<'a> {
    pub(super) action: Action,
    pub(super) path: Result<Path<'a>, SubdocError>,
    /// The path as it was sent.
    pub(super) path_text: &'a [u8],
    /// The key of the attribute that the path begins with.
    pub(super) xattr: Option<&'a [u8]>,
    pub(super) make_parents: bool,
    pub(super) expand_macros: bool,
    /// Operand or result are bytes, which are stored as text.
    pub(super) is_binary: bool,
    pub(super) value: &'a [u8],
}

impl PathSpec<'_> {
    /// True for a change of the body.
    pub(super) fn changes_body(&self) -> bool {
        self.xattr.is_none() || self.action == Action::ReplaceBodyWithXattr
    }
}

pub(super) struct PathRequest<'a> {
    pub(super) specs: SmallVec<[PathSpec<'a>; 4]>,
    pub(super) document: DocExtras,
    /// The answer is a list.
    pub(super) is_list: bool,
}

/// The two kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SubDocumentKind {
    Lookup,
    Mutation,
}

impl SubDocumentKind {
    fn doc_extras(self, extras: &[u8]) -> Result<DocExtras, Status> {
        let decoded = match self {
            SubDocumentKind::Lookup => DocExtras::of_lookup(extras),
            SubDocumentKind::Mutation => DocExtras::of_mutation(extras),
        };
        decoded.ok_or(Status::Einval)
    }
}

impl<'a> PathRequest<'a> {
    /// True when the request has this document flag.
    pub(super) fn has(&self, flag: DocFlags) -> bool {
        self.document.doc_flags.has(flag)
    }

    /// True when the request creates a missing document.
    pub(super) fn creates(&self) -> bool {
        self.has(DocFlags::CREATE) || self.has(DocFlags::ADD)
    }

    /// True when a tombstone counts as the current version. A tombstone to be added conflicts with
    /// any other: it can be another transaction's insert.
    pub(super) fn sees_tombstones(&self) -> bool {
        self.has(DocFlags::ACCESS_DELETED)
            || (self.has(DocFlags::ADD) && self.has(DocFlags::CREATE_AS_DELETED))
    }

    /// Decodes a request for one path.
    pub(super) fn of_one(
        kind: SubDocumentKind,
        features: Features,
        opcode: u8,
        extras: &[u8],
        value: &'a [u8],
    ) -> Result<PathRequest<'a>, Status> {
        let (PathExtras { path_bytes, path_flags }, extras) =
            PathExtras::split(extras).ok_or(Status::Einval)?;
        let document = kind.doc_extras(extras)?;
        let split = value.split_at_checked(usize::from(path_bytes));
        let (path, value) = split.ok_or(Status::Einval)?;
        let spec = Spec { opcode, flags: path_flags, path, value };
        let mut specs = SmallVec::new();
        specs.push(path_spec(kind, &spec)?);
        PathRequest { specs, document, is_list: false }.checked(kind, features)
    }

    /// Decodes a request for a list of paths.
    pub(super) fn of_list(
        kind: SubDocumentKind,
        features: Features,
        extras: &[u8],
        mut list: &'a [u8],
    ) -> Result<PathRequest<'a>, Status> {
        let document = kind.doc_extras(extras)?;
        let mut specs = SmallVec::new();
        while !list.is_empty() {
            let split = match kind {
                SubDocumentKind::Lookup => Spec::split_lookup(list),
                SubDocumentKind::Mutation => Spec::split_mutation(list),
            };
            let (spec, rest) = split.ok_or(Status::Einval)?;
            if specs.len() == SPECS_MAX {
                return Err(Status::SubdocInvalidCombo);
            }
            specs.push(path_spec(kind, &spec)?);
            debug_assert!(rest.len() < list.len(), "a walk goes forward");
            list = rest;
        }
        if specs.is_empty() {
            return Err(Status::SubdocInvalidCombo);
        }
        PathRequest { specs, document, is_list: true }.checked(kind, features)
    }

    /// True when the answer reveals which attributes exist.
    pub(super) fn names_attributes(&self) -> bool {
        self.specs.iter().any(|spec| spec.xattr == Some(b"$XTOC"))
    }

    /// Privileges that the request needs besides its opcode's.
    pub(super) fn privileges(&self, kind: SubDocumentKind) -> PrivilegeSet {
        let mut needed = PrivilegeSet::NONE;
        let mut need = |privilege: Privilege| needed = needed.and(privilege.into());
        for spec in &self.specs {
            match spec.action {
                Action::DeleteDocument => need(Privilege::Delete),
                // The answer, or the new body, reveals the document's content.
                action if action.tells() => need(Privilege::Read),
                _ => {}
            }
            if spec.xattr.is_some_and(xattr::is_system) {
                match kind {
                    SubDocumentKind::Lookup => need(Privilege::SystemXattrRead),
                    SubDocumentKind::Mutation => need(Privilege::SystemXattrWrite),
                }
                if spec.action.tells() {
                    need(Privilege::SystemXattrRead);
                }
            }
        }
        if self.creates() {
            need(Privilege::Insert);
        }
        needed
    }

    fn checked(self, kind: SubDocumentKind, features: Features) -> Result<PathRequest<'a>, Status> {
        assert!((1..=SPECS_MAX).contains(&self.specs.len()), "a request has paths");
        let of_attribute = self.specs.iter().any(|spec| spec.xattr.is_some());
        if of_attribute && !features.has(Feature::Xattr) {
            return Err(Status::NotSupported);
        }
        // The features for single flags and for several attributes only tell clients that they may
        // use them.
        self.check_doc_flags(kind)?;
        self.check_order()?;
        self.check_keys(kind)?;
        Ok(self)
    }

    fn check_doc_flags(&self, kind: SubDocumentKind) -> Result<(), Status> {
        let flags = self.document.doc_flags;
        let fits = match kind {
            SubDocumentKind::Lookup => {
                [0, DocFlags::ACCESS_DELETED.0, DocFlags::REPLICA_READ.0].contains(&flags.0)
            }
            SubDocumentKind::Mutation => flags.are_of_mutation() && self.flags_agree(),
        };
        if fits { Ok(()) } else { Err(Status::Einval) }
    }

    /// True when the flags of a mutation do not contradict each other.
    fn flags_agree(&self) -> bool {
        let (adds, revives) = (self.has(DocFlags::ADD), self.has(DocFlags::REVIVE));
        let as_deleted = self.has(DocFlags::CREATE_AS_DELETED);
        // A list without CREATE and ADD describes a new document without creating it. Transactions
        // send such a list about another transaction's tombstone.
        let makes_what_it_names = !as_deleted
            || self.is_list
            || (self.creates() && !self.specs.iter().any(PathSpec::changes_body));
        makes_what_it_names
            && !(adds && self.has(DocFlags::CREATE))
            && !(revives && (as_deleted || adds || !self.has(DocFlags::ACCESS_DELETED)))
    }

    /// Attributes come first, and a deletion of the document is the only operation on the body.
    fn check_order(&self) -> Result<(), Status> {
        let first_of_body = self.specs.iter().position(|spec| spec.xattr.is_none());
        let Some(first) = first_of_body else { return Ok(()) };
        debug_assert!(first < self.specs.len(), "a position is of a path");
        let of_body = &self.specs[first..];
        if of_body.iter().any(|spec| spec.xattr.is_some()) {
            return Err(Status::SubdocInvalidXattrOrder);
        }
        if of_body.len() > 1 && of_body.iter().any(|spec| spec.action == Action::DeleteDocument) {
            return Err(Status::SubdocInvalidCombo);
        }
        Ok(())
    }

    /// Allows stored attributes, and for a read also virtual ones.
    fn check_keys(&self, kind: SubDocumentKind) -> Result<(), Status> {
        for key in self.specs.iter().filter_map(|spec| spec.xattr) {
            match (is_virtual(key), kind) {
                (true, SubDocumentKind::Lookup) => {}
                (true, SubDocumentKind::Mutation) => {
                    return Err(Status::SubdocXattrCantModifyVattr);
                }
                (false, _) if key.len() > XATTR_KEY_BYTES_MAX => return Err(Status::XattrEinval),
                (false, _) => {}
            }
        }
        Ok(())
    }
}

fn path_spec<'a>(kind: SubDocumentKind, spec: &Spec<'a>) -> Result<PathSpec<'a>, Status> {
    let action = match kind {
        SubDocumentKind::Lookup => Action::of_lookup(spec.opcode),
        SubDocumentKind::Mutation => Action::of_mutation(spec.opcode),
    };
    let action = action.ok_or(Status::SubdocInvalidCombo)?;
    let (flags, has_operand) = (spec.flags, !spec.value.is_empty());
    let (is_xattr, expands) = (flags.has(PathFlags::XATTR), flags.has(PathFlags::EXPAND_MACROS));
    let fits = flags.are_known()
        && (!flags.has(PathFlags::MAKE_PARENTS) || action.makes_parents())
        && (!expands || action.takes_macros())
        && (!spec.path.is_empty() || (action.takes_empty_path() && !is_xattr))
        && (spec.path.is_empty() || !action.is_of_document())
        && has_operand == action.takes_operand()
        && (action != Action::ReplaceBodyWithXattr || is_xattr);
    if !fits {
        return Err(Status::Einval);
    }
    if expands && !is_xattr {
        return Err(Status::SubdocXattrInvalidFlagCombo);
    }
    if is_xattr && spec.value.len() > XATTR_BYTES_MAX {
        // The operand cannot fit, so it is not converted or searched.
        return Err(Status::E2big);
    }
    let is_binary = flags.has(PathFlags::BINARY);
    if is_binary && (!is_xattr || expands || !action.may_be_binary()) {
        return Err(Status::SubdocXattrInvalidFlagCombo);
    }
    debug_assert!(!(is_binary && expands), "a macro is text");
    Ok(PathSpec {
        action,
        path: Path::parse(spec.path),
        path_text: spec.path,
        xattr: is_xattr.then(|| xattr_key(spec.path)).transpose()?,
        make_parents: flags.has(PathFlags::MAKE_PARENTS),
        expand_macros: expands,
        is_binary,
        value: spec.value,
    })
}

/// The attribute key at the beginning of a path. Keys are plain names, neither escaped nor quoted.
fn xattr_key(path: &[u8]) -> Result<&[u8], Status> {
    let end = path.iter().position(|byte| matches!(byte, b'.' | b'[')).unwrap_or(path.len());
    let key = &path[..end];
    debug_assert!(key.len() <= path.len(), "a key is the beginning of its path");
    let is_plain = match Path::parse(key).as_ref().map(Path::components) {
        Ok([Component::Key(name)]) => **name == *key && !key.contains(&b'\\'),
        _ => false,
    };
    if is_plain { Ok(key) } else { Err(Status::XattrEinval) }
}
