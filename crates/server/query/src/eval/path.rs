//! Steps of a path: fields, elements, slices and `[*]`.

use crate::error::Result;
use crate::operators::navigation::{fields, item, slice, star, star_field};
use crate::plan::{ExprPlan, StepPlan};
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{QueryValue, Text};

impl Runtime<'_> {
    /// The value at a path.
    pub fn path(
        &self,
        base: &ExprPlan,
        names: &[Text],
        rest: &[StepPlan],
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        let mut value = match base {
            ExprPlan::Slot(slot) => {
                if let QueryValue::Json(json) = &frame[*slot] {
                    self.work(json.len())?;
                }
                fields(&frame[*slot], names)
            }
            other => fields(&self.eval(other, frame)?, names),
        };
        let mut steps = rest.iter();
        while let Some(next) = steps.next() {
            value = match (next, steps.as_slice().first()) {
                (StepPlan::Star, Some(StepPlan::Field(name))) => {
                    steps.next();
                    self.with_scratch(|| star_field(&value, name, self))?
                }
                _ => self.step(value, next, frame)?,
            };
        }
        Ok(value)
    }

    fn step(
        &self,
        value: QueryValue,
        step: &StepPlan,
        frame: &mut SlotFrame,
    ) -> Result<QueryValue> {
        self.work(value.walked_bytes())?;
        Ok(match step {
            StepPlan::Field(name) => value.field(name.as_bytes()),
            StepPlan::Folded(name) => value.folded_field(name),
            StepPlan::Computed(name) => match (&value, self.eval(name, frame)?) {
                (QueryValue::Missing, _) | (_, QueryValue::Missing) => QueryValue::Missing,
                (_, QueryValue::Str(name)) => value.field(name.as_bytes()),
                _ => QueryValue::Null,
            },
            StepPlan::Index(index) => item(&value, &self.eval(index, frame)?),
            StepPlan::Slice(start, end) => {
                let mut bound = |bound: &Option<ExprPlan>| {
                    bound.as_ref().map(|bound| self.eval(bound, frame)).transpose()
                };
                let (start, end) = (bound(start)?, bound(end)?);
                self.with_scratch(|| slice(&value, start, end, self))?
            }
            StepPlan::Star => self.with_scratch(|| star(&value, self))?,
        })
    }
}
