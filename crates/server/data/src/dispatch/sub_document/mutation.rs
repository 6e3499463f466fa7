//! Makes the next version of a document from the current one and the specs of a request.
//!
//! Specs are applied in order to drafts of attributes and body. The first that fails ends the
//! request, and the document stays as it is. The finished parts are copied once, into the block of
//! the new version. If another client writes in between, the caller tries again with the new
//! current version.

use oribi_engine::{CurrentVersion, ItemRef, NextVersion, VersionFields};
use oribi_protocol::status::Status;
use oribi_protocol::sub_document::{DocFlags, write_mutation_result};
use oribi_subdoc::path::Component;
use oribi_subdoc::xattr::{self, XattrDraft};
use oribi_subdoc::{Draft, Mutation, Path, json, lookup};
use oribi_types::{Cas, Datatype, DocKey, Timestamp, VbUuid};

use super::action::Action;
use super::binary_value;
use super::crc32c::crc32c;
use super::lookup::view_of;
use super::macros::{MacroOperand, Placeholders, of_document};
use super::request::{PathRequest, PathSpec};
use super::virtual_attributes::AttributeSource;
use crate::dispatch::status::of_sub_document;

/// Why the document stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The request does not fit the document as a whole.
    Request(Status),
    Spec {
        index: u8,
        status: Status,
    },
}

/// The answer of a successful mutation besides CAS and seqno.
#[derive(Default, Debug)]
pub(super) struct Results {
    /// The value of the answer.
    pub(super) value: Vec<u8>,
    /// The request changed or made a tombstone. The deletion of a live document does not count.
    pub(super) of_tombstone: bool,
}

/// A request and its inputs.
pub(super) struct MutationJob<'r, 'a> {
    pub(super) request: &'r PathRequest<'a>,
    pub(super) key: DocKey<'r>,
    /// Required CAS, 0 for any.
    pub(super) cas: Cas,
    pub(super) preserve_expiry: bool,
    pub(super) value_bytes_max: usize,
    pub(super) now: Timestamp,
    pub(super) vb_uuid: VbUuid,
}

/// The document while it is being changed.
struct Work<'d> {
    xattrs: XattrDraft<'d>,
    body: Draft<'d>,
    is_json: bool,
    /// The body is compressed: no spec changes it.
    is_compressed: bool,
    is_deleted: bool,
    placeholders: Option<Placeholders>,
    /// The attribute `$document` of the previous version.
    document: AttributeSource<'d>,
}

