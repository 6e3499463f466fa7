//! The modules of a crate, and which file each imported name comes from.
//!
//! It follows `mod` lines from the roots, so what only tests declare is not there. Names are
//! resolved as the compiler does it, as far as files matter: through `crate`, `self`, `super`,
//! modules, imports and re-exports to the file that defines the name. What a macro makes counts for
//! the file that calls the macro. Imports inside a function count for its whole module.

use std::collections::BTreeSet;

use super::tokens::{CodeToken, behind_group, shipped_tokens};

/// Re-exports of re-exports that are followed; only a circle of them is longer.
const STEPS_MAX: usize = 32;

/// A name that one file takes from another.
pub(super) struct Import<'a> {
    pub from: usize,
    pub to: usize,
    pub name: &'a str,
    pub line: usize,
}

/// One leaf of a `use`.
struct Use<'a> {
    path: Vec<&'a str>,
    /// The local name of the path; `*` for all of a module.
    name: &'a str,
    is_public: bool,
    line: usize,
}

#[derive(Default)]
struct Module<'a> {
    file: usize,
    root: usize,
    parent: usize,
    children: Vec<(&'a str, usize)>,
    items: BTreeSet<&'a str>,
    uses: Vec<Use<'a>>,
    /// Paths of two names or more in the code, with their lines.
    paths: Vec<(Vec<&'a str>, usize)>,
    /// Words that may name an import, outside of `use`.
    words: BTreeSet<&'a str>,
}

/// Target of a path.
#[derive(Clone, Copy)]
enum Place {
    Module(usize),
    /// Something that the file defines.
    Item(usize),
    Outside,
}

/// All modules that are shipped; files are indices into what was parsed.
pub(super) struct Crate<'a> {
    source: &'a [(String, String)],
    modules: Vec<Module<'a>>,
}

