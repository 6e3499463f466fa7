//! `/metrics`: a lint by the rules of Prometheus (those of `promtool check metrics` and of the
//! OpenMetrics text), and every name in the dashboard and the alert rules against a live scrape.

use std::collections::{BTreeMap, BTreeSet};

use super::{ADMIN, Fixture};
use crate::body::WHOLE_BYTES_MAX;

const DASHBOARD: &str = include_str!("../../../../../packaging/grafana/oribi.json");
const RULES: &str = include_str!("../../../../../packaging/prometheus/oribi.rules.yml");

/// Units that are no base unit, and types, as words of a name.
const WRONG_WORDS: [&str; 17] = [
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "ms",
    "us",
    "kib",
    "mib",
    "kilobytes",
    "megabytes",
    "percent",
    "gauge",
    "counter",
    "histogram",
    "summary",
];

/// A family of a scrape.
#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    samples: Vec<String>,
}

/// Everything that is wrong with a scrape.
fn lint(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !text.ends_with("# EOF\n") {
        wrong.push("the end is missing".to_owned());
    }
    let (families, orphans) = families_of(text);
    wrong.extend(orphans.iter().map(|line| format!("{line}: belongs to no family")));
    for (name, family) in &families {
        let words: Vec<&str> = name.split('_').collect();
        let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !name.chars().all(is_lower) || name.contains("__") {
            wrong.push(format!("{name}: not in snake case"));
        }
        if family.help.is_empty() {
            wrong.push(format!("{name}: no help"));
        }
        if let Some(word) = words.iter().find(|word| WRONG_WORDS.contains(word)) {
            wrong.push(format!("{name}: {word:?} is a type or no base unit"));
        }
        if ["total", "count", "sum", "bucket", "info", "created"]
            .contains(words.last().expect("split gives one part"))
        {
            wrong.push(format!("{name}: the end is reserved"));
        }
        let endings: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            other => {
                wrong.push(format!("{name}: unknown type {other:?}"));
                continue;
            }
        };
        let is_histogram = family.kind == "histogram";
        if is_histogram && !["seconds", "bytes"].contains(words.last().expect("one part")) {
            wrong.push(format!("{name}: a histogram without unit"));
        }
        let mut seen = BTreeSet::new();
        for sample in &family.samples {
            let (series, value) = sample.rsplit_once(' ').unwrap_or((sample, ""));
            let of_sample = series.split('{').next().unwrap_or_default();
            if !endings.iter().any(|ending| of_sample == format!("{name}{ending}")) {
                wrong.push(format!("{sample}: not a sample of a {}", family.kind));
            }
            if value.parse::<f64>().is_err() {
                wrong.push(format!("{sample}: no number"));
            }
            if !seen.insert(series) {
                wrong.push(format!("{series}: twice"));
            }
        }
        if is_histogram {
            wrong.extend(check_histogram(name, &family.samples));
        }
    }
    wrong
}

/// The first series of a histogram whose counts fall from bound to bound.
fn check_histogram(name: &str, samples: &[String]) -> Option<String> {
    let mut last = 0.0;
    for sample in samples {
        let (series, value) = sample.rsplit_once(' ')?;
        let value: f64 = value.parse().ok()?;
        if !series.starts_with(&format!("{name}_bucket")) {
            last = 0.0;
        } else if value < last {
            return Some(format!("{series}: fewer than under the bound before"));
        } else {
            last = value;
        }
    }
    None
}

fn families_of(text: &str) -> (BTreeMap<String, Family>, Vec<String>) {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let (mut current, mut orphans) = (None, Vec::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut parts = line.splitn(4, ' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("#"), Some(part @ ("HELP" | "TYPE")), Some(name)) => {
                let rest = parts.next().unwrap_or_default().to_owned();
                let family = families.entry(name.to_owned()).or_default();
                match part {
                    "HELP" => family.help = rest,
                    _ => family.kind = rest,
                }
                current = Some(name.to_owned());
            }
            _ => match current.as_ref().filter(|name| line.starts_with(name.as_str())) {
                Some(name) => {
                    families.entry(name.clone()).or_default().samples.push(line.to_owned());
                }
                None => orphans.push(line.to_owned()),
            },
        }
    }
    (families, orphans)
}

/// Metric names in a text of queries.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    let is_metric = |word: &&str| word.starts_with("oribi_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

fn scrape() -> String {
    let fixture = Fixture::development();
    let scopes = "/pools/default/buckets/default/scopes";
    assert_eq!(fixture.post(scopes, "name=shop").status, 200);
    assert_eq!(fixture.post(&format!("{scopes}/shop/collections"), "name=carts").status, 200);
    fixture.get("/metrics").body
}