impl<'a> MutationJob<'_, 'a> {
    /// Makes the next version, with the expiry of `current` unless the old one's is kept.
    pub(super) fn next_version(
        &self,
        current: &CurrentVersion<'_>,
        results: &mut Results,
    ) -> Result<NextVersion, Failure> {
        let base = self.base(current).map_err(Failure::Request)?;
        let mut scratch = Vec::new();
        let mut work = self.begin(base, &mut scratch).map_err(Failure::Request)?;
        results.value.clear();
        results.of_tombstone = work.is_deleted;
        for (index, spec) in self.request.specs.iter().enumerate() {
            let index = index as u8;
            debug_assert!(usize::from(index) < self.request.specs.len(), "an index is of a path");
            let done = self.apply(&mut work, spec);
            let returned = done.map_err(|status| Failure::Spec { index, status })?;
            match returned.map(|counter| counter.to_string()) {
                Some(digits) if self.request.is_list => {
                    write_mutation_result(&mut results.value, index, digits.as_bytes());
                }
                Some(digits) => results.value.extend_from_slice(digits.as_bytes()),
                None => {}
            }
        }
        let live = base.filter(|item| !item.is_deleted());
        let fields = VersionFields {
            flags: self.request.document.user_flags.unwrap_or(base.map_or(0, |item| item.flags())),
            expiry: live
                .filter(|_| self.preserve_expiry)
                .map_or(current.expiry, |item| item.expiry()),
            ..VersionFields::default()
        };
        self.finish(work, fields).map_err(Failure::Request)
    }

    /// The version to start from; `None` for a document that is to be created.
    fn base<'i>(&self, current: &CurrentVersion<'i>) -> Result<Option<&'i ItemRef>, Status> {
        let has = |flag| self.request.has(flag);
        let sees_deleted = self.request.sees_tombstones();
        let seen = current.version.filter(|item| !item.is_deleted() || sees_deleted);
        let Some(item) = seen else {
            let creates = self.request.creates() && self.cas == Cas(0);
            return if creates { Ok(None) } else { Err(Status::KeyEnoent) };
        };
        // A version that the request may see blocks an add: a tombstone can be another
        // transaction's insert.
        let is_expected = self.cas == Cas(0) || self.cas == item.cas() || current.is_lock_cas;
        if has(DocFlags::ADD) || !is_expected {
            return Err(Status::KeyEexists);
        }
        if has(DocFlags::REVIVE) && !item.is_deleted() {
            return Err(Status::SubdocCanOnlyReviveDeletedDocuments);
        }
        Ok(Some(item))
    }

    fn begin<'d>(
        &self,
        base: Option<&'d ItemRef>,
        scratch: &'d mut Vec<u8>,
    ) -> Result<Work<'d>, Status> {
        let view = base.map(|item| view_of(self.request, item, scratch)).transpose()?;
        let view = view.unwrap_or_default();
        let is_deleted = match base {
            None => self.request.has(DocFlags::CREATE_AS_DELETED),
            Some(item) => item.is_deleted() && !self.request.has(DocFlags::REVIVE),
        };
        if is_deleted && self.request.specs.iter().any(PathSpec::changes_body) {
            return Err(Status::SubdocDeletedDocumentCantHaveValue);
        }
        let is_fresh = base.is_none_or(|item| item.is_deleted());
        debug_assert!(!is_deleted || is_fresh, "a tombstone has no body");
        let body: &[u8] = match is_fresh {
            false => view.body,
            true if is_deleted => b"",
            true => self.empty_root(),
        };
        let specs = &self.request.specs;
        let placeholders = specs.iter().any(|spec| spec.expand_macros).then(|| {
            let attributes = base.map_or(&b""[..], |item| item.attributes());
            Placeholders::absent_from(self.request, attributes)
        });
        let cas = base.map_or(Cas(0), |item| item.cas());
        Ok(Work {
            xattrs: XattrDraft::new(view.xattrs),
            body: Draft::new(body),
            is_json: if is_fresh { !is_deleted } else { view.is_json },
            is_compressed: view.is_compressed && !is_fresh,
            is_deleted,
            placeholders,
            document: AttributeSource::new(base, cas, view, self.vb_uuid),
        })
    }

    /// The initial body of a new document: an array if the first change needs one.
    fn empty_root(&self) -> &'static [u8] {
        let first = self.request.specs.iter().find(|spec| spec.xattr.is_none());
        let path = first.and_then(|spec| spec.path.as_ref().ok());
        match path.map(Path::components) {
            Some([] | [Component::Index(_) | Component::Last, ..]) => b"[]",
            _ => b"{}",
        }
    }

    /// Applies one spec; returns the new value of a counter.
    fn apply<'d>(&self, work: &mut Work<'d>, spec: &PathSpec<'a>) -> Result<Option<i64>, Status>
    where
        'a: 'd,
    {
        let path = spec.path.as_ref().map_err(|error| of_sub_document(*error))?;
        // A request that creates the document also creates the parents of its paths.
        let make_parents = spec.make_parents || self.request.creates();
        match (spec.action, spec.xattr) {
            (Action::Edit(mutation), Some(key)) => {
                change_attribute(work, spec, key, mutation, path, make_parents)
            }
            (Action::Edit(_), None) if !work.is_json => Err(Status::SubdocDocNotJson),
            (Action::Edit(mutation), None) => {
                let done = work.body.apply(mutation, path, spec.value, make_parents);
                done.map_err(of_sub_document)
            }
            (Action::SetBody, _) => {
                work.body = Draft::new(spec.value);
                work.is_json = json::is_json(spec.value);
                Ok(None)
            }
            (Action::DeleteDocument, _) => {
                work.body = Draft::new(&b""[..]);
                (work.is_json, work.is_deleted) = (false, true);
                work.xattrs.retain(xattr::is_system);
                Ok(None)
            }
            (Action::ReplaceBodyWithXattr, Some(key)) => {
                let value = work.xattrs.get(key).ok_or(Status::SubdocPathEnoent)?;
                let (_, inside) = path.split_first().ok_or(Status::SubdocPathEinval)?;
                let span = lookup::get(value, &inside).map_err(of_sub_document)?;
                let body = match spec.is_binary {
                    true => binary_value::decode(&value[span])?,
                    false => value[span].to_vec(),
                };
                // A block written before the server checked values may hold any bytes.
                work.is_json = json::is_json(&body);
                work.body = Draft::new(body);
                Ok(None)
            }
            _ => Err(Status::SubdocInvalidCombo),
        }
    }

    fn finish(&self, mut work: Work<'_>, fields: VersionFields) -> Result<NextVersion, Status> {
        if work.body.byte_count() > self.value_bytes_max || work.xattrs.is_too_large() {
            return Err(Status::E2big);
        }
        if work.is_deleted {
            // User attributes of a tombstone may stay: a client put them there on purpose.
            work.body = Draft::new(&b""[..]);
        }
        let mut block = Vec::with_capacity(work.xattrs.byte_count());
        work.xattrs.write(&mut block);
        let body = work.body.parts();
        let stamps = match &work.placeholders {
            Some(placeholders) => placeholders.settle(&mut block, || crc32c(&body)),
            None => Vec::new(),
        };
        let given = |is_given: bool, bit: Datatype| if is_given { bit.0 } else { 0 };
        let datatype = given(work.is_json && !work.is_deleted, Datatype::JSON)
            | given(work.is_compressed && !work.is_deleted, Datatype::SNAPPY)
            | given(!block.is_empty(), Datatype::XATTR);
        let fields =
            VersionFields { datatype: Datatype(datatype), deleted: work.is_deleted, ..fields };
        let [a, b, c, d, e] = body;
        let next = NextVersion::new(self.key, fields, &[&block, a, b, c, d, e], self.now);
        Ok(next.with_stamps(stamps))
    }
}

