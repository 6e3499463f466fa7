//! Highlighting, completion and the end of statements for the prompt.
//!
//! Completion offers the keyspaces after words such as FROM, else the language's words, keyspaces,
//! and the fields of keyspaces that the text names. Names come from the source when they are first
//! needed, and are kept for the session.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use oribi_query::statement_text::{
    TextClass, classify, function_names, is_complete, keyword_names, quoted_name,
};
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};

use super::super::source::{QuerySource, keyspace_paths, rows_of};

/// Commands of the prompt, for completion.
const COMMANDS: [&str; 6] = [".exit", ".fields ", ".help", ".keyspaces", ".mode ", ".quit"];

/// Words before a keyspace.
const BEFORE_KEYSPACES: [&str; 7] = ["FROM", "JOIN", "NEST", "INTO", "UPDATE", "ON", "KEYSPACE"];

/// See the module text.
pub struct PromptHelper {
    source: Arc<dyn QuerySource>,
    keyspaces: RefCell<Option<Vec<String>>>,
    fields: RefCell<HashMap<String, Vec<String>>>,
}

impl PromptHelper {
    pub fn new(source: Arc<dyn QuerySource>) -> PromptHelper {
        PromptHelper { source, keyspaces: RefCell::default(), fields: RefCell::default() }
    }

    fn keyspaces(&self) -> Vec<String> {
        let mut known = self.keyspaces.borrow_mut();
        // What cannot be read now is asked for again.
        if known.is_none() {
            *known = keyspace_paths(&*self.source).ok();
        }
        known.clone().unwrap_or_default()
    }

    /// The fields of all keyspaces that a text names.
    fn fields(&self, text: &str) -> Vec<String> {
        let named = self.keyspaces().into_iter().filter(|path| names(text, path));
        let mut found: Vec<String> = named
            .flat_map(|path| {
                let mut known = self.fields.borrow_mut();
                known
                    .entry(path.clone())
                    .or_insert_with(|| field_names(&*self.source, &path))
                    .clone()
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// Where the word at the end of `before` begins, and what may stand there.
    fn candidates(&self, before: &str, text: &str) -> (usize, Vec<String>) {
        if before.starts_with('.') && !before.contains(' ') {
            let fit = COMMANDS.iter().filter(|command| command.starts_with(before));
            return (0, fit.map(|command| (*command).to_owned()).collect());
        }
        let is_word = |one: char| one.is_alphanumeric() || matches!(one, '_' | '.' | '`' | '-');
        let start = before
            .rfind(|one| !is_word(one))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let (word, front) = (&before[start..], before[..start].trim_end());
        let previous = front.rsplit(|one: char| !one.is_ascii_alphabetic()).next().unwrap_or("");
        let mut found = self.keyspaces();
        let only_keyspaces = before.starts_with('.')
            || BEFORE_KEYSPACES.iter().any(|known| known.eq_ignore_ascii_case(previous));
        found.retain(|path| fits(path, word));
        if only_keyspaces {
            return (start, found);
        }
        // A path of an alias is completed in its last part.
        let (alias, part) = match word.rsplit_once('.') {
            Some((alias, part)) => (format!("{alias}."), part),
            None => (String::new(), word),
        };
        let fields = self.fields(text).into_iter().filter(|field| fits(field, part));
        let mut all: Vec<String> = fields.map(|field| format!("{alias}{field}")).collect();
        all.append(&mut found);
        if alias.is_empty() && !word.is_empty() {
            let is_lower = word.chars().next().is_some_and(char::is_lowercase);
            let words = keyword_names().map(str::to_owned);
            let words = words.chain(function_names().map(|name| format!("{name}(")));
            let words = words.filter(|known| fits(known, word));
            all.extend(words.map(|known| match is_lower {
                true => known.to_ascii_lowercase(),
                false => known,
            }));
        }
        (start, all)
    }
}

/// The names of fields in a few documents, for completion.
fn field_names(source: &dyn QuerySource, keyspace: &str) -> Vec<String> {
    let statement = format!("SELECT RAW OBJECT_NAMES(d) FROM {keyspace} AS d LIMIT 20");
    let mut names: Vec<String> = rows_of(source, &statement)
        .unwrap_or_default()
        .iter()
        .flat_map(|row| row.as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(quoted_name))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Whether a name begins with what was typed, quoted or not, in either case.
fn fits(name: &str, typed: &str) -> bool {
    let begins =
        |name: &str| name.get(..typed.len()).is_some_and(|front| front.eq_ignore_ascii_case(typed));
    begins(name) || begins(name.trim_start_matches('`'))
}

/// Whether a text has a path as a whole word.
fn names(text: &str, path: &str) -> bool {
    let is_word = |one: char| one.is_alphanumeric() || matches!(one, '_' | '.' | '`');
    text.match_indices(path).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + path.len()..].starts_with(is_word)
    })
}

impl Completer for PromptHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        let (start, found) = self.candidates(&line[..pos], line);
        let pairs = found.into_iter().map(|text| Pair { display: text.clone(), replacement: text });
        Ok((start, pairs.collect()))
    }
}

