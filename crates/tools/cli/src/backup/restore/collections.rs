//! Collections of a backup and of the target: paired by name, created where they are missing.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use anyhow::Context;
use oribi_backup::manifest::BackupCollection;
use oribi_client::{Client, ClientError, Collection, CollectionId};

use super::super::filter::BackupFilter;
use crate::admin::Admin;

/// Collections and scopes that the target lacks.
pub struct MissingCollections {
    scopes: BTreeSet<String>,
    collections: Vec<(String, String)>,
}

/// Those of these collections and scopes that the target lacks.
pub async fn missing(
    client: &Client,
    (places, scopes): (&[BackupCollection], &[String]),
    filter: &BackupFilter,
) -> anyhow::Result<MissingCollections> {
    let mut missing = MissingCollections { scopes: BTreeSet::new(), collections: Vec::new() };
    let there = match client.collections_manifest().await {
        Err(ClientError::NotOffered(_)) => return Ok(missing),
        there => there.context("the target's list of collections")?,
    };
    for place in places.iter().filter(|place| filter.has_collection(&place.path())) {
        let scope = there.scopes.iter().find(|scope| scope.name == place.scope);
        if scope.is_none() {
            missing.scopes.insert(place.scope.clone());
        }
        let collections = scope.map(|scope| scope.collections.as_slice()).unwrap_or_default();
        if collections.iter().all(|collection| collection.name != place.collection) {
            missing.collections.push((place.scope.clone(), place.collection.clone()));
        }
    }
    if filter.collections.is_empty() {
        let absent =
            scopes.iter().filter(|name| there.scopes.iter().all(|scope| scope.name != **name));
        missing.scopes.extend(absent.cloned());
    }
    Ok(missing)
}

impl MissingCollections {
    /// True when nothing is.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.collections.is_empty()
    }

    /// Creates it, without limits of time.
    pub async fn create(&self, admin: &Admin, bucket: &str) -> anyhow::Result<()> {
        for scope in &self.scopes {
            admin.create_scope(bucket, scope).await.with_context(|| format!("scope {scope}"))?;
        }
        for (scope, collection) in &self.collections {
            let created = admin.create_collection(bucket, scope, collection).await;
            created.with_context(|| format!("collection {scope}.{collection}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for MissingCollections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scopes = self.scopes.iter().map(|scope| format!("scope {scope}"));
        let collections = self.collections.iter().map(|(s, c)| format!("collection {s}.{c}"));
        f.write_str(&scopes.chain(collections).collect::<Vec<_>>().join(", "))
    }
}

/// The target's collections by the ids of the backup.
pub struct CollectionMapping {
    collections: HashMap<CollectionId, Collection>,
    /// Scope, collection, and the limit that the backup has and the target has not.
    limits: Vec<(String, String, u32)>,
}

impl CollectionMapping {
    /// Looks all of them up.
    pub async fn of(
        client: &Client,
        places: &[BackupCollection],
        filter: &BackupFilter,
    ) -> anyhow::Result<CollectionMapping> {
        let there = match client.collections_manifest().await {
            Err(ClientError::NotOffered(_)) => None,
            there => Some(there.context("the target's list of collections")?),
        };
        let mut mapping = CollectionMapping { collections: HashMap::new(), limits: Vec::new() };
        for place in places.iter().filter(|place| filter.has_collection(&place.path())) {
            let path = place.path();
            let collection = client.collection(&path).await;
            let collection = collection.with_context(|| format!("collection {path}"))?;
            mapping.collections.insert(CollectionId(place.id), collection);
            let scopes = there.iter().flat_map(|there| &there.scopes);
            let scope = scopes.into_iter().find(|scope| scope.name == place.scope);
            let known = scope.and_then(|scope| {
                scope.collections.iter().find(|collection| collection.name == place.collection)
            });
            // A limit that the target has is the target's business.
            if let (Some(limit), Some(None)) = (place.max_ttl_s, known.map(|known| known.max_ttl_s))
            {
                mapping.limits.push((place.scope.clone(), place.collection.clone(), limit));
            }
        }
        Ok(mapping)
    }

    /// The target's collection for a record's.
    pub fn get(&self, id: CollectionId) -> Option<&Collection> {
        self.collections.get(&id)
    }

    /// Sets the limits of time that collections had.
    pub async fn set_limits(&self, admin: Option<&Admin>, bucket: &str) -> anyhow::Result<()> {
        for (scope, collection, limit) in &self.limits {
            let what = || format!("the limit of {limit} s of collection {scope}.{collection}");
            let admin = admin.context("the admin HTTP cannot be reached").with_context(what)?;
            let set = admin.limit_collection(bucket, scope, collection, *limit).await;
            set.with_context(what)?;
        }
        Ok(())
    }
}
