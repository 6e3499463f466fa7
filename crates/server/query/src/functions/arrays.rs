//! Array functions. What compares elements uses the order of values, in which null equals null.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::function::{Function, MANY, array, check_length, free, strict};
use crate::aggregates::{AggregateKind, AggregateState};
use crate::error::Result;
use crate::limits::{FUNCTION_BYTES_MAX, VALUE_DEPTH_MAX};
use crate::operators::containment::is_in;
use crate::operators::navigation::star;
use crate::runtime::Runtime;
use crate::value::ArrayItems;
use crate::value::order::{collate, identical};
use crate::value::{QueryValue, key};

pub const TABLE: &[Function] = &[
    strict("ARRAY_ADD", 2, MANY, put),
    free("ARRAY_APPEND", 2, MANY, append),
    strict("ARRAY_AVG", 1, 1, |args, rt| aggregate(args, rt, AggregateKind::Average)),
    free("ARRAY_BINARY_SEARCH", 2, 2, binary_search),
    strict("ARRAY_CONCAT", 2, MANY, concat),
    strict("ARRAY_CONTAINS", 2, 2, contains),
    strict("ARRAY_CONTAINS_ALL", 2, 2, |args, rt| contains_many(args, rt, true)),
    strict("ARRAY_CONTAINS_ANY", 2, 2, |args, rt| contains_many(args, rt, false)),
    strict("ARRAY_COUNT", 1, 1, |args, rt| aggregate(args, rt, AggregateKind::Count)),
    strict("ARRAY_DISTINCT", 1, 1, |args, rt| unary(args, rt, |items| distinct(items, rt))),
    strict("ARRAY_EXCEPT", 2, 2, except),
    strict("ARRAY_FLATTEN", 2, 2, flatten),
    strict("ARRAY_IFNULL", 1, 1, |args, rt| {
        let items = rt.elements(&args[0])?;
        Ok(items
            .and_then(|items| items.iter().find(|item| item.is_valued()).cloned())
            .unwrap_or(QueryValue::Null))
    }),
    free("ARRAY_INSERT", 3, MANY, insert),
    strict("ARRAY_INTERSECT", 2, MANY, intersect),
    strict("ARRAY_LENGTH", 1, 1, |args, rt| {
        Ok(rt.elements(&args[0])?.map_or(QueryValue::Null, |items| QueryValue::from(items.len())))
    }),
    strict("ARRAY_MAX", 1, 1, |args, rt| aggregate(args, rt, AggregateKind::Max)),
    strict("ARRAY_MIN", 1, 1, |args, rt| aggregate(args, rt, AggregateKind::Min)),
    strict("ARRAY_MOVE", 3, 3, move_item),
    strict("ARRAY_POSITION", 2, 2, position),
    free("ARRAY_PREPEND", 2, MANY, prepend),
    strict("ARRAY_PUT", 2, MANY, put),
    strict("ARRAY_RANGE", 2, 3, range),
    strict("ARRAY_REMOVE", 2, MANY, remove),
    free("ARRAY_REPEAT", 2, 2, repeat),
    free("ARRAY_REPLACE", 3, 4, |args, rt| match args[1].is_null() {
        true => Ok(if args[0].is_missing() { QueryValue::Missing } else { QueryValue::Null }),
        false => replace(args, rt),
    }),
    free("ARRAY_REPLACE_EQUIVALENT", 3, 4, replace),
    strict("ARRAY_REVERSE", 1, 1, |args, rt| {
        unary(args, rt, |mut items| {
            items.reverse();
            Ok(items)
        })
    }),
    strict("ARRAY_SORT", 1, 1, |args, rt| {
        unary(args, rt, |mut items| {
            rt.sort_values(&mut items)?;
            Ok(items)
        })
    }),
    strict("ARRAY_STAR", 1, 1, |args, rt| star(&args[0], rt)),
    strict("ARRAY_SUM", 1, 1, sum),
    strict("ARRAY_SWAP", 3, 3, swap),
    strict("ARRAY_SYMDIFF", 2, MANY, |args, rt| symmetric(args, rt, |count, _| count == 1)),
    strict("ARRAY_SYMDIFF1", 2, MANY, |args, rt| symmetric(args, rt, |count, _| count == 1)),
    strict("ARRAY_SYMDIFFN", 2, MANY, |args, rt| symmetric(args, rt, |count, _| count % 2 == 1)),
    strict("ARRAY_UNION", 2, MANY, union),
];

