//! Nodes that agree on their users through an agreement in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oribi_storage::SharedMemoryStore;
use oribi_testkit::{PATIENCE, poll_until};
use parking_lot::Mutex;

use super::{Node, bucket_config};
use crate::agreement::memory::{LostAnswer, MemoryAgreement};
use crate::secret::ClusterSecret;
use crate::users::{ClusterUsers, UsersChangeError, UsersFailure};

/// The users of a node: names with roles.
#[derive(Default)]
struct MemoryUsers {
    state: Mutex<UsersState>,
    generation: AtomicU64,
}

#[derive(Default)]
struct UsersState {
    users: BTreeMap<String, String>,
    /// Changes that the cluster does not have yet.
    changed: BTreeMap<String, String>,
}

fn parsed(text: Option<&[u8]>) -> BTreeMap<String, String> {
    text.map_or_else(BTreeMap::new, |text| serde_json::from_slice(text).unwrap())
}

fn text(users: &BTreeMap<String, String>) -> Vec<u8> {
    serde_json::to_vec(users).unwrap()
}

impl ClusterUsers for MemoryUsers {
    fn follow(
        &self,
        cluster: &str,
        agreed: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, UsersFailure> {
        assert_eq!(cluster.len(), 32, "a uuid");
        let mut state = self.state.lock();
        let before = parsed(agreed);
        let mut merged = before.clone();
        merged.extend(state.changed.clone());
        if merged != before {
            return Ok(Some(text(&merged)));
        }
        state.changed.clear();
        if state.users != merged {
            state.users = merged;
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        Ok(None)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }
}

impl MemoryUsers {
    /// A change that was made in the file.
    fn set_in_file(&self, name: &str, role: &str) {
        self.state.lock().changed.insert(name.to_owned(), role.to_owned());
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    fn names(&self) -> Vec<String> {
        self.state.lock().users.keys().cloned().collect()
    }
}

fn start(agreement: &Arc<MemoryAgreement>, name: &str) -> (Node, Arc<MemoryUsers>) {
    let secret = Some(ClusterSecret::of_test());
    start_with(agreement, name, secret)
}

fn start_with(
    agreement: &Arc<MemoryAgreement>,
    name: &str,
    secret: Option<ClusterSecret>,
) -> (Node, Arc<MemoryUsers>) {
    let users: Arc<MemoryUsers> = Arc::default();
    let store = Arc::new(SharedMemoryStore::on(Arc::default()));
    let (shared, bucket) = (Some(Arc::clone(&users) as Arc<_>), (bucket_config(), store));
    let node = Node::start_with_users(agreement.clone(), (name, secret), bucket, shared);
    (node, users)
}

fn agreement() -> Arc<MemoryAgreement> {
    MemoryAgreement::new(Box::new(|| Duration::ZERO))
}

fn set(node: &Node, name: &str) -> Result<(), UsersChangeError<()>> {
    node.cluster.change_users(&mut |agreed| {
        let mut users = parsed(agreed);
        users.insert(name.to_owned(), "admin".to_owned());
        Ok(Some(text(&users)))
    })
}

/// Waits until a node has joined, and makes a change there.
fn set_when_joined(node: &Node, name: &str) {
    let is_set = || match set(node, name) {
        Ok(()) => Some(()),
        Err(UsersChangeError::NotJoined) => None,
        Err(error) => panic!("{error}"),
    };
    poll_until(PATIENCE, is_set).expect("the node joins");
}

#[track_caller]
fn wait_for(users: &MemoryUsers, names: &[&str]) {
    let found = poll_until(PATIENCE, || (users.names() == names).then_some(()));
    assert!(found.is_some(), "{:?} stay instead of {names:?}", users.names());
}

#[test]
fn concurrent_changes_of_two_nodes_are_all_kept() {
    let agreement = agreement();
    let ((one, of_one), (two, of_two)) = (start(&agreement, "one"), start(&agreement, "two"));
    of_one.set_in_file("a", "admin");
    one.cluster.wake();
    wait_for(&of_one, &["a"]);
    wait_for(&of_two, &["a"]);
    std::thread::scope(|scope| {
        for (node, half) in [(&one, 0), (&two, 1), (&one, 2), (&two, 3)] {
            scope.spawn(move || {
                for number in 0..8 {
                    set_when_joined(node, &format!("b-{half}-{number}"));
                }
            });
        }
    });
    let mut names: Vec<String> =
        (0..4).flat_map(|half| (0..8).map(move |number| format!("b-{half}-{number}"))).collect();
    names.insert(0, "a".to_owned());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    wait_for(&of_one, &names);
    wait_for(&of_two, &names);
}

#[test]
fn a_change_is_here_when_it_is_answered() {
    let agreement = agreement();
    let (one, users) = start(&agreement, "one");
    for number in 0..20 {
        let name = format!("u{number:02}");
        set_when_joined(&one, &name);
        assert!(users.names().contains(&name), "{name}");
    }
    // A change that fails leaves everything as it was.
    let rejected = one.cluster.change_users(&mut |_| Err("no"));
    assert!(matches!(rejected, Err(UsersChangeError::Rejected("no"))));
    assert_eq!(users.names().len(), 20);
}

#[test]
fn users_stay_while_the_agreement_is_away() {
    let agreement = agreement();
    let (one, users) = start(&agreement, "one");
    set_when_joined(&one, "a");
    agreement.set_away(true);
    assert!(matches!(set(&one, "b"), Err(UsersChangeError::Agreement(_))));
    assert_eq!(users.names(), ["a"]);
    users.set_in_file("c", "admin");
    agreement.set_away(false);
    one.cluster.wake();
    wait_for(&users, &["a", "c"]);
}

#[test]
fn a_change_with_a_lost_answer_comes_later() {
    let agreement = agreement();
    let (one, users) = start(&agreement, "one");
    set_when_joined(&one, "a");
    let is_lost = || {
        agreement.lose_answer(LostAnswer::Applied);
        set(&one, "b").is_err().then_some(())
    };
    // The agent's transaction may be the one whose answer is lost.
    poll_until(PATIENCE, is_lost).expect("an answer is lost");
    one.cluster.wake();
    wait_for(&users, &["a", "b"]);
}

#[test]
fn a_node_that_is_not_trusted_shares_no_users() {
    let agreement = agreement();
    let (one, of_one) = start(&agreement, "one");
    set_when_joined(&one, "a");
    let (plain, of_plain) = start_with(&agreement, "plain", None);
    let (foreign, of_foreign) =
        start_with(&agreement, "foreign", Some(ClusterSecret::of_another_cluster()));
    set_when_joined(&one, "b");
    wait_for(&of_one, &["a", "b"]);
    for (node, users) in [(&plain, &of_plain), (&foreign, &of_foreign)] {
        node.cluster.refresh_users();
        assert!(matches!(set(node, "c"), Err(UsersChangeError::NotJoined)));
        assert!(users.names().is_empty());
    }
}
