//! The settings of the log: which lines it has, and their form.
//!
//! Owns: the check of a filter, which reports the invalid part and its column. The `oribi` binary
//! sets up the log.

/// Levels of a filter, from no lines to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Forms of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Names of the forms.
pub(super) const LOG_FORMATS: [&str; 2] = ["text", "json"];

impl LogFormat {
    pub(super) fn name(self) -> &'static str {
        LOG_FORMATS[self as usize]
    }

    /// The form with this name. Any other name gives text; the form of the setting refuses it
    /// first.
    pub(super) fn named(name: &str) -> LogFormat {
        if name == LogFormat::Json.name() { LogFormat::Json } else { LogFormat::Text }
    }
}

/// Checks a filter: `LEVEL` for everything, and `MODULE=LEVEL` for a part, separated by commas.
///
/// # Errors
/// The first part that is neither, and the column in which it begins.
pub(super) fn check_filter(text: &str) -> Result<(), String> {
    let mut column = 1;
    for part in text.split(',') {
        let trimmed = part.trim();
        let begin = column + part.chars().take_while(|letter| letter.is_whitespace()).count();
        column += part.chars().count() + 1;
        if trimmed.is_empty() {
            continue;
        }
        let (module, level) = match trimmed.split_once('=') {
            Some((module, level)) => (Some(module), level),
            None => (None, trimmed),
        };
        let is_level = LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
        let is_module = module.is_none_or(is_module_path);
        if !is_level || !is_module {
            let levels = LEVELS.join(", ");
            return Err(format!(
                "{trimmed:?} at column {begin} is neither a level ({levels}) nor MODULE=LEVEL"
            ));
        }
    }
    if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(()) }
}

fn is_module_path(module: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':');
    !module.is_empty() && module.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::check_filter;

    #[test]
    fn a_bad_filter_is_refused_with_its_place() {
        for good in ["info", "INFO,oribi_engine=debug", " warn , slow_operation=off,", "off", ","] {
            assert_eq!(check_filter(good), Ok(()), "{good:?}");
        }
        for (bad, part, column) in [
            ("verbose", "\"verbose\"", 1),
            ("info, oribi_engine", "\"oribi_engine\"", 7),
            ("info,oribi=loud", "\"oribi=loud\"", 6),
            ("info,=debug", "\"=debug\"", 6),
            ("oribi[span]=info", "\"oribi[span]=info\"", 1),
            ("info,a=b=debug", "\"a=b=debug\"", 6),
        ] {
            let error = check_filter(bad).unwrap_err();
            assert!(error.starts_with(&format!("{part} at column {column} ")), "{bad:?}: {error}");
        }
        assert!(check_filter("").is_err());
    }
}
