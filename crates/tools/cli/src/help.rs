//! Help texts that all tools share: examples, and connection options in one paragraph.
//!
//! `-h` is one screen: the options of a tool itself, a paragraph on the connection, and examples.
//! `--help` and the manual pages describe every option. Called by [`crate::commands`] and for
//! `oribi user`.

use clap::{Arg, Command};

/// Headings of the options that say where the server is.
const CONNECTION_HEADINGS: [&str; 2] = ["Server", "TLS"];

/// Examples of each command, by its words after `oribi`.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &[&str])] = &[
    ("doc get", &["oribi doc get user:17", "oribi doc get order:9 --collection shop.orders --json"]),
    ("doc cat", &["oribi doc cat picture > picture.png", "oribi doc cat log:1 log:2"]),
    ("doc set", &[
        "oribi doc set user:17 '{\"name\":\"Ada\"}'", "oribi doc set picture --file picture.png",
        "date | oribi doc set now - --expiry 60s",
    ]),
    ("doc drop", &["oribi doc drop user:17 user:18", "oribi doc drop order:9 --collection shop.orders"]),
    ("doc touch", &["oribi doc touch session:1 --expiry 15m", "oribi doc touch user:17 --expiry 0"]),
    ("doc list", &["oribi doc list", "oribi doc list 'user:*' --collection shop.orders"]),
    ("doc import", &[
        "oribi doc import users.jsonl", "oribi doc import users.csv --key 'user:{id}' --resume",
        "zcat orders.jsonl.gz | oribi doc import - --collection shop.orders",
    ]),
    ("doc export", &["oribi doc export users.jsonl", "oribi doc export - --collection shop.orders | gzip > orders.jsonl.gz"]),
    ("bucket list", &["oribi bucket list", "oribi bucket list --json"]),
    ("bucket create", &[
        "oribi bucket create orders --memory-quota-mib 512",
        "oribi bucket create cache --storage memory --eviction nru --memory-quota-mib 1024",
    ]),
    ("bucket change", &["oribi bucket change orders --memory-quota-mib 1024", "oribi bucket change orders --eviction full"]),
    ("bucket drop", &["oribi bucket drop orders", "oribi bucket drop orders --yes"]),
    ("bucket flush", &["oribi bucket change cache --flush-enabled && oribi bucket flush cache --yes"]),
    ("bucket compact", &["oribi bucket compact orders"]),
    ("scope list", &["oribi scope list --bucket orders"]),
    ("scope create", &["oribi scope create shop --bucket orders"]),
    ("scope drop", &["oribi scope drop shop --bucket orders"]),
    ("collection list", &["oribi collection list --bucket orders", "oribi collection list --scope shop"]),
    ("collection create", &["oribi collection create shop.sessions --max-ttl 12h"]),
    ("collection change", &["oribi collection change shop.sessions --max-ttl 1d"]),
    ("collection drop", &["oribi collection drop shop.sessions --yes"]),
    ("node list", &["oribi node list", "oribi node list --host couchbases://db.example.org"]),
    ("node reload-certificate", &["oribi node reload-certificate --host couchbases://db.example.org"]),
    ("node change", &["oribi node change --cluster-name production"]),
    ("backup create", &[
        "oribi backup create /backups/orders --bucket orders",
        "oribi backup create s3://archives/orders --bucket orders --user backup",
    ]),
    ("backup list", &["oribi backup list /backups/orders"]),
    ("backup verify", &["oribi backup verify /backups/orders"]),
    ("backup restore", &[
        "oribi backup restore /backups/orders --bucket orders",
        "oribi backup restore /backups/orders --bucket orders --into again --create-bucket 256",
    ]),
    ("backup prune", &["oribi backup prune /backups/orders --keep-last 7"]),
    ("backup snapshot", &["oribi backup snapshot /var/lib/oribi-snapshots/monday --data-dir /var/lib/oribi"]),
    ("copy", &[
        "oribi copy couchbase://new.example.org/orders --host old.example.org --bucket orders",
        "oribi copy couchbase://new.example.org/orders --bucket orders --follow --resume orders.place",
    ]),
    ("stats", &["oribi stats", "oribi stats timings", "oribi stats --watch 1s --json"]),
    ("perf kv", &[
        "oribi perf kv --duration 10",
        "oribi perf kv --items 1000000 --min-size 512 --max-size 512 --set-pct 20 --plot load.svg",
    ]),
    ("perf loadgen", &["oribi perf loadgen 127.0.0.1:7051 --num-rows-per-thread 1000000 --num-threads 2"]),
    ("perf table-scan", &["oribi perf table-scan 127.0.0.1:7051 default.my_table --row-count-only"]),
    ("cluster status", &["oribi cluster status", "oribi cluster status --json"]),
    ("cluster failover", &["oribi cluster failover node2", "oribi cluster failover node2 --allow-data-loss"]),
    ("cluster rebalance", &["oribi cluster rebalance", "oribi cluster rebalance --remove node2", "oribi cluster rebalance --stop"]),
    ("ping", &["oribi ping", "oribi ping --host couchbases://db.example.org --tls-ca ca.pem"]),
    ("top", &["oribi top", "oribi top --once", "oribi top --bucket orders --batch"]),
    ("watch", &["oribi watch", "oribi watch --from beginning --until-now --with-values", "oribi watch --resume orders.place"]),
    ("query", &[
        "oribi query 'SELECT RAW COUNT(*) FROM default'",
        "oribi query --format csv 'SELECT city, COUNT(*) AS n FROM default GROUP BY city'",
    ]),
];

