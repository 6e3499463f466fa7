//! Two nodes of a cluster in one process, with an agreement that can be away.

use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::BEFORE_CLUSTER;
use crate::role::Role;
use crate::shared_users::{SharedUsers, SharedUsersChange};
use crate::user_change::UserChange;
use crate::user_change_error::UserChangeError;
use crate::user_file::{StoredUser, UserFile};
use crate::user_store::UserStore;

const CLUSTER: &str = "0123456789abcdef0123456789abcdef";

#[derive(Default)]
struct Etcd {
    users: Mutex<Option<Vec<u8>>>,
    is_away: Mutex<bool>,
}

struct Node {
    directory: TempDir,
    users: Arc<UserStore>,
    etcd: Arc<Etcd>,
}

/// A node's way to the agreement.
struct Member {
    etcd: Arc<Etcd>,
    users: Weak<UserStore>,
}

impl SharedUsers for Member {
    fn change(&self, change: &mut SharedUsersChange<'_>) -> Result<(), UserChangeError> {
        if *self.etcd.is_away.lock() {
            return Err(UserChangeError::Cluster("etcd is away".to_owned()));
        }
        let mut agreed = self.etcd.users.lock();
        if let Some(users) = change(agreed.as_deref())? {
            *agreed = Some(users);
            let here = self.users.upgrade().unwrap();
            assert!(here.follow_cluster(CLUSTER, agreed.as_deref())?.is_none());
        }
        Ok(())
    }

    fn refresh(&self) {}

    fn note_reload(&self) {}
}

impl Node {
    fn with_users(etcd: &Arc<Etcd>, names: &[&str]) -> Node {
        let directory = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| add(directory.path(), name, Role::Admin));
        Node::start(etcd, directory)
    }

    fn start(etcd: &Arc<Etcd>, directory: TempDir) -> Node {
        let users = Arc::new(UserStore::open(directory.path()).unwrap());
        let member = Member { etcd: Arc::clone(etcd), users: Arc::downgrade(&users) };
        users.share(Arc::new(member));
        Node { directory, users, etcd: Arc::clone(etcd) }
    }

    /// A tick of the agent; true when the cluster got changes from here.
    fn follow(&self) -> bool {
        let mut agreed = self.etcd.users.lock();
        let proposal = self.users.follow_cluster(CLUSTER, agreed.as_deref()).unwrap();
        let is_new = proposal.is_some();
        if is_new {
            *agreed = proposal;
            let again = self.users.follow_cluster(CLUSTER, agreed.as_deref()).unwrap();
            assert!(again.is_none(), "the cluster has the proposal");
        }
        is_new
    }

    fn names(&self) -> Vec<String> {
        self.users.stored().unwrap().into_iter().map(|user| user.name).collect()
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn set(&self, name: &str, role: Role) -> Result<bool, UserChangeError> {
        let password = Some(b"secret1".to_vec());
        let (name, roles) = (name.to_owned(), Some(vec![role]));
        self.users.change(UserChange { name, password, roles, ..UserChange::default() }, true)
    }
}

fn add(data_dir: &Path, name: &str, role: Role) {
    let user = StoredUser::new(name, b"secret1", vec![role]).unwrap();
    UserFile::edit(data_dir, |file| {
        file.put(user);
        true
    })
    .unwrap();
}

#[test]
fn the_first_node_brings_its_users_to_all() {
    let etcd = Arc::default();
    let (one, two) = (Node::with_users(&etcd, &["root"]), Node::with_users(&etcd, &[]));
    assert!(two.users.is_development() && !two.follow(), "no users are no proposal");
    assert!(one.follow() && !one.follow());
    let before = two.users.generation();
    assert!(!two.follow() && !two.users.is_development());
    assert_eq!(two.names(), ["root"]);
    assert!(two.users.generation() > before, "open connections are checked again");
    assert!(two.users.verify_basic("root", b"secret1").is_some());
    assert!(!two.path().join(BEFORE_CLUSTER).exists());
    let hidden = String::from_utf8(etcd.users.lock().clone().unwrap()).unwrap();
    assert!(!hidden.contains("secret1"));
}

