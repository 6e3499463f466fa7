//! Write operations, each described as one splice of the document's text.
//!
//! This module never copies a new value: an [`Edit`] borrows it and owns only the few bytes around
//! it, such as a comma and a key. It checks a value before it looks at the document, so a bad value
//! fails for every path.

use std::ops::Range;

use smallvec::SmallVec;

use crate::error::SubdocError;
use crate::json;
use crate::key_text;
use crate::limits::DEPTH_MAX;
use crate::locate::{Member, PathLocation, Vacancy, locate, members, span};
use crate::number;
use crate::path::{Component, Path};
use crate::scan::skip_space;

/// The operation at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Adds a member with a new key.
    DictAdd,
    /// Adds or replaces the member with a key.
    DictUpsert,
    /// Removes the value at the path.
    Delete,
    /// Replaces the value at the path.
    Replace,
    /// Appends one or more values, with commas between them, to the array at the path.
    ArrayPushLast,
    /// The same at its beginning.
    ArrayPushFirst,
    /// Inserts them before the element at the end of the path, or at the end of the array.
    ArrayInsert,
    /// Appends a scalar to an array of scalars without an equal one. Numbers are equal when their
    /// text is.
    ArrayAddUnique,
    /// Adds a delta to a 64-bit integer, or inserts it at a missing path.
    Counter,
}

impl Mutation {
    /// True if the operation can create missing objects of a path.
    pub const fn makes_parents(self) -> bool {
        !matches!(self, Mutation::Delete | Mutation::Replace | Mutation::ArrayInsert)
    }

    /// True where the path may be the whole document.
    pub const fn takes_root(self) -> bool {
        matches!(
            self,
            Mutation::ArrayPushLast | Mutation::ArrayPushFirst | Mutation::ArrayAddUnique
        )
    }
}

/// One splice: the bytes of [`Edit::parts`] replace those of `remove`.
#[derive(Clone, Debug)]
pub struct Edit<'v> {
    remove: Range<usize>,
    before: SmallVec<[u8; 48]>,
    value: &'v [u8],
    after: SmallVec<[u8; 40]>,
    counter: Option<i64>,
}

impl<'v> Edit<'v> {
    fn new(remove: Range<usize>, value: &'v [u8]) -> Edit<'v> {
        Edit { remove, before: SmallVec::new(), value, after: SmallVec::new(), counter: None }
    }

    pub fn remove(&self) -> Range<usize> {
        self.remove.clone()
    }

    /// The inserted bytes, in order.
    pub fn parts(&self) -> [&[u8]; 3] {
        [&self.before, self.value, &self.after]
    }

    /// Number of inserted bytes.
    pub fn inserted_bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// The new value of a counter.
    pub fn counter(&self) -> Option<i64> {
        self.counter
    }
}

/// The change of `text` by `mutation` of `path`. `value` is JSON, a list of it where an array takes
/// several, the decimal delta of a counter, or empty for a deletion. `make_parents` creates missing
/// objects on the path where the operation allows it.
///
/// # Errors
/// All of [`SubdocError`].
pub fn edit<'v>(
    text: &[u8],
    mutation: Mutation,
    path: &Path<'_>,
    value: &'v [u8],
    make_parents: bool,
) -> Result<Edit<'v>, SubdocError> {
    check_path(mutation, path)?;
    check_value(mutation, path, value)?;
    let job = Job { text, path: path.components(), value, make_parents };
    match mutation {
        Mutation::DictAdd => job.dict_add(),
        Mutation::DictUpsert => job.dict_upsert(),
        Mutation::Delete => job.delete(),
        Mutation::Replace => job.replace(),
        Mutation::ArrayPushLast => job.array_push_last(),
        Mutation::ArrayPushFirst => job.array_push_first(),
        Mutation::ArrayInsert => job.array_insert(),
        Mutation::ArrayAddUnique => job.array_add_unique(),
        Mutation::Counter => job.counter(),
    }
}

fn check_path(mutation: Mutation, path: &Path<'_>) -> Result<(), SubdocError> {
    let fits = match (mutation, path.components().last()) {
        (mutation, None) => mutation.takes_root(),
        (Mutation::DictAdd | Mutation::DictUpsert, Some(last)) => {
            matches!(last, Component::Key(_))
        }
        (Mutation::ArrayInsert, Some(last)) => matches!(last, Component::Index(_)),
        _ => true,
    };
    if fits { Ok(()) } else { Err(SubdocError::PathEinval) }
}

