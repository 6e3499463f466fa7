//! Tests of names, ids, changes and the two JSON shapes.

use oribi_types::{CollectionId, ManifestUid, ScopeId};
use proptest::prelude::*;

use super::{
    BucketManifest, COLLECTIONS_MAX, LookupError, ManifestChange, ManifestError, SCOPES_MAX,
};

fn create_scope(name: &str) -> ManifestChange {
    ManifestChange::CreateScope { name: name.into() }
}

fn drop_scope(name: &str) -> ManifestChange {
    ManifestChange::DropScope { name: name.into() }
}

fn create_collection(scope: &str, name: &str) -> ManifestChange {
    ManifestChange::CreateCollection { scope: scope.into(), name: name.into(), max_ttl_s: None }
}

fn drop_collection(scope: &str, name: &str) -> ManifestChange {
    ManifestChange::DropCollection { scope: scope.into(), name: name.into() }
}

fn set_max_ttl(scope: &str, name: &str, max_ttl_s: Option<u32>) -> ManifestChange {
    ManifestChange::SetMaxTtl { scope: scope.into(), name: name.into(), max_ttl_s }
}

fn applied(changes: &[ManifestChange]) -> BucketManifest {
    changes.iter().fold(BucketManifest::initial(), |manifest, change| {
        manifest.apply(change).expect("the change is valid")
    })
}

#[test]
fn initial_manifest_has_the_documented_json() {
    let manifest = BucketManifest::initial();
    assert_eq!(
        manifest.to_json(),
        r#"{"uid":"0","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]}]}"#
    );
    assert!(manifest.contains(CollectionId::DEFAULT));
    assert!(!manifest.contains(CollectionId(1)));
    assert!(!manifest.contains(CollectionId(8)));
}

#[test]
fn lookups_follow_the_protocol() {
    let manifest = applied(&[create_scope("inventory"), create_collection("inventory", "hotel")]);
    assert_eq!(manifest.collection_id("inventory", "hotel"), Ok(CollectionId(8)));
    assert_eq!(manifest.collection_id("", ""), Ok(CollectionId(0)));
    assert_eq!(manifest.collection_id("_default", ""), Ok(CollectionId(0)));
    assert_eq!(manifest.scope_id(""), Ok(ScopeId(0)));
    assert_eq!(manifest.scope_id("inventory"), Ok(ScopeId(8)));
    let unknown_collection = Err(LookupError::UnknownCollection);
    assert_eq!(manifest.collection_id("inventory", ""), unknown_collection);
    assert_eq!(manifest.collection_id("_default", "hotel"), unknown_collection);
    assert_eq!(manifest.collection_id("nowhere", "hotel"), Err(LookupError::UnknownScope));
    assert_eq!(manifest.scope_id("_system"), Err(LookupError::UnknownScope));
    assert_eq!(manifest.collection_id("a b", "hotel"), Err(LookupError::InvalidName));
    assert_eq!(manifest.collection_id("inventory", "h.x"), Err(LookupError::InvalidName));
    assert_eq!(manifest.scope_id(&"s".repeat(252)), Err(LookupError::InvalidName));
    let found = manifest.collection(CollectionId(8)).expect("created above");
    assert_eq!(found.name, "hotel");
    assert_eq!(manifest.scope_of(CollectionId(8)).map(|scope| scope.id), Some(ScopeId(8)));
    assert_eq!(manifest.collection(CollectionId(9)), None);
}

#[test]
fn names_are_checked_when_created() {
    let manifest = BucketManifest::initial();
    for name in ["", "_system", "%x", "a b", "a.b", "ä", "$x", &"x".repeat(252)] {
        assert_eq!(manifest.apply(&create_scope(name)), Err(ManifestError::InvalidName), "{name}");
        let change = create_collection("_default", name);
        assert_eq!(manifest.apply(&change), Err(ManifestError::InvalidName), "{name}");
    }
    for name in ["a", "A-Z_0%", "0", "-", &"x".repeat(251)] {
        let manifest = manifest.apply(&create_scope(name)).expect("the name is valid");
        let manifest = manifest.apply(&create_collection(name, name)).expect("the name is valid");
        assert_eq!(manifest.collection_id(name, name), Ok(CollectionId(8)));
    }
}

