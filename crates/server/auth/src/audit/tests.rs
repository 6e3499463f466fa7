//! The content of the file, its rotation, and the behaviour under overload.

use super::*;

fn options(directory: &Path, file_bytes_max: u64, files_max: usize) -> AuditOptions {
    let path = directory.join("audit.log");
    let file_age_max = Duration::from_secs(1_000);
    AuditOptions { path, file_bytes_max, file_age_max, files_max }
}

/// The lines that `record` causes.
pub(super) fn written(record: impl FnOnce(&AuditLog)) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), 1 << 20, 2);
    let (log, thread) = AuditLog::start(options.clone()).unwrap();
    record(&log);
    thread.stop();
    lines(&options.path)
}

fn actor(user: &str) -> Actor {
    let peer = Some("127.0.0.1:5".parse().unwrap());
    Actor { user: user.to_owned(), connection: Some(4), peer }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_are_lines_with_the_users_name_marked() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), 1 << 20, 2);
    let (log, thread) = AuditLog::start(options.clone()).unwrap();
    log.record(actor("an\"n\n"), Event::Authenticated);
    let (request, context) = ("SET".to_owned(), "needs the privilege Upsert".to_owned());
    log.record(actor("ann"), Event::Refused { request, context });
    log.record(Actor::default(), Event::Stopping);
    log.note_users(1);
    log.note_users(1);
    thread.stop();
    let lines = lines(&options.path);
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    let expected = ["authentication succeeded", "access refused", "server stops", "users changed"];
    assert_eq!(events, expected);
    assert_eq!(lines[0]["user"], "<ud>an\\\"n\\n</ud>");
    assert_eq!((&lines[0]["connection"], &lines[0]["peer"]), (&json!(4), &json!("127.0.0.1:5")));
    assert_eq!(lines[1]["context"], "needs the privilege Upsert");
    assert!(lines[2].get("user").is_none());
    assert_eq!(log.dropped(), 0);
}

#[test]
fn files_are_rotated_by_size_and_the_oldest_go() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = AuditFile::open(options(directory.path(), 10, 2)).unwrap();
    for line in ["one\n", "two\n", "three-is-longer-than-a-file\n", "four\n", "five\n"] {
        file.append(line.as_bytes()).unwrap();
    }
    let path = &file.options.path;
    let read = |number| fs::read_to_string(numbered(path, number)).unwrap();
    assert_eq!(read(0), "four\nfive\n");
    assert_eq!(read(1), "three-is-longer-than-a-file\n");
    assert_eq!(read(2), "one\ntwo\n");
    file.append(b"six is new\n").unwrap();
    assert_eq!(fs::read_to_string(numbered(&file.options.path, 1)).unwrap(), "four\nfive\n");
    assert!(!numbered(&file.options.path, 3).exists());
}

#[test]
fn files_are_rotated_by_age() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = AuditFile::open(options(directory.path(), 1 << 20, 1)).unwrap();
    file.append(b"old\n").unwrap();
    file.since -= Duration::from_secs(1_001);
    file.append(b"new\n").unwrap();
    assert_eq!(fs::read_to_string(&file.options.path).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(numbered(&file.options.path, 1)).unwrap(), "old\n");
}

#[test]
fn a_full_queue_drops_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path(), 1 << 20, 1);
    let (sender, receiver) = sync_channel(2);
    let log = AuditLog { sender: Some(sender.clone()), ..AuditLog::default() };
    for _ in 0..5 {
        log.record(Actor::default(), Event::Stopping);
    }
    assert_eq!(log.dropped(), 3);
    let file = AuditFile::open(options.clone()).unwrap();
    // Makes space for the stop message after the two events that fitted.
    let telling = std::thread::spawn(move || sender.send(Message::Stop).is_ok());
    write_all(file, &receiver, &log.dropped);
    assert!(telling.join().unwrap());
    let lines = lines(&options.path);
    assert_eq!((&lines[0]["event"], &lines[0]["count"]), (&json!("events lost"), &json!(3)));
    assert_eq!(lines.len(), 3);
}

#[test]
fn without_a_file_nothing_happens() {
    let log = AuditLog::default();
    log.record(actor("ann"), Event::Authenticated);
    assert!(!log.is_on() && log.dropped() == 0);
}
