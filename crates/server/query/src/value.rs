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
pub mod order;
#[cfg(test)]
mod tests;
pub mod text;
pub mod write;

use std::sync::Arc;

use bytes::Bytes;

pub use text::Text;

/// One value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value at all: an absent field.
    #[default]
    Missing,
    /// JSON's null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number of 64 bits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Str(Text),
    /// An array that a statement built.
    Array(Arc<Vec<Value>>),
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
pub enum Type {
    Missing,
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
    Binary,
}

impl Type {
    /// The name that `TYPE()` answers.
    pub fn name(self) -> &'static str {
        match self {
            Type::Missing => "missing",
            Type::Null => "null",
            Type::Boolean => "boolean",
            Type::Number => "number",
            Type::String => "string",
            Type::Array => "array",
            Type::Object => "object",
            Type::Binary => "binary",
        }
    }
}

/// An object's fields, sorted by name and unique.
#[derive(Clone, Debug, Default)]
pub struct Object(Vec<(Text, Value)>);

impl Object {
    /// An object of `fields`. Of equal names the last counts; a missing value drops its field.
    pub fn new(mut fields: Vec<(Text, Value)>) -> Object {
        if !fields.is_sorted_by(|(left, _), (right, _)| left < right) {
            fields.reverse();
            fields.sort_by(|(left, _), (right, _)| left.cmp(right));
            fields.dedup_by(|(later, _), (earlier, _)| later == earlier);
        }
        fields.retain(|(_, value)| !value.is_missing());
        Object(fields)
    }

    pub fn fields(&self) -> &[(Text, Value)] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn find(&self, name: &[u8]) -> std::result::Result<usize, usize> {
        self.0.binary_search_by(|(field, _)| field.as_bytes().cmp(name))
    }

    pub fn get(&self, name: &[u8]) -> Option<&Value> {
        self.find(name).ok().map(|found| &self.0[found].1)
    }

    /// Sets a field; a missing value removes it.
    pub fn set(&mut self, name: Text, value: Value) {
        match (self.find(name.as_bytes()), value.is_missing()) {
            (Ok(found), true) => drop(self.0.remove(found)),
            (Ok(found), false) => self.0[found].1 = value,
            (Err(_), true) => {}
            (Err(at), false) => self.0.insert(at, (name, value)),
        }
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<Value> {
        self.find(name).ok().map(|found| self.0.remove(found).1)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Str(Text::from(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Str(Text::from(text))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Int(number)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Value {
        Value::Array(Arc::new(items))
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Value {
        Value::Object(Arc::new(object))
    }
}

impl Value {
    /// A number. Whole floats become integers, negative zero among them.
    pub fn number(number: f64) -> Value {
        const LIMIT: f64 = 9_223_372_036_854_775_808.0;
        let whole = number.fract() == 0.0 && (-LIMIT..LIMIT).contains(&number);
        if whole { Value::Int(number as i64) } else { Value::Float(number) }
    }

    pub fn kind(&self) -> Type {
        match self {
            Value::Missing => Type::Missing,
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Boolean,
            Value::Int(_) | Value::Float(_) => Type::Number,
            Value::Str(_) => Type::String,
            Value::Array(_) => Type::Array,
            Value::Object(_) => Type::Object,
            Value::Json(json) if json.is_array() => Type::Array,
            Value::Json(_) => Type::Object,
            Value::Binary(_) => Type::Binary,
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, Value::Missing)
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Neither missing nor null.
    pub fn is_valued(&self) -> bool {
        !matches!(self, Value::Missing | Value::Null)
    }

    pub fn is_array(&self) -> bool {
        self.kind() == Type::Array
    }

    pub fn is_object(&self) -> bool {
        self.kind() == Type::Object
    }

    pub fn as_text(&self) -> Option<&Text> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(number) => Some(*number),
            Value::Float(number) if *number == 0.0 => Some(0),
            _ => None,
        }
    }

    /// Whether a condition with this value holds.
    pub fn truth(&self) -> bool {
        match self {
            Value::Missing | Value::Null | Value::Binary(_) => false,
            Value::Bool(flag) => *flag,
            Value::Int(number) => *number != 0,
            Value::Float(number) => *number != 0.0 && !number.is_nan(),
            Value::Str(text) => !text.as_bytes().is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(object) => object.len() > 0,
            Value::Json(json) => !json.is_empty(),
        }
    }

    /// The elements, if this is an array.
    pub fn elements(&self) -> Option<Arc<Vec<Value>>> {
        match self {
            Value::Array(items) => Some(items.clone()),
            Value::Json(json) if json.is_array() => Some(Arc::new(json.items().collect())),
            _ => None,
        }
    }

    /// The fields, if this is an object.
    pub fn object(&self) -> Option<Arc<Object>> {
        match self {
            Value::Object(object) => Some(object.clone()),
            Value::Json(json) if !json.is_array() => {
                Some(Arc::new(Object::new(json.fields().collect())))
            }
            _ => None,
        }
    }

    /// A field of an object, else missing.
    pub fn field(&self, name: &[u8]) -> Value {
        match self {
            Value::Object(object) => object.get(name).cloned().unwrap_or_default(),
            Value::Json(json) => json.field(name),
            _ => Value::Missing,
        }
    }

    /// A field whose name equals `name` but for case. The exact name is preferred.
    pub fn folded_field(&self, name: &Text) -> Value {
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
    pub fn item(&self, index: i64) -> Value {
        match self {
            Value::Array(items) => {
                let at = if index < 0 { index.saturating_add(items.len() as i64) } else { index };
                let at = usize::try_from(at).ok();
                at.and_then(|at| items.get(at)).cloned().unwrap_or_default()
            }
            Value::Json(json) if json.is_array() => {
                if index < 0 {
                    return Value::from(json.items().collect::<Vec<_>>()).item(index);
                }
                usize::try_from(index).ok().and_then(|at| json.items().nth(at)).unwrap_or_default()
            }
            _ => Value::Missing,
        }
    }

    /// Missing becomes null, as in an array.
    pub fn or_null(self) -> Value {
        if self.is_missing() { Value::Null } else { self }
    }

    /// The bytes that this value keeps in memory, roughly.
    pub fn byte_count(&self) -> usize {
        let inner = match self {
            Value::Str(text) => text.as_bytes().len(),
            Value::Array(items) => items.iter().map(Value::byte_count).sum(),
            Value::Object(object) => {
                let fields = object.fields().iter();
                fields.map(|(name, value)| 32 + name.as_bytes().len() + value.byte_count()).sum()
            }
            Value::Json(json) => json.as_bytes().len(),
            Value::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        size_of::<Value>() + inner
    }
}
