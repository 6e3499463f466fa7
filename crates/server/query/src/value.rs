//! Values of SQL++: missing, null, booleans, numbers, texts, arrays and objects.
//!
//! An array or object of a stored document stays a span of its JSON text (`Json`) until something
//! needs its parts; then one level is read. Trees are built only for what a statement constructs.
//!
//! Invariants: a float that is a whole number within 64 bits is an `Int`, but for large results of
//! sums and products (`value::tests::whole_floats_become_integers`). The fields of an `Object`
//! are sorted and unique. No stored text makes code here panic.

pub mod json;
pub mod key;
pub mod memory;
pub mod order;
pub mod reservation;
#[cfg(test)]
mod tests;
pub mod text;
pub mod write;

use std::sync::Arc;

use bytes::Bytes;

use reservation::{HeldMemory, ValueReservation};
use std::ops::{Deref, DerefMut};
pub use text::Text;

#[derive(Clone, Debug, Default)]
pub enum QueryValue {
    /// No value at all: an absent field.
    #[default]
    Missing,
    Null,
    Bool(bool),
    /// A whole number of 64 bits.
    Int(i64),
    Float(f64),
    Str(Text),
    /// An array that a statement built.
    Array(Arc<ArrayItems>),
    /// An object that a statement built.
    Object(Arc<Object>),
    /// The text of an array or object.
    Json(Json),
    /// A document that is not JSON.
    Binary(Bytes),
}

/// The text of an array or object. `value::json` reads it.
#[derive(Clone, Debug)]
pub struct Json(Bytes);

/// The type of a value, in the order of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueType {
    Missing,
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
    Binary,
}

impl ValueType {
    /// The name that `TYPE()` answers.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::Missing => "missing",
            ValueType::Null => "null",
            ValueType::Boolean => "boolean",
            ValueType::Number => "number",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::Object => "object",
            ValueType::Binary => "binary",
        }
    }
}

/// An object's fields, sorted by name and unique.
#[derive(Clone, Debug, Default)]
pub struct Object {
    fields: Vec<(Text, QueryValue)>,
    memory: HeldMemory,
}

impl Object {
    /// An object of `fields`. Of equal names the last counts; a missing value drops its field.
    pub fn new(mut fields: Vec<(Text, QueryValue)>) -> Object {
        if !fields.is_sorted_by(|(left, _), (right, _)| left < right) {
            fields.reverse();
            fields.sort_by(|(left, _), (right, _)| left.cmp(right));
            fields.dedup_by(|(later, _), (earlier, _)| later == earlier);
        }
        fields.retain(|(_, value)| !value.is_missing());
        let is_before = |left: &(Text, QueryValue), right: &(Text, QueryValue)| left.0 < right.0;
        debug_assert!(fields.is_sorted_by(is_before), "fields are sorted and unique");
        Object { fields, memory: HeldMemory::default() }
    }

    /// The object with these reservations in place of those it has.
    pub fn with_memory(mut self, memory: HeldMemory) -> Object {
        self.memory = memory;
        self
    }

    /// Keeps a reservation until the object is dropped.
    pub fn hold(&mut self, reservation: ValueReservation) {
        self.memory.push(reservation);
    }

