//! The lines of a server's log that a test has to explain.
//!
//! The server logs one event a line with its level as a separate word. A panic counts as well,
//! because a thread that dies quietly is worse than any warning.

/// Lines at level WARN or ERROR, and panics, that contain none of the `allowed` texts.
pub(super) fn unlisted<'a>(log: &'a str, allowed: &[&str]) -> Vec<&'a str> {
    log.lines()
        .filter(|line| is_warning(line))
        .filter(|line| !allowed.iter().any(|text| line.contains(text)))
        .collect()
}

fn is_warning(line: &str) -> bool {
    // The level is among the first words: after a time stamp, before the event's own text.
    let level_in_head =
        line.split_whitespace().take(3).any(|word| word == "WARN" || word == "ERROR");
    level_in_head || line.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::unlisted;

    #[test]
    fn warnings_errors_and_panics_are_found_unless_listed() {
        let log = "2026-01-01T00:00:00Z  INFO server: ready\n\
                   2026-01-01T00:00:01Z  WARN server: development mode\n\
                   ERROR store: cannot commit\n\
                   thread 'worker' panicked at src/x.rs:1:1:\n\
                   2026-01-01T00:00:02Z  INFO peer said WARN";
        assert_eq!(unlisted(log, &[]).len(), 3);
        let left = unlisted(log, &["development mode", "panicked"]);
        assert_eq!(left, ["ERROR store: cannot commit"]);
    }
}
