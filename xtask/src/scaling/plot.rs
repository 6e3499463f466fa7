//! The plot of docs/benchmarks.md.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::{
    BLACK, ChartBuilder, Color, IntoDrawingArea, IntoLogRange, LineSeries, Palette, Palette99,
    PathElement, SVGBackend, SeriesLabelPosition, WHITE,
};

use super::model::Prediction;

/// Draws throughput over that of one core, both axes logarithmic.
pub fn draw(path: &Path, series: &[(String, &[Prediction])]) -> Result<()> {
    let area = SVGBackend::new(path, (860, 560)).into_drawing_area();
    area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    let mut chart = ChartBuilder::on(&area)
        .caption("Throughput over that of one core, predicted", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((1.0..128.0_f64).log_scale(), (1.0..160.0_f64).log_scale())
        .map_err(|error| anyhow!("{error}"))?;
    chart
        .configure_mesh()
        .x_desc("cores")
        .y_desc("times one core")
        .draw()
        .map_err(|error| anyhow!("{error}"))?;
    for (number, (name, predictions)) in series.iter().enumerate() {
        let alone = predictions.first().map_or(f64::NAN, |one| one.per_second);
        let points = predictions.iter().map(|one| (one.cores as f64, one.per_second / alone));
        let style = Palette99::pick(number).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))
            .map_err(|error| anyhow!("{error}"))?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(|error| anyhow!("{error}"))?;
    area.present().map_err(|error| anyhow!("{error}"))?;
    Ok(())
}
