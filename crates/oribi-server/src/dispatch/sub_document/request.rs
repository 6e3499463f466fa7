//! What a sub-document request asks, and whether it may be asked like that.
//!
//! Owns: the rules about opcodes, flags, paths and operands together, and their statuses. A malformed path is
//! not such a rule: it is the failure of one spec, among others that may be done.

use oribi_engine::ItemRef;
use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_protocol::sub_document::{DocFlags, PathExtras, PathFlags, Spec, expiry_and_flags};
use oribi_subdoc::limits::{XATTR_BYTES_MAX, XATTR_KEY_BYTES_MAX};
use oribi_subdoc::path::Component;
use oribi_subdoc::xattr::{self, is_virtual};
use oribi_subdoc::{Mutation, Path, SubdocError};
use smallvec::SmallVec;

use super::view::View;
use super::{macros, virtual_attributes};
use crate::auth::{Privilege, PrivilegeSet};
use crate::connection::features::Features;

/// Most specs of a request. The protocol's limit.
const SPECS_MAX: usize = 16;

/// What is to be done at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Read the value.
    Get,
    /// See whether there is one.
    Exists,
    /// Count its members.
    Count,
    /// Read the whole body.
    GetBody,
    /// Change it.
    Edit(Mutation),
    /// Replace the whole body.
    SetBody,
    /// Delete the document.
    DeleteDocument,
    /// Replace the body by what is at a path in the attributes.
    ReplaceBodyWithXattr,
}

impl Action {
    fn of_lookup(opcode: u8) -> Option<Action> {
        Some(match Opcode::from_u8(opcode)? {
            Opcode::SubdocGet => Action::Get,
            Opcode::SubdocExists => Action::Exists,
            Opcode::SubdocGetCount => Action::Count,
            Opcode::Get => Action::GetBody,
            _ => return None,
        })
    }

    fn of_mutation(opcode: u8) -> Option<Action> {
        let mutation = match Opcode::from_u8(opcode)? {
            Opcode::SubdocDictAdd => Mutation::DictAdd,
            Opcode::SubdocDictUpsert => Mutation::DictUpsert,
            Opcode::SubdocDelete => Mutation::Delete,
            Opcode::SubdocReplace => Mutation::Replace,
            Opcode::SubdocArrayPushLast => Mutation::ArrayPushLast,
            Opcode::SubdocArrayPushFirst => Mutation::ArrayPushFirst,
            Opcode::SubdocArrayInsert => Mutation::ArrayInsert,
            Opcode::SubdocArrayAddUnique => Mutation::ArrayAddUnique,
            Opcode::SubdocCounter => Mutation::Counter,
            Opcode::Set => return Some(Action::SetBody),
            Opcode::Delete => return Some(Action::DeleteDocument),
            Opcode::SubdocReplaceBodyWithXattr => return Some(Action::ReplaceBodyWithXattr),
            _ => return None,
        };
        Some(Action::Edit(mutation))
    }

    /// True for what concerns the document as a whole and so takes no path.
    const fn is_of_document(self) -> bool {
        matches!(self, Action::GetBody | Action::SetBody | Action::DeleteDocument)
    }

    const fn takes_empty_path(self) -> bool {
        match self {
            Action::Count => true,
            Action::Edit(mutation) => mutation.takes_root(),
            action => action.is_of_document(),
        }
    }

    const fn makes_parents(self) -> bool {
        matches!(self, Action::Edit(mutation) if mutation.makes_parents())
    }

    /// True where the operand, or what is read, may be bytes instead of JSON.
    const fn may_be_binary(self) -> bool {
        match self {
            Action::Get | Action::ReplaceBodyWithXattr => true,
            Action::Edit(mutation) => !matches!(mutation, Mutation::Delete | Mutation::Counter),
            _ => false,
        }
    }

    /// True for mutations that show what is at their path.
    const fn tells(self) -> bool {
        matches!(self, Action::Edit(Mutation::Counter) | Action::ReplaceBodyWithXattr)
    }

    const fn takes_operand(self) -> bool {
        match self {
            Action::SetBody => true,
            Action::Edit(mutation) => !matches!(mutation, Mutation::Delete),
            _ => false,
        }
    }
}

/// One path and what to do there.
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

/// A request that may be tried.
pub(super) struct Request<'a> {
    pub(super) specs: SmallVec<[PathSpec<'a>; 4]>,
    pub(super) doc_flags: DocFlags,
    /// As on the wire, if one was given.
    pub(super) expiry: Option<u32>,
    /// Answered as a list.
    pub(super) is_list: bool,
}

