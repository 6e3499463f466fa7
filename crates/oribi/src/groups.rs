//! The commands in groups, as `oribi --help` lists them, and words that belong one level lower.
//!
//! It owns the groups and the template of the help. Invariant: every visible command is in one
//! group.

use clap::Command;

const GROUPS: [(&str, &[&str]); 4] = [
    ("Serve", &["serve", "config", "user", "health"]),
    ("Data", &["doc", "query", "watch", "backup", "copy"]),
    ("Operate", &["bucket", "scope", "collection", "node", "cluster", "top", "stats"]),
    ("Measure", &["ping", "perf"]),
];

/// Commands about this program itself, which end the list.
const OTHERS: [&str; 3] = ["completions", "man", "help"];

/// Words that people try as commands, and the commands that they look for.
const MISPLACED: [(&str, &str); 14] = [
    ("import", "doc import"),
    ("export", "doc export"),
    ("get", "doc get"),
    ("set", "doc set"),
    ("delete", "doc drop"),
    ("rm", "doc drop"),
    ("ls", "doc list"),
    ("restore", "backup restore"),
    ("snapshot", "backup snapshot"),
    ("verify", "backup verify"),
    ("create", "bucket create"),
    ("sql", "query"),
    ("start", "serve"),
    ("status", "health"),
];

/// The program with its commands grouped.
pub fn apply(program: Command) -> Command {
    let mut text = String::new();
    for (title, names) in GROUPS {
        group(&mut text, &program, title, names);
    }
    group(&mut text, &program, "Other", &OTHERS);
    program.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{text}\nOptions:\n{{options}}{{after-help}}"
    ))
}

fn group(text: &mut String, program: &Command, title: &str, names: &[&str]) {
    let known = |name: &&&str| **name == "help" || program.find_subcommand(name).is_some();
    let names: Vec<&&str> = names.iter().filter(known).collect();
    if names.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}:\n"));
    for name in names {
        let about = program.find_subcommand(name).and_then(Command::get_about);
        let about = about
            .map_or_else(|| "Print the help of a command".to_owned(), |about| about.to_string());
        text.push_str(&format!("  {name:<12} {about}\n"));
    }
}

/// The command for a word that is none.
pub fn command_for(word: &str) -> Option<&'static str> {
    MISPLACED.iter().find(|(tried, _)| *tried == word).map(|(_, command)| *command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let program = crate::command();
        for command in program.get_subcommands() {
            let name = command.get_name();
            let groups = GROUPS.iter().map(|(_, names)| *names).chain([&OTHERS[..]]);
            assert_eq!(groups.filter(|names| names.contains(&name)).count(), 1, "{name}");
        }
    }

    #[test]
    fn misplaced_words_name_existing_commands() {
        let program = crate::command();
        for (word, command) in MISPLACED {
            assert!(program.find_subcommand(word).is_none(), "{word} is a command");
            let found = command.split(' ').try_fold(&program, |at, name| at.find_subcommand(name));
            assert!(found.is_some() || cfg!(not(feature = "tools")), "{command}");
        }
    }
}
