//! The cases of sub_documents.json, where their fields are explained.

use std::{env, fs};

use couchbase::error::ErrorKind;
use couchbase::options::kv_options::{MutateInOptions, StoreSemantics};
use couchbase::results::kv_results::LookupInResult;
use couchbase::subdoc::lookup_in_specs::{
    CountSpecOptions, ExistsSpecOptions, GetSpecOptions, LookupInSpec,
};
use couchbase::subdoc::mutate_in_specs::{MutateInOpType, MutateInSpec, UpsertSpecOptions};
use couchbase::transcoding::raw_binary;
use serde_json::{Value, json};

use super::Program;
use crate::checks::{Failure, Outcome, check, equal, fails, within};

impl Program {
    /// Runs the cases that change documents, or those that do not; says how many there were.
    pub(super) async fn run_cases(&self, are_changes: bool) -> Outcome {
        let text = fs::read_to_string(env::var("ORIBI_SUB_DOCUMENTS")?)?;
        let file: Value = serde_json::from_str(&text)?;
        let mut count = 0;
        for case in list(&file, "cases") {
            if case.get("change").is_some() == are_changes {
                let name = case["name"].as_str().unwrap_or_default();
                let outcome = self.run_case(&format!("case: {name}"), case).await;
                outcome.map_err(|failure| format!("{name}: {failure}"))?;
                count += 1;
            }
        }
        Ok(format!("{count} cases"))
    }

    async fn run_case(&self, key: &str, case: &Value) -> Result<(), Failure> {
        let before = self.prepare(key, case).await?;
        let looks = look_up_specs(case)?;
        if case.get("change").is_some() {
            self.change(key, case, before).await?;
        } else if let Some(refused) = case.get("refused") {
            return refuses(self.collection.lookup_in(key, &looks, None).await, refused);
        }
        if !looks.is_empty() {
            let found = within(self.collection.lookup_in(key, &looks, None)).await?;
            equal(looks.len(), list(case, "finds").len())?;
            for (index, expected) in list(case, "finds").iter().enumerate() {
                compare(&found, index, expected)?;
            }
        }
        Ok(())
    }

    /// Stores what the case begins with; returns its CAS, or nothing where there is nothing.
    async fn prepare(&self, key: &str, case: &Value) -> Result<Option<u64>, Failure> {
        if let Some(raw) = case.get("raw").and_then(Value::as_str) {
            let (value, flags) = raw_binary::encode(raw.as_bytes())?;
            within(self.collection.upsert_raw(key, value, flags, None)).await?;
        } else if let Some(document) = case.get("document") {
            within(self.collection.upsert(key, document, None)).await?;
        } else {
            return Ok(None);
        }
        for (name, value) in case.get("attributes").and_then(Value::as_object).into_iter().flatten()
        {
            self.set_attribute(key, name, value).await?;
        }
        Ok(Some(within(self.collection.get(key, None)).await?.cas()))
    }

    pub(super) async fn set_attribute(
        &self,
        key: &str,
        name: &str,
        value: &Value,
    ) -> Result<(), Failure> {
        let set = MutateInSpec::upsert(name, value, UpsertSpecOptions::new().xattr(true))?;
        within(self.collection.mutate_in(key, &[set], None)).await?;
        Ok(())
    }

    async fn change(&self, key: &str, case: &Value, before: Option<u64>) -> Result<(), Failure> {
        let semantics = match case.get("semantics").and_then(Value::as_str) {
            Some("insert") => StoreSemantics::Insert,
            Some("upsert") => StoreSemantics::Upsert,
            _ => StoreSemantics::Replace,
        };
        let options = MutateInOptions::new().store_semantics(semantics);
        let specs: Result<Vec<_>, _> = list(case, "change").iter().map(change_spec).collect();
        let changed = self.collection.mutate_in(key, &specs?, options).await;
        if let Some(refused) = case.get("refused") {
            refuses(changed, refused)?;
            if let Some(before) = before {
                let got = within(self.collection.get(key, None)).await?;
                equal(got.cas(), before)?;
                if let Some(document) = case.get("document") {
                    equal(&got.content_as::<Value>()?, document)?;
                }
            }
            return Ok(());
        }
        let done = changed?;
        check(done.mutation_token().is_some(), "a mutation token")?;
        for (index, expected) in
            case.get("returns").and_then(Value::as_object).into_iter().flatten()
        {
            equal(&done.content_as::<Value>(index.parse()?)?, expected)?;
        }
        if case["becomes"].is_null() {
            return fails(self.collection.get(key, None).await, ErrorKind::DocumentNotFound);
        }
        let got = within(self.collection.get(key, None)).await?;
        equal((&got.content_as::<Value>()?, got.cas()), (&case["becomes"], done.cas()))
    }
}

