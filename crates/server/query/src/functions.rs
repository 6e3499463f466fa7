//! The functions of expressions, by name.
//!
//! A function is pure but for the runtime's clock and caches. Most propagate: a missing argument
//! gives missing, else a null one null, before they run. A wrong type gives null. No call produces
//! more than `FUNCTION_BYTES_MAX`.

mod arrays;
mod bits;
mod conditions;
mod dates;
mod encodings;
pub mod function;
mod numbers;
mod objects;
mod patterns;
mod strings;
mod tokens;
mod types;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::aggregates::{AGGREGATES, AggregateKind};
use crate::ast::FunctionCall;
use crate::windows;

use function::{Function, MANY};

pub use dates::parse_duration;

/// Other names of functions.
const ALIASES: &[(&str, &str)] = &[
    ("IS_BIN", "IS_BINARY"),
    ("ISBIN", "IS_BINARY"),
    ("ISBINARY", "IS_BINARY"),
    ("IS_BOOL", "IS_BOOLEAN"),
    ("ISBOOL", "IS_BOOLEAN"),
    ("ISBOOLEAN", "IS_BOOLEAN"),
    ("IS_NUM", "IS_NUMBER"),
    ("ISNUM", "IS_NUMBER"),
    ("ISNUMBER", "IS_NUMBER"),
    ("IS_OBJ", "IS_OBJECT"),
    ("ISOBJ", "IS_OBJECT"),
    ("ISOBJECT", "IS_OBJECT"),
    ("IS_STR", "IS_STRING"),
    ("ISSTR", "IS_STRING"),
    ("ISSTRING", "IS_STRING"),
    ("ISARRAY", "IS_ARRAY"),
    ("ISATOM", "IS_ATOM"),
    ("TYPE_NAME", "TYPE"),
    ("TYPENAME", "TYPE"),
    ("TO_BOOL", "TO_BOOLEAN"),
    ("TOBOOL", "TO_BOOLEAN"),
    ("TOBOOLEAN", "TO_BOOLEAN"),
    ("TO_NUM", "TO_NUMBER"),
    ("TONUM", "TO_NUMBER"),
    ("TONUMBER", "TO_NUMBER"),
    ("TO_OBJ", "TO_OBJECT"),
    ("TOOBJ", "TO_OBJECT"),
    ("TOOBJECT", "TO_OBJECT"),
    ("TO_STR", "TO_STRING"),
    ("TOSTR", "TO_STRING"),
    ("TOSTRING", "TO_STRING"),
    ("TOARRAY", "TO_ARRAY"),
    ("TOATOM", "TO_ATOM"),
    ("IF_MISSING", "IFMISSING"),
    ("IF_NULL", "IFNULL"),
    ("IF_MISSING_OR_NULL", "IFMISSINGORNULL"),
    ("IF_INF", "IFINF"),
    ("IF_NAN", "IFNAN"),
    ("IF_NAN_OR_INF", "IFNANORINF"),
    ("MISSING_IF", "MISSINGIF"),
    ("NULL_IF", "NULLIF"),
    ("NAN_IF", "NANIF"),
    ("POSINF_IF", "POSINFIF"),
    ("NEGINF_IF", "NEGINFIF"),
    ("OBJECT_INNERPAIRS", "OBJECT_INNER_PAIRS"),
    ("OBJECT_INNERVALUES", "OBJECT_INNER_VALUES"),
    ("OBJECT_OUTERPAIRS", "OBJECT_OUTER_PAIRS"),
    ("OBJECT_OUTERVALUES", "OBJECT_OUTER_VALUES"),
    ("CONTAINS_TOKEN_REGEX", "CONTAINS_TOKEN_REGEXP"),
    ("HAS_TOKEN", "CONTAINS_TOKEN"),
    ("REGEX_CONTAINS", "REGEXP_CONTAINS"),
    ("REGEX_LIKE", "REGEXP_LIKE"),
    ("REGEX_MATCHES", "REGEXP_MATCHES"),
    ("REGEX_POSITION", "REGEXP_POSITION"),
    ("REGEX_POSITION0", "REGEXP_POSITION0"),
    ("REGEX_POSITION1", "REGEXP_POSITION1"),
    ("REGEX_REPLACE", "REGEXP_REPLACE"),
    ("REGEX_SPLIT", "REGEXP_SPLIT"),
    ("REGEXP_POSITION0", "REGEXP_POSITION"),
    ("POSITION0", "POSITION"),
    ("MB_POSITION0", "MB_POSITION"),
    ("SUBSTR0", "SUBSTR"),
    ("MB_SUBSTR0", "MB_SUBSTR"),
    ("INITCAP", "TITLE"),
    ("DEG", "DEGREES"),
    ("RAD", "RADIANS"),
    ("BASE64", "BASE64_ENCODE"),
    ("JSON_ENCODE", "ENCODE_JSON"),
    ("JSON_DECODE", "DECODE_JSON"),
    ("MILLIS", "STR_TO_MILLIS"),
    ("MILLIS_TO_LOCAL", "MILLIS_TO_STR"),
    ("MILLIS_TO_ZONE_NAME", "MILLIS_TO_TZ"),
    ("STR_TO_ZONE_NAME", "STR_TO_TZ"),
    ("NOW_TZ_NAME", "NOW_TZ"),
    ("POSINF", "INF"),
    ("COALESCE", "IFMISSINGORNULL"),
    ("ISBITSET", "BITTEST"),
    ("RANDOM_UUID", "UUID"),
];

