//! Collections: manifest, ids by name, prefixed keys.

use oribi_engine::collections::ManifestChange;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::response::CollectionIdExtras;
use oribi_protocol::status::Status;

use super::{Client, SET_EXTRAS};

fn client() -> Client {
    Client::with_features(&[4, 7, 8, 0x0b, 0x12])
}

fn create(client: &Client, scope: &str, name: &str) {
    let bucket = client.harness.bucket().bucket();
    let _ = bucket.update_manifest(&ManifestChange::CreateScope { name: scope.to_owned() });
    let change = ManifestChange::CreateCollection {
        scope: scope.to_owned(),
        name: name.to_owned(),
        max_ttl_s: None,
    };
    bucket.update_manifest(&change).unwrap();
}

/// The answer about a scope or collection that is not in the manifest.
fn unknown(what: &str, uid: oribi_types::ManifestUid) -> String {
    let context = format!("unknown {what}, or no right in it");
    format!("{{\"error\":{{\"context\":\"{context}\"}},\"manifest_uid\":\"{uid}\"}}")
}

fn look_up(client: &mut Client, path: &str) -> super::HandlerReply {
    let value = path.as_bytes();
    client.ask(&RequestParts { value, ..RequestParts::new(Opcode::CollectionsGetId) })
}

#[test]
fn collections_need_no_xerror_for_their_statuses() {
    let mut client = Client::with_features(&[8, 0x12]);
    let unknown = RequestParts { key: &[100, b'k'], ..RequestParts::new(Opcode::Get) };
    assert_eq!(client.ask(&unknown).status, Status::UnknownCollection);
    assert_eq!(look_up(&mut client, "none.none").status, Status::UnknownScope);
    assert_eq!(look_up(&mut client, "_default.none").status, Status::UnknownCollection);
}

// Compat (Key-value): GET_COLLECTIONS_MANIFEST, GET_COLLECTION_ID, GET_SCOPE_ID
#[test]
fn manifest_names_everything() {
    let mut client = client();
    create(&client, "inventory", "hotels");
    let reply = client.ask(&RequestParts::new(Opcode::CollectionsGetManifest));
    assert_eq!(reply.datatype, 1);
    let text = String::from_utf8(reply.value).unwrap();
    assert!(text.contains("\"hotels\"") && text.contains("\"_default\""), "{text}");
}

// Compat (Key-value): GET_COLLECTIONS_MANIFEST, GET_COLLECTION_ID, GET_SCOPE_ID
#[test]
fn ids_by_name() {
    let mut client = client();
    create(&client, "inventory", "hotels");
    let uid = client.harness.bucket().bucket().manifest().uid();
    let hotels = CollectionIdExtras::decode(&look_up(&mut client, "inventory.hotels").extras);
    let hotels = hotels.expect("exactly twelve bytes");
    assert!(hotels.collection.0 >= 8);
    assert_eq!(hotels.manifest_uid, uid);
    for path in ["_default._default", ".", "._default", "_default."] {
        let found = CollectionIdExtras::decode(&look_up(&mut client, path).extras).unwrap();
        assert_eq!(found.collection.0, 0, "{path}");
    }
    let in_key =
        RequestParts { key: b"inventory.hotels", ..RequestParts::new(Opcode::CollectionsGetId) };
    assert_eq!(client.ask(&in_key).status, Status::Success);
    for (path, status, what) in [
        ("inventory.none", Status::UnknownCollection, "collection"),
        ("none.hotels", Status::UnknownScope, "scope"),
    ] {
        let reply = look_up(&mut client, path);
        assert_eq!((reply.status, reply.datatype), (status, 1));
        assert_eq!(String::from_utf8(reply.value).unwrap(), unknown(what, uid));
    }
    // The dot is required, as in the reference server.
    for path in ["zz", "", "_default", "hotels"] {
        assert_eq!(look_up(&mut client, path).status, Status::Einval, "{path}");
    }
    assert_eq!(look_up(&mut client, "a.b.c").status, Status::Einval);
    assert_eq!(look_up(&mut client, "inv entory.x").status, Status::Einval);
}

// Compat (Key-value): GET_COLLECTIONS_MANIFEST, GET_COLLECTION_ID, GET_SCOPE_ID
#[test]
fn scope_ids() {
    let mut client = client();
    create(&client, "inventory", "hotels");
    for (name, status) in [
        ("inventory", Status::Success),
        ("inventory.hotels", Status::Success),
        ("_default", Status::Success),
        ("none", Status::UnknownScope),
    ] {
        let value = name.as_bytes();
        let parts = RequestParts { value, ..RequestParts::new(Opcode::CollectionsGetScopeId) };
        let reply = client.ask(&parts);
        assert_eq!(reply.status, status, "{name}");
        assert_eq!(reply.extras.len(), if status == Status::Success { 12 } else { 0 });
    }
}

#[test]
fn same_key_in_two_collections_and_prefix_in_answers() {
    let mut client = client();
    create(&client, "inventory", "hotels");
    let id = CollectionIdExtras::decode(&look_up(&mut client, "inventory.hotels").extras).unwrap();
    let named = [&[id.collection.0 as u8][..], b"k"].concat();
    for (key, value) in [(&b"\0k"[..], b"1"), (&named[..], b"2")] {
        let parts =
            RequestParts { key, value, extras: &SET_EXTRAS, ..RequestParts::new(Opcode::Set) };
        assert_eq!(client.ask(&parts).status, Status::Success);
    }
    let reply = client.ask(&RequestParts { key: &named, ..RequestParts::new(Opcode::Getk) });
    assert_eq!((reply.value.as_slice(), reply.key.as_slice()), (&b"2"[..], &named[..]));
    let reply = client.ask(&RequestParts { key: b"\0k", ..RequestParts::new(Opcode::Get) });
    assert_eq!(reply.value, b"1");
}

#[test]
fn dropped_collection_is_unknown() {
    let mut client = client();
    create(&client, "inventory", "hotels");
    let id = CollectionIdExtras::decode(&look_up(&mut client, "inventory.hotels").extras).unwrap();
    let change =
        ManifestChange::DropCollection { scope: "inventory".into(), name: "hotels".into() };
    let manifest = client.harness.bucket().bucket().update_manifest(&change).unwrap();
    let key = [id.collection.0 as u8, b'k'];
    let reply = client.ask(&RequestParts { key: &key, ..RequestParts::new(Opcode::Get) });
    assert_eq!((reply.status, reply.datatype), (Status::UnknownCollection, 1));
    assert_eq!(String::from_utf8(reply.value).unwrap(), unknown("collection", manifest.uid()));
}