fn check_value(mutation: Mutation, path: &Path<'_>, value: &[u8]) -> Result<(), SubdocError> {
    let (nesting, inside) = match mutation {
        // The operation parses its delta before it looks at the document.
        Mutation::Counter => return number::delta(value).map(|_| ()),
        Mutation::Delete if value.is_empty() => return Ok(()),
        Mutation::Delete => return Err(SubdocError::ValueCantinsert),
        Mutation::DictAdd | Mutation::DictUpsert | Mutation::Replace => (json::nesting(value), 0),
        Mutation::ArrayInsert => (json::list_nesting(value), 0),
        Mutation::ArrayPushLast | Mutation::ArrayPushFirst => (json::list_nesting(value), 1),
        Mutation::ArrayAddUnique => (json::nesting(value).filter(|nesting| *nesting == 0), 1),
    };
    // A path's value is nested in as many containers as the path has components.
    match nesting {
        None => Err(SubdocError::ValueCantinsert),
        Some(nesting) if nesting + inside + path.components().len() > DEPTH_MAX => {
            Err(SubdocError::ValueEtoodeep)
        }
        Some(_) => Ok(()),
    }
}

/// An operation and its inputs.
struct Job<'a, 'p, 'v> {
    text: &'a [u8],
    path: &'a [Component<'p>],
    value: &'v [u8],
    make_parents: bool,
}

