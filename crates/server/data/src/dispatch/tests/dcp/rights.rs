//! Users who lose the right to follow changes while they follow them.

use std::path::Path;
use std::sync::Arc;

use oribi_auth::{StoredUser, UserFile, UserStore};
use oribi_engine::collections::ManifestChange;
use oribi_storage::MemoryStore;

use super::*;
use crate::connection::close_reason::CloseReason;
use crate::dispatch::tests::about;

fn put_user(directory: &Path, name: &str, roles: &[&str]) {
    let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
    let user = StoredUser::new(name, b"secret", roles).unwrap();
    UserFile::edit(directory, |file| file.put(user) | true).unwrap();
}

fn log_in(harness: ConnectionHarness, user: &str, features: &[u16]) -> Client {
    let mut client = Client { harness };
    client.hello(features);
    let value = format!("\0{user}\0secret");
    let plain = RequestParts {
        key: b"PLAIN",
        value: value.as_bytes(),
        ..RequestParts::new(Opcode::SaslAuth)
    };
    assert_eq!(client.ask(&plain).status, Status::Success);
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select).status, Status::Success);
    client
}

/// A directory of users, a writer, and a consumer of user `ann` with these roles.
fn consumer_with(roles: &[&str]) -> (tempfile::TempDir, Client, Client) {
    let directory = tempfile::tempdir().unwrap();
    put_user(directory.path(), "root", &["admin"]);
    put_user(directory.path(), "ann", roles);
    let users = UserStore::open(directory.path()).unwrap();
    let harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    let writer = log_in(harness, "root", &super::super::MODERN);
    let mut consumer = log_in(writer.harness.beside(), "ann", &CONSUMER);
    assert_eq!(consumer.open_as(NAME, 1).status, Status::Success);
    consumer.choose("enable_noop", "true");
    (directory, writer, consumer)
}

fn told_of(output: &[u8]) -> Vec<(u16, DcpEvent)> {
    let all = received(output);
    all.iter()
        .map(|got| match got {
            ServerFrame::Message { vbid, told, .. } => (*vbid, told.clone()),
            ServerFrame::Answer(reply) => panic!("{reply:?}"),
        })
        .collect()
}

#[test]
fn a_hidden_scope_is_answered_like_a_missing_one() {
    let roles = ["change-streams:default/_default/_default", "change-streams:default/seen/c"];
    let (directory, writer, mut consumer) = consumer_with(&roles[..1]);
    let bucket = writer.harness.bucket().bucket();
    for name in ["hidden", "seen"] {
        bucket.update_manifest(&ManifestChange::CreateScope { name: name.to_owned() }).unwrap();
    }
    let (scope, name) = ("seen".to_owned(), "c".to_owned());
    let change = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
    let manifest = bucket.update_manifest(&change).unwrap();
    let id = |name| manifest.scope_id(name).unwrap().0;
    let ask = |consumer: &mut Client, id: u32| {
        consumer.stream_status(0, &EVERYTHING, &format!(r#"{{"scope":"{id:x}"}}"#))
    };
    for id in [id("hidden"), id("seen"), 0x7777] {
        assert_eq!(ask(&mut consumer, id), Status::UnknownScope, "{id}");
    }
    put_user(directory.path(), "ann", &roles);
    consumer.harness.advance_ms(1_000);
    assert_eq!(ask(&mut consumer, id("hidden")), Status::UnknownScope);
    assert_eq!(ask(&mut consumer, id("seen")), Status::Eaccess, "a right in a part of it");
}

const LOST: DcpEvent = DcpEvent::End(EndReason::LostPrivileges);

// Compat (Change streams): Rights
/// The streams are idle: nothing is written, and still each of them ends.
#[test]
fn a_user_losing_the_right_loses_the_connection() {
    let (directory, _writer, mut consumer) = consumer_with(&["change-streams:default"]);
    for vbid in 0..4 {
        assert_eq!(consumer.stream_status(vbid, &EVERYTHING, ""), Status::Success);
    }
    assert_eq!(consumer.receive(&[]), []);
    put_user(directory.path(), "ann", &["read-only:default"]);
    let told = told_of(&consumer.harness.advance_ms(1_000));
    let expected: Vec<(u16, DcpEvent)> = (0..4).map(|vbid| (vbid, LOST)).collect();
    assert_eq!(told, expected);
    assert_eq!(consumer.harness.close_reason(), Some(CloseReason::RightsLost));
}

/// A consumer that acknowledges nothing cannot be told, and ends all the same.
#[test]
fn a_full_window_does_not_keep_the_connection() {
    let (directory, mut writer, mut consumer) = consumer_with(&["change-streams:default"]);
    consumer.choose("connection_buffer_size", "1");
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    let set =
        RequestParts { vbid: Vbid(0), extras: &[0; 8], value: b"1", ..about(Opcode::Set, b"k") };
    assert_eq!(writer.ask(&set).status, Status::Success);
    assert_eq!(consumer.receive(&[]).len(), 1, "the marker fills the window");
    put_user(directory.path(), "ann", &["read-only:default"]);
    assert_eq!(told_of(&consumer.harness.advance_ms(1_000)), []);
    assert_eq!(consumer.harness.close_reason(), Some(CloseReason::RightsLost));
}

/// A right that is lost in one collection ends the streams that show it, and no others.
#[test]
fn other_streams_of_the_connection_go_on() {
    let (directory, mut writer, mut consumer) =
        consumer_with(&["change-streams:default", "read-only:default"]);
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Success);
    let narrow = r#"{"collections":["0"]}"#;
    assert_eq!(consumer.stream_status(1, &EVERYTHING, narrow), Status::Success);
    put_user(directory.path(), "ann", &["change-streams:default/_default/_default"]);
    assert_eq!(told_of(&consumer.harness.advance_ms(1_000)), [(0, LOST)]);
    assert_eq!(consumer.harness.close_reason(), None);
    let set =
        RequestParts { vbid: Vbid(1), extras: &[0; 8], value: b"1", ..about(Opcode::Set, b"k") };
    assert_eq!(writer.ask(&set).status, Status::Success);
    let told = consumer.messages();
    assert!(matches!(told.last(), Some(DcpEvent::Mutation { .. })), "{told:?}");
    assert_eq!(consumer.stream_status(0, &EVERYTHING, ""), Status::Eaccess);
    assert_eq!(consumer.stream_status(2, &EVERYTHING, narrow), Status::Success);
}