impl<'a> Crate<'a> {
    /// Reads the modules out of paths and code of a crate's files.
    pub(super) fn parse(source: &'a [(String, String)]) -> Crate<'a> {
        let mut parsed = Crate { source, modules: Vec::new() };
        for (file, (path, _)) in source.iter().enumerate() {
            let below = path.split_once("/src/").map_or("", |(_, below)| below);
            let in_bin = below.strip_prefix("bin/").is_some_and(|name| !name.contains('/'));
            if matches!(below, "lib.rs" | "main.rs") || in_bin {
                let root = parsed.modules.len();
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                parsed.modules.push(Module { file, root, parent: root, ..Module::default() });
                parsed.read(root, &shipped_tokens(&source[file].1), directory);
            }
        }
        parsed
    }

    /// Imports of files from other files of the crate.
    pub(super) fn imports(&self) -> Vec<Import<'a>> {
        let mut imports = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            let uses = module
                .uses
                .iter()
                .filter(|found| !found.is_public || module.words.contains(found.name));
            let named = uses.map(|found| (&found.path, found.name == "*", found.line));
            let inline = module.paths.iter().map(|(path, line)| (path, false, *line));
            for (path, is_glob, line) in named.chain(inline) {
                let (to, name) = match self.place(index, path, STEPS_MAX) {
                    Place::Item(file) => (file, self.item_name(index, path)),
                    Place::Module(all) if is_glob => (self.modules[all].file, "*"),
                    Place::Module(_) | Place::Outside => continue,
                };
                if to != module.file {
                    imports.push(Import { from: module.file, to, name, line });
                }
            }
        }
        imports
    }

    /// Imports of top-level modules from each other: where a name is defined and, through a
    /// re-export, where the path leads. Re-exports count; those of the crate's root do not, because
    /// the root is no module.
    pub(super) fn module_imports(&self) -> Vec<Import<'a>> {
        let mut imports = Vec::new();
        for (index, module) in self.modules.iter().enumerate() {
            let Some(from) = self.top(index) else { continue };
            let named = module.uses.iter().map(|found| (&found.path, found.line));
            let inline = module.paths.iter().map(|(path, line)| (path, *line));
            for (path, line) in named.chain(inline) {
                let defined = match self.place(index, path, STEPS_MAX) {
                    Place::Item(file) => self.modules.iter().position(|other| other.file == file),
                    Place::Module(other) => Some(other),
                    Place::Outside => None,
                };
                let tops = [self.written(index, path), defined.and_then(|at| self.top(at))];
                for to in tops.into_iter().flatten().filter(|to| *to != from) {
                    let (from, to) = (self.modules[from].file, self.modules[to].file);
                    imports.push(Import { from, to, name: self.item_name(index, path), line });
                }
            }
        }
        imports
    }

    /// The top-level module that `path` names as it is written in `module`.
    fn written(&self, module: usize, path: &[&str]) -> Option<usize> {
        let modules = (1..path.len()).rev().find_map(|end| {
            match self.place(module, &path[..end], STEPS_MAX) {
                Place::Module(found) => Some(found),
                Place::Item(_) | Place::Outside => None,
            }
        });
        modules.and_then(|found| self.top(found))
    }

    /// The child of the crate's root in which `module` is; the root is in none.
    fn top(&self, module: usize) -> Option<usize> {
        let mut at = module;
        loop {
            let Module { root, parent, .. } = self.modules[at];
            if at == root {
                return None;
            }
            if parent == root {
                return Some(at);
            }
            at = parent;
        }
    }

    /// The item in `path`: what follows it is a variant or a function of it.
    fn item_name(&self, module: usize, path: &[&'a str]) -> &'a str {
        let is_item =
            |end: &usize| matches!(self.place(module, &path[..*end], STEPS_MAX), Place::Item(_));
        path[(1..path.len()).find(is_item).unwrap_or(path.len()) - 1]
    }

    /// Reads the tokens of one module; `directory` is where the files of its children are.
    fn read(&mut self, module: usize, tokens: &[CodeToken<'a>], directory: &str) {
        let mut depth = 0usize;
        let mut at = 0;
        while at < tokens.len() {
            let text = |offset: usize| tokens.get(at + offset).map_or("", |token| token.text);
            match (text(0), text(2)) {
                ("mod", ";" | "{") => {
                    at = self.read_child(module, tokens, at, directory);
                    continue;
                }
                ("use", _) if text(1) != "<" => {
                    at = self.read_use(module, tokens, at);
                    continue;
                }
                ("{" | "(", _) => depth += 1,
                ("}" | ")", _) => depth = depth.saturating_sub(1),
                ("fn" | "struct" | "enum" | "trait" | "type" | "const" | "static", _)
                    if depth == 0 =>
                {
                    self.modules[module].items.insert(text(1));
                }
                ("macro_rules", name) => {
                    self.modules[module].items.insert(name);
                }
                _ => {}
            }
            at = self.read_word(module, tokens, at);
        }
    }

    /// `mod name;` or `mod name { ... }` at `at`; answers with the index behind it.
    fn read_child(
        &mut self,
        parent: usize,
        tokens: &[CodeToken<'a>],
        at: usize,
        directory: &str,
    ) -> usize {
        let name = tokens[at + 1].text;
        let below = format!("{directory}/{name}");
        let is_inline = tokens[at + 2].text == "{";
        let file = if is_inline {
            Some(self.modules[parent].file)
        } else {
            let paths = [format!("{below}.rs"), format!("{below}/mod.rs")];
            self.source.iter().position(|(path, _)| paths.contains(path))
        };
        // A file that is missing or stands elsewhere is the compiler's business.
        let Some(file) = file else { return at + 3 };
        let child = self.modules.len();
        let root = self.modules[parent].root;
        self.modules.push(Module { file, root, parent, ..Module::default() });
        self.modules[parent].children.push((name, child));
        if is_inline {
            let behind = behind_group(tokens, at + 2);
            self.read(child, &tokens[at + 3..behind - 1], &below);
            return behind;
        }
        let source = self.source;
        self.read(child, &shipped_tokens(&source[file].1), &below);
        at + 3
    }

    /// A `use` at `at`; answers with the index behind it.
    fn read_use(&mut self, module: usize, tokens: &[CodeToken<'a>], at: usize) -> usize {
        let is_public = at > 0 && matches!(tokens[at - 1].text, "pub" | ")");
        let mut reader = UseReader { tokens, at: at + 1, is_public, found: Vec::new() };
        reader.read(&mut Vec::new());
        self.modules[module].uses.append(&mut reader.found);
        reader.at
    }

    /// A word or path of the code at `at`, or a sign; answers with the index behind it.
    fn read_word(&mut self, module: usize, tokens: &[CodeToken<'a>], at: usize) -> usize {
        let before = if at == 0 { "" } else { tokens[at - 1].text };
        if !tokens[at].is_word() || matches!(before, "." | "::" | "fn") {
            return at + 1;
        }
        let mut path = vec![tokens[at].text];
        let mut end = at + 1;
        while let [colons, name, ..] = &tokens[end..]
            && colons.text == "::"
            && name.is_word()
        {
            path.push(name.text);
            end += 2;
        }
        // Before a colon stands the name of a field or an argument.
        if tokens.get(end).is_none_or(|token| token.text != ":") {
            self.modules[module].words.insert(path[0]);
        }
        // `pub(in path)` takes nothing.
        let is_visibility = before == "in" && at > 1 && tokens[at - 2].text == "(";
        if path.len() > 1 && !is_visibility {
            self.modules[module].paths.push((path, tokens[at].line));
        }
        end
    }

    /// Where `path` leads, written in `module`.
    fn place(&self, module: usize, path: &[&str], steps: usize) -> Place {
        let Some((first, rest)) = path.split_first() else { return Place::Module(module) };
        let mut place = match *first {
            "crate" => Place::Module(self.modules[module].root),
            "self" => Place::Module(module),
            "super" => Place::Module(self.modules[module].parent),
            name => self.find(module, name, !rest.is_empty(), steps).unwrap_or(Place::Outside),
        };
        for (at, name) in rest.iter().enumerate() {
            let Place::Module(here) = place else { return place };
            let is_inner = at + 1 < rest.len();
            place = match *name {
                "self" => place,
                "super" => Place::Module(self.modules[here].parent),
                name => self
                    .find(here, name, is_inner, steps)
                    .unwrap_or(Place::Item(self.modules[here].file)),
            };
        }
        place
    }

    /// Target of `name` in `module`; modules come first where more of the path follows.
    fn find(&self, module: usize, name: &str, is_inner: bool, steps: usize) -> Option<Place> {
        let steps = steps.checked_sub(1)?;
        let here = &self.modules[module];
        let child = here.children.iter().find(|(child, _)| *child == name);
        let child = child.map(|(_, child)| Place::Module(*child));
        if is_inner && child.is_some() {
            return child;
        }
        if here.items.contains(name) {
            return Some(Place::Item(here.file));
        }
        if let Some(found) = here.uses.iter().find(|found| found.name == name) {
            return Some(self.place(module, &found.path, steps));
        }
        let globs = || here.uses.iter().filter(|found| found.name == "*");
        child.or_else(|| {
            globs().find_map(|glob| match self.place(module, &glob.path, steps) {
                Place::Module(other) if other != module => self.find(other, name, is_inner, steps),
                _ => None,
            })
        })
    }
}

/// Takes a `use` apart.
struct UseReader<'t, 'a> {
    tokens: &'t [CodeToken<'a>],
    at: usize,
    is_public: bool,
    found: Vec<Use<'a>>,
}

impl<'a> UseReader<'_, 'a> {
    /// Reads one tree below `prefix`, to behind its `,` or `;` or to its `}`.
    fn read(&mut self, prefix: &mut Vec<&'a str>) {
        let depth = prefix.len();
        let mut name = None;
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            match token.text {
                "{" => {
                    while self.tokens.get(self.at).is_some_and(|token| token.text != "}") {
                        self.read(prefix);
                    }
                    self.at += 1;
                    name = None;
                    prefix.truncate(depth);
                }
                "," | ";" => break,
                "}" => {
                    self.at -= 1;
                    break;
                }
                "as" => {
                    name = self.tokens.get(self.at).map(|token| token.text);
                    self.at += 1;
                }
                "*" => name = Some("*"),
                "self" if !prefix.is_empty() => name = prefix.last().copied(),
                word if token.is_word() => {
                    prefix.push(word);
                    name = Some(word);
                }
                _ => {}
            }
        }
        if let Some(name) = name {
            let path = prefix.clone();
            self.found.push(Use { path, name, is_public: self.is_public, line });
        }
        prefix.truncate(depth);
    }
}
