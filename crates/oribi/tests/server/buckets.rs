//! Buckets: made, listed and deleted over HTTP, and separate from each other.

use oribi_protocol::feature::Feature;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, RawConnection, Request, poll_until};

use crate::fixture::{Fixture, call_when_warm, expect};

const BUCKETS: &str = "/pools/default/buckets";

/// An authenticated connection without a bucket.
fn authenticated(fixture: &Fixture) -> RawConnection {
    let mut connection = RawConnection::connect(fixture.server.port()).unwrap();
    let features = [Feature::SelectBucket, Feature::XError, Feature::Json, Feature::MutationSeqno];
    connection.hello(&features).unwrap();
    let status = connection.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD).unwrap();
    assert_eq!(status, Status::Success);
    connection
}

fn names(fixture: &Fixture) -> Vec<String> {
    let list = fixture.admin().get(BUCKETS).unwrap().json().unwrap();
    let names = list.as_array().unwrap().iter().map(|bucket| bucket["name"].as_str().unwrap());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

fn create(fixture: &Fixture, name: &str) -> u16 {
    let fields = [("name", name), ("ramQuotaMB", "128"), ("bucketType", "couchbase")];
    fixture.admin().post_form(BUCKETS, &fields).unwrap().status
}

#[test]
fn a_bucket_is_created_used_and_deleted() {
    let mut fixture = Fixture::start();
    assert_eq!(names(&fixture), ["default"]);
    assert_eq!(create(&fixture, "second"), 202);
    assert_eq!(names(&fixture), ["default", "second"]);

    let mut connection = authenticated(&fixture);
    assert_eq!(connection.select_bucket("second").unwrap(), Status::Success);
    expect(call_when_warm(&mut connection, &Request::set("k", "in second")), Status::Success);
    let mut other = fixture.login();
    expect(other.call(&Request::get("k")).unwrap(), Status::KeyEnoent);

    fixture.restart();
    assert_eq!(names(&fixture), ["default", "second"]);
    let mut connection = authenticated(&fixture);
    assert_eq!(connection.select_bucket("second").unwrap(), Status::Success);
    let got = call_when_warm(&mut connection, &Request::get("k"));
    assert_eq!(expect(got, Status::Success).text(), "in second");

    let answer = fixture.admin().delete(&format!("{BUCKETS}/second")).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(names(&fixture), ["default"]);
    assert!(!fixture.server.data_dir().join("buckets/second").exists());
    let mut late = authenticated(&fixture);
    assert_ne!(late.select_bucket("second").unwrap(), Status::Success);
    fixture.finish(&[]);
}

#[test]
fn a_deleted_bucket_ends_for_its_connections() {
    let fixture = Fixture::start();
    assert_eq!(create(&fixture, "second"), 202);
    let mut connection = authenticated(&fixture);
    assert_eq!(connection.select_bucket("second").unwrap(), Status::Success);
    expect(call_when_warm(&mut connection, &Request::set("k", "v")), Status::Success);
    assert_eq!(fixture.admin().delete(&format!("{BUCKETS}/second")).unwrap().status, 200);
    // Either the connection is closed or the bucket is refused; no document is served for long.
    poll_until(PATIENCE, || match connection.call(&Request::get("k")) {
        Err(_) => Some(()),
        Ok(response) => (response.status() != Status::Success).then_some(()),
    })
    .expect("the bucket stops serving");
    fixture.finish(&[]);
}

#[test]
fn configured_buckets_exist_from_the_start() {
    let fixture = Fixture::start_with(|options| options.setting("buckets", "default,orders"));
    assert_eq!(names(&fixture), ["default", "orders"]);
    let mut connection = authenticated(&fixture);
    assert_eq!(connection.select_bucket("orders").unwrap(), Status::Success);
    fixture.finish(&[]);
}

#[test]
fn impossible_buckets_are_refused() {
    let fixture = Fixture::start();
    let admin = fixture.admin();
    for name in ["default", "", "a/b", "..", "a b", "@no bucket@"] {
        let status = create(&fixture, name);
        assert!((400..500).contains(&status), "{name:?}: {status}");
    }
    assert_eq!(admin.get(&format!("{BUCKETS}/nowhere")).unwrap().status, 404);
    assert_eq!(admin.delete(&format!("{BUCKETS}/nowhere")).unwrap().status, 404);
    let mut connection = authenticated(&fixture);
    assert_eq!(connection.select_bucket("nowhere").unwrap(), Status::Eaccess);
    expect(connection.call(&Request::get("k")).unwrap(), Status::NoBucket);
    expect(connection.call(&Request::new(Opcode::Noop)).unwrap(), Status::Success);
    fixture.finish(&[]);
}

// Compat (Admin HTTP): `POST /pools/default/buckets/B/controller/doFlush`
#[test]
fn flush_needs_to_be_allowed() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    expect(connection.call(&Request::set("k", "v")).unwrap(), Status::Success);
    let answer = connection.call(&Request::new(Opcode::Flush)).unwrap();
    assert_ne!(answer.status(), Status::Success, "flush is off by default");
    expect(connection.call(&Request::get("k")).unwrap(), Status::Success);
    fixture.finish(&[]);

    let mut fixture = Fixture::start_with(|options| options.argument("--flush-enabled"));
    let mut connection = fixture.login();
    expect(connection.call(&Request::set("k", "v")).unwrap(), Status::Success);
    expect(connection.call(&Request::new(Opcode::Flush)).unwrap(), Status::Success);
    expect(connection.call(&Request::get("k")).unwrap(), Status::KeyEnoent);
    expect(connection.call(&Request::set("after", "v")).unwrap(), Status::Success);
    fixture.restart();
    let mut connection = fixture.login();
    expect(call_when_warm(&mut connection, &Request::get("k")), Status::KeyEnoent);
    expect(call_when_warm(&mut connection, &Request::get("after")), Status::Success);
    fixture.finish(&[]);
}