fn key_of(value: &QueryValue) -> Vec<u8> {
    let mut out = Vec::new();
    key::append(value, &mut out);
    out
}

/// Reserves and makes a copy of a list with `more` elements to come.
fn copy(items: &[QueryValue], more: usize, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
    rt.scratch((items.len() + more) * size_of::<QueryValue>())?;
    let mut copy = Vec::with_capacity(items.len() + more);
    copy.extend_from_slice(items);
    Ok(copy)
}

fn unary(
    args: &[QueryValue],
    rt: &Runtime<'_>,
    run: impl FnOnce(Vec<QueryValue>) -> Result<Vec<QueryValue>>,
) -> Result<QueryValue> {
    match rt.elements(&args[0])? {
        Some(items) => Ok(QueryValue::from(run(copy(&items, 0, rt)?)?)),
        None => Ok(QueryValue::Null),
    }
}

fn aggregate(args: &[QueryValue], rt: &Runtime<'_>, kind: AggregateKind) -> Result<QueryValue> {
    let Some(items) = rt.elements(&args[0])? else { return Ok(QueryValue::Null) };
    let mut state = AggregateState::new(kind, false);
    for item in items.iter() {
        state.add(item);
    }
    state.finish(rt)
}

fn sum(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let sum = aggregate(args, rt, AggregateKind::Sum)?;
    // The sum of no numbers is 0.
    Ok(if sum.is_null() && args[0].is_array() { QueryValue::Int(0) } else { sum })
}

fn distinct(items: Vec<QueryValue>, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
    rt.scratch_keys(&items)?;
    let mut seen = HashSet::new();
    Ok(items.into_iter().filter(|item| seen.insert(key_of(item))).collect())
}

/// The array and the values after it.
type ArrayAndValues<'a> = (Vec<QueryValue>, &'a [QueryValue]);

/// The result of the call if there is no array.
fn array_and_values<'a>(
    args: &'a [QueryValue],
    rt: &Runtime<'_>,
) -> Result<std::result::Result<ArrayAndValues<'a>, QueryValue>> {
    if args.iter().any(QueryValue::is_missing) {
        return Ok(Err(QueryValue::Missing));
    }
    Ok(match rt.elements(&args[0])? {
        Some(items) => Ok((copy(&items, args.len(), rt)?, &args[1..])),
        None => Err(QueryValue::Null),
    })
}

fn append(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    match array_and_values(args, rt)? {
        Ok((mut items, values)) => {
            items.extend_from_slice(values);
            array(items)
        }
        Err(value) => Ok(value),
    }
}

/// Appends the values that the array does not have.
fn put(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    match array_and_values(args, rt)? {
        Ok((mut items, values)) => {
            rt.scratch_keys(&items)?;
            let known: HashSet<Vec<u8>> = items.iter().map(key_of).collect();
            items.extend(values.iter().filter(|value| !known.contains(&key_of(value))).cloned());
            array(items)
        }
        Err(value) => Ok(value),
    }
}

fn prepend(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if args.iter().any(QueryValue::is_missing) {
        return Ok(QueryValue::Missing);
    }
    let Some((last, values)) = args.split_last() else { return Ok(QueryValue::Null) };
    let Some(items) = rt.elements(last)? else { return Ok(QueryValue::Null) };
    rt.scratch((items.len() + values.len()) * size_of::<QueryValue>())?;
    array(values.iter().chain(items.iter()).cloned().collect())
}

fn insert(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (mut items, values) = match array_and_values(args, rt)? {
        Ok(parts) => parts,
        Err(value) => return Ok(value),
    };
    let length = items.len() as i64;
    let at = values[0].as_int().map(|at| if at < 0 { at + length } else { at });
    let Some(at) = at.filter(|at| (0..=length).contains(at)) else { return Ok(QueryValue::Null) };
    items.splice(at as usize..at as usize, values[1..].iter().cloned());
    array(items)
}

fn binary_search(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if args[0].is_missing() {
        return Ok(QueryValue::Missing);
    }
    let Some(items) = rt.elements(&args[0])? else { return Ok(QueryValue::Null) };
    let at = items.partition_point(|item| collate(item, &args[1]).is_lt());
    let found = items.get(at).is_some_and(|item| identical(item, &args[1]));
    Ok(if found { QueryValue::from(at) } else { QueryValue::Int(-1) })
}