/// An array of the table; one that is not there is empty.
fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Checks for the error of a name in the table, with or without its exclamation mark.
fn refuses<T>(result: couchbase::error::Result<T>, name: &Value) -> Result<(), Failure> {
    // This kind says which argument.
    if name == "invalid-argument" { invalid(result) } else { fails(result, kind(name)?) }
}

pub(super) fn invalid<T>(result: couchbase::error::Result<T>) -> Result<(), Failure> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidArgument(_)) => Ok(()),
        Err(error) => Err(format!("expected an invalid argument, got {error}").into()),
        Ok(_) => Err("expected an invalid argument, got a result".into()),
    }
}

fn kind(name: &Value) -> Result<ErrorKind, Failure> {
    Ok(match name.as_str().unwrap_or_default().trim_start_matches('!') {
        // What the SDK takes the protocol's "exists" for in a change of parts.
        "document-exists" => ErrorKind::CasMismatch,
        "document-not-found" => ErrorKind::DocumentNotFound,
        "document-not-json" => ErrorKind::DocumentNotJSON,
        "number-too-big" => ErrorKind::NumberTooBig,
        "path-exists" => ErrorKind::PathExists,
        "path-invalid" => ErrorKind::PathInvalid,
        "path-mismatch" => ErrorKind::PathMismatch,
        "path-not-found" => ErrorKind::PathNotFound,
        "path-too-big" => ErrorKind::PathTooBig,
        "value-invalid" => ErrorKind::ValueInvalid,
        "xattr-cannot-modify-virtual-attribute" => ErrorKind::XattrCannotModifyVirtualAttribute,
        "xattr-unknown-virtual-attribute" => ErrorKind::XattrUnknownVirtualAttribute,
        _ => return Err(format!("there is no error {name}").into()),
    })
}

pub(super) fn compare(
    found: &LookupInResult,
    index: usize,
    expected: &Value,
) -> Result<(), Failure> {
    match expected.as_str() {
        Some(text) if text.starts_with('!') => refuses(found.content_as::<Value>(index), expected),
        _ => equal(&found.content_as::<Value>(index)?, expected),
    }
}

fn look_up_specs(case: &Value) -> Result<Vec<LookupInSpec>, Failure> {
    let make = |spec: &Value| {
        let (path, xattr) =
            (spec["path"].as_str().unwrap_or_default(), spec["xattr"] == json!(true));
        Ok(match spec["op"].as_str() {
            Some("get") => LookupInSpec::get(path, GetSpecOptions::new().xattr(xattr)),
            Some("exists") => LookupInSpec::exists(path, ExistsSpecOptions::new().xattr(xattr)),
            Some("count") => LookupInSpec::count(path, CountSpecOptions::new().xattr(xattr)),
            _ => return Err(format!("there is no {spec}").into()),
        })
    };
    list(case, "look").iter().map(make).collect()
}

fn change_spec(spec: &Value) -> Result<MutateInSpec, Failure> {
    let path = spec["path"].as_str().unwrap_or_default();
    let (value, values) = (&spec["value"], list(spec, "values"));
    let delta = spec["delta"].as_i64().unwrap_or_default();
    let mut made = match spec["op"].as_str() {
        Some("upsert") => MutateInSpec::upsert(path, value, None)?,
        Some("insert") => MutateInSpec::insert(path, value, None)?,
        Some("replace") => MutateInSpec::replace(path, value, None)?,
        Some("remove") => MutateInSpec::remove(path, None),
        Some("array-append") => MutateInSpec::array_append(path, values, None)?,
        Some("array-prepend") => MutateInSpec::array_prepend(path, values, None)?,
        Some("array-insert") => MutateInSpec::array_insert(path, values, None)?,
        Some("array-add-unique") => MutateInSpec::array_add_unique(path, value, None)?,
        Some("increment") => MutateInSpec::increment(path, delta, None)?,
        Some("decrement") => MutateInSpec::decrement(path, delta, None)?,
        _ => return Err(format!("there is no {spec}").into()),
    };
    made.is_xattr = spec["xattr"] == json!(true);
    made.create_path = spec["create"] == json!(true);
    check(made.op != MutateInOpType::Remove || !made.create_path, "a removal makes no parents")?;
    Ok(made)
}
