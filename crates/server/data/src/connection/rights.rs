//! Rights of a connection's user in the selected bucket.
//!
//! Owns: the rights, in the form in which requests are checked. The rights in the whole bucket are
//! a set of two bytes, computed when the bucket is selected. Most users' requests cost no more than
//! that. Users with roles for scopes or collections also have a table of collection ids. It is
//! built from the names in their roles, and rebuilt when the bucket's manifest changes.
//!
//! Invariants: a collection that is not in the manifest has no rights. A user without a right in a
//! collection cannot tell whether it exists, see [`Rights::visible`]. The dispatcher calls this
//! and, for the manifest, the admin HTTP. It does not know opcodes.

use std::sync::Arc;

use oribi_engine::collections::BucketManifest;
use oribi_types::CollectionId;

use oribi_auth::{Identity, PrivilegeSet};

/// A user's rights in the selected bucket.
#[derive(Debug, Default)]
pub struct Rights {
    admin: bool,
    everywhere: PrivilegeSet,
    narrow: Option<Box<NarrowRights>>,
}

/// Rights that differ from collection to collection.
#[derive(Debug)]
struct NarrowRights {
    identity: Arc<Identity>,
    bucket: Box<str>,
    somewhere: PrivilegeSet,
    table: Option<Table>,
}

/// The rights by id, as of one manifest.
#[derive(Debug)]
struct Table {
    /// The manifest that it was built from.
    manifest: Arc<BucketManifest>,
    /// The part of it that the user may see.
    visible: Arc<BucketManifest>,
    /// Ascending by id; collections without any right are missing.
    collections: Vec<(CollectionId, PrivilegeSet)>,
}

impl Rights {
    /// The rights while no bucket is selected.
    pub fn outside(identity: &Identity) -> Rights {
        Rights { admin: identity.access.is_admin(), ..Rights::default() }
    }

    /// The rights in a bucket.
    pub fn of(identity: &Arc<Identity>, bucket: &str) -> Rights {
        let access = &identity.access;
        let (everywhere, somewhere) = (access.everywhere(bucket), access.somewhere(bucket));
        assert!(
            everywhere.without(somewhere).is_empty(),
            "a right held everywhere is held somewhere"
        );
        let narrow = (everywhere != somewhere).then(|| NarrowRights {
            identity: Arc::clone(identity),
            bucket: bucket.into(),
            somewhere,
            table: None,
        });
        Rights { admin: access.is_admin(), everywhere, narrow: narrow.map(Box::new) }
    }

    /// True for an administrator.
    pub fn is_admin(&self) -> bool {
        self.admin
    }

    /// The rights that hold in every collection.
    #[inline]
    pub fn everywhere(&self) -> PrivilegeSet {
        self.everywhere
    }

    /// The rights that hold in at least one collection, if that collection exists.
    pub fn somewhere(&self) -> PrivilegeSet {
        self.narrow.as_ref().map_or(self.everywhere, |narrow| narrow.somewhere)
    }

    /// The rights in one collection. `manifest` is the bucket's current one.
    pub fn within(&mut self, id: CollectionId, manifest: Arc<BucketManifest>) -> PrivilegeSet {
        let Some(narrow) = &mut self.narrow else { return self.everywhere };
        let collections = &narrow.table(manifest).collections;
        let found = collections.binary_search_by_key(&id, |(id, _)| *id);
        found.map_or(self.everywhere, |at| collections[at].1)
    }

    /// The rights in all collections of a scope, later ones included.
    pub fn within_scope(&self, scope: &str) -> PrivilegeSet {
        let Some(narrow) = &self.narrow else { return self.everywhere };
        // No collection has an empty name, so only roles for the whole scope count.
        narrow.identity.access.within(&narrow.bucket, scope, "")
    }

    /// The part of `manifest`, the bucket's current one, that the user may see. A user with a right
    /// in the whole bucket sees all of it. Any other user sees the scopes and collections with a
    /// right in them, possibly none.
    pub fn visible(&mut self, manifest: Arc<BucketManifest>) -> Arc<BucketManifest> {
        if !self.everywhere.is_empty() {
            return manifest;
        }
        match &mut self.narrow {
            Some(narrow) => Arc::clone(&narrow.table(manifest).visible),
            None => Arc::new(manifest.restricted(|_| false, |_, _| false)),
        }
    }
}