static FUNCTIONS: LazyLock<HashMap<&'static str, &'static Function>> = LazyLock::new(|| {
    let tables = [
        arrays::TABLE,
        bits::TABLE,
        conditions::TABLE,
        dates::TABLE,
        encodings::TABLE,
        numbers::TABLE,
        objects::TABLE,
        patterns::TABLE,
        strings::TABLE,
        tokens::TABLE,
        types::TABLE,
    ];
    let mut map: HashMap<&'static str, &'static Function> = HashMap::new();
    for function in tables.into_iter().flatten() {
        let known = map.insert(function.name, function);
        assert!(known.is_none(), "a name has one function");
    }
    // An alias of an alias comes after it in no order, so twice.
    for (alias, name) in ALIASES.iter().chain(ALIASES) {
        if let Some(function) = map.get(name).copied() {
            let known = map.insert(alias, function);
            assert!(known.is_none_or(|known| known == function), "another name hides no function");
        }
    }
    map
});

/// Names that the compiler resolves itself, with their numbers of arguments.
const SPECIAL: &[(&str, usize, usize)] =
    &[("META", 0, 1), ("UNNEST_POS", 1, 1), ("UNNEST_POSITION", 1, 1)];

/// The function of a name in capitals.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name).copied()
}

/// The names of all of them, without other names for the same one.
pub fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().filter(|(name, function)| **name == function.name).map(|(name, _)| *name)
}

/// The aggregate of a name in capitals.
pub fn aggregate(name: &str) -> Option<AggregateKind> {
    AGGREGATES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// Whether a name is a function that only works over a window.
pub fn is_window_only(name: &str) -> bool {
    windows::WindowFunction::named(name).is_some()
}

/// Whether there is a function, aggregate or window function of a name.
pub fn is_known(name: &str) -> bool {
    function(name).is_some()
        || aggregate(name).is_some()
        || is_window_only(name)
        || SPECIAL.iter().any(|(known, ..)| *known == name)
}

/// Checks the number of a call's arguments.
pub fn check_arity(call: &FunctionCall) -> std::result::Result<(), String> {
    let name = call.name.as_str();
    let count = call.args.len();
    let window = windows::FUNCTIONS.iter().find(|known| known.0 == name);
    let special = SPECIAL.iter().find(|known| known.0 == name);
    let (min, max) = if aggregate(name).is_some() {
        if call.star { (0, 0) } else { (1, 1) }
    } else if let Some(function) = function(name) {
        (function.min, function.max)
    } else if let Some(window) = window {
        (window.2, window.3)
    } else {
        special.map_or((0, MANY), |special| (special.1, special.2))
    };
    if call.star && name != "COUNT" {
        return Err(format!("{name} takes no *"));
    }
    if (min..=max).contains(&count) {
        return Ok(());
    }
    Err(format!("{name} does not take {count} arguments"))
}
