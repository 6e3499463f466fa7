//! The window functions that are no aggregates.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFunction {
    /// An aggregate over the frame.
    Aggregate,
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumulativeDistribution,
    Tiles,
    Lag,
    Lead,
    FirstValue,
    LastValue,
    NthValue,
    RatioToReport,
}

/// Names with the fewest and the most arguments.
pub const FUNCTIONS: &[(&str, WindowFunction, usize, usize)] = &[
    ("ROW_NUMBER", WindowFunction::RowNumber, 0, 0),
    ("RANK", WindowFunction::Rank, 0, 0),
    ("DENSE_RANK", WindowFunction::DenseRank, 0, 0),
    ("PERCENT_RANK", WindowFunction::PercentRank, 0, 0),
    ("CUME_DIST", WindowFunction::CumulativeDistribution, 0, 0),
    ("NTILE", WindowFunction::Tiles, 1, 1),
    ("LAG", WindowFunction::Lag, 1, 3),
    ("LEAD", WindowFunction::Lead, 1, 3),
    ("FIRST_VALUE", WindowFunction::FirstValue, 1, 1),
    ("LAST_VALUE", WindowFunction::LastValue, 1, 1),
    ("NTH_VALUE", WindowFunction::NthValue, 2, 2),
    ("RATIO_TO_REPORT", WindowFunction::RatioToReport, 1, 1),
];

impl WindowFunction {
    /// The function of a name in capitals.
    pub fn named(name: &str) -> Option<WindowFunction> {
        FUNCTIONS.iter().find(|known| known.0 == name).map(|known| known.1)
    }
}
