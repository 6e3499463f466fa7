//! From a path to its place in a document.
//!
//! One walk from the root: at each level the members before the wanted one are skipped, never looked
//! into. What is found is told by offsets, with what an edit needs besides: where the member with its
//! key begins, the comma before it, and where a new member would go when it is missing.

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
    /// Behind its key; where it begins, if it has none.
    pub(crate) key_end: usize,
    /// Where its value begins.
    pub(crate) value: usize,
    /// The comma before it.
    pub(crate) comma: Option<usize>,
}

/// Where a member would go that is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacancy {
    /// Behind the last member, or behind the opening bracket.
    pub(crate) at: usize,
    /// The container has no members.
    pub(crate) empty: bool,
    /// How many members it has.
    pub(crate) count: usize,
}

/// What is at a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Located {
    /// Everything is there. The root has no comma and starts where its value does.
    Found(Member),
    /// The component `level` is missing from a container of its kind that is there.
    Missing { level: usize, vacancy: Vacancy },
}

/// Walks from the root of `text` along `components`.
pub(crate) fn locate(text: &[u8], components: &[Component<'_>]) -> Result<Located, SubdocError> {
    let root = skip_space(text, 0);
    let mut member = Member { start: root, key_end: root, value: root, comma: None };
    for (level, component) in components.iter().enumerate() {
        match child(text, member.value, level, component)? {
            Ok(found) => member = found,
            Err(vacancy) => return Ok(Located::Missing { level, vacancy }),
        }
    }
    match text.get(member.value) {
        Some(_) => Ok(Located::Found(member)),
        None => Err(SubdocError::DocNotJson),
    }
}

/// The value of `member`, around which there are `depth` containers.
pub(crate) fn span(
    text: &[u8],
    member: &Member,
    depth: usize,
) -> Result<Range<usize>, SubdocError> {
    Ok(member.value..value_end(text, member.value, depth)?)
}

/// The elements or members of the container that begins at `at`, around which there are `depth` others.
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

/// The step from the value at `at`, around which there are `depth` containers.
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

/// A walk over the members of one container. Each member has to be skipped before the next is asked for.
pub(crate) struct Members<'a> {
    text: &'a [u8],
    object: bool,
    /// Containers around a member.
    depth: usize,
    /// Behind what was skipped.
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

    /// Skips the member that [`Members::next`] returned; where its value ends.
    #[inline]
    pub(crate) fn skip(&mut self, member: &Member) -> Result<usize, SubdocError> {
        let end = value_end(self.text, member.value, self.depth)?;
        self.vacancy = Vacancy { at: end, empty: false, count: self.vacancy.count + 1 };
        Ok(end)
    }

    /// Members that were skipped.
    pub(crate) fn skipped(&self) -> usize {
        self.vacancy.count
    }

    /// Where the next member would go.
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
