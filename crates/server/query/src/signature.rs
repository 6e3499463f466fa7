//! The signature of an answer: the types of result fields, as JSON text.

use std::collections::HashSet;

use crate::plan::{ProjectionPlan, ProjectionTerm};
use crate::value::{QueryValue, write};

/// The signature of rows with this projection; `null` without rows.
pub fn signature(projection: Option<&ProjectionPlan>) -> String {
    match projection {
        None => "null".to_owned(),
        Some(projection) if projection.raw => "\"json\"".to_owned(),
        // In the order of the statement, which names the columns of a table.
        Some(projection) => {
            let term = |term: &ProjectionTerm| match term {
                ProjectionTerm::Value(name, _) => {
                    format!("{}:\"json\"", write::to_json(&QueryValue::Str(name.clone())))
                }
                _ => "\"*\":\"*\"".to_owned(),
            };
            let mut seen = HashSet::new();
            let terms = projection.terms.iter().map(term);
            let terms: Vec<String> = terms.filter(|text| seen.insert(text.clone())).collect();
            format!("{{{}}}", terms.join(","))
        }
    }
}