/// Which of the two kinds a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Lookup,
    Mutation,
}

impl<'a> Request<'a> {
    /// A request for one path.
    pub(super) fn of_one(
        kind: Kind,
        features: Features,
        opcode: u8,
        extras: &[u8],
        value: &'a [u8],
    ) -> Result<Request<'a>, Status> {
        let extras = PathExtras::decode(extras).ok_or(Status::Einval)?;
        let split = value.split_at_checked(usize::from(extras.path_bytes));
        let (path, value) = split.ok_or(Status::Einval)?;
        let spec = Spec { opcode, flags: extras.path_flags, path, value };
        let mut specs = SmallVec::new();
        specs.push(path_spec(kind, &spec)?);
        let PathExtras { doc_flags, expiry, .. } = extras;
        Request { specs, doc_flags, expiry, is_list: false }.checked(kind, features)
    }

    /// A request for a list of paths.
    pub(super) fn of_list(
        kind: Kind,
        features: Features,
        extras: &[u8],
        mut list: &'a [u8],
    ) -> Result<Request<'a>, Status> {
        let (expiry, doc_flags) = expiry_and_flags(extras).ok_or(Status::Einval)?;
        let mut specs = SmallVec::new();
        while !list.is_empty() {
            let split = match kind {
                Kind::Lookup => Spec::split_lookup(list),
                Kind::Mutation => Spec::split_mutation(list),
            };
            let (spec, rest) = split.ok_or(Status::Einval)?;
            if specs.len() == SPECS_MAX {
                return Err(Status::SubdocInvalidCombo);
            }
            specs.push(path_spec(kind, &spec)?);
            list = rest;
        }
        if specs.is_empty() {
            return Err(Status::SubdocInvalidCombo);
        }
        Request { specs, doc_flags, expiry, is_list: true }.checked(kind, features)
    }

    /// A version as this request has to see it: a compressed body is inflated only where it is looked at.
    pub(super) fn view<'i>(
        &self,
        item: &'i ItemRef,
        scratch: &'i mut Vec<u8>,
    ) -> Result<View<'i>, Status> {
        // What is virtual, and what macros stand for, may be about the body.
        let is_of_body = |spec: &PathSpec<'_>| {
            spec.changes_body()
                || (spec.expand_macros && macros::is_of_body(spec.value))
                || spec.path.as_ref().is_ok_and(virtual_attributes::is_of_body)
        };
        match self.specs.iter().any(is_of_body) {
            true => View::of(item, scratch),
            false => View::as_stored(item),
        }
    }

    /// True when the answer tells which attributes there are.
    pub(super) fn names_attributes(&self) -> bool {
        self.specs.iter().any(|spec| spec.xattr == Some(b"$XTOC"))
    }

    /// What the request needs besides the privilege that its opcode always does.
    pub(super) fn privileges(&self, kind: Kind) -> PrivilegeSet {
        let mut needed = PrivilegeSet::NONE;
        let mut need = |privilege: Privilege| needed = needed.and(privilege.into());
        for spec in &self.specs {
            match spec.action {
                Action::DeleteDocument => need(Privilege::Delete),
                // The answer, or what becomes the body, tells what is in the document.
                action if action.tells() => need(Privilege::Read),
                _ => {}
            }
            if spec.xattr.is_some_and(xattr::is_system) {
                match kind {
                    Kind::Lookup => need(Privilege::SystemXattrRead),
                    Kind::Mutation => need(Privilege::SystemXattrWrite),
                }
                if spec.action.tells() {
                    need(Privilege::SystemXattrRead);
                }
            }
        }
        if self.doc_flags.has(DocFlags::CREATE) || self.doc_flags.has(DocFlags::ADD) {
            need(Privilege::Insert);
        }
        needed
    }

    fn checked(self, kind: Kind, features: Features) -> Result<Request<'a>, Status> {
        let of_attribute = self.specs.iter().any(|spec| spec.xattr.is_some());
        if of_attribute && !features.has(Feature::Xattr) {
            return Err(Status::NotSupported);
        }
        self.check_doc_flags(kind, features)?;
        self.check_order()?;
        self.check_keys(kind, features)?;
        Ok(self)
    }

    fn check_doc_flags(&self, kind: Kind, features: Features) -> Result<(), Status> {
        let flags = self.doc_flags;
        let has = |flag| flags.has(flag);
        let creates = has(DocFlags::CREATE) || has(DocFlags::ADD);
        let fits = match kind {
            Kind::Lookup => {
                let replicas = features.has(Feature::SubdocReplicaRead);
                let replica_read = DocFlags::REPLICA_READ.0 * u8::from(replicas);
                flags.0 & !(DocFlags::ACCESS_DELETED.0 | replica_read) == 0
            }
            Kind::Mutation => {
                flags.are_of_mutation()
                    && !(has(DocFlags::CREATE) && has(DocFlags::ADD))
                    && (!has(DocFlags::CREATE_AS_DELETED) || creates)
                    && !(has(DocFlags::REVIVE)
                        && (has(DocFlags::CREATE_AS_DELETED) || has(DocFlags::ADD)))
            }
        };
        if fits { Ok(()) } else { Err(Status::Einval) }
    }

    /// Attributes come first, and what concerns the whole body stands alone in it.
    fn check_order(&self) -> Result<(), Status> {
        let first_of_body = self.specs.iter().position(|spec| spec.xattr.is_none());
        let Some(first) = first_of_body else { return Ok(()) };
        let of_body = &self.specs[first..];
        if of_body.iter().any(|spec| spec.xattr.is_some()) {
            return Err(Status::SubdocInvalidXattrOrder);
        }
        if of_body.len() > 1 && of_body.iter().any(|spec| spec.action.is_of_document()) {
            return Err(Status::SubdocInvalidCombo);
        }
        Ok(())
    }

    /// One stored attribute for each request, unless the client has asked for more, and virtual ones
    /// besides when it only reads.
    fn check_keys(&self, kind: Kind, features: Features) -> Result<(), Status> {
        let takes_several = features.has(Feature::SubdocAllowsAccessOnMultipleXattrKeys);
        let mut stored = None;
        for key in self.specs.iter().filter_map(|spec| spec.xattr) {
            match (is_virtual(key), kind) {
                (true, Kind::Lookup) => {}
                (true, Kind::Mutation) => return Err(Status::SubdocXattrCantModifyVattr),
                (false, _) if key.len() > XATTR_KEY_BYTES_MAX => return Err(Status::XattrEinval),
                (false, _) if *stored.get_or_insert(key) != key && !takes_several => {
                    return Err(Status::SubdocXattrInvalidKeyCombo);
                }
                (false, _) => {}
            }
        }
        Ok(())
    }
}