fn concat(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let mut all = Vec::new();
    for arg in args {
        let Some(items) = rt.elements(arg)? else { return Ok(QueryValue::Null) };
        check_length((all.len() + items.len()) * size_of::<QueryValue>())?;
        // The list grows by doubling, and is in memory twice while it does.
        rt.scratch(3 * items.len() * size_of::<QueryValue>())?;
        all.extend(items.iter().cloned());
    }
    array(all)
}

fn contains(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if !args[0].is_array() {
        return Ok(QueryValue::Null);
    }
    Ok(QueryValue::Bool(is_in(&args[1], &args[0], rt)?.truth()))
}

fn contains_many(args: &[QueryValue], rt: &Runtime<'_>, all: bool) -> Result<QueryValue> {
    let Some(items) = rt.elements(&args[0])? else { return Ok(QueryValue::Null) };
    let listed = rt.elements(&args[1])?;
    let wanted = listed.as_ref().map_or(std::slice::from_ref(&args[1]), |items| items.as_slice());
    rt.scratch_keys(&items)?;
    let known: HashSet<Vec<u8>> =
        items.iter().filter(|item| item.is_valued()).map(key_of).collect();
    let mut has = wanted.iter().map(|value| known.contains(&key_of(value)));
    Ok(QueryValue::Bool(if all { has.all(|has| has) } else { has.any(|has| has) }))
}

fn except(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(items), Some(others)) = (rt.elements(&args[0])?, rt.elements(&args[1])?) else {
        return Ok(QueryValue::Null);
    };
    rt.scratch_keys(&others)?;
    rt.scratch(2 * items.len() * size_of::<QueryValue>())?;
    let others: HashSet<Vec<u8>> = others.iter().map(key_of).collect();
    let kept = items.iter().filter(|item| !others.contains(&key_of(item))).cloned();
    Ok(QueryValue::from(kept.collect::<Vec<_>>()))
}

fn flatten(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(items), Some(depth)) = (rt.elements(&args[0])?, args[1].as_int()) else {
        return Ok(QueryValue::Null);
    };
    let depth = if depth < 0 { usize::MAX } else { depth as usize };
    let mut out = Vec::new();
    flatten_into(&items, depth.min(VALUE_DEPTH_MAX), &mut out, rt)?;
    array(out)
}

fn flatten_into(
    items: &[QueryValue],
    depth: usize,
    out: &mut Vec<QueryValue>,
    rt: &Runtime<'_>,
) -> Result<()> {
    debug_assert!(depth <= VALUE_DEPTH_MAX, "the levels are limited");
    for item in items {
        rt.turn()?;
        match rt.elements(item)? {
            Some(inner) if depth > 0 => flatten_into(&inner, depth - 1, out, rt)?,
            _ => {
                rt.scratch(3 * size_of::<QueryValue>())?;
                out.push(item.clone());
            }
        }
    }
    check_length(out.len() * size_of::<QueryValue>())
}

/// The arrays of all arguments.
fn arrays(args: &[QueryValue], rt: &Runtime<'_>) -> Result<Option<Vec<Arc<ArrayItems>>>> {
    args.iter().map(|arg| rt.elements(arg)).collect()
}

fn intersect(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(arrays) = arrays(args, rt)? else { return Ok(QueryValue::Null) };
    for items in &arrays {
        rt.scratch_keys(items)?;
    }
    let sets: Vec<HashSet<Vec<u8>>> =
        arrays[1..].iter().map(|items| items.iter().map(key_of).collect()).collect();
    let kept = arrays[0].iter().filter(|item| {
        let key = key_of(item);
        sets.iter().all(|set| set.contains(&key))
    });
    Ok(QueryValue::from(distinct(kept.cloned().collect(), rt)?))
}

fn union(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(arrays) = arrays(args, rt)? else { return Ok(QueryValue::Null) };
    for items in &arrays {
        rt.scratch_keys(items)?;
    }
    array(distinct(arrays.iter().flat_map(|items| items.iter().cloned()).collect(), rt)?)
}

