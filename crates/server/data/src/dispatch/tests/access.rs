//! Rights in scopes and collections as a client sees them, and changes of users while they are
//! connected.

use std::path::Path;
use std::sync::Arc;

use oribi_auth::{Access, Identity, StoredUser, UserFile, UserStore};
use oribi_engine::collections::ManifestChange;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;
use oribi_types::CollectionId;

use super::{Client, HandlerReply, SET_EXTRAS, bytes, replies};
use crate::connection::close_reason::CloseReason;
use crate::harness::ConnectionHarness;

/// A client that reads and writes `shop.orders`, reads `shop.hotels`, and may not know of
/// `secret.plans`.
fn client() -> Client {
    client_with(&["read-write:default/shop/orders", "read-only:default/shop/hotels"])
}

fn client_with(roles: &[&str]) -> Client {
    let mut client = Client { harness: ConnectionHarness::new() };
    let bucket = client.harness.bucket().bucket();
    for (scope, name) in [("shop", "orders"), ("shop", "hotels"), ("secret", "plans")] {
        let (scope, name) = (scope.to_owned(), name.to_owned());
        let _ = bucket.update_manifest(&ManifestChange::CreateScope { name: scope.clone() });
        let change = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
        bucket.update_manifest(&change).unwrap();
    }
    client.hello(&[4, 6, 7, 8, 0x0b, 0x12]);
    client.log_in(roles);
    client
}

impl Client {
    /// Logs in as a user with these roles, and selects the bucket.
    fn log_in(&mut self, roles: &[&str]) {
        let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
        let identity = Identity {
            name: "ann".to_owned(),
            access: Access::new(roles),
            bucket: None,
            collection: None,
        };
        self.harness.log_in(Arc::new(identity));
        let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
        assert_eq!(self.ask(&select).status, Status::Success);
    }
}

fn id(client: &Client, scope: &str, name: &str) -> CollectionId {
    client.harness.bucket().bucket().manifest().collection_id(scope, name).unwrap()
}

/// A request about document `k` of a collection with an id below 128, in vbucket 0.
fn about(
    client: &mut Client,
    opcode: Opcode,
    id: CollectionId,
    extras: &[u8],
    value: &[u8],
) -> HandlerReply {
    let key = [id.0 as u8, b'k'];
    client.ask(&RequestParts { key: &key, extras, value, ..RequestParts::new(opcode) })
}

#[test]
fn rights_end_where_the_collection_does() {
    let mut client = client();
    let (orders, hotels) = (id(&client, "shop", "orders"), id(&client, "shop", "hotels"));
    assert_eq!(about(&mut client, Opcode::Set, orders, &SET_EXTRAS, b"1").status, Status::Success);
    assert_eq!(about(&mut client, Opcode::Get, orders, b"", b"").status, Status::Success);
    assert_eq!(about(&mut client, Opcode::Get, hotels, b"", b"").status, Status::KeyEnoent);
    let refused = about(&mut client, Opcode::Set, hotels, &SET_EXTRAS, b"1");
    assert_eq!((refused.status, refused.datatype), (Status::Eaccess, 1));
    let body: serde_json::Value = serde_json::from_slice(&refused.value).unwrap();
    assert_eq!(body["error"]["context"], "needs the privilege Upsert");
    assert_eq!(body["error"]["ref"].as_str().unwrap().len(), 36);
}

// Invariant: A collection without rights for a user answers like one that does not exist.
#[test]
fn a_collection_without_rights_looks_unknown() {
    let mut client = client();
    let plans = id(&client, "secret", "plans");
    let missing = CollectionId(100);
    for (opcode, extras) in
        [(Opcode::Get, &b""[..]), (Opcode::Set, &SET_EXTRAS), (Opcode::Delete, b"")]
    {
        let hidden = about(&mut client, opcode, plans, extras, b"");
        assert_eq!(hidden.status, Status::UnknownCollection);
        assert_eq!(hidden, about(&mut client, opcode, missing, extras, b""));
        assert_eq!(hidden, about(&mut client, opcode, CollectionId::DEFAULT, extras, b""));
    }
    let mut look_up = |opcode, path: &str| {
        client.ask(&RequestParts { value: path.as_bytes(), ..RequestParts::new(opcode) })
    };
    assert_eq!(look_up(Opcode::CollectionsGetId, "shop.orders").status, Status::Success);
    assert_eq!(look_up(Opcode::CollectionsGetScopeId, "shop").status, Status::Success);
    for (hidden, missing) in [("secret.plans", "none.plans"), ("_default._default", "none.none")] {
        let hidden = look_up(Opcode::CollectionsGetId, hidden);
        assert_eq!(hidden.status, Status::UnknownScope);
        assert_eq!(hidden, look_up(Opcode::CollectionsGetId, missing));
    }
    assert_eq!(look_up(Opcode::CollectionsGetScopeId, "secret").status, Status::UnknownScope);
    let manifest = client.ask(&RequestParts::new(Opcode::CollectionsGetManifest)).value;
    let manifest = String::from_utf8(manifest).unwrap();
    assert!(manifest.contains("hotels") && !manifest.contains("secret"), "{manifest}");
    assert!(!manifest.contains("_default"), "{manifest}");
}