impl<'v> Job<'_, '_, 'v> {
    fn dict_add(&self) -> Result<Edit<'v>, SubdocError> {
        match locate(self.text, self.path)? {
            PathLocation::Found(_) => Err(SubdocError::PathEexists),
            PathLocation::Missing { level, vacancy } => self.put_missing(level, vacancy, b"", b""),
        }
    }

    fn dict_upsert(&self) -> Result<Edit<'v>, SubdocError> {
        match locate(self.text, self.path)? {
            PathLocation::Found(member) => Ok(Edit::new(self.span(&member)?, self.value)),
            PathLocation::Missing { level, vacancy } => self.put_missing(level, vacancy, b"", b""),
        }
    }

    fn replace(&self) -> Result<Edit<'v>, SubdocError> {
        Ok(Edit::new(self.span(&self.found()?)?, self.value))
    }

    fn delete(&self) -> Result<Edit<'v>, SubdocError> {
        let member = self.found()?;
        let end = self.span(&member)?.end;
        let behind = skip_space(self.text, end);
        let remove = match (member.comma, self.text.get(behind)) {
            (Some(comma), _) => comma..end,
            (None, Some(b',')) => member.start..skip_space(self.text, behind + 1),
            (None, _) => member.start..end,
        };
        Ok(Edit::new(remove, b""))
    }

    fn array_push_last(&self) -> Result<Edit<'v>, SubdocError> {
        let array = match locate(self.text, self.path)? {
            PathLocation::Found(member) => member,
            PathLocation::Missing { level, vacancy } => {
                return self.put_missing(level, vacancy, b"[", b"]");
            }
        };
        self.check_array(&array)?;
        let end = self.span(&array)?.end;
        let inside = &self.text[array.value + 1..(end - 1).max(array.value + 1)];
        Ok(self.append(
            array.value + 1 + inside.trim_ascii_end().len(),
            inside.trim_ascii().is_empty(),
        ))
    }

    fn array_push_first(&self) -> Result<Edit<'v>, SubdocError> {
        let array = match locate(self.text, self.path)? {
            PathLocation::Found(member) => member,
            PathLocation::Missing { level, vacancy } => {
                return self.put_missing(level, vacancy, b"[", b"]");
            }
        };
        self.check_array(&array)?;
        let mut members = members(self.text, array.value, self.path.len())?;
        Ok(self.prepend(array.value + 1, members.next()?.is_none()))
    }

    fn array_insert(&self) -> Result<Edit<'v>, SubdocError> {
        let (level, vacancy) = match locate(self.text, self.path)? {
            PathLocation::Found(member) => return Ok(self.prepend(member.start, false)),
            PathLocation::Missing { level, vacancy } => (level, vacancy),
        };
        match self.path.last() {
            Some(Component::Index(index))
                if level + 1 == self.path.len() && vacancy.count == *index as usize =>
            {
                Ok(self.append(vacancy.at, vacancy.empty))
            }
            _ => Err(SubdocError::PathEnoent),
        }
    }

    fn array_add_unique(&self) -> Result<Edit<'v>, SubdocError> {
        let array = match locate(self.text, self.path)? {
            PathLocation::Found(member) => member,
            PathLocation::Missing { level, vacancy } => {
                return self.put_missing(level, vacancy, b"[", b"]");
            }
        };
        self.check_array(&array)?;
        let wanted = self.value.trim_ascii();
        let mut members = members(self.text, array.value, self.path.len())?;
        let mut there = false;
        while let Some(member) = members.next()? {
            if let Some(b'{' | b'[') = self.text.get(member.value) {
                return Err(SubdocError::PathMismatch);
            }
            let end = members.skip(&member)?;
            there |= same_scalar(&self.text[member.value..end], wanted);
        }
        if there {
            return Err(SubdocError::PathEexists);
        }
        let vacancy = members.vacancy();
        Ok(self.append(vacancy.at, vacancy.empty))
    }

    fn counter(&self) -> Result<Edit<'v>, SubdocError> {
        let delta = number::delta(self.value)?;
        let (mut edit, stands_at) = match locate(self.text, self.path)? {
            PathLocation::Found(member) => {
                let span = self.span(&member)?;
                let current = number::current(&self.text[span.clone()])?;
                let sum = current.checked_add(delta).ok_or(SubdocError::ValueCantinsert)?;
                (Edit::new(span, b""), sum)
            }
            PathLocation::Missing { level, vacancy } => {
                (self.put_missing(level, vacancy, b"", b"")?, delta)
            }
        };
        edit.value = b"";
        edit.before.extend_from_slice(stands_at.to_string().as_bytes());
        edit.counter = Some(stands_at);
        Ok(edit)
    }

    /// Inserts the value under the components from `level` on, between `open` and `close`, into the
    /// container that lacks the first of them.
    fn put_missing(
        &self,
        level: usize,
        vacancy: Vacancy,
        open: &[u8],
        close: &[u8],
    ) -> Result<Edit<'v>, SubdocError> {
        let missing = &self.path[level..];
        if missing.len() > 1 && !self.make_parents {
            return Err(SubdocError::PathEnoent);
        }
        // An array pushed to needs the flag even when only the array itself is missing.
        if !open.is_empty() && !self.make_parents {
            return Err(SubdocError::PathEnoent);
        }
        let mut edit = Edit::new(vacancy.at..vacancy.at, self.value);
        if !vacancy.empty {
            edit.before.push(b',');
        }
        for (at, component) in missing.iter().enumerate() {
            let Component::Key(key) = component else { return Err(SubdocError::PathEnoent) };
            if at > 0 {
                edit.before.push(b'{');
                edit.after.push(b'}');
            }
            edit.before.push(b'"');
            edit.before.extend_from_slice(key);
            edit.before.extend_from_slice(b"\":");
        }
        edit.before.extend_from_slice(open);
        edit.after.insert_from_slice(0, close);
        Ok(edit)
    }

    /// Inserts the value after the last member of a container.
    fn append(&self, at: usize, empty: bool) -> Edit<'v> {
        let mut edit = Edit::new(at..at, self.value);
        if !empty {
            edit.before.push(b',');
        }
        edit
    }

    /// Inserts the value before a member.
    fn prepend(&self, at: usize, empty: bool) -> Edit<'v> {
        let mut edit = Edit::new(at..at, self.value);
        if !empty {
            edit.after.push(b',');
        }
        edit
    }

    fn found(&self) -> Result<Member, SubdocError> {
        match locate(self.text, self.path)? {
            PathLocation::Found(member) => Ok(member),
            PathLocation::Missing { .. } => Err(SubdocError::PathEnoent),
        }
    }

    fn span(&self, member: &Member) -> Result<Range<usize>, SubdocError> {
        span(self.text, member, self.path.len())
    }

    fn check_array(&self, member: &Member) -> Result<(), SubdocError> {
        let is_array = self.text.get(member.value) == Some(&b'[');
        if is_array { Ok(()) } else { Err(SubdocError::PathMismatch) }
    }
}

/// True for equal scalars: strings by their meaning, all others by their text.
fn same_scalar(one: &[u8], other: &[u8]) -> bool {
    match (one, other) {
        ([b'"', one @ .., b'"'], [b'"', other @ .., b'"']) => key_text::same(one, other),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