/// Values by the number of arrays that have them.
fn symmetric(
    args: &[QueryValue],
    rt: &Runtime<'_>,
    is_wanted: impl Fn(usize, usize) -> bool,
) -> Result<QueryValue> {
    let Some(arrays) = arrays(args, rt)? else { return Ok(QueryValue::Null) };
    for items in &arrays {
        rt.scratch_keys(items)?;
    }
    let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
    for items in &arrays {
        let keys: HashSet<Vec<u8>> = items.iter().map(key_of).collect();
        for key in keys {
            *counts.entry(key).or_default() += 1;
        }
    }
    let is_once = |count: &usize| *count <= arrays.len();
    debug_assert!(counts.values().all(is_once), "an array counts a value once");
    let all = distinct(arrays.iter().flat_map(|items| items.iter().cloned()).collect(), rt)?;
    let wanted = |item: &QueryValue| {
        counts.get(&key_of(item)).is_some_and(|count| is_wanted(*count, arrays.len()))
    };
    Ok(QueryValue::from(all.into_iter().filter(wanted).collect::<Vec<_>>()))
}

/// An index of an array, from its end if it is negative.
fn index(value: &QueryValue, length: usize) -> Option<usize> {
    let at = value.as_int()?;
    let at = if at < 0 { at.checked_add(length as i64)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < length)
}

fn move_item(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(items) = rt.elements(&args[0])? else { return Ok(QueryValue::Null) };
    let mut items = copy(&items, 0, rt)?;
    let (Some(from), Some(to)) = (index(&args[1], items.len()), index(&args[2], items.len()))
    else {
        return Ok(QueryValue::Null);
    };
    let item = items.remove(from);
    items.insert(to, item);
    Ok(QueryValue::from(items))
}

fn swap(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(items) = rt.elements(&args[0])? else { return Ok(QueryValue::Null) };
    let mut items = copy(&items, 0, rt)?;
    let (Some(from), Some(to)) = (index(&args[1], items.len()), index(&args[2], items.len()))
    else {
        return Ok(QueryValue::Null);
    };
    items.swap(from, to);
    Ok(QueryValue::from(items))
}

fn position(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(items) = rt.elements(&args[0])? else { return Ok(QueryValue::Null) };
    let found = items.iter().position(|item| identical(item, &args[1]));
    Ok(found.map_or(QueryValue::Int(-1), QueryValue::from))
}

fn range(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let step = match args.get(2) {
        None => Some(1.0),
        Some(step) => step.as_f64(),
    };
    let (Some(start), Some(end), Some(step)) = (args[0].as_f64(), args[1].as_f64(), step) else {
        return Ok(QueryValue::Null);
    };
    if step == 0.0 || start == end || (step > 0.0) != (end > start) {
        return Ok(QueryValue::from(Vec::new()));
    }
    let count = ((end - start) / step).ceil();
    // The reference counts 16 bytes an element.
    check_length(if count.is_finite() {
        (count as usize).saturating_mul(16)
    } else {
        FUNCTION_BYTES_MAX + 1
    })?;
    rt.scratch(count as usize * size_of::<QueryValue>())?;
    let mut items = Vec::with_capacity(count as usize);
    for number in 0..count as usize {
        rt.turn()?;
        items.push(QueryValue::number(start + number as f64 * step));
    }
    Ok(QueryValue::from(items))
}

fn remove(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(items) = rt.elements(&args[0])? else { return Ok(QueryValue::Null) };
    rt.scratch_keys(&args[1..])?;
    rt.scratch(2 * items.len() * size_of::<QueryValue>())?;
    let removed: HashSet<Vec<u8>> = args[1..].iter().map(key_of).collect();
    let kept = items.iter().filter(|item| !removed.contains(&key_of(item)));
    Ok(QueryValue::from(kept.cloned().collect::<Vec<_>>()))
}

fn repeat(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if args.iter().any(QueryValue::is_missing) {
        return Ok(QueryValue::Missing);
    }
    let Some(count) = args[1].as_int().and_then(|count| usize::try_from(count).ok()) else {
        return Ok(QueryValue::Null);
    };
    check_length(count.saturating_mul(args[0].byte_count()))?;
    rt.scratch(count * size_of::<QueryValue>())?;
    Ok(QueryValue::from(vec![args[0].clone(); count]))
}

/// `ARRAY_REPLACE(array, old, new [, count])`
fn replace(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if args.iter().any(QueryValue::is_missing) {
        return Ok(QueryValue::Missing);
    }
    let mut left = match args.get(3).map(QueryValue::as_int) {
        None => usize::MAX,
        Some(Some(count)) => usize::try_from(count).unwrap_or(usize::MAX),
        Some(None) => return Ok(QueryValue::Null),
    };
    unary(args, rt, |mut items| {
        for item in items.iter_mut().filter(|item| identical(item, &args[1])) {
            if left == 0 {
                break;
            }
            left -= 1;
            *item = args[2].clone();
        }
        Ok(items)
    })
}
