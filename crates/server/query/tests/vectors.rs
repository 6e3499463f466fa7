//! Runs the query vectors: statements with the answers of the reference's engine 7.6.7.
//!
//! `tests/vectors/known_failures.txt` has one line for each vector that does not pass: its id and
//! why. A vector that passes and stands there fails the test too.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use oribi_query::{QueryRequest, Service};
use serde_json::{Map, Value};

use support::MemoryDatastore;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

struct Runner {
    service: Service,
    store: MemoryDatastore,
    fixtures: Map<String, Value>,
}

impl Runner {
    fn new() -> Runner {
        let text = std::fs::read_to_string(folder().join("fixtures.json")).unwrap();
        let fixtures: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let store = MemoryDatastore::default();
        for name in fixtures.keys() {
            store.add(name);
        }
        let runner = Runner { service: Service::new(), store, fixtures };
        for name in runner.fixtures.keys() {
            runner.load(name);
        }
        runner
    }

    fn load(&self, name: &str) {
        let keyspace = self.store.find(name);
        keyspace.clear();
        for (key, document) in self.fixtures[name].as_object().unwrap() {
            keyspace.put(key, &document.to_string());
        }
    }

    /// What differs from the expected answer.
    fn check(&self, step: &Value) -> Option<String> {
        let (status, errors, rows) = self.answer(step);
        let expected: Vec<u64> =
            step["errors"].as_array().unwrap().iter().map(|code| code.as_u64().unwrap()).collect();
        let first: Vec<u64> = errors.iter().map(|(code, _)| *code).take(1).collect();
        if first != expected {
            return Some(format!("errors {errors:?}, expected {expected:?}"));
        }
        if status != step["status"] {
            return Some(format!("status {status}, expected {}", step["status"]));
        }
        let wanted = step.get("results")?.as_array().unwrap();
        let same = match step.get("unordered") {
            Some(Value::Bool(true)) => same_multiset(wanted, &rows),
            _ => same(&Value::from(wanted.clone()), &Value::from(rows.clone())),
        };
        let show = |value: &[Value]| {
            Value::from(value.to_vec()).to_string().chars().take(300).collect::<String>()
        };
        (!same).then(|| format!("results {}, expected {}", show(&rows), show(wanted)))
    }

    fn answer(&self, step: &Value) -> (String, Vec<(u64, String)>, Vec<Value>) {
        let mut body = Map::new();
        if let Some(statement) = step.get("statement").and_then(Value::as_str) {
            body.insert("statement".to_owned(), statement.replace("_RUN", "_1").into());
        }
        for name in ["named", "request"] {
            if let Some(fields) = step.get(name).and_then(Value::as_object) {
                body.extend(fields.clone());
            }
        }
        for name in ["args", "query_context"] {
            if let Some(value) = step.get(name) {
                body.insert(name.to_owned(), value.clone());
            }
        }
        let request = match QueryRequest::from_json(Value::from(body).to_string().as_bytes()) {
            Ok(request) => request,
            Err(error) => {
                return ("fatal".to_owned(), vec![(error.code.into(), error.msg)], Vec::new());
            }
        };
        let (outcome, rows) = support::run(&self.service, &self.store, &request);
        let rows = rows.rows.iter().map(|row| serde_json::from_str(row).unwrap()).collect();
        let errors = outcome.errors.into_iter().map(|error| (error.code.into(), error.msg));
        (outcome.status.name().to_owned(), errors.collect(), rows)
    }
}

fn same_multiset(wanted: &[Value], rows: &[Value]) -> bool {
    let mut left: Vec<&Value> = rows.iter().collect();
    wanted.len() == rows.len()
        && wanted.iter().all(|row| match left.iter().position(|other| same(row, other)) {
            Some(found) => {
                left.swap_remove(found);
                true
            }
            None => false,
        })
}

/// JSON equality: numbers by value, exactly within 64 bits, else within 1e-12.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
                return a == b;
            }
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => left == right,
    }
}

#[test]
fn answers_are_those_of_the_reference() {
    let known: BTreeMap<String, String> =
        std::fs::read_to_string(folder().join("known_failures.txt"))
            .unwrap()
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| line.split_once(' ').expect("an id and a reason"))
            .map(|(id, reason)| (id.to_owned(), reason.to_owned()))
            .collect();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let runner = Runner::new();
    let mut areas: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut failures = Vec::new();
    let mut passed_though_known = Vec::new();
    let mut dirty: BTreeSet<String> = BTreeSet::new();
    for file in files {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let vector: Value = serde_json::from_str(line).unwrap();
            if vector["area"] == "edition" {
                // The reference refuses window functions outside its enterprise edition.
                continue;
            }
            let id = vector["id"].as_str().unwrap().to_owned();
            let resets: Vec<String> = match vector.get("reset") {
                Some(names) => names
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|name| name.as_str().unwrap().to_owned())
                    .collect(),
                None => std::mem::take(&mut dirty).into_iter().collect(),
            };
            resets.iter().for_each(|name| runner.load(name));
            if vector.get("reset").is_some() {
                dirty.extend(resets);
            }
            let steps = match vector.get("steps") {
                Some(steps) => steps.as_array().unwrap().clone(),
                None => vec![vector.clone()],
            };
            let why = steps.iter().find_map(|step| {
                runner.check(step).map(|why| format!("{}\n    {why}", step["statement"]))
            });
            let area = areas.entry(vector["area"].as_str().unwrap().to_owned()).or_default();
            match (why, known.contains_key(&id)) {
                (None, false) => area.0 += 1,
                (None, true) => {
                    area.0 += 1;
                    passed_though_known.push(id);
                }
                (Some(why), is_known) => {
                    area.1 += 1;
                    if !is_known {
                        failures.push(format!("{id} {why}"));
                    }
                }
            }
        }
    }
    for (area, (passed, failed)) in &areas {
        println!("{area:20} {passed:6} {failed:6}");
    }
    let (passed, failed) =
        areas.values().fold((0, 0), |sum, area| (sum.0 + area.0, sum.1 + area.1));
    println!("{:20} {passed:6} {failed:6}", "all");
    println!("{}", failures.join("\n"));
    assert!(failures.is_empty(), "{} vectors fail", failures.len());
    assert!(passed_though_known.is_empty(), "these pass: {passed_though_known:?}");
}
