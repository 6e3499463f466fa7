//! Scopes and collections: made over HTTP, used over the binary protocol, gone when dropped.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::CollectionIdExtras;
use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::{RawConnection, Request};
use oribi_types::{CollectionId, DurabilityLevel};

use crate::fixture::{Fixture, call_when_warm, expect};

const SCOPES: &str = "/pools/default/buckets/default/scopes";

/// Makes scope `app` with collection `users` as the SDKs' managers do.
fn create_users(admin: &HttpClient) {
    let answer = admin.post_form(SCOPES, &[("name", "app")]).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = admin
        .post_form(&format!("{SCOPES}/app/collections"), &[("name", "users"), ("maxTTL", "0")])
        .unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json().unwrap()["uid"].is_string(), "{}", answer.text());
}

fn look_up(connection: &mut RawConnection, path: &str) -> CollectionIdExtras {
    let request = Request::new(Opcode::CollectionsGetId).value(path);
    let response = expect(connection.call(&request).unwrap(), Status::Success);
    CollectionIdExtras::decode(&response.extras).expect("twelve bytes of extras")
}

#[test]
fn a_collection_is_created_used_and_dropped() {
    let fixture = Fixture::start();
    let admin = fixture.admin();
    create_users(&admin);
    let mut connection = fixture.login();
    let users = look_up(&mut connection, "app.users");
    assert!(users.collection >= CollectionId(8), "{users:?}");

    // The same key in two collections is two documents.
    let in_users = Request::set("k", "in users").collection(users.collection);
    expect(connection.call(&in_users).unwrap(), Status::Success);
    expect(connection.call(&Request::get("k")).unwrap(), Status::KeyEnoent);
    expect(connection.call(&Request::set("k", "in default")).unwrap(), Status::Success);
    let get_in_users = Request::get("k").collection(users.collection);
    assert_eq!(connection.call(&get_in_users).unwrap().text(), "in users");
    assert_eq!(connection.call(&Request::get("k")).unwrap().text(), "in default");

    let answer = admin.delete(&format!("{SCOPES}/app/collections/users")).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let gone = expect(connection.call(&get_in_users).unwrap(), Status::UnknownCollection);
    let gone: serde_json::Value = serde_json::from_slice(&gone.value).unwrap();
    let uid = u64::from_str_radix(gone["manifest_uid"].as_str().unwrap(), 16).unwrap();
    assert!(uid > users.manifest_uid.0, "the drop made a newer manifest");
    let look_up = Request::new(Opcode::CollectionsGetId).value("app.users");
    expect(connection.call(&look_up).unwrap(), Status::UnknownCollection);
    let look_up = Request::new(Opcode::CollectionsGetId).value("nowhere.users");
    expect(connection.call(&look_up).unwrap(), Status::UnknownScope);
    assert_eq!(connection.call(&Request::get("k")).unwrap().text(), "in default");
    fixture.finish(&[]);
}

#[test]
fn collections_and_their_documents_survive_a_kill() {
    let mut fixture = Fixture::start();
    create_users(&fixture.admin());
    let mut connection = fixture.login();
    let users = look_up(&mut connection, "app.users");
    let set = Request::set("k", "v")
        .collection(users.collection)
        .durable(DurabilityLevel::PersistToMajority);
    expect(connection.call(&set).unwrap(), Status::Success);
    fixture.server.kill().unwrap();
    fixture.server.restart().unwrap();

    let mut connection = fixture.login();
    assert_eq!(look_up(&mut connection, "app.users"), users);
    let get = Request::get("k").collection(users.collection);
    assert_eq!(expect(call_when_warm(&mut connection, &get), Status::Success).text(), "v");
    fixture.finish(&[]);
}

#[test]
fn a_collection_made_again_is_empty_and_has_a_new_id() {
    let mut fixture = Fixture::start();
    create_users(&fixture.admin());
    let mut connection = fixture.login();
    let first = look_up(&mut connection, "app.users");
    let set = Request::set("k", "old").collection(first.collection);
    expect(connection.call(&set).unwrap(), Status::Success);
    let collection = format!("{SCOPES}/app/collections/users");
    assert_eq!(fixture.admin().delete(&collection).unwrap().status, 200);
    // Ids are not reused, not even over a restart.
    fixture.restart();
    let collections = format!("{SCOPES}/app/collections");
    let answer = fixture.admin().post_form(&collections, &[("name", "users")]).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut connection = fixture.login();
    let second = look_up(&mut connection, "app.users");
    assert!(second.collection > first.collection, "{first:?} {second:?}");
    let get = Request::get("k").collection(second.collection);
    expect(call_when_warm(&mut connection, &get), Status::KeyEnoent);
    let get = Request::get("k").collection(first.collection);
    expect(call_when_warm(&mut connection, &get), Status::UnknownCollection);
    fixture.finish(&[]);
}

#[test]
fn the_manifest_is_the_same_over_both_interfaces() {
    let fixture = Fixture::start();
    let admin = fixture.admin();
    create_users(&admin);
    let mut connection = fixture.login();
    let request = Request::new(Opcode::CollectionsGetManifest);
    let response = expect(connection.call(&request).unwrap(), Status::Success);
    let binary: serde_json::Value = serde_json::from_slice(&response.value).unwrap();
    let http = admin.get(SCOPES).unwrap().json().unwrap();
    assert_eq!(binary["uid"], http["uid"]);
    let names = |manifest: &serde_json::Value| -> Vec<String> {
        let mut names = Vec::new();
        for scope in manifest["scopes"].as_array().unwrap() {
            for collection in scope["collections"].as_array().unwrap() {
                names.push(format!("{} {}", scope["name"], collection["name"]));
            }
        }
        names.sort();
        names
    };
    assert_eq!(names(&binary), names(&http));
    assert!(names(&binary).contains(&"\"app\" \"users\"".to_owned()), "{binary}");
    fixture.finish(&[]);
}

#[test]
fn impossible_changes_are_refused() {
    let fixture = Fixture::start();
    let admin = fixture.admin();
    create_users(&admin);
    let collections = format!("{SCOPES}/app/collections");
    let refused = |answer: oribi_testkit::http::HttpResponse| {
        assert!((400..500).contains(&answer.status), "{} {}", answer.status, answer.text());
    };
    refused(admin.post_form(SCOPES, &[("name", "app")]).unwrap());
    refused(admin.post_form(&collections, &[("name", "users")]).unwrap());
    refused(admin.post_form(&collections, &[("name", "_reserved")]).unwrap());
    refused(admin.post_form(&collections, &[("name", "a b")]).unwrap());
    refused(admin.post_form(&collections, &[]).unwrap());
    refused(admin.post_form(&format!("{SCOPES}/nowhere/collections"), &[("name", "x")]).unwrap());
    refused(admin.delete(&format!("{SCOPES}/_default")).unwrap());
    refused(admin.delete(&format!("{SCOPES}/nowhere")).unwrap());
    refused(admin.delete(&format!("{collections}/nowhere")).unwrap());
    refused(admin.get("/pools/default/buckets/nowhere/scopes").unwrap());
    fixture.finish(&[]);
}
