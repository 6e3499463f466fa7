//! Rule: names and prose use the field's words.
//!
//! [`PHRASES`] may not stand in comments and documents, [`TYPE_NAMES`] may not name a type, and
//! [`FIRST_WORDS`] begin no function. A word with a right use elsewhere is not listed: a rule that
//! cries wolf is switched off.

use super::code_mask;
use super::finding::Finding;
use super::source_tree::SourceFile;
use super::type_names;

/// Phrases in lower case, and what to write instead.
const PHRASES: [(&str, &str); 30] = [
    ("asks for room", "reserves memory"),
    ("asker", "caller, client or waiter"),
    ("beside", "concurrently with, next to, or in addition to"),
    ("came again", "retried"),
    ("canary", "mutant"),
    ("come again", "retry"),
    ("comes again", "retries"),
    ("crew", "workers"),
    ("farewell", "begin_close"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("hungry", "the state by name"),
    ("in the meantime", "concurrently or until then"),
    ("in vain", "without success, or failed"),
    ("judge", "oracle or checker"),
    ("limbo", "retire list"),
    ("meanwhile", "concurrently or until then"),
    ("mended", "fixed or repaired"),
    ("nobody", "no client, no reader, no thread"),
    ("nothing but", "only"),
    ("of its own", "separate"),
    ("of their own", "separate"),
    ("planted bug", "mutant"),
    ("somebody", "a client, a reader, a thread"),
    ("stand still", "stall"),
    ("stands still", "stalls"),
    ("told to come", "answered busy and retries"),
    ("went on", "continued"),
    ("were it not", "without"),
    ("what is there", "the contents or the present items"),
];

/// Participles and pronouns that are no types, in tests as in product code.
const TYPE_NAMES: [&str; 49] = [
    "Asked", "Asker", "Awake", "Denied", "Done", "Ended", "Ends", "Fed", "Fetched", "Found",
    "Given", "Got", "Heard", "Held", "Kept", "Known", "Later", "Leased", "Limbo", "LooseEnd",
    "Made", "MayNot", "Meant", "Needs", "Nobody", "NotDone", "OwnLines", "Planted", "Refusal",
    "Refused", "Seen", "Sees", "Sent", "Shown", "Sought", "Spared", "Taken", "Takings", "Then",
    "Told", "Torn", "Unheard", "Waiting", "Waits", "Wanted", "Who", "Whole", "Woken", "Written",
];

/// First words of a name that says no condition and no result.
const FIRST_WORDS: [&str; 14] = [
    "anything", "how", "it", "nobody", "nothing", "others", "somebody", "they", "those", "what",
    "whatever", "who", "whoever", "whose",
];

/// Paths whose prose and type names are not gone through yet. The list only gets shorter.
const NOT_YET: [&str; 0] = [];

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    // This list has the words that it forbids.
    let is_list = file.path.ends_with("xtask/src/tidy/vocabulary.rs");
    let is_later = NOT_YET.iter().any(|path| file.path.starts_with(path));
    if is_list || is_later {
        return;
    }
    // The page is made of annotations in those crates, among others.
    if file.path == "docs/invariants.md" {
        return;
    }
    if file.has_extension("md") {
        check_prose(file, &prose_of(&file.text), findings);
        return;
    }
    check_prose(file, &code_mask::comments_only(&file.text), findings);
    for definition in type_names::definitions(file) {
        if TYPE_NAMES.contains(&definition.name.as_str()) {
            let message = format!(
                "`{}` is no name of a type; name its role, such as `...View`, `...Result`",
                definition.name
            );
            findings.push(Finding::new(&file.path, definition.line, message));
        }
    }
    for (name, line) in type_names::functions(file) {
        let first = name.split('_').next().unwrap_or_default();
        if FIRST_WORDS.contains(&first) && name.contains('_') {
            let message = format!("`{name}` begins with \"{first}\": name condition and result");
            findings.push(Finding::new(&file.path, line, message));
        }
    }
}

/// A document without its code, the lines kept.
fn prose_of(text: &str) -> String {
    let mut is_code = false;
    let prose = text.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence { String::new() } else { without_code_spans(line) }
    });
    prose.collect::<Vec<String>>().join("\n")
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<&str>>().join("`")
}

/// Looks for phrases within a line, and across the end of one.
fn check_prose(file: &SourceFile, prose: &str, findings: &mut Vec<Finding>) {
    let mut words: Vec<(String, usize)> = Vec::new();
    for (index, line) in prose.lines().enumerate() {
        let clean = without_code_spans(line).to_lowercase();
        let split = clean.split(|character: char| !character.is_alphanumeric());
        words
            .extend(split.filter(|word| !word.is_empty()).map(|word| (word.to_owned(), index + 1)));
    }
    for (phrase, instead) in PHRASES {
        let parts: Vec<&str> = phrase.split(' ').collect();
        for window in words.windows(parts.len()) {
            let is_phrase = window.iter().map(|(word, _)| word.as_str()).eq(parts.iter().copied());
            let is_close = window[window.len() - 1].1 <= window[0].1 + 1;
            if is_phrase && is_close {
                let message = format!("\"{phrase}\": write {instead}");
                findings.push(Finding::new(&file.path, window[0].1, message));
            }
        }
    }
}
