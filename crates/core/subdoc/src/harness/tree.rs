//! The plain implementation: a tree that serde_json parsed, changed node by node.
//!
//! It keeps the order of keys and duplicates, so it has all of the text except the spelling of
//! numbers and strings. Where the spelling decides, it returns [`Outcome::DependsOnText`].

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::de::Deserializer as JsonReader;

use crate::edit::Mutation;
use crate::error::SubdocError;
use crate::limits::DEPTH_MAX;
use crate::path::{Component, Path};

#[derive(Clone, PartialEq, Debug)]
pub enum Tree {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer beyond that.
    Uint(u64),
    Float(f64),
    Text(String),
    Array(Vec<Tree>),
    /// An object, in its order.
    Object(Vec<(String, Tree)>),
}

/// The expected outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Known(Result<Option<i64>, SubdocError>),
    /// The tree lacks the deciding information.
    DependsOnText,
}

/// True when serde_json accepts it as JSON.
pub fn is_json(text: &[u8]) -> bool {
    // It skips strings without checking their encoding.
    std::str::from_utf8(text).is_ok() && serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

impl Tree {
    /// Parses a text; `None` when serde_json cannot hold it, such as a lone surrogate.
    pub fn parse(text: &[u8]) -> Option<Tree> {
        let mut reader = JsonReader::from_slice(text);
        let tree = Tree::deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(tree)
    }

    /// The value at a path.
    ///
    /// # Errors
    /// As [`crate::lookup::get`].
    pub fn get(&self, path: &Path<'_>) -> Result<&Tree, SubdocError> {
        path.components().iter().try_fold(self, |tree, component| {
            tree.place(component)?.map(|at| tree.child(at)).ok_or(SubdocError::PathEnoent)
        })
    }

    /// Members or elements.
    ///
    /// # Errors
    /// [`SubdocError::PathMismatch`] for a scalar.
    pub fn count(&self) -> Result<usize, SubdocError> {
        match self {
            Tree::Array(elements) => Ok(elements.len()),
            Tree::Object(members) => Ok(members.len()),
            _ => Err(SubdocError::PathMismatch),
        }
    }

    /// Containers from this one to its deepest, 0 for a scalar.
    pub fn nesting(&self) -> usize {
        match self {
            Tree::Array(all) => 1 + all.iter().map(Tree::nesting).max().unwrap_or(0),
            Tree::Object(all) => 1 + all.iter().map(|(_, tree)| tree.nesting()).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// Applies an operation to the tree.
    pub fn apply(
        &mut self,
        mutation: Mutation,
        path: &Path<'_>,
        value: &[u8],
        make_parents: bool,
    ) -> Outcome {
        match Change::new(mutation, path, value, make_parents) {
            Err(error) => Outcome::Known(Err(error)),
            Ok(change) => match change.run(self, path.components()) {
                Ok(counter) => Outcome::Known(Ok(counter)),
                Err(Some(error)) => Outcome::Known(Err(error)),
                Err(None) => Outcome::DependsOnText,
            },
        }
    }

    fn place(&self, component: &Component<'_>) -> Result<Option<usize>, SubdocError> {
        match (self, component) {
            (Tree::Object(members), Component::Key(key)) => {
                let key = plain(key);
                Ok(members.iter().position(|(name, _)| *name == key))
            }
            (Tree::Array(elements), Component::Index(index)) => {
                Ok(Some(*index as usize).filter(|index| *index < elements.len()))
            }
            (Tree::Array(elements), Component::Last) => Ok(elements.len().checked_sub(1)),
            _ => Err(SubdocError::PathMismatch),
        }
    }

    fn child(&self, at: usize) -> &Tree {
        match self {
            Tree::Array(elements) => &elements[at],
            Tree::Object(members) => &members[at].1,
            _ => unreachable!("a place is in a container"),
        }
    }

    fn child_mut(&mut self, at: usize) -> &mut Tree {
        match self {
            Tree::Array(elements) => &mut elements[at],
            Tree::Object(members) => &mut members[at].1,
            _ => unreachable!("a place is in a container"),
        }
    }
}

/// The meaning of a path's key.
fn plain(key: &[u8]) -> String {
    let quoted = [b"\"", key, b"\""].concat();
    serde_json::from_slice(&quoted).expect("only keys without lone surrogates are generated")
}

/// A mutation with its parsed value.
struct Change {
    mutation: Mutation,
    values: Vec<Tree>,
    delta: i64,
    make_parents: bool,
}

/// `None` where the text decides.
type Failure = Option<SubdocError>;

impl Change {
    fn new(
        mutation: Mutation,
        path: &Path<'_>,
        value: &[u8],
        make_parents: bool,
    ) -> Result<Change, SubdocError> {
        use Mutation::*;
        let fits = match (mutation, path.components().last()) {
            (ArrayPushLast | ArrayPushFirst | ArrayAddUnique, None) => true,
            (_, None) | (DictAdd | DictUpsert, Some(Component::Index(_) | Component::Last)) => {
                false
            }
            (ArrayInsert, Some(Component::Key(_) | Component::Last)) => false,
            _ => true,
        };
        if !fits {
            return Err(SubdocError::PathEinval);
        }
        let mut change = Change { mutation, values: Vec::new(), delta: 0, make_parents };
        if mutation == Counter {
            let text = std::str::from_utf8(value).unwrap_or("");
            let delta = text.parse::<i64>().ok().filter(|delta| delta.to_string() == text);
            change.delta = delta.filter(|delta| *delta != 0).ok_or(SubdocError::DeltaEinval)?;
            return Ok(change);
        }
        if mutation == Delete {
            return if value.is_empty() { Ok(change) } else { Err(SubdocError::ValueCantinsert) };
        }
        let listed = Tree::parse(&[b"[", value, b"]"].concat());
        let Some(Tree::Array(values)) = listed else { return Err(SubdocError::ValueCantinsert) };
        let several = matches!(mutation, ArrayPushLast | ArrayPushFirst | ArrayInsert);
        let nesting = values.iter().map(Tree::nesting).max();
        let nesting = nesting.ok_or(SubdocError::ValueCantinsert)?;
        if (values.len() > 1 && !several) || (mutation == ArrayAddUnique && nesting > 0) {
            return Err(SubdocError::ValueCantinsert);
        }
        let inside = matches!(mutation, ArrayPushLast | ArrayPushFirst | ArrayAddUnique);
        if nesting + usize::from(inside) + path.components().len() > DEPTH_MAX {
            return Err(SubdocError::ValueEtoodeep);
        }
        change.values = values;
        Ok(change)
    }

    fn run(mut self, tree: &mut Tree, path: &[Component<'_>]) -> Result<Option<i64>, Failure> {
        if path.is_empty() {
            return self.at_value(tree).map(|()| None);
        }
        let place = tree.place(&path[0])?;
        match place {
            Some(at) if path.len() > 1 => self.run(tree.child_mut(at), &path[1..]),
            Some(at) => self.at_member(tree, at),
            None => {
                if self.mutation == Mutation::ArrayInsert {
                    return self.insert_behind(tree, path);
                }
                let counter = (self.mutation == Mutation::Counter).then_some(self.delta);
                let made = self.make(&path[1..])?;
                match (tree, &path[0]) {
                    (Tree::Object(members), Component::Key(key)) => {
                        members.push((plain(key), made))
                    }
                    _ => return Err(Some(SubdocError::PathEnoent)),
                }
                Ok(counter)
            }
        }
    }

    /// The new value at a missing end of the path.
    fn make(&mut self, rest: &[Component<'_>]) -> Result<Tree, Failure> {
        use Mutation::*;
        let is_array = matches!(self.mutation, ArrayPushLast | ArrayPushFirst | ArrayAddUnique);
        let needs_parents = !rest.is_empty() || is_array;
        let absent = matches!(self.mutation, Delete | Replace | ArrayInsert);
        if absent || (needs_parents && !self.make_parents) {
            return Err(Some(SubdocError::PathEnoent));
        }
        let leaf = match self.mutation {
            Counter => Tree::Int(self.delta),
            _ if is_array => Tree::Array(std::mem::take(&mut self.values)),
            _ => self.values.remove(0),
        };
        rest.iter().rev().try_fold(leaf, |inner, component| match component {
            Component::Key(key) => Ok(Tree::Object(vec![(plain(key), inner)])),
            _ => Err(Some(SubdocError::PathEnoent)),
        })
    }

    fn insert_behind(
        self,
        tree: &mut Tree,
        path: &[Component<'_>],
    ) -> Result<Option<i64>, Failure> {
        match (tree, path) {
            (Tree::Array(elements), [Component::Index(index)])
                if *index as usize == elements.len() =>
            {
                elements.extend(self.values);
                Ok(None)
            }
            _ => Err(Some(SubdocError::PathEnoent)),
        }
    }

    fn at_member(mut self, parent: &mut Tree, at: usize) -> Result<Option<i64>, Failure> {
        match self.mutation {
            Mutation::DictAdd => return Err(Some(SubdocError::PathEexists)),
            Mutation::DictUpsert | Mutation::Replace => {
                *parent.child_mut(at) = self.values.remove(0)
            }
            Mutation::Delete => match parent {
                Tree::Array(elements) => drop(elements.remove(at)),
                Tree::Object(members) => drop(members.remove(at)),
                _ => unreachable!("a place is in a container"),
            },
            Mutation::ArrayInsert => match parent {
                Tree::Array(elements) => drop(elements.splice(at..at, self.values)),
                _ => unreachable!("an index is of an array"),
            },
            Mutation::Counter => return self.count_up(parent.child_mut(at)).map(Some),
            _ => self.at_value(parent.child_mut(at))?,
        }
        Ok(None)
    }

    fn at_value(&mut self, array: &mut Tree) -> Result<(), Failure> {
        let Tree::Array(elements) = array else { return Err(Some(SubdocError::PathMismatch)) };
        let values = std::mem::take(&mut self.values);
        match self.mutation {
            Mutation::ArrayPushLast => elements.extend(values),
            Mutation::ArrayPushFirst => drop(elements.splice(0..0, values)),
            _ => {
                if elements.iter().any(|element| element.nesting() > 0) {
                    return Err(Some(SubdocError::PathMismatch));
                }
                if elements.contains(&values[0]) {
                    return match values[0] {
                        Tree::Float(_) => Err(None),
                        _ => Err(Some(SubdocError::PathEexists)),
                    };
                }
                elements.extend(values);
            }
        }
        Ok(())
    }

    fn count_up(&self, number: &mut Tree) -> Result<i64, Failure> {
        let current = match number {
            Tree::Int(current) => *current,
            Tree::Uint(_) => return Err(Some(SubdocError::NumErange)),
            // Digits only, however many, or with a fraction?
            Tree::Float(_) => return Err(None),
            _ => return Err(Some(SubdocError::PathMismatch)),
        };
        let sum = current.checked_add(self.delta).ok_or(Some(SubdocError::ValueCantinsert))?;
        *number = Tree::Int(sum);
        Ok(sum)
    }
}

struct TreeVisitor;

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Tree, D::Error> {
        reader.deserialize_any(TreeVisitor)
    }
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(i64::try_from(value).map_or(Tree::Uint(value), Tree::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element()? {
            all.push(element);
        }
        Ok(Tree::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        Ok(Tree::Object(all))
    }
}