// Invariant: A collection id is used once, and only dropped ids are purged.
#[test]
fn ids_are_never_reused_even_across_a_restart() {
    let manifest = applied(&[
        create_scope("one"),
        create_collection("one", "a"),
        create_collection("one", "b"),
        drop_collection("one", "b"),
        drop_scope("one"),
    ]);
    assert!(!manifest.contains(CollectionId(8)) && !manifest.contains(CollectionId(9)));
    assert_eq!(manifest.uid(), ManifestUid(5));
    let manifest =
        BucketManifest::from_stored_json(&manifest.to_stored_json()).expect("just written");
    let manifest = manifest.apply(&create_scope("one")).expect("the name is free again");
    let manifest = manifest.apply(&create_collection("one", "a")).expect("the scope is there");
    assert_eq!(manifest.scope_id("one"), Ok(ScopeId(9)));
    assert_eq!(manifest.collection_id("one", "a"), Ok(CollectionId(10)));
    assert_eq!(manifest.uid(), ManifestUid(7));
}

// Compat (Differences): Default collection
#[test]
fn changes_are_refused_with_a_reason() {
    let manifest = applied(&[create_scope("s"), create_collection("s", "c")]);
    let refusals = [
        (create_scope("s"), ManifestError::ScopeExists),
        (create_scope("_default"), ManifestError::ScopeExists),
        (drop_scope("x"), ManifestError::UnknownScope),
        (drop_scope("_default"), ManifestError::Reserved),
        (create_collection("s", "c"), ManifestError::CollectionExists),
        (create_collection("_default", "_default"), ManifestError::CollectionExists),
        (create_collection("x", "c"), ManifestError::UnknownScope),
        (drop_collection("x", "c"), ManifestError::UnknownScope),
        (drop_collection("s", "x"), ManifestError::UnknownCollection),
        (drop_collection("_default", "_default"), ManifestError::Reserved),
        (set_max_ttl("s", "x", None), ManifestError::UnknownCollection),
        (set_max_ttl("x", "c", None), ManifestError::UnknownScope),
    ];
    for (change, reason) in refusals {
        assert_eq!(manifest.apply(&change), Err(reason), "{change:?}");
    }
}