#[test]
fn bucket_rights_distinguish_missing_collections() {
    let mut client = client_with(&["read-only:default"]);
    let plans = id(&client, "secret", "plans");
    let set = |client: &mut Client, id| about(client, Opcode::Set, id, &SET_EXTRAS, b"1").status;
    assert_eq!(set(&mut client, plans), Status::Eaccess);
    assert_eq!(set(&mut client, CollectionId(100)), Status::UnknownCollection);
}

#[test]
fn rights_follow_collections_that_come_and_go() {
    let mut client = client_with(&["read-write:default/late/one"]);
    let bucket = Arc::clone(client.harness.bucket());
    let bucket = bucket.bucket();
    bucket.update_manifest(&ManifestChange::CreateScope { name: "late".to_owned() }).unwrap();
    let (scope, name) = ("late".to_owned(), "one".to_owned());
    let create = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
    bucket.update_manifest(&create).unwrap();
    let one = id(&client, "late", "one");
    assert_eq!(about(&mut client, Opcode::Set, one, &SET_EXTRAS, b"1").status, Status::Success);
    bucket.update_manifest(&ManifestChange::DropScope { name: "late".to_owned() }).unwrap();
    let gone = about(&mut client, Opcode::Get, one, b"", b"");
    assert_eq!(gone.status, Status::UnknownCollection);
}

/// Statistics by name; the status when refused.
fn group(client: &mut Client, group: &str) -> Result<String, Status> {
    let parts = RequestParts { key: group.as_bytes(), ..RequestParts::new(Opcode::Stat) };
    let replies = client.send(&parts);
    match replies[0].status {
        Status::Success => Ok(replies
            .iter()
            .map(|reply| format!("{}={}\n", reply.key.escape_ascii(), reply.value.escape_ascii()))
            .collect()),
        status => Err(status),
    }
}

#[test]
fn statistics_show_readable_collections_only() {
    let mut client = client();
    for name in ["collections", "scopes", "collections-details", "scopes-details"] {
        let text = group(&mut client, name).unwrap();
        assert!(text.contains("hotels") || text.contains("=shop"), "{name}: {text}");
        assert!(!text.contains("secret") && !text.contains("plans"), "{name}: {text}");
    }
    for name in ["", "vbucket", "hash", "timings", "vbucket-seqno", "reset", "config"] {
        assert_eq!(group(&mut client, name), Err(Status::Eaccess), "{name}");
    }
    assert_eq!(group(&mut client, "collections secret.plans"), Err(Status::UnknownScope));
    let plans = id(&client, "secret", "plans");
    let by_id = format!("collections-byid 0x{:x}", plans.0);
    assert_eq!(group(&mut client, &by_id), Err(Status::UnknownCollection));
    assert_eq!(group(&mut client, "collections-byid 0x0"), Err(Status::UnknownCollection));
    assert_eq!(group(&mut client, "key k 0 shop.orders"), Err(Status::KeyEnoent));
    assert_eq!(group(&mut client, "key k 0 secret.plans"), Err(Status::UnknownScope));
    assert_eq!(group(&mut client, "key k 0"), Err(Status::UnknownCollection));
    let mut writer = client_with(&["insert:default"]);
    assert_eq!(group(&mut writer, "key k 0"), Err(Status::Eaccess));
    assert!(!group(&mut writer, "collections").unwrap().contains("hotels"));
}

/// Extras of a mutation of one path: path length, path flags, and document flags if there are any.
fn path_extras(path: &[u8], flags: u8, doc_flags: u8) -> Vec<u8> {
    let mut extras = vec![0, path.len() as u8, flags];
    extras.extend((doc_flags != 0).then_some(doc_flags));
    extras
}

