//! Latencies as the percentile text that tools for HdrHistogram read and plot.

use std::io::{self, Write};

use hdrhistogram::Histogram;

/// Percentile lines for each halving of what is left to 100 %.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Writes a histogram of nanoseconds as percentiles in microseconds.
pub fn write(histogram: &Histogram<u64>, out: &mut impl Write) -> io::Result<()> {
    let micros = |nanos: u64| nanos as f64 / 1000.0;
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    writeln!(out)?;
    let mut count = 0;
    for point in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        count += point.count_since_last_iteration();
        let quantile = point.quantile_iterated_to();
        write!(out, "{:>12.3} {quantile:>2.12} {count:>10}", micros(point.value_iterated_to()))?;
        match quantile < 1.0 {
            true => writeln!(out, " {:>14.2}", 1.0 / (1.0 - quantile))?,
            false => writeln!(out)?,
        }
    }
    let (mean, deviation) = (histogram.mean() / 1000.0, histogram.stdev() / 1000.0);
    writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
    let (max, total) = (micros(histogram.max()), histogram.len());
    writeln!(out, "#[Max     = {max:>12.3}, Total count    = {total:>12}]")?;
    let (buckets, distinct) = (histogram.buckets(), histogram.distinct_values());
    let sub_buckets = distinct / (usize::from(buckets) + 1) * 2;
    writeln!(out, "#[Buckets = {buckets:>12}, SubBuckets     = {sub_buckets:>12}]")
}

#[cfg(test)]
mod tests {
    //! Lines that a plotter can read, up to the last recorded value.

    use super::*;

    #[test]
    fn percentiles_rise_to_the_maximum() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        (1..=100_000u64).for_each(|n| histogram.record(n * 1_000).unwrap());
        let mut out = Vec::new();
        write(&histogram, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|field| field.parse().unwrap()).collect())
            .collect();
        assert!(rows.len() > 50);
        assert!(rows.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][2] <= pair[1][2]));
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!((median[0] - 50_000.0).abs() < 50.0, "{median:?}");
        assert_eq!(rows.last().unwrap()[1..], [1.0, 100_000.0]);
        assert!(
            text.contains("#[Mean    =") && text.contains("SubBuckets     =         2048]"),
            "{text}"
        );
    }

    #[test]
    fn an_empty_histogram_is_no_error() {
        let mut out = Vec::new();
        write(&Histogram::<u64>::new(3).unwrap(), &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("Total count    =            0"));
    }
}