#[test]
fn max_ttl_is_set_cleared_and_written() {
    let manifest = applied(&[create_scope("s"), create_collection("s", "c")]);
    let limited = manifest.apply(&set_max_ttl("s", "c", Some(30))).expect("the collection exists");
    assert!(limited.to_json().contains(r#"{"name":"c","uid":"8","maxTTL":30}"#));
    assert_eq!(BucketManifest::from_json(&limited.to_json()), Ok(limited.clone()));
    let cleared = limited.apply(&set_max_ttl("s", "c", None)).expect("the collection exists");
    assert_eq!(cleared.scopes(), manifest.scopes());
    assert_eq!(cleared.uid(), ManifestUid(4));
}

#[test]
fn limits_hold() {
    let mut manifest = BucketManifest::initial();
    for number in 1..COLLECTIONS_MAX {
        manifest = manifest.apply(&create_collection("_default", &format!("c{number}"))).unwrap();
    }
    let one_more = create_collection("_default", "more");
    assert_eq!(manifest.apply(&one_more), Err(ManifestError::TooMany));
    for number in 1..SCOPES_MAX {
        manifest = manifest.apply(&create_scope(&format!("s{number}"))).unwrap();
    }
    assert_eq!(manifest.apply(&create_scope("more")), Err(ManifestError::TooMany));
    assert_eq!(BucketManifest::from_stored_json(&manifest.to_stored_json()), Ok(manifest));
}

#[test]
fn the_last_id_does_not_wrap() {
    let text = BucketManifest::initial().to_stored_json();
    let text = text.replace(r#""nextCollectionUid":"8""#, r#""nextCollectionUid":"ffffffff""#);
    let manifest = BucketManifest::from_stored_json(&text).expect("a high counter is valid");
    let change = create_collection("_default", "c");
    assert_eq!(manifest.apply(&change), Err(ManifestError::TooMany));
}

#[test]
fn manifests_that_break_an_invariant_are_corrupt() {
    let default_scope =
        r#"{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]}"#;
    let with = |scopes: &str| format!(r#"{{"uid":"1","scopes":[{scopes}]}}"#);
    let good = with(&format!(r#"{default_scope},{{"name":"s","uid":"8","collections":[]}}"#));
    assert!(BucketManifest::from_json(&good).is_ok());
    let scope = |name: &str, uid: &str, collections: &str| {
        format!(
            r#"{default_scope},{{"name":"{name}","uid":"{uid}","collections":[{collections}]}}"#
        )
    };
    let bad = [
        with(""),
        with(r#"{"name":"_default","uid":"0","collections":[]}"#),
        with(&scope("s", "7", "")),
        with(&scope("s", "0", "")),
        with(&scope("s", "+8", "")),
        with(&scope("s", "0x8", "")),
        with(&scope("s", "", "")),
        with(&scope("s", "100000008", "")),
        with(&scope("_s", "8", "")),
        with(&scope("_default", "8", "")),
        with(&scope("s", "8", r#"{"name":"_default","uid":"0"}"#)),
        with(&scope("s", "8", r#"{"name":"c","uid":"8"},{"name":"c","uid":"9"}"#)),
        with(&scope("s", "8", r#"{"name":"c","uid":"8"},{"name":"d","uid":"8"}"#)),
        with(&scope("s", "8", r#"{"name":"c","uid":"8","history":true}"#)),
        with(&scope("s", "8", r#"{"name":"c","uid":"8","maxTTL":-1}"#)),
        good.replace(r#""uid":"1""#, r#""uid":"11111111111111111""#),
        good.replace(r#""uid":"1""#, r#""uid":1"#),
        format!("{good}x"),
        BucketManifest::initial().to_stored_json(),
    ];
    for text in bad {
        let outcome = BucketManifest::from_json(&text);
        assert!(matches!(outcome, Err(ManifestError::Corrupt(_))), "{text}: {outcome:?}");
    }
    let behind = applied(&[create_collection("_default", "c")]).to_stored_json();
    let behind = behind.replace(r#""nextCollectionUid":"9""#, r#""nextCollectionUid":"8""#);
    assert!(matches!(BucketManifest::from_stored_json(&behind), Err(ManifestError::Corrupt(_))));
    let without_counters = BucketManifest::from_stored_json(&BucketManifest::initial().to_json());
    assert!(matches!(without_counters, Err(ManifestError::Corrupt(_))));
}

/// Few names, so that changes meet each other.
fn any_change() -> impl Strategy<Value = ManifestChange> {
    let name = prop::sample::select(vec!["_default", "a", "b", "c", "_x", ""]);
    (0..5u8, name.clone(), name, prop::option::of(any::<u32>())).prop_map(
        |(kind, scope, name, max_ttl_s)| match kind {
            0 => create_scope(scope),
            1 => drop_scope(scope),
            2 => create_collection(scope, name),
            3 => drop_collection(scope, name),
            _ => set_max_ttl(scope, name, max_ttl_s),
        },
    )
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        prop_assert!(BucketManifest::from_json(&text).is_err());
        prop_assert!(BucketManifest::from_stored_json(&text).is_err());
    }

    /// Damages a valid document: whatever is still accepted must be written back unchanged.
    #[test]
    fn damaged_documents_never_panic(at in 0usize..200, replacement in any::<char>()) {
        let text = applied(&[create_scope("s"), create_collection("s", "c")]).to_stored_json();
        let replaced = text.chars().enumerate().map(|(position, character)| {
            if position == at { replacement } else { character }
        });
        if let Ok(manifest) = BucketManifest::from_stored_json(&replaced.collect::<String>()) {
            let again = BucketManifest::from_stored_json(&manifest.to_stored_json());
            prop_assert_eq!(again, Ok(manifest));
        }
    }

    #[test]
    fn any_history_keeps_the_invariants(changes in prop::collection::vec(any_change(), 0..40)) {
        let mut manifest = BucketManifest::initial();
        let mut given_out = std::collections::HashMap::new();
        for change in changes {
            let Ok(next) = manifest.apply(&change) else { continue };
            prop_assert_eq!(next.uid().0, manifest.uid().0 + 1);
            for scope in next.scopes() {
                for collection in &scope.collections {
                    prop_assert!(next.contains(collection.id));
                    prop_assert_eq!(next.collection(collection.id), Some(collection));
                    prop_assert_eq!(
                        next.collection_id(&scope.name, &collection.name), Ok(collection.id)
                    );
                    let path = (scope.id, collection.name.clone());
                    let first = given_out.entry(collection.id).or_insert_with(|| path.clone());
                    prop_assert_eq!(&*first, &path, "the id named something else before");
                }
            }
            prop_assert!(next.contains(CollectionId::DEFAULT));
            let restarted = BucketManifest::from_stored_json(&next.to_stored_json());
            prop_assert_eq!(restarted.as_ref(), Ok(&next));
            prop_assert!(BucketManifest::from_json(&next.to_json()).is_ok());
            manifest = next;
        }
    }
}