#[test]
fn sub_documents_need_what_they_do() {
    const CREATE: u8 = 1;
    const XATTR: u8 = 4;
    let mut full = client_with(&["read-write:default/shop/orders"]);
    let orders = id(&full, "shop", "orders");
    let edit = |client: &mut Client, path: &[u8], flags, doc_flags| {
        let value = [path, b"1"].concat();
        let extras = path_extras(path, flags, doc_flags);
        about(client, Opcode::SubdocDictUpsert, orders, &extras, &value).status
    };
    assert_eq!(edit(&mut full, b"a", 0, CREATE), Status::Success);
    assert_eq!(edit(&mut full, b"_s", XATTR, 0), Status::Success);
    let mut upsert = client_with(&["upsert:default/shop/orders"]);
    assert_eq!(edit(&mut upsert, b"a", 0, CREATE), Status::Eaccess, "creates");
    assert_eq!(edit(&mut upsert, b"_s", XATTR, 0), Status::Eaccess, "system attribute");
    assert_eq!(edit(&mut upsert, b"s", XATTR, 0), Status::KeyEnoent);
    let mut read = client_with(&["read:default/shop/orders"]);
    let extras = path_extras(b"_s", XATTR, 0);
    let status = about(&mut read, Opcode::SubdocGet, orders, &extras, b"_s").status;
    assert_eq!(status, Status::Eaccess, "reads a system attribute");
    let counter = [&b"n"[..], b"1"].concat();
    let extras = path_extras(b"n", 0, 0);
    let status = about(&mut upsert, Opcode::SubdocCounter, orders, &extras, &counter).status;
    assert_eq!(status, Status::Eaccess, "a counter tells what it stands at");
    // Deleting the whole document: opcode, flags, lengths of path and value.
    let delete = [Opcode::Delete as u8, 0, 0, 0, 0, 0, 0, 0];
    let status = about(&mut upsert, Opcode::SubdocMultiMutation, orders, b"", &delete).status;
    assert_eq!(status, Status::Eaccess, "deletes");
}

/// Attributes in a random document with two of them, as a user with this role gets it.
fn random_with_attributes(role: &str) -> Result<(u8, Vec<u8>), Status> {
    const CREATE: u8 = 1;
    const XATTR: u8 = 4;
    let mut client = client_with(&["read-write:default", role]);
    let orders = id(&client, "shop", "orders");
    for path in [&b"_s"[..], b"u"] {
        let value = [path, b"1"].concat();
        let extras = path_extras(path, XATTR, CREATE);
        let done = about(&mut client, Opcode::SubdocDictUpsert, orders, &extras, &value);
        assert_eq!(done.status, Status::Success);
    }
    client.log_in(&[role]);
    let extras = [&orders.0.to_be_bytes()[..], &[1]].concat();
    let random = RequestParts { extras: &extras, ..RequestParts::new(Opcode::GetRandomKey) };
    let reply = client.ask(&random);
    match reply.status {
        Status::Success => Ok((reply.datatype, reply.value)),
        status => Err(status),
    }
}

#[test]
fn random_documents_show_system_xattrs_by_rights() {
    let (system, user) = (b"\0\0\0\x05_s\x001\0", b"\0\0\0\x04u\x001\0");
    for (role, sees_system) in [
        ("read-only:default", true),
        ("read-only:default/shop", true),
        ("read:default", false),
        ("read:default/shop/orders", false),
    ] {
        let (datatype, value) = random_with_attributes(role).unwrap();
        let has = |pair: &[u8]| value.windows(pair.len()).any(|part| part == pair);
        assert_eq!((datatype & 4, has(user), has(system)), (4, true, sees_system), "{role}");
    }
    assert_eq!(random_with_attributes("insert:default"), Err(Status::Eaccess));
    let elsewhere = random_with_attributes("read:default/shop/hotels");
    assert_eq!(elsewhere, Err(Status::UnknownCollection));
}

#[test]
fn only_readable_collections_keys_are_listed() {
    let mut client = client_with(&["read-write:default/shop/orders", "insert:default/shop/hotels"]);
    let (orders, hotels) = (id(&client, "shop", "orders"), id(&client, "shop", "hotels"));
    let plans = id(&client, "secret", "plans");
    about(&mut client, Opcode::Set, orders, &SET_EXTRAS, b"1");
    client.harness.bucket().bucket().flush_step().unwrap();
    for (collection, expected) in [
        (orders, Status::Success),
        (hotels, Status::Eaccess),
        (plans, Status::UnknownCollection),
        (CollectionId(100), Status::UnknownCollection),
    ] {
        let reply = about(&mut client, Opcode::GetKeys, collection, b"", b"");
        assert_eq!(reply.status, expected);
    }
}

