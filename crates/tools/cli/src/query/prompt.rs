//! Reads statements from a terminal.
//!
//! A statement may span several lines and ends with a semicolon. Lines that begin with a point are
//! commands of the prompt. After an error the prompt continues with the next statement, until the
//! end of the input. [`helper`] has highlighting and completion; the history is a file of the user.

mod helper;

use std::path::PathBuf;
use std::sync::Arc;
use std::{env, fs};

use anyhow::{Context, Result};
use rustyline::config::{CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, Editor};

use self::helper::PromptHelper;
use super::output::Format;
use super::session::QuerySession;
use super::source::keyspace_paths;
use crate::print;

const HELP: &str = "\
Statements are SQL++ and end with a semicolon. Tab completes. Commands:
  .keyspaces         names of the keyspaces
  .fields KEYSPACE   fields of a sample of its documents, and their types
  .mode MODE         print rows as a table, json or csv
  .quit              leave, as Ctrl-D does";

/// Entries of the history.
const HISTORY_MAX: usize = 1000;

/// Documents of which `.fields` shows the fields.
const SAMPLE: usize = 1000;

/// Runs statements until the input ends.
///
/// # Errors
/// When the terminal cannot be read or written.
pub fn run(session: &mut QuerySession) -> Result<()> {
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)
        .context("the length of the history")?
        .completion_type(CompletionType::List)
        .color_mode(match env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            true => ColorMode::Disabled,
            false => ColorMode::Enabled,
        })
        .build();
    let mut editor: Editor<PromptHelper, FileHistory> =
        Editor::with_config(config).context("the terminal")?;
    editor.set_helper(Some(PromptHelper::new(Arc::clone(session.source()))));
    let history = history_file();
    if let Some(file) = &history {
        // Without it the history begins anew.
        let _ = editor.load_history(file);
    }
    let paths = keyspace_paths(&**session.source())?;
    print::line(&format!("{} keyspaces. .help lists the commands.", paths.len()))?;
    loop {
        match editor.readline("oribi> ") {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                // An entry that cannot be kept costs the user nothing else.
                let _ = editor.add_history_entry(text.trim());
                if let Some(file) = &history {
                    let _ = editor.append_history(file);
                }
                match run_one(session, &text) {
                    Ok(true) => {}
                    Ok(false) => return Ok(()),
                    Err(error) => eprintln!("{error:#}"),
                }
            }
            // Ctrl-C drops the text.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error).context("reading the terminal"),
        }
    }
}

/// The history's file. Its directory is made for its user alone.
fn history_file() -> Option<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;

    let state = env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".local/state")))?;
    let directory = state.join("oribi");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
    Some(directory.join("query_history"))
}

/// Runs statements or a command; false when it is the last one.
fn run_one(session: &mut QuerySession, text: &str) -> Result<bool> {
    let Some(command) = text.trim().strip_prefix('.') else {
        session.run(text)?;
        return Ok(true);
    };
    let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match (name, argument.trim()) {
        ("quit" | "exit", _) => return Ok(false),
        ("keyspaces", _) => {
            let paths = keyspace_paths(&**session.source())?;
            paths.iter().try_for_each(|path| print::line(path))?;
        }
        ("fields", keyspace) if !keyspace.is_empty() => session.run(&fields_of(keyspace))?,
        ("mode", mode) => match Format::named(mode) {
            Some(format) => session.format = format,
            None => print::line("the modes are table, json and csv")?,
        },
        _ => print::line(HELP)?,
    }
    Ok(true)
}

/// A statement with the fields of a sample.
fn fields_of(keyspace: &str) -> String {
    format!(
        "SELECT p.name AS field, ARRAY_AGG(DISTINCT TYPE(p.val)) AS types, COUNT(*) AS documents \
         FROM (SELECT RAW d FROM {keyspace} AS d LIMIT {SAMPLE}) AS d \
         UNNEST OBJECT_PAIRS(d) AS p GROUP BY p.name ORDER BY p.name"
    )
}