    pub fn fields(&self) -> &[(Text, QueryValue)] {
        &self.fields
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    fn find(&self, name: &[u8]) -> std::result::Result<usize, usize> {
        self.fields.binary_search_by(|(field, _)| field.as_bytes().cmp(name))
    }

    pub fn get(&self, name: &[u8]) -> Option<&QueryValue> {
        self.find(name).ok().map(|found| &self.fields[found].1)
    }

    /// Sets a field; a missing value removes it.
    pub fn set(&mut self, name: Text, value: QueryValue) {
        match (self.find(name.as_bytes()), value.is_missing()) {
            (Ok(found), true) => drop(self.fields.remove(found)),
            (Ok(found), false) => self.fields[found].1 = value,
            (Err(_), true) => {}
            (Err(at), false) => self.fields.insert(at, (name, value)),
        }
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<QueryValue> {
        self.find(name).ok().map(|found| self.fields.remove(found).1)
    }
}

impl From<&str> for QueryValue {
    fn from(text: &str) -> QueryValue {
        QueryValue::Str(Text::from(text))
    }
}

impl From<String> for QueryValue {
    fn from(text: String) -> QueryValue {
        QueryValue::Str(Text::from(text))
    }
}

impl From<bool> for QueryValue {
    fn from(flag: bool) -> QueryValue {
        QueryValue::Bool(flag)
    }
}

impl From<i64> for QueryValue {
    fn from(number: i64) -> QueryValue {
        QueryValue::Int(number)
    }
}

impl From<usize> for QueryValue {
    fn from(number: usize) -> QueryValue {
        QueryValue::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Vec<QueryValue>> for QueryValue {
    fn from(items: Vec<QueryValue>) -> QueryValue {
        QueryValue::Array(Arc::new(ArrayItems::new(items, HeldMemory::default())))
    }
}

impl From<Object> for QueryValue {
    fn from(object: Object) -> QueryValue {
        QueryValue::Object(Arc::new(object))
    }
}

/// The elements of an array that a statement built.
#[derive(Clone, Debug, Default)]
pub struct ArrayItems {
    items: Vec<QueryValue>,
    memory: HeldMemory,
}

impl ArrayItems {
    pub fn new(items: Vec<QueryValue>, memory: HeldMemory) -> ArrayItems {
        ArrayItems { items, memory }
    }

    /// Keeps a reservation until the array is dropped.
    pub fn hold(&mut self, reservation: ValueReservation) {
        self.memory.push(reservation);
    }
}

impl Deref for ArrayItems {
    type Target = Vec<QueryValue>;

    fn deref(&self) -> &Vec<QueryValue> {
        &self.items
    }
}

impl DerefMut for ArrayItems {
    fn deref_mut(&mut self) -> &mut Vec<QueryValue> {
        &mut self.items
    }
}

impl QueryValue {
    /// A number. Whole floats become integers, negative zero among them.
    pub fn number(number: f64) -> QueryValue {
        const LIMIT: f64 = 9_223_372_036_854_775_808.0;
        let whole = number.fract() == 0.0 && (-LIMIT..LIMIT).contains(&number);
        if whole { QueryValue::Int(number as i64) } else { QueryValue::Float(number) }
    }

    pub fn kind(&self) -> ValueType {
        match self {
            QueryValue::Missing => ValueType::Missing,
            QueryValue::Null => ValueType::Null,
            QueryValue::Bool(_) => ValueType::Boolean,
            QueryValue::Int(_) | QueryValue::Float(_) => ValueType::Number,
            QueryValue::Str(_) => ValueType::String,
            QueryValue::Array(_) => ValueType::Array,
            QueryValue::Object(_) => ValueType::Object,
            QueryValue::Json(json) if json.is_array() => ValueType::Array,
            QueryValue::Json(_) => ValueType::Object,
            QueryValue::Binary(_) => ValueType::Binary,
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, QueryValue::Missing)
    }

    pub fn is_null(&self) -> bool {
        matches!(self, QueryValue::Null)
    }

    /// Neither missing nor null.
    pub fn is_valued(&self) -> bool {
        !matches!(self, QueryValue::Missing | QueryValue::Null)
    }

    pub fn is_array(&self) -> bool {
        self.kind() == ValueType::Array
    }

    pub fn is_object(&self) -> bool {
        self.kind() == ValueType::Object
    }

    pub fn as_text(&self) -> Option<&Text> {
        match self {
            QueryValue::Str(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            QueryValue::Int(number) => Some(*number as f64),
            QueryValue::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            QueryValue::Int(number) => Some(*number),
            QueryValue::Float(number) if *number == 0.0 => Some(0),
            _ => None,
        }
    }

    /// Whether a condition with this value holds.
    pub fn truth(&self) -> bool {
        match self {
            QueryValue::Missing | QueryValue::Null | QueryValue::Binary(_) => false,
            QueryValue::Bool(flag) => *flag,
            QueryValue::Int(number) => *number != 0,
            QueryValue::Float(number) => *number != 0.0 && !number.is_nan(),
            QueryValue::Str(text) => !text.as_bytes().is_empty(),
            QueryValue::Array(items) => !items.is_empty(),
            QueryValue::Object(object) => object.len() > 0,
            QueryValue::Json(json) => !json.is_empty(),
        }
    }

    /// The elements, if this is an array.
    pub fn elements(&self) -> Option<Arc<ArrayItems>> {
        match self {
            QueryValue::Array(items) => Some(items.clone()),
            QueryValue::Json(json) if json.is_array() => {
                let items = json.items().collect();
                Some(Arc::new(ArrayItems::new(items, HeldMemory::default())))
            }
            _ => None,
        }
    }

    /// The fields, if this is an object.
    pub fn object(&self) -> Option<Arc<Object>> {
        match self {
            QueryValue::Object(object) => Some(object.clone()),
            QueryValue::Json(json) if !json.is_array() => {
                Some(Arc::new(Object::new(json.fields().collect())))
            }
            _ => None,
        }
    }

    /// A field of an object, else missing.
    pub fn field(&self, name: &[u8]) -> QueryValue {
        match self {
            QueryValue::Object(object) => object.get(name).cloned().unwrap_or_default(),
            QueryValue::Json(json) => json.field(name),
            _ => QueryValue::Missing,
        }
    }

    /// A field whose name equals `name` but for case. The exact name is preferred.
    pub fn folded_field(&self, name: &Text) -> QueryValue {
        let exact = self.field(name.as_bytes());
        if !exact.is_missing() {
            return exact;
        }
        let wanted = name.to_str().to_lowercase();
        let object = self.object().unwrap_or_default();
        let mut fields = object.fields().iter();
        fields
            .find(|(field, _)| field.to_str().to_lowercase() == wanted)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    }

    /// An element of an array, from its end if `index` is negative; else missing.
    pub fn item(&self, index: i64) -> QueryValue {
        match self {
            QueryValue::Array(items) => {
                let at = if index < 0 { index.saturating_add(items.len() as i64) } else { index };
                let at = usize::try_from(at).ok();
                at.and_then(|at| items.get(at)).cloned().unwrap_or_default()
            }
            QueryValue::Json(json) if json.is_array() => {
                if index < 0 {
                    return QueryValue::from(json.items().collect::<Vec<_>>()).item(index);
                }
                usize::try_from(index).ok().and_then(|at| json.items().nth(at)).unwrap_or_default()
            }
            _ => QueryValue::Missing,
        }
    }

    /// Missing becomes null, as in an array.
    pub fn or_null(self) -> QueryValue {
        if self.is_missing() { QueryValue::Null } else { self }
    }

    /// Whether it has at most so many levels, and takes at most the bytes that are `left`, which it
    /// takes off. Shared parts count each time, and the walk ends with the bytes.
    pub fn fits(&self, levels: usize, left: &mut usize) -> bool {
        let own = match self {
            QueryValue::Str(text) => text.as_bytes().len(),
            QueryValue::Json(json) => json.as_bytes().len(),
            QueryValue::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        let Some(rest) = left.checked_sub(size_of::<QueryValue>() + own) else { return false };
        *left = rest;
        match (self, levels.checked_sub(1)) {
            (QueryValue::Array(items), Some(levels)) => {
                items.iter().all(|item| item.fits(levels, left))
            }
            (QueryValue::Object(object), Some(levels)) => {
                let mut fields = object.fields().iter();
                fields.all(|(_, value)| value.fits(levels, left))
            }
            (QueryValue::Array(_) | QueryValue::Object(_), None) => false,
            _ => true,
        }
    }

    /// The bytes that this value keeps in memory, roughly.
    pub fn byte_count(&self) -> usize {
        let inner = match self {
            QueryValue::Str(text) => text.as_bytes().len(),
            QueryValue::Array(items) => items.iter().map(QueryValue::byte_count).sum(),
            QueryValue::Object(object) => {
                let fields = object.fields().iter();
                fields.map(|(name, value)| 32 + name.as_bytes().len() + value.byte_count()).sum()
            }
            QueryValue::Json(json) => json.as_bytes().len(),
            QueryValue::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        size_of::<QueryValue>() + inner
    }
}
