//! The memory of a statement: its kept values, its temporary values, and the work of one call.
//!
//! Whatever grows with a statement's input is reserved before it is allocated (5500). Values above
//! `VALUE_BYTES_FREE` hold a reservation until they are dropped; smaller ones are counted where
//! many of them are collected. What the budget grants stays with the statement until it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Runtime;
use crate::error::{QueryError, Result};
use crate::limits::{RESERVE_STEP_BYTES, VALUE_BYTES_FREE};
use crate::value::ArrayItems;
use crate::value::reservation::{HeldMemory, ValueReservation};
use crate::value::{Object, QueryValue, Text};

/// Bytes of an element or field apart from its content, while its container grows.
const ITEM_BYTES: usize = 2 * size_of::<QueryValue>();

impl Runtime<'_> {
    /// Reserves memory for something that the statement keeps.
    pub fn keep(&self, bytes: usize) -> Result<()> {
        self.grant(bytes)?;
        self.used.set(self.used.get() + bytes);
        debug_assert!(self.used.get() <= self.reserved.get(), "kept bytes are reserved");
        Ok(())
    }

    /// Has the budget grant `bytes` more than are in use.
    fn grant(&self, bytes: usize) -> Result<()> {
        let needed = self.in_use().checked_add(bytes).ok_or_else(QueryError::out_of_memory)?;
        if needed > self.reserved.get() {
            let step = (needed - self.reserved.get()).max(RESERVE_STEP_BYTES);
            if !self.budget.reserve(step) {
                return Err(QueryError::out_of_memory());
            }
            self.reserved.set(self.reserved.get() + step);
        }
        debug_assert!(needed <= self.reserved.get(), "used bytes are reserved");
        Ok(())
    }

    /// The bytes in use: kept, by one call, and by values and compiled patterns.
    pub(super) fn in_use(&self) -> usize {
        self.used.get() + self.scratch.get() + self.values_bytes.load(Ordering::Relaxed)
    }

    /// The bytes that are kept, for `release_to`.
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Releases the memory kept since a call of `used`. What outlives that, such as a value or a
    /// compiled pattern, holds a reservation instead.
    pub fn release_to(&self, used: usize) {
        assert!(used <= self.used.get(), "what was kept before is still kept");
        self.used.set(used);
    }

    /// Reserves memory that a function needs until it returns, its result included.
    pub fn scratch(&self, bytes: usize) -> Result<()> {
        self.work(bytes)?;
        self.grant(bytes)?;
        self.scratch.set(self.scratch.get() + bytes);
        debug_assert!(self.scratch.get() <= self.reserved.get(), "scratch memory is reserved");
        Ok(())
    }

    /// Reserves memory for copies of values, and for their keys in a hash table.
    pub fn scratch_keys(&self, items: &[QueryValue]) -> Result<()> {
        const ENTRY_BYTES: usize = 96;
        if items.is_empty() {
            return Ok(());
        }
        let entry = |item: &QueryValue| item.byte_count() + size_of::<QueryValue>() + ENTRY_BYTES;
        self.scratch(items.iter().map(entry).sum())
    }

    /// Runs a function. Its result holds the memory that is new.
    #[inline]
    pub fn with_scratch(&self, run: impl FnOnce() -> Result<QueryValue>) -> Result<QueryValue> {
        let before = self.scratch.get();
        let result = run();
        debug_assert!(self.scratch.get() >= before, "a call gives back only its own memory");
        if self.scratch.get() == before {
            return result;
        }
        self.scratch.set(before);
        self.hold_new(result?)
    }

    /// The value, holding what of its memory is new.
    fn hold_new(&self, value: QueryValue) -> Result<QueryValue> {
        match value.own_bytes() {
            0..=VALUE_BYTES_FREE => Ok(value),
            bytes => Ok(value.holding(self.reserve_value(bytes)?)),
        }
    }

    /// A reservation that a value of so many bytes keeps.
    pub fn reserve_value(&self, bytes: usize) -> Result<ValueReservation> {
        self.grant(bytes)?;
        Ok(ValueReservation::new(&self.values_bytes, bytes))
    }

    /// The elements, if this is an array.
    pub fn elements(&self, value: &QueryValue) -> Result<Option<Arc<ArrayItems>>> {
        match value {
            QueryValue::Json(json) if json.is_array() && json.len() > VALUE_BYTES_FREE => {
                let mut memory = GrowingMemory::default();
                memory.add(json.items().count() * ITEM_BYTES, self)?;
                Ok(Some(Arc::new(ArrayItems::new(json.items().collect(), memory.held))))
            }
            value => Ok(value.elements()),
        }
    }

    /// The fields, if this is an object.
    pub fn fields_of(&self, value: &QueryValue) -> Result<Option<Arc<Object>>> {
        match value {
            QueryValue::Json(json) if !json.is_array() && json.len() > VALUE_BYTES_FREE => {
                let bytes = json.fields().count() * 2 * ITEM_BYTES;
                let memory = self.reserve_value(bytes)?;
                let mut object = Object::new(json.fields().collect());
                object.hold(memory);
                Ok(Some(Arc::new(object)))
            }
            value => Ok(value.object()),
        }
    }
}

/// The memory of a value that grows element by element.
#[derive(Debug, Default)]
pub struct GrowingMemory {
    held: HeldMemory,
    needed: usize,
    reserved: usize,
}

impl GrowingMemory {
    pub fn add(&mut self, bytes: usize, rt: &Runtime<'_>) -> Result<()> {
        self.needed = self.needed.saturating_add(bytes);
        if self.needed <= self.reserved.max(VALUE_BYTES_FREE) {
            return Ok(());
        }
        // Few reservations: each is at least a quarter of what there is.
        let step = (self.needed - self.reserved).max(self.reserved / 4).max(VALUE_BYTES_FREE);
        self.held.push(rt.reserve_value(step)?);
        self.reserved += step;
        debug_assert!(self.reserved >= self.needed, "needed bytes are reserved");
        Ok(())
    }

    /// Reserves an element of a container.
    pub fn add_item(&mut self, value: &QueryValue, rt: &Runtime<'_>) -> Result<()> {
        self.add(ITEM_BYTES + value.own_bytes(), rt)
    }

    /// The text, holding its memory if it is large.
    pub fn text(self, bytes: Vec<u8>) -> QueryValue {
        let text = QueryValue::Str(Text::from_bytes(bytes.into()));
        self.held.into_iter().fold(text, QueryValue::holding)
    }

    pub fn array(self, items: Vec<QueryValue>) -> QueryValue {
        QueryValue::Array(Arc::new(ArrayItems::new(items, self.held)))
    }

    pub fn object(self, object: Object) -> QueryValue {
        QueryValue::from(object.with_memory(self.held))
    }
}