/// Changes an attribute as the only member of an object, so that its key can be added and deleted
/// like any other.
fn change_attribute(
    work: &mut Work<'_>,
    spec: &PathSpec<'_>,
    key: &[u8],
    mutation: Mutation,
    path: &Path<'_>,
    make_parents: bool,
) -> Result<Option<i64>, Status> {
    let made = made_operand(work, spec)?;
    let value = made.as_deref().unwrap_or(spec.value);
    let before = [b"{\"", key, b"\":"].concat();
    let text = match work.xattrs.get(key) {
        Some(value) => [&before, value, b"}"].concat(),
        None => b"{}".to_vec(),
    };
    let mut object = Draft::new(text);
    let counter = object.apply(mutation, path, value, make_parents).map_err(of_sub_document)?;
    let text = object.text();
    match text.strip_prefix(&before[..]).and_then(|rest| rest.strip_suffix(b"}")) {
        Some(value) => work.xattrs.set(key, value.to_vec()),
        None => work.xattrs.remove(key),
    }
    Ok(counter)
}

/// The operand that replaces the received one: a placeholder or a value for a macro, a text for
/// bytes.
fn made_operand(work: &Work<'_>, spec: &PathSpec<'_>) -> Result<Option<Vec<u8>>, Status> {
    if spec.is_binary {
        return Ok(Some(binary_value::encode(spec.value)));
    }
    let Some(placeholders) = work.placeholders.as_ref().filter(|_| spec.expand_macros) else {
        return Ok(None);
    };
    Ok(match MacroOperand::of(spec.value)? {
        MacroOperand::Plain => None,
        MacroOperand::OfMutation(one) => Some(placeholders.operand(one)),
        MacroOperand::OfDocument(path) => Some(of_document(&work.document, path)?),
    })
}