impl Highlighter for PromptHelper {
    fn highlight<'l>(&self, line: &'l str, _pos: usize) -> Cow<'l, str> {
        if line.starts_with('.') {
            return Cow::Borrowed(line);
        }
        let mut out = String::with_capacity(line.len() * 2);
        let mut at = 0;
        for (range, class) in classify(line) {
            out.push_str(&line[at..range.start]);
            let colour = match class {
                TextClass::Keyword => "1;34",
                TextClass::Function => "36",
                TextClass::Text => "32",
                TextClass::Number => "33",
                TextClass::Parameter => "35",
                TextClass::Comment => "90",
                TextClass::Name | TextClass::Punctuation | TextClass::Invalid => "",
            };
            match colour {
                "" => out.push_str(&line[range.clone()]),
                _ => out.push_str(&format!("\x1b[{colour}m{}\x1b[0m", &line[range.clone()])),
            }
            at = range.end;
        }
        out.push_str(&line[at..]);
        Cow::Owned(out)
    }

    fn highlight_char(&self, _line: &str, _pos: usize, _kind: CmdKind) -> bool {
        true
    }
}

impl Hinter for PromptHelper {
    type Hint = String;
}

impl Validator for PromptHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        let text = context.input();
        let is_whole = text.starts_with('.') || text.trim().is_empty() || is_complete(text);
        Ok(match is_whole {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Helper for PromptHelper {}

#[cfg(test)]
mod tests {
    //! Completion and colours, over documents that a test names.

    use serde_json::{Map, Value};
    use tokio::runtime::Runtime;

    use super::super::super::source::{ResultSink, Summary};
    use super::*;

    /// Answers the two statements of completion.
    struct FixedSource;

    impl QuerySource for FixedSource {
        fn runtime(&self) -> &Runtime {
            unreachable!("completion needs no task")
        }

        fn run(
            &self,
            request: &Map<String, Value>,
            sink: &mut dyn ResultSink,
        ) -> anyhow::Result<Summary> {
            let statement = request["statement"].as_str().unwrap_or_default();
            let rows: &[&str] = match statement.contains("system:keyspaces") {
                true => &["[\"shop\",null,\"shop\"]", "[\"beer-sample\",\"eu\",\"orders\"]"],
                false if statement.contains("FROM shop ") => &["[\"city\",\"order\"]", "[\"zip\"]"],
                false => &[],
            };
            rows.iter().try_for_each(|row| sink.row(row.as_bytes()))?;
            Ok(Summary::default())
        }

        fn interrupt(&self) {}

        fn is_interrupted(&self) -> bool {
            false
        }

        fn begin_statement(&self) {}

        fn cost(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn words_keyspaces_and_fields_are_completed() {
        let helper = PromptHelper::new(Arc::new(FixedSource));
        let complete = |before: &str, after: &str| {
            let (start, found) = helper.candidates(before, &format!("{before}{after}"));
            (start, found)
        };
        let (start, found) = complete("select * fr", "");
        assert_eq!((start, found.contains(&"from".to_owned())), (9, true));
        let (_, found) = complete("SEL", "");
        assert_eq!(found, ["SELECT", "SELF"]);
        assert_eq!(complete("select * from s", ""), (14, vec!["shop".to_owned()]));
        let quoted = "`beer-sample`.eu.orders".to_owned();
        assert_eq!(complete("select * from beer-", ""), (14, vec![quoted.clone()]));
        let (_, found) = complete("select ci", " from shop");
        assert_eq!(found[0], "city");
        let (start, found) = complete("select s.or", " from shop s");
        assert_eq!((start, &found[..]), (7, &["s.`order`".to_owned()][..]));
        let (_, found) = complete("select ci", " from shopping");
        assert!(!found.contains(&"city".to_owned()), "{found:?}");
        assert_eq!(complete(".k", ""), (0, vec![".keyspaces".to_owned()]));
        assert_eq!(complete(".fields be", ""), (8, vec![quoted]));
    }

    #[test]
    fn colours_change_no_text() {
        let helper = PromptHelper::new(Arc::new(FixedSource));
        for text in ["select 'a', COUNT(*) from b -- c", "select 'open", "x\u{e4} = 1", ""] {
            let shown = helper.highlight(text, 0).into_owned();
            let mut plain = String::new();
            let mut rest = shown.as_str();
            while let Some((front, after)) = rest.split_once("\x1b[") {
                plain.push_str(front);
                rest = after.split_once('m').unwrap().1;
            }
            plain.push_str(rest);
            assert_eq!(plain, text);
        }
        let shown = helper.highlight("select 1", 0).into_owned();
        assert_eq!(shown, "\x1b[1;34mselect\x1b[0m \x1b[33m1\x1b[0m");
    }
}
