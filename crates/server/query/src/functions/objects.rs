//! Object functions.

use super::function::{Function, MANY, array, free, strict};
use super::strings::PART_BYTES;
use crate::error::{QueryError, Result};
use crate::lexer::{self, Punctuation, TokenKind};
use crate::limits::VALUE_DEPTH_MAX;
use crate::runtime::Runtime;
use crate::value::order::identical;
use crate::value::{Object, QueryValue, Text};

/// Bytes of a field apart from its content.
const FIELD_BYTES: usize = size_of::<(Text, QueryValue)>();

/// Bytes of a name and a value in a separate object or array, in a list that grows.
const PAIR_BYTES: usize = 3 * size_of::<QueryValue>() + 2 * FIELD_BYTES + 3 * PART_BYTES;

pub const TABLE: &[Function] = &[
    free("OBJECT_ADD", 3, 3, |args, rt| {
        set(args, rt, |object, name, value| {
            if object.get(name.as_bytes()).is_none() {
                object.set(name, value);
            }
        })
    }),
    free("OBJECT_PUT", 3, 3, |args, rt| {
        set(args, rt, |object, name, value| object.set(name, value))
    }),
    strict("OBJECT_CONCAT", 2, MANY, concat),
    strict("OBJECT_CONCAT2", 1, MANY, concat2),
    strict("OBJECT_FIELD", 2, 2, |args, _| Ok(field(args))),
    strict("OBJECT_INNER_PAIRS", 1, 1, pairs),
    strict("OBJECT_OUTER_PAIRS", 1, MANY, pairs),
    strict("OBJECT_PAIRS", 1, 2, pairs),
    strict("OBJECT_EXTRACT", 1, 2, pairs),
    strict("OBJECT_INNER_VALUES", 1, 1, values),
    strict("OBJECT_OUTER_VALUES", 1, 1, values),
    strict("OBJECT_VALUES", 1, 1, values),
    strict("OBJECT_LENGTH", 1, 1, |args, rt| {
        Ok(rt
            .fields_of(&args[0])?
            .map_or(QueryValue::Null, |object| QueryValue::from(object.len())))
    }),
    strict("OBJECT_NAMES", 1, 1, names),
    strict("OBJECT_PAIRS_NESTED", 1, 2, pairs_nested),
    strict("OBJECT_PATHS", 1, 2, paths),
    strict("OBJECT_REMOVE", 2, MANY, remove),
    strict("OBJECT_REMOVE_FIELDS", 2, MANY, remove_fields),
    strict("OBJECT_RENAME", 3, 3, rename),
    free("OBJECT_REPLACE", 3, 3, replace),
    strict("OBJECT_TYPES", 1, 1, types),
    strict("OBJECT_TYPES_NESTED", 1, 1, |args, rt| {
        if args[0].is_object() { nested_types(&args[0], 0, rt) } else { Ok(QueryValue::Null) }
    }),
    strict("OBJECT_UNWRAP", 1, 1, unwrap),
    strict("OBJECT_FILTER", 1, 2, |args, _| {
        Ok(if args[0].is_object() { args[0].clone() } else { QueryValue::Null })
    }),
    strict("PAIRS", 1, 1, all_pairs),
];

/// Reserves and makes a copy of an object that may get one more field.
fn copy(object: &Object, rt: &Runtime<'_>) -> Result<Object> {
    rt.scratch(3 * (object.len() + 1) * FIELD_BYTES)?;
    Ok(object.clone())
}

fn set(
    args: &[QueryValue],
    rt: &Runtime<'_>,
    run: impl FnOnce(&mut Object, Text, QueryValue),
) -> Result<QueryValue> {
    if args[0].is_missing() || args[1].is_missing() {
        return Ok(QueryValue::Missing);
    }
    let (Some(object), Some(name)) = (rt.fields_of(&args[0])?, args[1].as_text()) else {
        return Ok(QueryValue::Null);
    };
    let mut object = copy(&object, rt)?;
    run(&mut object, name.clone(), args[2].clone());
    Ok(QueryValue::from(object))
}

fn concat(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let mut all = Vec::new();
    for arg in args {
        let Some(object) = rt.fields_of(arg)? else { return Ok(QueryValue::Null) };
        // The list grows by doubling, and is sorted.
        rt.scratch(4 * object.len() * FIELD_BYTES)?;
        rt.work(object.len() * FIELD_BYTES)?;
        all.extend(object.fields().iter().cloned());
    }
    Ok(QueryValue::from(Object::new(all)))
}

/// The objects of arguments, and of arrays among them.
fn concat2(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let mut objects = Vec::new();
    for (index, arg) in args.iter().enumerate() {
        match rt.elements(arg)? {
            Some(items) if index > 0 => {
                rt.scratch(3 * items.len() * size_of::<QueryValue>())?;
                objects.extend(items.iter().cloned());
            }
            _ => objects.push(arg.clone()),
        }
    }
    concat(&objects, rt)
}

