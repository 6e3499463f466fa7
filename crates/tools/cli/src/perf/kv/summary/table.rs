//! The summary as tables.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use super::{CpuSummary, KvPhaseSummary, KvSummary};
use crate::perf::report::{LatencySummary, PERCENTILES, grouped, micros};

impl KvSummary {
    /// Tables of counts and of latencies, one column or row per phase.
    pub fn tables(&self) -> String {
        let phases: Vec<(&str, &KvPhaseSummary)> =
            [("population", &self.population), ("load", &self.load)]
                .into_iter()
                .filter_map(|(name, phase)| phase.as_ref().map(|phase| (name, phase)))
                .collect();
        format!("{}\n{}\n", count_table(&phases), latency_table(&phases))
    }
}

fn count_table(phases: &[(&str, &KvPhaseSummary)]) -> Table {
    let mut table = new_table();
    let names = phases.iter().map(|(name, _)| (*name).to_owned());
    table.set_header(std::iter::once(String::new()).chain(names));
    for (name, show) in ROWS {
        let cells: Vec<String> = phases.iter().map(|(_, phase)| show(phase)).collect();
        // A row that says nothing of any phase is left out.
        if cells.iter().any(|cell| !cell.is_empty()) {
            table.add_row(std::iter::once((*name).to_owned()).chain(cells));
        }
    }
    align(&mut table);
    table
}

/// A row: its name, and how it shows a phase; empty when there is nothing to show.
type Row = (&'static str, fn(&KvPhaseSummary) -> String);

const ROWS: &[Row] = &[
    ("seconds", |phase| format!("{:.3}", phase.seconds)),
    ("operations", |phase| grouped(phase.operations)),
    ("operations/s", |phase| grouped(phase.operations_per_second as u64)),
    ("reads", |phase| grouped(phase.gets)),
    ("writes", |phase| grouped(phase.sets)),
    ("hits", |phase| grouped(phase.hits)),
    ("misses", |phase| grouped(phase.misses)),
    ("wrong values", |phase| grouped(phase.corrupt.values().sum())),
    ("refused for good", |phase| grouped(phase.refused_operations())),
    ("retries", |phase| unless_zero(phase.retries)),
    ("given up", |phase| unless_zero(phase.given_up)),
    ("unanswered", |phase| unless_zero(phase.unanswered)),
    ("MB/s of values", |phase| format!("{:.1}", phase.megabytes_per_second)),
    ("client CPU ns/op", |phase| cpu(phase.client_cpu_ns_per_operation)),
    ("server CPU ns/op", |phase| cpu(phase.server_cpu_ns_per_operation)),
];

fn latency_table(phases: &[(&str, &KvPhaseSummary)]) -> Table {
    let mut table = new_table();
    let percentiles = PERCENTILES.map(|(name, _)| name.replace('_', "."));
    let header = ["latency".to_owned(), "min".to_owned(), "mean".to_owned()].into_iter();
    table.set_header(header.chain(percentiles).chain(["max".to_owned()]));
    for (name, phase) in phases {
        for (kind, latency) in [("GET", &phase.get_latency_us), ("SET", &phase.set_latency_us)] {
            if latency.count > 0 {
                table.add_row(latency_row(format!("{name} {kind}"), latency));
            }
        }
    }
    align(&mut table);
    table
}

fn latency_row(name: String, latency: &LatencySummary) -> Vec<String> {
    let percentiles = PERCENTILES.iter().map(|(name, _)| latency.percentiles[name]);
    let figures = [latency.min, latency.mean].into_iter().chain(percentiles).chain([latency.max]);
    std::iter::once(name).chain(figures.map(micros)).collect()
}

fn new_table() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn unless_zero(number: u64) -> String {
    if number == 0 { String::new() } else { grouped(number) }
}

fn cpu(cpu: Option<CpuSummary>) -> String {
    let show = |CpuSummary { user, system, total }| {
        format!("{total:.0} ({user:.0} user, {system:.0} system)")
    };
    cpu.map(show).unwrap_or_default()
}