/// Extras that continue a scan without limits.
fn all_of(id: &[u8]) -> Vec<u8> {
    [id, &[0; 12]].concat()
}

#[test]
fn scans_show_only_readable_documents() {
    let mut client = client_with(&["read-write:default/shop/orders"]);
    let orders = id(&client, "shop", "orders");
    about(&mut client, Opcode::Set, orders, &SET_EXTRAS, b"1");
    client.harness.bucket().bucket().flush_step().unwrap();
    let create = |client: &mut Client, only_keys: bool| {
        let scan = serde_json::json!({
            "collection": format!("{:x}", orders.0), "key_only": only_keys, "range": {}
        });
        let value = scan.to_string();
        let parts = RequestParts {
            datatype: 1,
            value: value.as_bytes(),
            ..RequestParts::new(Opcode::RangeScanCreate)
        };
        client.ask(&parts)
    };
    let documents = create(&mut client, false);
    assert_eq!(documents.status, Status::Success);
    client.log_in(&["range-scan:default/shop/orders"]);
    assert_eq!(create(&mut client, false).status, Status::Eaccess);
    let keys = create(&mut client, true);
    assert_eq!(keys.status, Status::Success);
    let mut proceed = |id: &[u8]| {
        let extras = all_of(id);
        let parts =
            RequestParts { extras: &extras, ..RequestParts::new(Opcode::RangeScanContinue) };
        client.ask(&parts).status
    };
    assert_eq!(proceed(&documents.value), Status::Eaccess, "somebody else's scan");
    assert_eq!(proceed(&keys.value), Status::RangeScanComplete);
}

fn put_user(directory: &Path, roles: &[&str]) {
    let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
    let user = StoredUser::new("ann", b"secret", roles).unwrap();
    UserFile::edit(directory, |file| file.put(user.clone()) | true).unwrap();
}

// Compat (Differences): Users
#[test]
fn role_changes_apply_to_open_connections() {
    let directory = tempfile::tempdir().unwrap();
    put_user(directory.path(), &["read-write:default"]);
    let users = UserStore::open(directory.path()).unwrap();
    let harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    let mut client = Client { harness };
    client.hello(&[7, 8, 0x0b]);
    let (key, value) = (&b"PLAIN"[..], &b"\0ann\0secret"[..]);
    let plain = RequestParts { key, value, ..RequestParts::new(Opcode::SaslAuth) };
    assert_eq!(client.ask(&plain).status, Status::Success);
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select).status, Status::Success);
    assert_eq!(client.set(b"k", b"1").status, Status::Success);

    put_user(directory.path(), &["read-only:default"]);
    assert!(client.harness.advance_ms(1_000).is_empty());
    assert_eq!(client.set(b"k", b"2").status, Status::Eaccess);
    assert_eq!(client.get(b"k").value, b"1");
    put_user(directory.path(), &["read-only:elsewhere"]);
    client.harness.advance_ms(1_000);
    // The user has no rights left there: neither to documents nor to names.
    assert_eq!(client.get(b"k").status, Status::NoBucket);
    let manifest = RequestParts::new(Opcode::CollectionsGetManifest);
    let id_of = RequestParts { value: b"_default", ..RequestParts::new(Opcode::CollectionsGetId) };
    for names in [manifest, id_of, RequestParts::new(Opcode::Stat)] {
        assert_eq!(client.ask(&names).status, Status::NoBucket, "{names:?}");
    }
    assert_eq!(client.ask(&select).status, Status::Eaccess);

    UserFile::edit(directory.path(), |file| file.remove("ann")).unwrap();
    client.harness.advance_ms(1_000);
    assert_eq!(client.harness.close_reason(), Some(CloseReason::UserRemoved));
}

#[test]
fn the_first_user_ends_anonymous_connections() {
    let directory = tempfile::tempdir().unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    let mut harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    let get = bytes(&RequestParts { key: b"k", ..RequestParts::new(Opcode::Get) });
    assert_eq!(replies(&harness.feed(&get))[0].status, Status::KeyEnoent);
    put_user(directory.path(), &["admin"]);
    harness.advance_ms(1_000);
    assert_eq!(harness.close_reason(), Some(CloseReason::UserRemoved));
}
