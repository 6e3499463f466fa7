//! Sub-document operations on JSON text by span, JSON validation, and the block of extended attributes.
//!
//! Owns: what a path means in a document and what each operation does to its text. A document is never
//! parsed into a tree: [`lookup`] walks the text to the span of a path, [`edit`] describes a change as
//! one splice of that text, and [`Draft`] applies several changes in order, copying as little as it
//! can. What a change does not touch keeps its bytes, whitespace and order of keys included.
//!
//! Invariants: no input makes anything here panic; a span lies inside its document; an edit of a valid
//! document is a valid document. A walk trusts that its document passed [`json::is_json`] once, which
//! the engine's datatype bit says; on other text it answers something, or [`SubdocError::DocNotJson`].
//!
//! How keys compare: a component of a path is JSON text between quotes, so a quote, a backslash or a
//! control character in a key is written as its escape (`a\"b`, `a\\b`, `a\nb`), and anything that
//! could not stand between quotes is a malformed path. Two keys are equal when they mean the same
//! characters, however either is escaped: path `A` finds `"\u0041"`. Of equal keys the first counts. A
//! key is inserted as the path spells it.
//!
//! Used by the engine and the server. It knows no wire frame, no item and no clock.

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
