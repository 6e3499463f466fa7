//! The options of INFER.

use crate::error::{QueryError, Result};
use crate::limits::{INFER_SAMPLE_MAX, INFER_VALUES_MAX};
use crate::value::QueryValue;

/// The options of a statement, with the defaults of the reference's manual.
pub(super) struct InferOptions {
    pub sample_size: usize,
    pub sample_values: usize,
    pub similarity: f64,
}

impl InferOptions {
    /// Refuses options that there are not (5010).
    pub fn of(options: &QueryValue) -> Result<InferOptions> {
        let wrong = |name: &str, what: &str| {
            QueryError::new(5010, format!("The option {name} of INFER takes {what}"))
        };
        let Some(object) = options.object() else {
            return Err(QueryError::new(5010, "The options of INFER are an object"));
        };
        let (mut sample_size, mut sample_values, mut similarity) = (1_000, 5, 0.6);
        for (name, value) in object.fields() {
            let count = |most: usize| {
                let count = value.as_int().and_then(|count| usize::try_from(count).ok());
                count.filter(|count| *count <= most)
            };
            match &*name.to_string() {
                "sample_size" => {
                    let what = format!("a number of documents up to {INFER_SAMPLE_MAX}");
                    sample_size =
                        count(INFER_SAMPLE_MAX).ok_or_else(|| wrong("sample_size", &what))?;
                }
                "num_sample_values" => {
                    let what = format!("a number of values up to {INFER_VALUES_MAX}");
                    let found = count(INFER_VALUES_MAX);
                    sample_values = found.ok_or_else(|| wrong("num_sample_values", &what))?;
                }
                "similarity_metric" => {
                    let found = value.as_f64().filter(|metric| (0.0..=1.0).contains(metric));
                    let what = "a number from 0 to 1";
                    similarity = found.ok_or_else(|| wrong("similarity_metric", what))?;
                }
                // Objects are never shown as dictionaries, and there is one way to sample.
                "dictionary_threshold" | "max_schema_MB" | "infer_timeout" | "flags" => {}
                other => {
                    let msg = format!("INFER has no option {other}");
                    return Err(QueryError::new(5010, msg));
                }
            }
        }
        Ok(InferOptions { sample_size, sample_values, similarity })
    }
}
