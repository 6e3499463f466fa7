//! The rows of the `system:` keyspaces.

use crate::catalog::{CatalogRows, SystemKeyspace};
use crate::datastore::{IndexDefinition, KeyspaceName};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::{Object, QueryValue, json};

/// A row with its key.
type CatalogRow = (QueryValue, QueryValue);

/// All rows of a system keyspace, as the user of the statement may see them.
pub(super) fn catalog_rows(system: &SystemKeyspace, rt: &Runtime<'_>) -> Result<CatalogRows> {
    Ok(match system {
        SystemKeyspace::Datastores => {
            let url = "http://127.0.0.1:8091";
            vec![row(url, [("id", text(url)), ("url", text(url))])]
        }
        SystemKeyspace::Namespaces => {
            let fields = [("datastore_id", text("oribi")), ("id", text("default"))];
            vec![row("default", fields.into_iter().chain([("name", text("default"))]))]
        }
        SystemKeyspace::Dual => vec![(QueryValue::from("dual"), QueryValue::Null)],
        SystemKeyspace::Buckets => buckets(rt.store.keyspaces()?),
        SystemKeyspace::Scopes => scopes(rt.store.keyspaces()?),
        SystemKeyspace::Keyspaces => rt.store.keyspaces()?.iter().map(keyspace).collect(),
        SystemKeyspace::Indexes => rt.store.indexes()?.iter().map(index).collect(),
        SystemKeyspace::Prepareds => rt.prepared.prepared_rows(rt.user),
        SystemKeyspace::Store(name) => {
            let rows = rt.store.catalog_rows(name)?.into_iter().enumerate();
            let row = |(number, text): (usize, String)| {
                let value = json::parse_checked(&text.into())?;
                Some((QueryValue::from(number.to_string()), value))
            };
            rows.filter_map(row).collect()
        }
    })
}

fn text(text: &str) -> QueryValue {
    QueryValue::from(text)
}

fn row<'f>(key: &str, fields: impl IntoIterator<Item = (&'f str, QueryValue)>) -> CatalogRow {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
    (QueryValue::from(key), QueryValue::from(Object::new(fields.collect())))
}

fn buckets(keyspaces: Vec<KeyspaceName>) -> Vec<CatalogRow> {
    let mut names: Vec<String> = keyspaces.into_iter().map(|name| name.bucket).collect();
    names.sort();
    names.dedup();
    let bucket = |name: &String| {
        let path = format!("default:{name}");
        let fields = [
            ("datastore_id", text("oribi")),
            ("name", text(name)),
            ("namespace", text("default")),
            ("namespace_id", text("default")),
            ("path", text(&path)),
        ];
        row(&path, fields)
    };
    names.iter().map(bucket).collect()
}

fn scopes(keyspaces: Vec<KeyspaceName>) -> Vec<CatalogRow> {
    let scope = |name: KeyspaceName| {
        let (scope, _) = name.collection?;
        Some((name.bucket, scope))
    };
    let mut names: Vec<(String, String)> = keyspaces.into_iter().filter_map(scope).collect();
    names.sort();
    names.dedup();
    let scope = |(bucket, name): &(String, String)| {
        let path = format!("default:{bucket}.{name}");
        let fields = [
            ("bucket", text(bucket)),
            ("datastore_id", text("oribi")),
            ("name", text(name)),
            ("namespace", text("default")),
            ("namespace_id", text("default")),
            ("path", text(&path)),
        ];
        row(&path, fields)
    };
    names.iter().map(scope).collect()
}

fn keyspace(name: &KeyspaceName) -> CatalogRow {
    let own = name.collection.as_ref().map_or(&name.bucket, |(_, collection)| collection);
    let path = match &name.collection {
        Some((scope, collection)) => format!("default:{}.{scope}.{collection}", name.bucket),
        None => format!("default:{}", name.bucket),
    };
    let mut fields = vec![
        ("datastore_id", text("oribi")),
        ("id", text(own)),
        ("name", text(own)),
        ("namespace", text("default")),
        ("namespace_id", text("default")),
        ("path", text(&path)),
    ];
    if let Some((scope, _)) = &name.collection {
        fields.push(("bucket", text(&name.bucket)));
        fields.push(("scope", text(scope)));
    }
    row(&path, fields)
}

fn index(index: &IndexDefinition) -> CatalogRow {
    let keys: Vec<QueryValue> = index.keys.iter().map(|key| text(key)).collect();
    let mut fields = vec![
        ("datastore_id", text("oribi")),
        ("id", text(&index.id)),
        ("index_key", QueryValue::from(keys)),
        ("name", text(&index.name)),
        ("namespace", text("default")),
        ("namespace_id", text("default")),
        ("state", text(&index.state)),
        ("using", text("gsi")),
    ];
    match &index.keyspace.collection {
        Some((scope, collection)) => {
            fields.push(("bucket_id", text(&index.keyspace.bucket)));
            fields.push(("scope_id", text(scope)));
            fields.push(("keyspace_id", text(collection)));
        }
        None => fields.push(("keyspace_id", text(&index.keyspace.bucket))),
    }
    if index.is_primary {
        fields.push(("is_primary", QueryValue::Bool(true)));
    }
    if let Some(condition) = &index.condition {
        fields.push(("condition", text(condition)));
    }
    if let Some(partition) = &index.partition {
        fields.push(("partition", text(partition)));
    }
    let replicas = QueryValue::Int(i64::from(index.replica_count));
    let mut metadata = vec![("num_replica".into(), replicas)];
    if let Some(reason) = &index.reason {
        metadata.push(("reason".into(), text(reason)));
    }
    if let Some(size) = &index.size {
        let number = |number: u64| QueryValue::Int(i64::try_from(number).unwrap_or(i64::MAX));
        metadata.push(("entries".into(), number(size.entries)));
        metadata.push(("bytes".into(), number(size.bytes)));
        metadata.push(("progress".into(), number(u64::from(size.progress))));
    }
    let metadata = Object::new(metadata);
    fields.push(("metadata", QueryValue::from(metadata)));
    row(&index.id, fields)
}
