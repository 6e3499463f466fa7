//! Index definitions in a backup: read from `system:indexes`, and created again by statements.
//!
//! A definition that the server refuses is reported and left out: documents do not need it.

use std::fmt::Write;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::filter::BackupFilter;
use crate::admin::Admin;

const PATH: &str = "/query/service";

/// The definitions of a bucket's indexes in the collections that are meant, as the server's rows.
pub async fn read(
    admin: &Admin,
    bucket: &str,
    filter: &BackupFilter,
) -> anyhow::Result<Vec<Value>> {
    let rows = query(admin, "SELECT RAW i FROM system:indexes AS i".to_owned()).await?;
    let is_meant = |row: &Value| {
        let (of, scope, collection) = place(row);
        of == bucket && filter.has_collection(&format!("{scope}.{collection}"))
    };
    Ok(rows.into_iter().filter(is_meant).collect())
}

/// Creates indexes that do not exist.
pub async fn write(admin: &Admin, bucket: &str, indexes: &[Value], filter: &BackupFilter) {
    for index in indexes {
        let (_, scope, collection) = place(index);
        if !filter.has_collection(&format!("{scope}.{collection}")) {
            continue;
        }
        let created = match create_statement(index, bucket) {
            Some(statement) => query(admin, statement).await.map(drop),
            None => Err(anyhow::anyhow!("the backup does not say of what it is")),
        };
        if let Err(error) = created {
            let name = text(index, "name").escape_debug();
            eprintln!("oribi: the index {name} was not restored: {error:#}");
        }
    }
}

/// The rows of a statement.
async fn query(admin: &Admin, statement: String) -> anyhow::Result<Vec<Value>> {
    let body = json!({ "statement": statement }).to_string().into_bytes();
    let answer = admin.post_json(PATH, body).await?;
    let status = answer.status();
    let body = Admin::whole(answer).await?;
    let Ok(mut answer) = serde_json::from_slice::<Value>(&body) else {
        return Err(admin.refusal(status, &body));
    };
    if let Some(reason) = answer["errors"][0]["msg"].as_str() {
        bail!("{}", reason.escape_debug());
    }
    match answer["results"].take() {
        Value::Array(rows) if status.is_success() => Ok(rows),
        _ => Err(admin.refusal(status, &body)).context("the query service"),
    }
}

fn text<'v>(row: &'v Value, field: &str) -> &'v str {
    row[field].as_str().unwrap_or_default()
}

/// Bucket, scope and collection of an index.
fn place(row: &Value) -> (&str, &str, &str) {
    match row["bucket_id"].as_str() {
        Some(bucket) => (bucket, text(row, "scope_id"), text(row, "keyspace_id")),
        None => (text(row, "keyspace_id"), "_default", "_default"),
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The statement that creates an index in a bucket. None if the row lacks its keys.
fn create_statement(row: &Value, bucket: &str) -> Option<String> {
    let (_, scope, collection) = place(row);
    let place = [bucket, scope, collection].map(quoted).join(".");
    let name = quoted(text(row, "name"));
    let mut statement = if row["is_primary"] == true {
        format!("CREATE PRIMARY INDEX {name} IF NOT EXISTS ON {place}")
    } else {
        let keys = row["index_key"].as_array().filter(|keys| !keys.is_empty())?;
        let keys = keys.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join(", ");
        format!("CREATE INDEX {name} IF NOT EXISTS ON {place}({keys})")
    };
    if let Some(partition) = row["partition"].as_str() {
        let _ = write!(statement, " PARTITION BY {partition}");
    }
    if let Some(condition) = row["condition"].as_str() {
        let _ = write!(statement, " WHERE {condition}");
    }
    let mut options = json!({});
    if row["state"] == "deferred" {
        options["defer_build"] = true.into();
    }
    if row["metadata"]["num_replica"].as_u64().is_some_and(|count| count > 0) {
        options["num_replica"] = row["metadata"]["num_replica"].clone();
    }
    if options.as_object().is_some_and(|options| !options.is_empty()) {
        let _ = write!(statement, " WITH {options}");
    }
    Some(statement)
}
