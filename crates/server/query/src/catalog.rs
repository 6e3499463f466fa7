//! The `system:` keyspaces.

use crate::datastore::{IndexDefinition, KeyspaceName};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::{Object, Value, json};

/// A `system:` keyspace.
#[derive(Clone, Debug, PartialEq)]
pub enum Catalog {
    Datastores,
    Namespaces,
    Buckets,
    Scopes,
    Keyspaces,
    Indexes,
    Dual,
    Prepareds,
    /// Rows come from the store.
    Store(&'static str),
}

const STORE_NAMES: [&str; 9] = [
    "active_requests",
    "completed_requests",
    "my_user_info",
    "user_info",
    "nodes",
    "applicable_roles",
    "functions",
    "transactions",
    "vitals",
];

/// A row with its key.
type CatalogRow = (Value, Value);

impl Catalog {
    /// The keyspace of a name after `system:`.
    pub fn named(name: &str) -> Option<Catalog> {
        Some(match name {
            "datastores" => Catalog::Datastores,
            "namespaces" => Catalog::Namespaces,
            "buckets" => Catalog::Buckets,
            "scopes" | "all_scopes" => Catalog::Scopes,
            "keyspaces" | "all_keyspaces" => Catalog::Keyspaces,
            "indexes" | "all_indexes" => Catalog::Indexes,
            "dual" => Catalog::Dual,
            "prepareds" => Catalog::Prepareds,
            _ => Catalog::Store(STORE_NAMES.iter().find(|known| **known == name)?),
        })
    }

    /// All rows.
    pub fn rows(&self, rt: &Runtime<'_>) -> Result<Vec<CatalogRow>> {
        Ok(match self {
            Catalog::Datastores => {
                let url = "http://127.0.0.1:8091";
                vec![row(url, [("id", text(url)), ("url", text(url))])]
            }
            Catalog::Namespaces => {
                let fields = [("datastore_id", text("oribi")), ("id", text("default"))];
                vec![row("default", fields.into_iter().chain([("name", text("default"))]))]
            }
            Catalog::Dual => vec![(Value::from("dual"), Value::Null)],
            Catalog::Buckets => buckets(rt.store.keyspaces()?),
            Catalog::Scopes => scopes(rt.store.keyspaces()?),
            Catalog::Keyspaces => rt.store.keyspaces()?.iter().map(keyspace).collect(),
            Catalog::Indexes => rt.store.indexes()?.iter().map(index).collect(),
            Catalog::Prepareds => rt.prepared.catalog_rows(),
            Catalog::Store(name) => {
                let rows = rt.store.catalog_rows(name)?.into_iter().enumerate();
                let row = |(number, text): (usize, String)| {
                    let value = json::parse_checked(&text.into())?;
                    Some((Value::from(number.to_string()), value))
                };
                rows.filter_map(row).collect()
            }
        })
    }
}

fn text(text: &str) -> Value {
    Value::from(text)
}

fn row<'f>(key: &str, fields: impl IntoIterator<Item = (&'f str, Value)>) -> CatalogRow {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
    (Value::from(key), Value::from(Object::new(fields.collect())))
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
    let keys: Vec<Value> = index.keys.iter().map(|key| text(key)).collect();
    let mut fields = vec![
        ("datastore_id", text("oribi")),
        ("id", text(&index.id)),
        ("index_key", Value::from(keys)),
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
        fields.push(("is_primary", Value::Bool(true)));
    }
    if let Some(condition) = &index.condition {
        fields.push(("condition", text(condition)));
    }
    if let Some(partition) = &index.partition {
        fields.push(("partition", text(partition)));
    }
    let replicas = Value::Int(i64::from(index.replica_count));
    let metadata = Object::new(vec![("num_replica".into(), replicas)]);
    fields.push(("metadata", Value::from(metadata)));
    row(&index.id, fields)
}
