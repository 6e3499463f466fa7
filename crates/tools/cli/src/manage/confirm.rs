//! Prompts before a destructive command.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use anyhow::{Context, bail};
use clap::Args;

/// Consent that was given already.
#[derive(Args, Clone, Copy, Debug)]
pub struct Consent {
    /// Do it without asking; needed where no terminal can be asked.
    #[arg(long, short = 'y')]
    yes: bool,
}

impl Consent {
    /// Fails unless the user consents. `deed` says what will happen to `name`.
    pub fn to(self, deed: &str, name: &str) -> anyhow::Result<()> {
        if self.yes {
            return Ok(());
        }
        if !stdin().is_terminal() {
            bail!("this {deed}: --yes is needed");
        }
        eprint!("This {deed}. Type its name, {name}, to go on: ");
        stderr().flush()?;
        let mut line = String::new();
        stdin().lock().read_line(&mut line).context("reading the name")?;
        match line.trim_end_matches(['\r', '\n']) == name {
            true => Ok(()),
            false => bail!("that is another name; nothing was changed"),
        }
    }
}