fn path_spec<'a>(kind: Kind, spec: &Spec<'a>) -> Result<PathSpec<'a>, Status> {
    let action = match kind {
        Kind::Lookup => Action::of_lookup(spec.opcode),
        Kind::Mutation => Action::of_mutation(spec.opcode),
    };
    let action = action.ok_or(Status::SubdocInvalidCombo)?;
    let (flags, has_operand) = (spec.flags, !spec.value.is_empty());
    let (is_xattr, expands) = (flags.has(PathFlags::XATTR), flags.has(PathFlags::EXPAND_MACROS));
    let fits = flags.are_known()
        && (!flags.has(PathFlags::MAKE_PARENTS) || action.makes_parents())
        && (!spec.path.is_empty() || (action.takes_empty_path() && !is_xattr))
        && (spec.path.is_empty() || !action.is_of_document())
        && has_operand == action.takes_operand()
        && (action != Action::ReplaceBodyWithXattr || is_xattr);
    if !fits {
        return Err(Status::Einval);
    }
    if expands && !(is_xattr && action.takes_operand()) {
        return Err(Status::SubdocXattrInvalidFlagCombo);
    }
    if is_xattr && spec.value.len() > XATTR_BYTES_MAX {
        // It fits nowhere, so nothing is made of it and searched in it.
        return Err(Status::E2big);
    }
    let is_binary = flags.has(PathFlags::BINARY);
    if is_binary && (!is_xattr || expands || !action.may_be_binary()) {
        return Err(Status::SubdocXattrInvalidFlagCombo);
    }
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

/// The key that the path of an attribute begins with. Keys are plain names, neither escaped nor quoted.
fn xattr_key(path: &[u8]) -> Result<&[u8], Status> {
    let end = path.iter().position(|byte| matches!(byte, b'.' | b'[')).unwrap_or(path.len());
    let key = &path[..end];
    let is_plain = match Path::parse(key).as_ref().map(Path::components) {
        Ok([Component::Key(name)]) => **name == *key && !key.contains(&b'\\'),
        _ => false,
    };
    if is_plain { Ok(key) } else { Err(Status::XattrEinval) }
}
