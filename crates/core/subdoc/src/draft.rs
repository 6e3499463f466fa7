//! Several changes to one document, in order.
//!
//! The second change copies the text; later changes edit the copy in place. The last change always
//! stays pending, so that the code that writes the result can apply it on the way. One change
//! therefore costs no copy here, and each further one moves only the text after it.

use std::borrow::Cow;

use crate::edit::{Edit, Mutation, edit};
use crate::error::SubdocError;
use crate::path::Path;

/// A document with the changes so far.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    text: Cow<'a, [u8]>,
    /// The pending last change; not in `text` yet.
    last: Option<Edit<'a>>,
    changed: bool,
}

impl<'a> Draft<'a> {
    pub fn new(text: impl Into<Cow<'a, [u8]>>) -> Draft<'a> {
        Draft { text: text.into(), last: None, changed: false }
    }

    /// Applies a change and returns the new value of a counter. A failed one changes nothing.
    ///
    /// # Errors
    /// As [`edit`].
    pub fn apply(
        &mut self,
        mutation: Mutation,
        path: &Path<'_>,
        value: &'a [u8],
        make_parents: bool,
    ) -> Result<Option<i64>, SubdocError> {
        let edit = edit(self.text(), mutation, path, value, make_parents)?;
        let counter = edit.counter();
        self.last = Some(edit);
        self.changed = true;
        Ok(counter)
    }

    /// The text with all changes.
    pub fn text(&mut self) -> &[u8] {
        if let Some(last) = self.last.take() {
            settle(&mut self.text, &last);
        }
        &self.text
    }

    /// The text with all changes, in parts to write one after the other.
    pub fn parts(&self) -> [&[u8]; 5] {
        match &self.last {
            None => [&self.text, b"", b"", b"", b""],
            Some(last) => {
                let [before, value, after] = last.parts();
                let remove = last.remove();
                [&self.text[..remove.start], before, value, after, &self.text[remove.end..]]
            }
        }
    }

    /// Length of the text with all changes.
    pub fn byte_count(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// True when there was a change.
    pub fn is_changed(&self) -> bool {
        self.changed
    }
}

/// Applies one change to the text.
fn settle(text: &mut Cow<'_, [u8]>, edit: &Edit<'_>) {
    let remove = edit.remove();
    let inserted = edit.inserted_bytes();
    if let Cow::Borrowed(old) = text {
        let mut new = Vec::with_capacity(old.len() + inserted + SPARE_BYTES);
        new.extend_from_slice(&old[..remove.start]);
        for part in edit.parts() {
            new.extend_from_slice(part);
        }
        new.extend_from_slice(&old[remove.end..]);
        *text = Cow::Owned(new);
        return;
    }
    let bytes = text.to_mut();
    let old_len = bytes.len();
    let new_len = old_len - remove.len() + inserted;
    bytes.resize(new_len.max(old_len), 0);
    bytes.copy_within(remove.end..old_len, remove.start + inserted);
    bytes.truncate(new_len);
    let mut at = remove.start;
    for part in edit.parts() {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

/// Room for the changes after the first copy.
const SPARE_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::Draft;
    use crate::edit::Mutation;
    use crate::error::SubdocError;
    use crate::path::Path;

    fn path(text: &str) -> Path<'_> {
        Path::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn changes_see_the_ones_before() {
        let mut draft = Draft::new(&b"{\"a\" : 1, \"l\":[ ]}"[..]);
        assert!(!draft.is_changed());
        assert_eq!(draft.apply(Mutation::Counter, &path("a"), b"41", false), Ok(Some(42)));
        assert!(draft.is_changed());
        draft.apply(Mutation::ArrayPushLast, &path("l"), b"1,2", false).unwrap();
        assert_eq!(draft.apply(Mutation::Counter, &path("l[1]"), b"-1", false), Ok(Some(1)));
        let failed = draft.apply(Mutation::Counter, &path("l[2]"), b"1", false);
        assert_eq!(failed, Err(SubdocError::PathEnoent));
        draft.apply(Mutation::DictAdd, &path("b.c"), b"true", true).unwrap();
        draft.apply(Mutation::Delete, &path("a"), b"", false).unwrap();
        assert_eq!(draft.apply(Mutation::DictUpsert, &path("b.c"), b"null", false), Ok(None));
        let parts = draft.parts().concat();
        assert_eq!(parts, br#"{"l":[1,1 ],"b":{"c":null}}"#);
        assert_eq!(draft.byte_count(), parts.len());
        assert_eq!(draft.text(), parts);
    }

    #[test]
    fn one_change_copies_nothing() {
        let text = b"{\"a\":1}".to_vec();
        let mut draft = Draft::new(&text[..]);
        draft.apply(Mutation::Replace, &path("a"), b"22", false).unwrap();
        assert_eq!(draft.parts()[0].as_ptr(), text.as_ptr());
        assert_eq!(draft.parts().concat(), b"{\"a\":22}");
    }
}
