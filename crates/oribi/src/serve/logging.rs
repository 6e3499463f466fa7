//! The server's log: lines on standard error, for people or for programs.
//!
//! Owns: the form of a line, and the filter, which a reload replaces. Invariants: a JSON line is
//! one object with `time`, `level`, `target`, `message` and the event's fields; colours appear only
//! on a terminal, and never when `NO_COLOR` is set and not empty.

use std::fmt;
use std::io::{IsTerminal, stderr};

use anyhow::Context;
use oribi_config::{LogFormat, Settings};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Replaces the filter of a running log.
pub type FilterHandle = reload::Handle<Targets, Registry>;

pub fn start(settings: &Settings) -> anyhow::Result<FilterHandle> {
    let (filter, handle) = reload::Layer::new(filter(&settings.log)?);
    let is_colourless = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr);
    let lines = match settings.log_format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal() && !is_colourless).boxed(),
        LogFormat::Json => lines.event_format(JsonLines).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(handle)
}

/// The filter: a level for everything, and levels of single modules, separated by commas.
pub fn filter(text: &str) -> anyhow::Result<Targets> {
    let levels: Vec<&str> =
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if levels.is_empty() {
        return Ok(Targets::new().with_default(LevelFilter::ERROR));
    }
    levels.join(",").parse().with_context(|| format!("log: {text:?} is not a log filter"))
}

/// One JSON object a line.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        let mut line = Fields(Map::new());
        // First, so that an event's field of the same name does not hide them.
        event.record(&mut line);
        let own = [
            ("time", time),
            ("level", metadata.level().to_string()),
            ("target", metadata.target().to_owned()),
        ];
        for (name, value) in own {
            line.0.insert(name.to_owned(), value.into());
        }
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// The fields of an event.
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::filter;

    #[test]
    fn the_log_is_filtered_by_target() {
        let levels = filter("info, slow_operation=off,oribi_engine=debug,").unwrap();
        assert!(levels.would_enable("oribi_server::runtime::worker", &Level::INFO));
        assert!(!levels.would_enable("oribi_server::runtime::worker", &Level::DEBUG));
        assert!(levels.would_enable("oribi_engine::flusher", &Level::DEBUG));
        assert!(!levels.would_enable("slow_operation", &Level::ERROR));
        assert!(filter("").unwrap().would_enable("oribi", &Level::ERROR));
        let error = filter("info,oribi=loud").unwrap_err().to_string();
        assert!(error.contains("is not a log filter"), "{error}");
    }
}