#[test]
fn a_node_that_joins_keeps_its_users_aside() {
    let etcd = Arc::default();
    let one = Node::with_users(&etcd, &["root"]);
    one.follow();
    let two = Node::with_users(&etcd, &["boss", "root"]);
    assert!(!two.follow());
    assert_eq!(two.names(), ["root"]);
    let kept = std::fs::read_to_string(two.path().join(BEFORE_CLUSTER)).unwrap();
    assert_eq!(UserFile::parse(&kept).unwrap().users().count(), 2);
    assert!(two.users.verify_basic("boss", b"secret1").is_none());
    // A node with a copy of the same file has nothing to keep.
    let copied = tempfile::tempdir().unwrap();
    std::fs::copy(UserFile::path(one.path()), UserFile::path(copied.path())).unwrap();
    let three = Node::start(&etcd, copied);
    assert!(!three.follow() && !three.path().join(BEFORE_CLUSTER).exists());
}

#[test]
fn changes_on_two_nodes_are_all_kept() {
    let etcd = Arc::default();
    let (one, two) = (Node::with_users(&etcd, &["root"]), Node::with_users(&etcd, &[]));
    one.follow();
    two.follow();
    one.set("a", Role::read_only("*")).unwrap();
    two.set("b", Role::read_only("*")).unwrap();
    // The command changes the files, of a running node or of a stopped one.
    add(one.path(), "c", Role::read_only("*"));
    assert!(UserFile::edit(two.path(), |file| file.remove("a")).unwrap());
    let two = Node::start(&etcd, two.directory);
    assert!(one.follow() && two.follow() && !one.follow());
    for node in [&one, &two] {
        assert_eq!(node.names(), ["b", "c", "root"]);
        let file = UserFile::load(node.path()).unwrap();
        assert!(file.changed_here.is_empty() && file.cluster.as_deref() == Some(CLUSTER));
    }
    assert!(one.users.verify_basic("a", b"secret1").is_none(), "removed everywhere");
}

#[test]
fn an_absent_agreement_refuses_changes_only() {
    let etcd: Arc<Etcd> = Arc::default();
    let one = Node::with_users(&etcd, &["root"]);
    one.follow();
    *etcd.is_away.lock() = true;
    let refused = one.set("a", Role::read_only("*")).unwrap_err();
    assert_eq!(refused.to_string(), "the nodes of a cluster share their users, and etcd is away");
    assert!(matches!(one.users.remove("root"), Err(UserChangeError::Cluster(_))));
    assert_eq!(one.names(), ["root"]);
    assert!(one.users.verify_basic("root", b"secret1").is_some());
}

#[test]
fn the_last_administrator_of_a_cluster_stays() {
    let etcd = Arc::default();
    let one = Node::with_users(&etcd, &["root"]);
    one.follow();
    let refused = |outcome| matches!(outcome, Err(UserChangeError::Refused { .. }));
    assert!(refused(one.users.remove("root").map(|()| true)));
    assert!(refused(one.set("root", Role::read_only("*"))));
    assert!(UserFile::edit(one.path(), |file| file.remove("root")).unwrap());
    assert!(!one.follow());
    assert_eq!(one.names(), ["root"]);
    // The same holds for a file that is lost.
    std::fs::remove_file(UserFile::path(one.path())).unwrap();
    assert!(!one.follow());
    assert_eq!(one.names(), ["root"]);
}

#[test]
fn users_of_another_version_are_left_alone() {
    let etcd: Arc<Etcd> = Arc::default();
    let one = Node::with_users(&etcd, &["root"]);
    *etcd.users.lock() = Some(br#"{"format":"oribi-users","version":9}"#.to_vec());
    let error = one.users.follow_cluster(CLUSTER, etcd.users.lock().as_deref()).unwrap_err();
    assert!(error.to_string().contains("not understood"), "{error}");
    assert_eq!(one.names(), ["root"]);
    assert!(matches!(one.set("a", Role::Admin), Err(UserChangeError::Cluster(_))));
}