impl NarrowRights {
    fn table(&mut self, manifest: Arc<BucketManifest>) -> &Table {
        // The pointer also distinguishes a manifest from that of another bucket of the same name.
        let is_current = |table: &Table| Arc::ptr_eq(&table.manifest, &manifest);
        let current = self.table.take().filter(is_current);
        let (access, bucket) = (&self.identity.access, &*self.bucket);
        self.table.insert(current.unwrap_or_else(|| {
            let held = |scope: &str, name: &str| access.within(bucket, scope, name);
            let visible = manifest.restricted(
                |scope| access.sees_scope(bucket, &scope.name),
                |scope, collection| !held(&scope.name, &collection.name).is_empty(),
            );
            assert!(
                visible.scopes().len() <= manifest.scopes().len(),
                "a user sees existing scopes"
            );
            let mut collections: Vec<_> = visible
                .scopes()
                .iter()
                .flat_map(|scope| scope.collections.iter().map(move |one| (scope, one)))
                .map(|(scope, collection)| (collection.id, held(&scope.name, &collection.name)))
                .collect();
            collections.sort_unstable_by_key(|(id, _)| *id);
            debug_assert!(
                collections.is_sorted_by(|one, next| one.0 < next.0),
                "a collection has one entry"
            );
            Table { manifest, visible: Arc::new(visible), collections }
        }))
    }
}

#[cfg(test)]
mod tests {
    use oribi_engine::collections::ManifestChange;

    use super::*;
    use oribi_auth::{Access, Privilege};

    fn identity(roles: &[&str]) -> Arc<Identity> {
        let roles = roles.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Identity {
            name: "ann".to_owned(),
            access: Access::new(roles),
            bucket: None,
            collection: None,
        })
    }

    fn with_collection(manifest: &BucketManifest, scope: &str, name: &str) -> BucketManifest {
        let create = ManifestChange::CreateScope { name: scope.to_owned() };
        let manifest = manifest.apply(&create).unwrap_or_else(|_| manifest.clone());
        let (scope, name) = (scope.to_owned(), name.to_owned());
        let create = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
        manifest.apply(&create).unwrap()
    }

    #[test]
    fn users_of_whole_buckets_have_no_table() {
        let manifest = Arc::new(BucketManifest::initial());
        for role in ["admin", "read-only:*", "read-write:b"] {
            let mut rights = Rights::of(&identity(&[role, "read-only:other/s"]), "b");
            assert!(rights.narrow.is_none() && !rights.everywhere().is_empty());
            assert!(Arc::ptr_eq(&rights.visible(Arc::clone(&manifest)), &manifest));
        }
    }

    #[test]
    fn without_any_right_nothing_is_visible() {
        let manifest = Arc::new(with_collection(&BucketManifest::initial(), "s", "c"));
        let mut rights = Rights::of(&identity(&["read-only:other"]), "b");
        assert!(rights.somewhere().is_empty());
        let visible = rights.visible(manifest);
        assert_eq!(visible.scopes().len(), 0);
        assert!(visible.collection(CollectionId::DEFAULT).is_none());
    }

    #[test]
    fn table_follows_the_manifest() {
        let mut rights = Rights::of(&identity(&["read-only:b/s/c", "insert:b/s"]), "b");
        let empty = Arc::new(BucketManifest::initial());
        assert!(rights.within(CollectionId::DEFAULT, Arc::clone(&empty)).is_empty());
        assert_eq!(rights.visible(empty.clone()).scopes().len(), 0);
        assert_eq!(rights.somewhere(), PrivilegeSet::READ_ONLY.and(Privilege::Insert.into()));

        let one = with_collection(&with_collection(&empty, "s", "d"), "s", "c");
        let manifest = Arc::new(with_collection(&one, "t", "c"));
        let id = |scope, name| manifest.collection_id(scope, name).unwrap();
        let mut held = |id| rights.within(id, Arc::clone(&manifest));
        assert_eq!(held(id("s", "d")), Privilege::Insert.into());
        assert!(held(id("s", "c")).holds(PrivilegeSet::READ_ONLY));
        assert!(held(id("t", "c")).is_empty() && held(CollectionId(999)).is_empty());
        let visible = rights.visible(Arc::clone(&manifest));
        assert_eq!(visible.uid(), manifest.uid());
        assert!(visible.collection_id("s", "c").is_ok() && visible.scope_id("t").is_err());
        assert!(visible.collection(CollectionId::DEFAULT).is_none());
    }
}
