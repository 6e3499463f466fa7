//! Collections that the lines of an import go to: the one of the command line, or each line's own.
//!
//! Each is looked up once, when the first line needs it, and created before that if the user asked
//! for it. Memory is bounded by the number of collections that the bucket has.

use std::collections::HashMap;

use anyhow::{Context, bail};
use oribi_client::{Client, Collection, RejectionKind};

use crate::admin::{Admin, AdminArgs};
use crate::doc::place::CollectionTarget;
use crate::target::find_collection;

/// See the module text.
pub struct Places<'a> {
    client: &'a Client,
    place: &'a CollectionTarget,
    create: Option<&'a AdminArgs>,
    admin: Option<Admin>,
    /// For lines that name none.
    default: Collection,
    named: HashMap<(String, String), Collection>,
}

impl<'a> Places<'a> {
    /// Looks up the collection of the command line.
    pub async fn new(
        client: &'a Client,
        place: &'a CollectionTarget,
        create: Option<&'a AdminArgs>,
    ) -> anyhow::Result<Places<'a>> {
        let (default, named) = (client.default_collection().clone(), HashMap::new());
        let mut places = Places { client, place, create, admin: None, default, named };
        if let Some(path) = &place.collection {
            let (scope, collection) = path.split_once('.').unwrap_or(("_default", path));
            places.default = match create {
                Some(_) => places.find_or_create(scope, collection).await?,
                None => find_collection(client, Some(path)).await?,
            };
        }
        Ok(places)
    }

    /// The collection of lines that name none.
    pub fn default(&self) -> &Collection {
        &self.default
    }

    /// The collection of a line.
    pub async fn of(&mut self, named: Option<(String, String)>) -> anyhow::Result<Collection> {
        let Some(named) = named else { return Ok(self.default.clone()) };
        if let Some(collection) = self.named.get(&named) {
            return Ok(collection.clone());
        }
        let (scope, name) = &named;
        if self.place.collection.is_some() && self.default.path() != format!("{scope}.{name}") {
            let given = self.default.path();
            bail!("the line belongs to {scope}.{name}, and --collection names {given}");
        }
        let collection = self.find_or_create(scope, name).await?;
        self.named.insert(named, collection.clone());
        Ok(collection)
    }

    async fn find_or_create(&mut self, scope: &str, name: &str) -> anyhow::Result<Collection> {
        let path = format!("{scope}.{name}");
        match self.client.collection(&path).await {
            Ok(collection) => return Ok(collection),
            Err(error) => match error.rejection() {
                Some(RejectionKind::UnknownScope | RejectionKind::UnknownCollection) => {}
                _ => return Err(error).with_context(|| format!("collection \"{path}\"")),
            },
        }
        let Some(args) = self.create else {
            bail!("there is no collection \"{path}\" (--create-collections creates it)");
        };
        self.create(args, scope, name)
            .await
            .with_context(|| format!("creating collection \"{path}\""))?;
        let created = self.client.collection(&path).await;
        created.with_context(|| format!("collection \"{path}\""))
    }

    async fn create(&mut self, args: &AdminArgs, scope: &str, name: &str) -> anyhow::Result<()> {
        let target = &self.place.target;
        let admin = match self.admin.take() {
            Some(admin) => admin,
            None => Admin::find(args, target, self.client).await?,
        };
        let admin = self.admin.insert(admin);
        admin.create_scope(&target.bucket, scope).await?;
        admin.create_collection(&target.bucket, scope, name).await
    }
}
