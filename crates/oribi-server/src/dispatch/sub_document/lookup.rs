//! Looking up one path in a version.

use std::borrow::Cow;

use oribi_protocol::status::Status;
use oribi_subdoc::xattr::is_virtual;
use oribi_subdoc::{Path, SubdocError, lookup};
use oribi_types::{Cas, Timestamp};

use oribi_engine::ItemRef;

use super::binary_value;
use super::request::{Action, PathSpec};
use super::view::View;
use super::virtual_attributes::{self, Document};
use crate::status::of_sub_document;

/// A version and what is known around it.
pub(super) struct Subject<'a> {
    pub(super) item: &'a ItemRef,
    /// The CAS that may be shown.
    pub(super) cas: Cas,
    pub(super) view: View<'a>,
    /// The attribute `$document`.
    pub(super) document: Document<'a>,
    pub(super) now: Timestamp,
    /// The user may read the system's attributes, and so may know their names.
    pub(super) sees_system: bool,
}

/// The value that a spec asks for.
pub(super) fn look_up<'a>(
    subject: &Subject<'a>,
    spec: &PathSpec<'_>,
) -> Result<Cow<'a, [u8]>, Status> {
    let path = spec.path.as_ref().map_err(|error| of_sub_document(*error))?;
    match spec.xattr {
        Some(key) if is_virtual(key) => {
            let text = virtual_attributes::text_of(key, path, subject)?;
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
