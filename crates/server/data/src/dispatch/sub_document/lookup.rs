//! Looks up one path in one version.

use std::borrow::Cow;

use oribi_protocol::status::Status;
use oribi_subdoc::xattr::is_virtual;
use oribi_subdoc::{Path, SubdocError, lookup};
use oribi_types::Timestamp;

use oribi_engine::ItemRef;

use super::action::Action;
use super::request::{PathRequest, PathSpec};
use super::view::View;
use super::virtual_attributes::{self, AttributeSource};
use super::{binary_value, macros};
use crate::dispatch::status::of_sub_document;

/// The view of a version that a request needs: a compressed body is inflated only if the request
/// reads it.
pub(super) fn view_of<'i>(
    request: &PathRequest<'_>,
    item: &'i ItemRef,
    scratch: &'i mut Vec<u8>,
) -> Result<View<'i>, Status> {
    // Virtual attributes and macros may depend on the body.
    let is_of_body = |spec: &PathSpec<'_>| {
        spec.changes_body()
            || (spec.expand_macros && macros::is_of_body(spec.value))
            || spec.path.as_ref().is_ok_and(virtual_attributes::is_of_body)
    };
    match request.specs.iter().any(is_of_body) {
        true => View::of(item, scratch),
        false => View::as_stored(item),
    }
}

/// A version and its surroundings.
pub(super) struct Subject<'a> {
    pub(super) item: &'a ItemRef,
    pub(super) view: View<'a>,
    pub(super) document: AttributeSource<'a>,
    pub(super) now: Timestamp,
    /// The user may read the system's attributes, and so also their names.
    pub(super) sees_system: bool,
}

/// The value that a spec requests.
pub(super) fn look_up<'a>(
    subject: &Subject<'a>,
    spec: &PathSpec<'_>,
) -> Result<Cow<'a, [u8]>, Status> {
    let path = spec.path.as_ref().map_err(|error| of_sub_document(*error))?;
    match spec.xattr {
        Some(key) if is_virtual(key) => {
            let text = subject.document.attribute(key, path, subject.now, subject.sees_system)?;
            in_text(&text, path, spec.action).map(|value| Cow::Owned(value.into_owned()))
        }
        Some(key) => {
            let value = subject.view.xattrs.get(key).ok_or(Status::SubdocPathEnoent)?;
            let (_, path) = path.split_first().ok_or(Status::SubdocPathEinval)?;
            let found = in_text(value, &path, spec.action)?;
            match spec.is_binary {
                true => binary_value::decode(&found).map(Cow::Owned),
                false => Ok(found),
            }
        }
        None if subject.item.is_deleted() => Err(Status::SubdocPathEnoent),
        None if spec.action == Action::GetBody => Ok(Cow::Borrowed(subject.view.body)),
        None if !subject.view.is_json => Err(Status::SubdocDocNotJson),
        None => in_text(subject.view.body, path, spec.action),
    }
}

fn in_text<'a>(text: &'a [u8], path: &Path<'_>, action: Action) -> Result<Cow<'a, [u8]>, Status> {
    let found: Result<Cow<'a, [u8]>, SubdocError> = match action {
        Action::Exists => lookup::exists(text, path).map(|()| Cow::Borrowed(&b""[..])),
        Action::Count => {
            lookup::count(text, path).map(|count| Cow::Owned(count.to_string().into_bytes()))
        }
        _ => lookup::get(text, path).map(|span| Cow::Borrowed(&text[span])),
    };
    found.map_err(of_sub_document)
}