/// The command with examples and folded connection options, and all commands below it.
pub fn finish(command: Command) -> Command {
    let path = command.get_name().to_owned();
    finish_at(command, &path, &[])
}

fn finish_at(mut command: Command, path: &str, inherited: &[&'static str]) -> Command {
    let mut options = inherited.to_vec();
    options.extend(named_options(&command));
    command = command.mut_args(|argument| match is_connection(&argument) {
        true => argument.hide_short_help(true),
        false => argument,
    });
    let names: Vec<String> =
        command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    if names.is_empty() {
        return describe(command, path, &options);
    }
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |one| finish_at(one, &format!("{path} {name}"), &options))
    })
}

/// The options that the paragraph on the connection names, as far as the command has them.
fn named_options(command: &Command) -> Vec<&'static str> {
    let has = |name: &str| {
        command.get_arguments().any(|one| is_connection(one) && one.get_long() == Some(name))
    };
    ["host", "user", "bucket"].into_iter().filter(|name| has(name)).collect()
}

fn is_connection(argument: &Arg) -> bool {
    let heading = argument.get_help_heading();
    heading.is_some_and(|heading| CONNECTION_HEADINGS.contains(&heading))
}

/// A command without commands below it.
fn describe(command: Command, path: &str, options: &[&str]) -> Command {
    let given = command.get_after_help().map(ToString::to_string);
    let examples = EXAMPLES.iter().find(|(name, _)| *name == path).map(|(_, lines)| lines);
    let examples = examples.map(|lines| format!("Examples:\n  {}", lines.join("\n  ")));
    let long = given.into_iter().chain(examples).collect::<Vec<_>>().join("\n\n");
    if options.is_empty() {
        return command.after_help(long);
    }
    let names: Vec<String> = options.iter().map(|name| format!("--{name}")).collect();
    let short = format!(
        "Connection: {}, or ORIBI_HOST and ORIBI_USER; the password from ORIBI_PASSWORD. \
         couchbases://HOST is TLS. --help describes all options.\n\n{long}",
        names.join(", ")
    );
    command.after_help(short).after_long_help(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command without commands below it, with its words.
    fn leaves(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        let mut below = command.get_subcommands().peekable();
        if below.peek().is_none() {
            found.push((path.to_owned(), command.clone()));
        }
        for one in below {
            leaves(one, &format!("{path} {}", one.get_name()), found);
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let mut found = Vec::new();
        for command in crate::commands() {
            leaves(&command, command.get_name(), &mut found);
        }
        for (path, command) in &found {
            let long = command.get_after_long_help().or_else(|| command.get_after_help());
            let text = long.map(ToString::to_string).unwrap_or_default();
            assert!(text.contains("Examples:\n  oribi ") || text.contains("| oribi "), "{path}");
        }
        for (path, lines) in EXAMPLES {
            assert!(found.iter().any(|(name, _)| name == path), "no command {path}");
            for line in *lines {
                let outcome = program().try_get_matches_from(words(line));
                assert!(outcome.is_ok(), "{line}: {}", outcome.unwrap_err());
            }
        }
    }

    fn program() -> Command {
        Command::new("oribi").subcommands(crate::commands())
    }

    /// The words of the last `oribi` in a line of shell, up to a redirection.
    fn words(line: &str) -> Vec<String> {
        let line = &line[line.rfind("oribi ").expect("an example runs oribi")..];
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            match (character, quote) {
                ('\\', Some('"')) => word.extend(characters.next()),
                (_, Some(open)) if open == character => quote = None,
                (_, Some(_)) => word.push(character),
                ('\'' | '"', None) => quote = Some(character),
                ('|' | '>', None) => break,
                (' ', None) => words.extend(Some(std::mem::take(&mut word))),
                _ => word.push(character),
            }
        }
        words.push(word);
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn short_help_folds_connection_options() {
        let mut command = crate::commands().into_iter().find(|one| one.get_name() == "ping");
        let command = command.as_mut().expect("ping");
        let short = command.render_help().to_string();
        let long = command.render_long_help().to_string();
        assert!(short.contains("Connection: --host, --user, --bucket"), "{short}");
        assert!(!short.contains("--tls-ca <FILE>") && long.contains("--tls-ca <FILE>"), "{short}");
        assert!(long.contains("Examples:") && !long.contains("Connection:"), "{long}");
    }
}
