//! Reads statements from a terminal.
//!
//! A statement may span several lines and ends with a semicolon. Lines that begin with a point are
//! commands of the prompt. After an error the prompt continues with the next statement, until the
//! end of the input.

use std::io::{self, BufRead};

use anyhow::Result;

use super::output::Format;
use super::session::SqlSession;
use crate::print;

const HELP: &str = "\
Statements are SQLite's and end with a semicolon. Commands:
  .tables          names of the tables
  .schema [TABLE]  their columns
  .mode MODE       print rows as a table, json or csv
  .quit            leave, as Ctrl-D does";

/// Runs statements until the input ends.
///
/// # Errors
/// When the terminal cannot be read or written.
pub fn run(session: &mut SqlSession) -> Result<()> {
    print::line(&format!("{} tables. .help lists the commands.", session.tables()?.len()))?;
    let mut statement = String::new();
    let mut lines = io::stdin().lock().lines();
    loop {
        let prompt = if statement.is_empty() { "oribi> " } else { "   ...> " };
        print::bytes(prompt.as_bytes())?;
        let Some(line) = lines.next().transpose()? else {
            return print::line("");
        };
        if statement.is_empty() && line.starts_with('.') {
            match command(session, line.trim()) {
                Ok(true) => continue,
                Ok(false) => return Ok(()),
                Err(error) => eprintln!("{error:#}"),
            }
            continue;
        }
        statement += &line;
        statement.push('\n');
        if statement.trim().is_empty() {
            statement.clear();
        } else if statement.trim_end().ends_with(';') {
            if let Err(error) = session.run(&statement) {
                eprintln!("{error:#}");
            }
            statement.clear();
        }
    }
}

/// Runs a command of the prompt; false when it is the last one.
fn command(session: &mut SqlSession, line: &str) -> Result<bool> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match (name, argument.trim()) {
        (".quit" | ".exit", _) => return Ok(false),
        (".tables", _) => {
            session.tables()?.iter().try_for_each(|table| print::line(table))?;
        }
        (".schema", "") => {
            for table in session.tables()? {
                print::line(&table)?;
                describe(session, &table)?;
            }
        }
        (".schema", table) => describe(session, table)?,
        (".mode", mode) => match Format::named(mode) {
            Some(format) => session.format = format,
            None => print::line("the modes are table, json and csv")?,
        },
        _ => print::line(HELP)?,
    }
    Ok(true)
}

fn describe(session: &mut SqlSession, table: &str) -> Result<()> {
    session.declare(table)?;
    let quoted = table.replace('\'', "''");
    session.run(&format!("select name, type from pragma_table_info('{quoted}')"))
}
