//! Latencies by percentile and throughput over time, as one SVG image.

use anyhow::anyhow;
use hdrhistogram::Histogram;
use plotters::coord::Shift;
use plotters::prelude::{
    BLACK, ChartBuilder, Color, DrawingArea, IntoDrawingArea, LineSeries, PathElement, RGBColor,
    SVGBackend, SeriesLabelPosition, WHITE,
};

use super::latencies::Latencies;
use super::timeline::TimelineSample;

const SIZE_PIXELS: (u32, u32) = (960, 760);

/// Lines of reads, of writes, and of throughput; distinguished with any kind of sight.
const COLORS: [RGBColor; 3] =
    [RGBColor(0x00, 0x72, 0xb2), RGBColor(0xd5, 0x5e, 0x00), RGBColor(0x00, 0x9e, 0x73)];

/// Points for each halving of what is left to 100 %.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// A part of the image.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A line of points.
type Line = Vec<(f64, f64)>;

pub struct Plot<'a> {
    pub title: String,
    /// Names of reads and writes.
    pub names: [&'static str; 2],
    /// Latencies; empty ones are left out.
    pub latencies: &'a Latencies,
    /// Counts, for each second.
    pub rate: &'static str,
    pub timeline: &'a [TimelineSample],
}

impl Plot<'_> {
    pub fn draw(&self) -> anyhow::Result<String> {
        let mut image = String::new();
        {
            let root = SVGBackend::with_string(&mut image, SIZE_PIXELS).into_drawing_area();
            self.draw_on(&root).map_err(|error| anyhow!("drawing the plot: {error}"))?;
        }
        Ok(image)
    }

    fn draw_on(&self, root: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let root = root.titled(&self.title, ("sans-serif", 18))?;
        let (upper, lower) = root.split_vertically(SIZE_PIXELS.1 / 2);
        self.draw_latencies(&upper)?;
        self.draw_throughput(&lower)?;
        root.present()?;
        Ok(())
    }

    /// The further to the right, the rarer: each unit is ten times fewer operations above the line.
    fn draw_latencies(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let histograms = [&self.latencies.read, &self.latencies.write];
        let lines = histograms.map(percentile_curve);
        let (x_max, y_max) = bounds(lines.iter().flatten());
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
        chart
            .configure_mesh()
            .x_desc("percentile")
            .y_desc("latency, µs")
            .x_labels(x_max.ceil() as usize + 1)
            .x_label_formatter(&|nines| percentile_label(*nines))
            .y_label_formatter(&|us| whole(*us))
            .draw()?;
        for ((name, line), color) in self.names.into_iter().zip(lines).zip(COLORS) {
            if line.is_empty() {
                continue;
            }
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK)
            .draw()?;
        Ok(())
    }

    fn draw_throughput(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        let point = |sample: &TimelineSample| (sample.seconds, sample.operations_per_second);
        let line: Line = self.timeline.iter().map(point).collect();
        let (x_max, y_max) = bounds(&line);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
        chart
            .configure_mesh()
            .x_desc("seconds")
            .y_desc(self.rate)
            .y_label_formatter(&|rate| whole(*rate))
            .draw()?;
        chart.draw_series(LineSeries::new(line, COLORS[2].stroke_width(2)))?;
        Ok(())
    }
}

/// Points of (number of nines, microseconds).
fn percentile_curve(histogram: &Histogram<u64>) -> Line {
    if histogram.is_empty() {
        return Line::new();
    }
    // One operation among all of them is the rarest that can be shown.
    let nines_max = (histogram.len() as f64).log10();
    histogram
        .iter_quantiles(TICKS_PER_HALF_DISTANCE)
        .map(|point| {
            let rest = 1.0 - point.quantile_iterated_to();
            let nines = if rest > 0.0 { -rest.log10() } else { nines_max };
            (nines.min(nines_max), point.value_iterated_to() as f64 / 1000.0)
        })
        .collect()
}

/// Upper ends of the axes, with some space; an axis has a length even when there is nothing on it.
fn bounds<'a>(points: impl IntoIterator<Item = &'a (f64, f64)>) -> (f64, f64) {
    let (x, y) = points
        .into_iter()
        .fold((0.0f64, 0.0f64), |max, point| (max.0.max(point.0), max.1.max(point.1)));
    let axis = |max: f64| if max > 0.0 { max * 1.05 } else { 1.0 };
    (axis(x), axis(y))
}

/// A number without a fraction where it has none, with its thousands apart.
fn whole(number: f64) -> String {
    if number < 10.0 && number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    indicatif::HumanCount(number as u64).to_string()
}

/// 0 is all, 1 is 90 %, 2 is 99 %.
fn percentile_label(nines: f64) -> String {
    let percent = 100.0 - 100.0 * 10f64.powf(-nines);
    let digits = (nines.round() as usize).saturating_sub(2);
    format!("{percent:.digits$} %")
}

#[cfg(test)]
mod tests {
    //! Images that a browser can show, whatever there is to draw.

    use super::*;

    const NAMES: [&str; 2] = ["GET", "SET"];
    const RATE: &str = "operations per second";

    #[test]
    fn both_charts_are_drawn() {
        let mut latencies = Latencies::new();
        (1..=5000u64).for_each(|n| latencies.read.record(n * 100).unwrap());
        latencies.write.record(7_000).unwrap();
        let timeline: Vec<TimelineSample> = (1..=20)
            .map(|n| TimelineSample {
                seconds: f64::from(n),
                operations_per_second: 1e6 / f64::from(n),
            })
            .collect();
        let (title, timeline) = ("512 bytes & more".to_owned(), &timeline[..]);
        let plot = Plot { title, names: NAMES, latencies: &latencies, rate: RATE, timeline };
        let image = plot.draw().unwrap();
        assert!(image.starts_with("<svg") && image.trim_end().ends_with("</svg>"));
        assert!(image.matches("<polyline").count() > 2, "{image}");
        for text in ["percentile", RATE, "GET", "SET", "99.9 %", "&amp;"] {
            assert!(image.contains(text), "{text}");
        }
    }

    #[test]
    fn each_missing_drawing_has_an_error() {
        let (title, latencies) = (String::new(), &Latencies::new());
        let plot = Plot { title, names: NAMES, latencies, rate: RATE, timeline: &[] };
        assert!(plot.draw().unwrap().contains("</svg>"));
    }

    #[test]
    fn labels_count_nines() {
        let labels = [0.0, 1.0, 2.0, 3.0, 4.0].map(percentile_label);
        assert_eq!(labels, ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    }
}
