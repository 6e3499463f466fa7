//! Locates a path in a document.
//!
//! It walks once from the root: at each level it skips the members before the wanted one without
//! looking into them. The result has offsets, and what an edit needs: where the member with its key
//! begins, the comma before it, and the insertion point of a missing member.

use std::ops::Range;

use crate::error::SubdocError;
use crate::key_text;
use crate::limits::DEPTH_MAX;
use crate::path::Component;
use crate::scan::{skip_space, string_end, value_end};

/// A member of an object or an element of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// Where it begins: with its key, if it has one.
    pub(crate) start: usize,
    /// After its key; where it begins, if it has none.
    pub(crate) key_end: usize,
    /// Where its value begins.
    pub(crate) value: usize,
    /// The comma before it.
    pub(crate) comma: Option<usize>,
}

/// The insertion point of a missing member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacancy {
    /// After the last member, or after the opening bracket.
    pub(crate) at: usize,
    /// The container has no members.
    pub(crate) empty: bool,
    /// The number of members.
    pub(crate) count: usize,
}

/// The result for a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathLocation {
    /// The whole path exists. The root has no comma and starts where its value does.
    Found(Member),
    /// The component `level` is missing from an existing container of its kind.
    Missing { level: usize, vacancy: Vacancy },
}

/// Walks from the root of `text` along `components`.
pub(crate) fn locate(
    text: &[u8],
    components: &[Component<'_>],
) -> Result<PathLocation, SubdocError> {
    let root = skip_space(text, 0);
    let mut member = Member { start: root, key_end: root, value: root, comma: None };
    for (level, component) in components.iter().enumerate() {
        match child(text, member.value, level, component)? {
            Ok(found) => member = found,
            Err(vacancy) => return Ok(PathLocation::Missing { level, vacancy }),
        }
    }
    match text.get(member.value) {
        Some(_) => Ok(PathLocation::Found(member)),
        None => Err(SubdocError::DocNotJson),
    }
}

/// The value of `member`, inside `depth` containers.
pub(crate) fn span(
    text: &[u8],
    member: &Member,
    depth: usize,
) -> Result<Range<usize>, SubdocError> {
    Ok(member.value..value_end(text, member.value, depth)?)
}

/// The elements or members of the container that begins at `at`, inside `depth` others.
pub(crate) fn members(text: &[u8], at: usize, depth: usize) -> Result<Members<'_>, SubdocError> {
    let object = match text.get(at) {
        Some(b'{') => true,
        Some(b'[') => false,
        Some(_) => return Err(SubdocError::PathMismatch),
        None => return Err(SubdocError::DocNotJson),
    };
    if depth == DEPTH_MAX {
        return Err(SubdocError::DocE2deep);
    }
    let vacancy = Vacancy { at: at + 1, empty: true, count: 0 };
    Ok(Members { text, object, depth: depth + 1, vacancy })
}

/// The step from the value at `at`, inside `depth` containers.
fn child(
    text: &[u8],
    at: usize,
    depth: usize,
    component: &Component<'_>,
) -> Result<Result<Member, Vacancy>, SubdocError> {
    let mut members = members(text, at, depth)?;
    match component {
        Component::Key(key) if members.object => {
            while let Some(member) = members.next()? {
                if key_text::same(&text[member.start + 1..member.key_end - 1], key) {
                    return Ok(Ok(member));
                }
                members.skip(&member)?;
            }
        }
        Component::Index(index) if !members.object => {
            while let Some(member) = members.next()? {
                if members.vacancy.count == *index as usize {
                    return Ok(Ok(member));
                }
                members.skip(&member)?;
            }
        }
        Component::Last if !members.object => {
            let mut last = None;
            while let Some(member) = members.next()? {
                members.skip(&member)?;
                last = Some(member);
            }
            if let Some(last) = last {
                return Ok(Ok(last));
            }
        }
        _ => return Err(SubdocError::PathMismatch),
    }
    Ok(Err(members.vacancy))
}

/// A walk over the members of one container. The caller must skip each member before it asks for
/// the next.
pub(crate) struct Members<'a> {
    text: &'a [u8],
    object: bool,
    /// Containers around a member.
    depth: usize,
    /// The position after the skipped part.
    vacancy: Vacancy,
}

impl Members<'_> {
    /// The next member, `None` at the end of the container.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Member>, SubdocError> {
        let at = skip_space(self.text, self.vacancy.at);
        let closing = if self.object { b'}' } else { b']' };
        let (start, comma) = match self.text.get(at) {
            Some(byte) if *byte == closing => return Ok(None),
            Some(b',') if !self.vacancy.empty => (skip_space(self.text, at + 1), Some(at)),
            Some(_) if self.vacancy.empty => (at, None),
            _ => return Err(SubdocError::DocNotJson),
        };
        let (key_end, value) = if self.object { self.key(start)? } else { (start, start) };
        Ok(Some(Member { start, key_end, value, comma }))
    }

    /// Skips the member that [`Members::next`] returned; returns where its value ends.
    #[inline]
    pub(crate) fn skip(&mut self, member: &Member) -> Result<usize, SubdocError> {
        let end = value_end(self.text, member.value, self.depth)?;
        self.vacancy = Vacancy { at: end, empty: false, count: self.vacancy.count + 1 };
        Ok(end)
    }

    /// Number of skipped members.
    pub(crate) fn skipped(&self) -> usize {
        self.vacancy.count
    }

    /// The insertion point of the next member.
    pub(crate) fn vacancy(&self) -> Vacancy {
        self.vacancy
    }

    /// The end of the key that begins at `start`, and where its value begins.
    #[inline]
    fn key(&self, start: usize) -> Result<(usize, usize), SubdocError> {
        if self.text.get(start) != Some(&b'"') {
            return Err(SubdocError::DocNotJson);
        }
        let end = string_end(self.text, start)?;
        let colon = skip_space(self.text, end);
        match self.text.get(colon) {
            Some(b':') => Ok((end, skip_space(self.text, colon + 1))),
            _ => Err(SubdocError::DocNotJson),
        }
    }
}
