//! Documents, paths and operations out of bytes, so that a fuzzer's mutations are changes to them.
//!
//! Keys come from a small set, in several spellings, and paths mostly follow the document, so that most
//! operations meet something. When the bytes are used up everything is as small as can be.

use crate::edit::Mutation;
use crate::path::Component;

use super::MUTATIONS;
use super::tree::Tree;

/// Keys, as text between quotes: several spellings of one, characters that paths have to quote, and the
/// empty one.
const KEYS: [&str; 10] =
    ["a", "b", "longer than sixteen bytes", "A", r"\u0041", "k.x[0]", "`", r#"q\"\\"#, "é", ""];
const SCALARS: [&str; 14] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "-7",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1.5",
    "1e2",
    r#""""#,
    r#""text with \"escapes\\\" and } ] in it""#,
    r#""é""#,
];
const DELTAS: [&str; 9] =
    ["1", "-1", "5", "9223372036854775807", "-9223372036854775808", "0", "1.5", "x", ""];
const SPACES: [&str; 4] = ["", "", " ", "\n    \t  "];

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) mutation: Mutation,
    pub(crate) path: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) make_parents: bool,
}

/// Bytes that decide.
pub(crate) struct Source<'a> {
    bytes: &'a [u8],
}

impl<'a> Source<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Source<'a> {
        Source { bytes }
    }

    fn below(&mut self, limit: usize) -> usize {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                usize::from(*first) % limit
            }
            None => 0,
        }
    }

    fn one_of(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len())]
    }

    /// A document whose root is a container more often than not.
    pub(crate) fn document(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        self.space(&mut text);
        self.value(&mut text, 6);
        self.space(&mut text);
        text
    }

    fn space(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.one_of(&SPACES).as_bytes());
    }

    fn value(&mut self, out: &mut Vec<u8>, depth: usize) {
        let kind = if depth == 0 { 0 } else { self.below(5) };
        match kind {
            0 => out.extend_from_slice(self.one_of(&SCALARS).as_bytes()),
            kind => self.container(out, depth - 1, kind < 3),
        }
    }

    fn container(&mut self, out: &mut Vec<u8>, depth: usize, object: bool) {
        out.push(if object { b'{' } else { b'[' });
        self.space(out);
        for member in 0..self.below(6) {
            if member > 0 {
                out.push(b',');
                self.space(out);
            }
            if object {
                out.extend_from_slice(format!("\"{}\"", self.one_of(&KEYS)).as_bytes());
                self.space(out);
                out.push(b':');
                self.space(out);
            }
            self.value(out, depth);
            self.space(out);
        }
        out.push(if object { b'}' } else { b']' });
    }

    /// The next operation, while there are bytes.
    pub(crate) fn operation(&mut self, tree: &Tree) -> Option<Operation> {
        if self.bytes.is_empty() {
            return None;
        }
        let mutation = MUTATIONS[self.below(MUTATIONS.len())];
        let make_parents = self.below(2) == 1;
        let path = self.path(tree);
        let value = self.operand(mutation);
        Some(Operation { mutation, path, value, make_parents })
    }

    fn operand(&mut self, mutation: Mutation) -> Vec<u8> {
        let mut value = Vec::new();
        match (mutation, self.below(8)) {
            (Mutation::Counter, _) => value.extend_from_slice(self.one_of(&DELTAS).as_bytes()),
            (Mutation::Delete, 1..) => {}
            (_, 0) => {
                value.extend_from_slice(self.one_of(&["", "{", "1 2", "01", ",", "1,2"]).as_bytes())
            }
            (_, 1) => {
                let deep = 20 + self.below(14);
                value.extend(std::iter::repeat_n(b'[', deep));
                value.extend(std::iter::repeat_n(b']', deep));
            }
            (_, 2) => {
                value.extend_from_slice(b" 1 , ");
                self.value(&mut value, 2);
            }
            _ => self.value(&mut value, 2),
        }
        value
    }

    /// A path along the tree, which leaves it now and then.
    fn path(&mut self, tree: &Tree) -> Vec<u8> {
        let mut components = Vec::new();
        let mut at = Some(tree);
        for _ in 0..self.below(7) {
            let (component, next) = self.step(at);
            components.push(component);
            at = next;
        }
        path_text(&components)
    }

    fn step<'t>(&mut self, tree: Option<&'t Tree>) -> (Component<'static>, Option<&'t Tree>) {
        let astray = self.below(8) == 0;
        match tree {
            Some(Tree::Object(members)) if !astray && !members.is_empty() => {
                let (key, inner) = &members[self.below(members.len())];
                let spelled = serde_json::to_vec(key).expect("a string can be written");
                (Component::Key(spelled[1..spelled.len() - 1].to_vec().into()), Some(inner))
            }
            Some(Tree::Array(elements)) if !astray && !elements.is_empty() => {
                let at = self.below(elements.len() + 1);
                match elements.get(at) {
                    Some(inner) => (Component::Index(at as u32), Some(inner)),
                    None => (Component::Last, elements.last()),
                }
            }
            _ => match self.below(4) {
                0 => (Component::Index(self.below(4) as u32), None),
                1 => (Component::Last, None),
                _ => (Component::Key(self.one_of(&KEYS).as_bytes().into()), None),
            },
        }
    }
}

/// Writes a path down, with every name between backticks that needs them and some that do not.
pub(crate) fn path_text(components: &[Component<'_>]) -> Vec<u8> {
    let mut text = Vec::new();
    for component in components {
        let key = match component {
            Component::Key(key) => key,
            Component::Index(index) => {
                text.extend_from_slice(format!("[{index}]").as_bytes());
                continue;
            }
            Component::Last => {
                text.extend_from_slice(b"[-1]");
                continue;
            }
        };
        if !text.is_empty() {
            text.push(b'.');
        }
        let plain = !key.is_empty() && !key.iter().any(|byte| b".[]`".contains(byte));
        if plain {
            text.extend_from_slice(key);
        } else {
            text.push(b'`');
            for byte in key.iter() {
                text.extend(std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'`')));
            }
            text.push(b'`');
        }
    }
    text
}

/// True when serde_json might refuse a text for its depth alone.
pub(crate) fn nests_deeply(text: &[u8]) -> bool {
    text.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() >= 127
}
