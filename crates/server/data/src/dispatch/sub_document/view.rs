//! A version of a document as sub-document operations see it: attributes, body, and whether the
//! body is JSON.

use oribi_engine::ItemRef;
use oribi_protocol::status::Status;
use oribi_subdoc::xattr::{self, Xattrs};
use oribi_types::Datatype;

/// The parts of one version.
#[derive(Clone, Copy, Default)]
pub(super) struct View<'a> {
    pub(super) xattrs: Xattrs<'a>,
    pub(super) body: &'a [u8],
    pub(super) is_json: bool,
    /// The body is compressed, and was not inflated.
    pub(super) is_compressed: bool,
}

impl<'a> View<'a> {
    /// Takes a version apart. A compressed body is inflated into `scratch`.
    pub(super) fn of(item: &'a ItemRef, scratch: &'a mut Vec<u8>) -> Result<View<'a>, Status> {
        let view = View::as_stored(item)?;
        if !view.is_compressed {
            return Ok(view);
        }
        // A damaged body is answered like a document that cannot be read from disk.
        let body = item.plain_body(scratch).map_err(|_| Status::Etmpfail)?;
        Ok(View { body, is_compressed: false, ..view })
    }

    /// Takes a version apart and leaves its body as it is.
    pub(super) fn as_stored(item: &'a ItemRef) -> Result<View<'a>, Status> {
        let is_json = item.datatype().contains(Datatype::JSON);
        let is_compressed = item.is_compressed();
        let (xattrs, body) = match item.has_attributes() {
            true => xattr::split(item.value()).map_err(|_| Status::XattrEinval)?,
            false => (Xattrs::default(), item.value()),
        };
        Ok(View { xattrs, body, is_json, is_compressed })
    }
}
