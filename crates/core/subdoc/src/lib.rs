//! Sub-document operations on JSON text by span, JSON validation, and the block of extended
//! attributes.
//!
//! It owns the meaning of a path in a document and the effect of each operation on its text. It
//! never parses a document into a tree: [`lookup`] walks the text to the span of a path,
//! [`mod@edit`] describes a change as one splice of that text, and [`Draft`] applies several
//! changes in order with minimal copying. The text outside a change keeps its bytes, including
//! whitespace and the order of keys.
//!
//! Invariants: no input makes code here panic. A span lies inside its document. An edit of a valid
//! document is a valid document. A walk trusts that its document passed [`json::is_json`] once,
//! which the engine's datatype bit says. On other text it returns some result, or
//! [`SubdocError::DocNotJson`].
//!
//! How keys compare: a component of a path is JSON text between quotes. A quote, a backslash or a
//! control character in a key is therefore written as its escape (`a\"b`, `a\\b`, `a\nb`). Text
//! that is invalid between quotes is a malformed path. Two keys are equal when they mean the same
//! characters, however either is escaped: path `A` finds `"\u0041"`. Of equal keys the first
//! counts. A key is inserted in the path's spelling.
//!
//! The engine and the server use it. It does not depend on wire frames, items or clocks.

#![deny(unsafe_code)]

mod byte_masks;
mod draft;
mod edit;
mod error;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
pub mod json;
mod key_text;
pub mod limits;
mod locate;
pub mod lookup;
mod number;
pub mod path;
mod scan;
pub mod xattr;

pub use draft::Draft;
pub use edit::{Edit, Mutation, edit};
pub use error::SubdocError;
pub use path::Path;