#[test]
fn a_scrape_keeps_prometheus_conventions() {
    let text = scrape();
    let wrong = lint(&text);
    assert!(wrong.is_empty(), "{wrong:#?}");
    for line in [
        "oribi_collection_items{bucket=\"default\",scope=\"shop\",collection=\"carts\"} 0",
        "oribi_operation_duration_seconds_count{bucket=\"default\",operation=\"get\"} 0",
        "oribi_bucket_change_backfill_scans_total{bucket=\"default\"} 0",
        "oribi_bucket_change_backfills_left_behind_total{bucket=\"default\"} 0",
        "# TYPE process_cpu_seconds counter",
        "# TYPE process_resident_memory_bytes gauge",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} in {text}");
    }
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let is_build =
        |line: &str| line.starts_with("oribi_build_info{") && line.contains(version.as_str());
    assert!(text.lines().any(is_build), "{text}");
}

/// The lint finds what it is for.
#[test]
fn the_lint_can_fail() {
    let good = "# HELP a_seconds Text.\n# TYPE a_seconds gauge\na_seconds 1\n# EOF\n";
    assert_eq!(lint(good), Vec::<String>::new());
    for (bad, why) in [
        ("# HELP a A.\n# TYPE a gauge\na 1\n", "the end is missing"),
        ("# TYPE a gauge\na 1\n# EOF\n", "no help"),
        ("# HELP a A.\n# TYPE a counter\na 1\n# EOF\n", "not a sample of a counter"),
        ("# HELP a_total A.\n# TYPE a_total gauge\na_total 1\n# EOF\n", "the end is reserved"),
        ("# HELP a_ms A.\n# TYPE a_ms gauge\na_ms 1\n# EOF\n", "no base unit"),
        ("# HELP aB A.\n# TYPE aB gauge\naB 1\n# EOF\n", "not in snake case"),
        ("# HELP a A.\n# TYPE a gauge\na x\n# EOF\n", "no number"),
        ("# HELP a A.\n# TYPE a gauge\na 1\na 2\n# EOF\n", "twice"),
        ("# HELP a A.\n# TYPE a gauge\nb 1\n# EOF\n", "belongs to no family"),
        ("# HELP a A.\n# TYPE a histogram\na_count 1\n# EOF\n", "a histogram without unit"),
        (
            "# HELP a_seconds A.\n# TYPE a_seconds histogram\na_seconds_sum 1\na_seconds_count 2\n\
             a_seconds_bucket{le=\"0.1\"} 2\na_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n",
            "fewer than under the bound before",
        ),
    ] {
        let wrong = lint(bad);
        assert!(wrong.iter().any(|line| line.contains(why)), "{why:?} in {wrong:?}");
    }
}

#[test]
fn dashboard_and_rules_name_metrics_that_there_are() {
    let text = scrape();
    let series: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    serde_json::from_str::<serde_json::Value>(DASHBOARD).unwrap();
    for (file, content, least) in [("dashboard", DASHBOARD, 15), ("rules", RULES, 8)] {
        let names = names_in(content);
        assert!(names.len() >= least, "{file}: {names:?}");
        let unknown: Vec<_> = names.iter().filter(|name| !series.contains(name.as_str())).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?} are in no scrape");
    }
    assert!(names_in("rate(oribi_nothing_total[5m])").contains("oribi_nothing_total"));
}

/// Whatever connections, scans and statements hold, an operator sees it: also when no client reads
/// such answers.
#[test]
fn metrics_are_served_without_connection_memory() {
    let fixture = Fixture::development();
    let memory = &fixture.server.as_ref().unwrap().context().connections.memory;
    let all = memory.hold(memory.reservable_bytes()).expect("nothing is held");
    let scrape = fixture.get("/metrics");
    assert_eq!(scrape.status, 200, "{}", scrape.body);
    assert!(scrape.body.len() > WHOLE_BYTES_MAX, "{} bytes need no memory", scrape.body.len());
    assert!(scrape.body.ends_with("# EOF\n"));
    let reserved = memory.reservable_bytes();
    let held = format!("\noribi_connection_memory_reserved_bytes {reserved}\n");
    assert!(scrape.body.contains(&held), "{held:?} in {}", scrape.body);
    for path in ["/healthz", "/readyz", "/node/figures"] {
        assert_eq!(fixture.get(path).status, 200, "{path}");
    }
    let unread: Vec<_> = (0..40).map(|_| fixture.connect("GET", "/metrics", ADMIN, "")).collect();
    assert_eq!(fixture.get("/metrics").status, 200);
    drop((unread, all));
}