/// The names of a path such as `a.b`.
fn path_names(path: &str) -> Option<Vec<Text>> {
    let mut names = Vec::new();
    for pair in lexer::tokens(path).ok()?.chunks(2) {
        let [name, after] = pair else { return None };
        let text = &path[name.start as usize..name.end as usize];
        names.push(match name.kind {
            TokenKind::Name => Text::from(text),
            TokenKind::QuotedName | TokenKind::FoldedName => lexer::unquoted(text, name.kind)?,
            _ => return None,
        });
        match after.kind {
            TokenKind::End => return Some(names),
            TokenKind::Mark(Punctuation::Dot) => {}
            _ => return None,
        }
    }
    None
}

fn field(args: &[QueryValue]) -> QueryValue {
    let names = args[1].as_text().and_then(|path| path_names(&path.to_str()));
    match (args[0].is_object(), names) {
        (true, Some(names)) => {
            let step = |value: QueryValue, name: &Text| value.field(name.as_bytes());
            names.iter().fold(args[0].clone(), step)
        }
        _ => QueryValue::Null,
    }
}

fn pair(name: &Text, value: &QueryValue) -> QueryValue {
    QueryValue::from(Object::new(vec![
        ("name".into(), QueryValue::Str(name.clone())),
        ("val".into(), value.clone()),
    ]))
}

fn pairs(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(object) = rt.fields_of(&args[0])? else { return Ok(QueryValue::Null) };
    rt.scratch(object.len() * PAIR_BYTES)?;
    let pairs = object.fields().iter().map(|(name, value)| pair(name, value));
    Ok(QueryValue::from(pairs.collect::<Vec<_>>()))
}

fn values(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(object) = rt.fields_of(&args[0])? else { return Ok(QueryValue::Null) };
    rt.scratch(object.len() * size_of::<QueryValue>())?;
    Ok(QueryValue::from(object.fields().iter().map(|(_, value)| value.clone()).collect::<Vec<_>>()))
}

fn names(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(object) = rt.fields_of(&args[0])? else { return Ok(QueryValue::Null) };
    rt.scratch(object.len() * size_of::<QueryValue>())?;
    let names = object.fields().iter().map(|(name, _)| QueryValue::Str(name.clone()));
    Ok(QueryValue::from(names.collect::<Vec<_>>()))
}

/// Visits the parts of a value with their paths.
fn walk(
    value: &QueryValue,
    path: &str,
    depth: usize,
    rt: &Runtime<'_>,
    visit: &mut dyn FnMut(&str, &QueryValue, bool) -> Result<()>,
) -> Result<()> {
    if depth > VALUE_DEPTH_MAX {
        return Ok(());
    }
    rt.turn()?;
    if let Some(object) = rt.fields_of(value)? {
        for (name, field) in object.fields() {
            let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            visit(&path, field, true)?;
            walk(field, &path, depth + 1, rt, visit)?;
        }
    } else if let Some(items) = rt.elements(value)? {
        for (index, item) in items.iter().enumerate() {
            let path = format!("{path}[{index}]");
            visit(&path, item, false)?;
            walk(item, &path, depth + 1, rt, visit)?;
        }
    }
    Ok(())
}

fn pairs_nested(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if !args[0].is_object() && !args[0].is_array() {
        return Ok(QueryValue::Null);
    }
    let mut found = Vec::new();
    walk(&args[0], "", 0, rt, &mut |path, value, _| {
        if !value.is_object() && !value.is_array() {
            rt.scratch(PAIR_BYTES + path.len())?;
            found.push(pair(&Text::from(path), value));
        }
        Ok(())
    })?;
    array(found)
}

fn paths(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if !args[0].is_object() && !args[0].is_array() {
        return Ok(QueryValue::Null);
    }
    let mut found = Vec::new();
    walk(&args[0], "", 0, rt, &mut |path, _, is_field| {
        if is_field {
            rt.scratch(3 * size_of::<QueryValue>() + PART_BYTES + path.len())?;
            found.push(QueryValue::from(path));
        }
        Ok(())
    })?;
    array(found)
}

fn remove(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(object) = rt.fields_of(&args[0])? else { return Ok(QueryValue::Null) };
    let mut object = copy(&object, rt)?;
    for name in &args[1..] {
        match name.as_text() {
            Some(name) => drop(object.remove(name.as_bytes())),
            None => return Ok(QueryValue::Null),
        }
    }
    Ok(QueryValue::from(object))
}

