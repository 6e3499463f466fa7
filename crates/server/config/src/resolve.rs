//! Sources of values: flags over environment variables over the file over the defaults.
//!
//! Owns: the command-line arguments built from the table, and the layering. Invariants: every layer
//! is checked, even where a higher layer wins, so that no mistake stays hidden; an error names the
//! source of the value. Callers: the `oribi` binary. The environment is a parameter, so that tests
//! need not change the process's own.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};

use super::form::{SettingValue, ValueForm};
use super::setting::Setting;
use super::settings::{Settings, SettingsError};
use super::table::SETTINGS;

/// The file that is read when none is given, if it exists.
const DEFAULT_FILE: &str = "oribi.toml";
const CONFIG_VARIABLE: &str = "ORIBI_CONFIG";
/// The flag of the preset, and its settings. Every other source wins over it.
const CACHE: &str = "cache";
const CACHE_SETTINGS: [(&str, &str); 5] = [
    ("storage", "memory"),
    ("eviction", "nru"),
    ("flush_enabled", "true"),
    // Nothing has to be written before it can be evicted, so little has to be kept free.
    ("high_watermark_percent", "96"),
    ("low_watermark_percent", "94"),
];

/// The source of a value in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The default; the setting was not set.
    Default,
    /// A key of this file.
    File(PathBuf),
    /// An environment variable of this name.
    Environment(String),
    /// A flag of this name.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Environment(variable) => f.write_str(variable),
            Source::Flag(flag) => f.write_str(flag),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedSettings {
    pub settings: Settings,
    /// The source of each value, in the order of the table.
    pub(super) sources: Vec<Source>,
}

/// Why the configuration could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value that its setting does not accept.
    #[error("{name} from {origin}: {detail}")]
    Value {
        /// Name of the setting.
        name: &'static str,
        /// The flag, variable or file that gave the value.
        origin: Source,
        /// Reason why it is invalid.
        detail: String,
    },
    /// A key in the file that is not a setting.
    #[error("{path}: there is no setting {key:?}; `oribi config` lists all of them")]
    UnknownKey { path: PathBuf, key: String },
    /// The file is not TOML.
    #[error("{path}: {detail}")]
    Syntax { path: PathBuf, detail: String },
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {error}")]
    Read {
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Values that are inconsistent with each other.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// Command-line arguments of all settings, `--config` and `--cache`.
pub fn arguments() -> Vec<Arg> {
    let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    let cache = Arg::new(CACHE)
        .long(CACHE)
        .help(
            "Be a cache, like memcached: new buckets keep documents in memory only, evict the \
             least used, and allow flush_all; other settings win",
        )
        .action(ArgAction::SetTrue);
    std::iter::once(cache).chain(arguments_named(&names)).collect()
}

/// Command-line arguments of some settings, and `--config`.
pub fn arguments_named(names: &[&str]) -> Vec<Arg> {
    debug_assert!(
        names.iter().all(|name| SETTINGS.iter().any(|setting| setting.name == *name)),
        "an argument is a setting"
    );
    let defaults = Settings::default();
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .help("TOML file with settings [default: ./oribi.toml when it exists] [env: ORIBI_CONFIG]")
        .value_parser(clap::value_parser!(PathBuf));
    let settings = SETTINGS
        .iter()
        .filter(|setting| names.contains(&setting.name))
        .map(|setting| argument(setting, &defaults));
    std::iter::once(config).chain(settings).collect()
}

fn argument(setting: &'static Setting, defaults: &Settings) -> Arg {
    let mut help = setting.help.to_owned();
    if let Some(value) = (setting.get)(defaults).filter(|_| setting.name != "workers") {
        help.push_str(&format!(" [default: {}]", value.to_text()));
    }
    let form = setting.form;
    let argument = Arg::new(setting.name)
        .long(setting.flag())
        .value_name(setting.value_name)
        .help(help)
        .help_heading(setting.heading)
        .action(ArgAction::Set)
        .value_parser(move |text: &str| form.parse(text));
    match setting.form {
        // `--flush-enabled` alone means true.
        ValueForm::Flag => argument.num_args(0..=1).default_missing_value("true"),
        _ => argument,
    }
}

/// Resolves the settings from parsed arguments, an environment and the configuration file.
pub fn resolve(
    matches: &ArgMatches,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<ResolvedSettings, ConfigError> {
    let mut resolved = ResolvedSettings {
        settings: Settings::default(),
        sources: vec![Source::Default; SETTINGS.len()],
    };
    if matches!(matches.try_get_one::<bool>(CACHE), Ok(Some(true))) {
        resolved.apply_cache()?;
    }
    if let Some(path) = find_file(matches, &variable) {
        resolved.apply_file(&path)?;
    }
    for (index, setting) in SETTINGS.iter().enumerate() {
        let name = setting.variable();
        if let Some(text) = variable(&name) {
            let parsed = text.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
            let value = parsed.and_then(|text| setting.form.parse(text));
            resolved.apply(index, value, Source::Environment(name))?;
        }
        if let Ok(Some(value)) = matches.try_get_one::<SettingValue>(setting.name) {
            let source = Source::Flag(format!("--{}", setting.flag()));
            resolved.apply(index, Ok(value.clone()), source)?;
        }
    }
    assert_eq!(resolved.sources.len(), SETTINGS.len(), "each setting has a source");
    resolved.settings.check()?;
    Ok(resolved)
}

impl ResolvedSettings {
    fn apply(
        &mut self,
        index: usize,
        value: Result<SettingValue, String>,
        source: Source,
    ) -> Result<(), ConfigError> {
        let setting = &SETTINGS[index];
        match value {
            Ok(value) => {
                (setting.set)(&mut self.settings, value);
                debug_assert!((setting.get)(&self.settings).is_some(), "{} is set", setting.name);
                self.sources[index] = source;
                Ok(())
            }
            Err(detail) => Err(ConfigError::Value { name: setting.name, origin: source, detail }),
        }
    }

    fn apply_cache(&mut self) -> Result<(), ConfigError> {
        for (name, text) in CACHE_SETTINGS {
            let index = SETTINGS.iter().position(|setting| setting.name == name);
            let index = index.expect("the preset names settings; a test resolves it");
            let value = SETTINGS[index].form.parse(text);
            debug_assert!(value.is_ok(), "the preset has valid values");
            self.apply(index, value, Source::Flag(format!("--{CACHE}")))?;
        }
        Ok(())
    }

    fn apply_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            ConfigError::Syntax { path: path.to_owned(), detail: error.to_string() }
        })?;
        for (key, value) in &table {
            let Some(index) = SETTINGS.iter().position(|setting| setting.name == key) else {
                return Err(ConfigError::UnknownKey { path: path.to_owned(), key: key.clone() });
            };
            let value = SETTINGS[index].form.take(value);
            self.apply(index, value, Source::File(path.to_owned()))?;
        }
        Ok(())
    }
}

fn find_file(
    matches: &ArgMatches,
    variable: &impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    if let Ok(Some(path)) = matches.try_get_one::<PathBuf>("config") {
        return Some(path.clone());
    }
    if let Some(path) = variable(CONFIG_VARIABLE) {
        return Some(PathBuf::from(path));
    }
    let default = PathBuf::from(DEFAULT_FILE);
    default.exists().then_some(default)
}
