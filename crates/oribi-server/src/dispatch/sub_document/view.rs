//! A version of a document as sub-document operations see it: attributes, body, and whether that is JSON.

use oribi_engine::ItemRef;
use oribi_protocol::status::Status;
use oribi_subdoc::xattr::{self, Xattrs};
use oribi_types::Datatype;

/// See the module text.
#[derive(Clone, Copy, Default)]
pub(super) struct View<'a> {
    pub(super) xattrs: Xattrs<'a>,
    pub(super) body: &'a [u8],
    pub(super) is_json: bool,
}

impl<'a> View<'a> {
    /// Takes a version apart.
    pub(super) fn of(item: &'a ItemRef) -> Result<View<'a>, Status> {
        let is_json = item.datatype().contains(Datatype::JSON);
        if !item.has_attributes() {
            return Ok(View { xattrs: Xattrs::default(), body: item.value(), is_json });
        }
        let (xattrs, body) = xattr::split(item.value()).map_err(|_| Status::XattrEinval)?;
        Ok(View { xattrs, body, is_json })
    }
}
