//! Generates documents, paths and operations from bytes, so that a fuzzer's mutations are changes
//! to them.
//!
//! Keys come from a small set, in several spellings, and paths mostly follow the document, so most
//! operations have a target. When the bytes run out everything is as small as possible.

use crate::edit::Mutation;
use crate::path::Component;

use super::tree::Tree;

/// All mutations, in the order of their opcodes.
pub const MUTATIONS: [Mutation; 9] = [
    Mutation::DictAdd,
    Mutation::DictUpsert,
    Mutation::Delete,
    Mutation::Replace,
    Mutation::ArrayPushLast,
    Mutation::ArrayPushFirst,
    Mutation::ArrayInsert,
    Mutation::ArrayAddUnique,
    Mutation::Counter,
];

/// Keys, as text between quotes: several spellings of one, characters that paths must quote, and
/// the empty one.
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

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) mutation: Mutation,
    /// Meaning of the path.
    pub(crate) components: Vec<Component<'static>>,
    /// One of its spellings.
    pub(crate) path: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) make_parents: bool,
}

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

    /// A document whose root is usually a container.
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
        let components = self.components(tree);
        let path = self.spelled(&components);
        let value = self.operand(mutation);
        Some(Operation { mutation, components, path, value, make_parents })
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

    /// A path along the tree, which occasionally leaves it.
    fn components(&mut self, tree: &Tree) -> Vec<Component<'static>> {
        let mut components = Vec::new();
        let mut at = Some(tree);
        for _ in 0..self.below(7) {
            let (component, next) = self.step(at);
            components.push(component);
            at = next;
        }
        components
    }

    /// A path in one of its spellings: redundant dots, indexes with more or fewer digits than
    /// necessary, backticks inside names.
    fn spelled(&mut self, components: &[Component<'_>]) -> Vec<u8> {
        let mut text = Vec::new();
        for component in components {
            let variant = self.below(4);
            let is_first = text.is_empty();
            match component {
                Component::Key(key) if variant == 1 && !key.contains(&b'`') && !key.is_empty() => {
                    text.extend_from_slice(if is_first { b"" } else { b"." });
                    quote_in_part(&mut text, key);
                    continue;
                }
                Component::Index(_) | Component::Last if variant == 2 && !is_first => {
                    text.push(b'.')
                }
                _ => {}
            }
            match (component, variant) {
                (Component::Index(0), 1) => text.extend_from_slice(b"[]"),
                (Component::Index(index), 3) => {
                    text.extend_from_slice(format!("[00{index}]").as_bytes());
                }
                (component, _) => write_component(&mut text, component),
            }
        }
        if !text.is_empty() && self.below(4) == 1 {
            text.push(b'.');
        }
        text
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

/// Writes a path down, with backticks around every name that needs them and around some that do
/// not.
pub(crate) fn path_text(components: &[Component<'_>]) -> Vec<u8> {
    let mut text = Vec::new();
    components.iter().for_each(|component| write_component(&mut text, component));
    text
}

fn write_component(text: &mut Vec<u8>, component: &Component<'_>) {
    let key = match component {
        Component::Key(key) => key,
        Component::Index(index) => {
            return text.extend_from_slice(format!("[{index}]").as_bytes());
        }
        Component::Last => return text.extend_from_slice(b"[-1]"),
    };
    if !text.is_empty() {
        text.push(b'.');
    }
    let plain = !key.is_empty() && !key.iter().any(|byte| b".[]`".contains(byte));
    if plain {
        return text.extend_from_slice(key);
    }
    text.push(b'`');
    for byte in key.iter() {
        text.extend(std::iter::repeat_n(*byte, 1 + usize::from(*byte == b'`')));
    }
    text.push(b'`');
}

/// Writes a name with backticks around the necessary parts only. The name has no backtick itself.
fn quote_in_part(text: &mut Vec<u8>, key: &[u8]) {
    let is_special = |byte: &u8| b".[]".contains(byte);
    for run in key.chunk_by(|one, other| is_special(one) == is_special(other)) {
        let quote: &[u8] = if is_special(&run[0]) { b"`" } else { b"" };
        text.extend_from_slice(&[quote, run, quote].concat());
    }
}

/// True when serde_json might refuse a text only because of its depth.
pub(crate) fn nests_deeply(text: &[u8]) -> bool {
    text.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() >= 127
}