/// Removes fields by their paths.
fn remove_fields(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let mut value = args[0].clone();
    if !value.is_object() {
        return Ok(QueryValue::Null);
    }
    let mut listed = Vec::new();
    for arg in &args[1..] {
        match rt.elements(arg)? {
            Some(items) => {
                rt.scratch(3 * items.len() * size_of::<QueryValue>())?;
                listed.extend(items.iter().cloned());
            }
            None => listed.push(arg.clone()),
        }
    }
    for path in listed {
        let Some(path) = path.as_text() else { return Ok(QueryValue::Null) };
        let path = path.to_str();
        if path.is_empty() {
            continue;
        }
        let names = path_names(&path);
        let names =
            names.ok_or_else(|| QueryError::evaluation(format!("The path {path} is not valid")))?;
        value = without(&value, &names, rt)?;
    }
    Ok(value)
}

fn without(value: &QueryValue, names: &[Text], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(object), Some((name, rest))) = (rt.fields_of(value)?, names.split_first()) else {
        return Ok(value.clone());
    };
    let mut object = copy(&object, rt)?;
    match object.remove(name.as_bytes()) {
        Some(inner) if !rest.is_empty() => object.set(name.clone(), without(&inner, rest, rt)?),
        _ => {}
    }
    Ok(QueryValue::from(object))
}

fn rename(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(object), Some(old), Some(new)) =
        (rt.fields_of(&args[0])?, args[1].as_text(), args[2].as_text())
    else {
        return Ok(QueryValue::Null);
    };
    let mut object = copy(&object, rt)?;
    if let Some(value) = object.remove(old.as_bytes()) {
        object.set(new.clone(), value);
    }
    Ok(QueryValue::from(object))
}

fn replace(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if args[0].is_missing() || args[1].is_missing() {
        return Ok(QueryValue::Missing);
    }
    let Some(object) = rt.fields_of(&args[0])?.filter(|_| !args[1].is_null()) else {
        return Ok(QueryValue::Null);
    };
    rt.scratch(object.len() * FIELD_BYTES)?;
    let fields = object.fields().iter().map(|(name, value)| {
        let value = if identical(value, &args[1]) { &args[2] } else { value };
        (name.clone(), value.clone())
    });
    Ok(QueryValue::from(Object::new(fields.collect())))
}

fn types(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(object) = rt.fields_of(&args[0])? else { return Ok(QueryValue::Null) };
    rt.scratch(object.len() * (FIELD_BYTES + PART_BYTES))?;
    let fields = object.fields().iter();
    let types = fields.map(|(name, value)| (name.clone(), QueryValue::from(value.kind().name())));
    Ok(QueryValue::from(Object::new(types.collect())))
}

fn nested_types(value: &QueryValue, depth: usize, rt: &Runtime<'_>) -> Result<QueryValue> {
    if depth > VALUE_DEPTH_MAX {
        return Ok(QueryValue::from(value.kind().name()));
    }
    if let Some(object) = rt.fields_of(value)? {
        rt.scratch(object.len() * (FIELD_BYTES + PART_BYTES))?;
        let mut fields = Vec::with_capacity(object.len());
        for (name, value) in object.fields() {
            fields.push((name.clone(), nested_types(value, depth + 1, rt)?));
        }
        return Ok(QueryValue::from(Object::new(fields)));
    }
    let Some(items) = rt.elements(value)? else {
        return Ok(QueryValue::from(value.kind().name()));
    };
    rt.scratch(items.len() * (size_of::<QueryValue>() + PART_BYTES))?;
    let types = items.iter().map(|item| nested_types(item, depth + 1, rt));
    Ok(QueryValue::from(types.collect::<Result<Vec<_>>>()?))
}

fn unwrap(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let object = rt.fields_of(&args[0])?.unwrap_or_default();
    Ok(match object.fields() {
        [(_, value)] => value.clone(),
        _ => QueryValue::Null,
    })
}

/// The name-value pairs at any depth. The elements of an array pair with its name.
fn all_pairs(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if !args[0].is_object() && !args[0].is_array() {
        return Ok(QueryValue::Null);
    }
    let mut found = Vec::new();
    add_pairs(&args[0], 0, rt, &mut found)?;
    array(found)
}

fn add_pairs(
    value: &QueryValue,
    depth: usize,
    rt: &Runtime<'_>,
    out: &mut Vec<QueryValue>,
) -> Result<()> {
    if depth > VALUE_DEPTH_MAX {
        return Ok(());
    }
    rt.turn()?;
    if let Some(object) = rt.fields_of(value)? {
        for (name, field) in object.fields() {
            let name = QueryValue::Str(name.clone());
            let items = rt.elements(field)?;
            let count = 1 + items.as_ref().map_or(0, |items| items.len());
            rt.scratch(count * PAIR_BYTES)?;
            out.push(QueryValue::from(vec![name.clone(), field.clone()]));
            for item in items.iter().flat_map(|items| items.iter()) {
                out.push(QueryValue::from(vec![name.clone(), item.clone()]));
            }
            add_pairs(field, depth + 1, rt, out)?;
        }
    } else if let Some(items) = rt.elements(value)? {
        for item in items.iter() {
            add_pairs(item, depth + 1, rt, out)?;
        }
    }
    Ok(())
}
