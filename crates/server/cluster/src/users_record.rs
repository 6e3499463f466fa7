//! The users that all nodes share: one record of the agreement.
//!
//! Owns: when this node follows the record, and that changes of the record are compare-and-set, so
//! none is lost. Invariants:
//! - only a node that has proved the cluster's secret reads or writes the record;
//! - this node's users follow records in the order of their revisions: every step that reads the
//!   record and installs it runs under one lock;
//! - when a change is answered, the record and this node have it.
//!
//! [`ClusterUsers`] has the node's own copy and knows the format. A node without links shares no
//! users. Callers: the agent's tick; the server, for changes by clients.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::agreement::{AgreementError, RecordChange, RecordComparison, Sessions};
use crate::identity::ClusterIdentity;
use crate::limits::{CHANGE_LIMIT, CHANGE_TRIES, REFRESH_LIMIT};
use crate::records::RecordKeys;

/// Why the users here could not follow.
pub type UsersFailure = Box<dyn Error + Send + Sync>;

/// A change of the agreed users: returns them as they are to be, or `None` to leave them.
pub type UsersChange<'c, E> = dyn FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>, E> + 'c;

/// The users of this node.
pub trait ClusterUsers: Send + Sync {
    /// Makes the users here those on which the cluster of this uuid has agreed. Returns the users
    /// on which it should agree instead, because changes were made here; then nothing changes here.
    /// Blocks.
    ///
    /// # Errors
    /// The users stay as they are.
    fn follow(&self, cluster: &str, agreed: Option<&[u8]>)
    -> Result<Option<Vec<u8>>, UsersFailure>;

    /// A number that changes with the users here. Does not block.
    fn generation(&self) -> u64;
}

/// Why the users of the cluster were not changed.
#[derive(Debug, thiserror::Error)]
pub enum UsersChangeError<E> {
    /// The change may be in effect later.
    #[error(transparent)]
    Agreement(#[from] AgreementError),
    #[error("this node has not joined its cluster yet")]
    NotJoined,
    #[error("other nodes change them again and again")]
    Contended,
    /// The cluster may have the change; this node's users are older.
    #[error("the users here do not follow: {0}")]
    Local(UsersFailure),
    #[error("the change was rejected")]
    Rejected(E),
}

/// See the module text.
pub(crate) struct UsersRecord {
    agreement: Arc<dyn Sessions>,
    keys: RecordKeys,
    users: Arc<dyn ClusterUsers>,
    /// The node has proved the cluster's secret.
    is_admitted: AtomicBool,
    state: Mutex<FollowState>,
}

#[derive(Default)]
struct FollowState {
    /// Revision of the record, and generation of the users here, when both were last equal.
    equal_at: Option<(i64, u64)>,
    /// The last failure, so that it is logged once.
    trouble: Option<String>,
}

enum FollowFailure {
    Agreement(AgreementError),
    Local(UsersFailure),
}

impl UsersRecord {
    pub(crate) fn new(
        agreement: Arc<dyn Sessions>,
        keys: RecordKeys,
        users: Arc<dyn ClusterUsers>,
    ) -> UsersRecord {
        let (is_admitted, state) = (AtomicBool::new(false), Mutex::default());
        UsersRecord { agreement, keys, users, is_admitted, state }
    }

    pub(crate) fn set_admitted(&self, is_admitted: bool) {
        self.is_admitted.store(is_admitted, Ordering::Release);
    }

    /// Follows the record, whose revision the caller saw; 0 if there was none. Does nothing while a
    /// change runs, which follows itself.
    pub(crate) async fn follow(
        &self,
        cluster: &str,
        seen: i64,
        limit: Duration,
    ) -> Result<(), AgreementError> {
        let Ok(mut state) = self.state.try_lock() else { return Ok(()) };
        if state.equal_at == Some((seen, self.users.generation())) {
            return Ok(());
        }
        match self.follow_now(&mut state, cluster, limit).await {
            Ok(_) => state.trouble = None,
            Err(FollowFailure::Agreement(error)) => return Err(error),
            Err(FollowFailure::Local(error)) => {
                let text = error.to_string();
                if state.trouble.as_ref() != Some(&text) {
                    tracing::error!(error = text, "the users here do not follow the cluster's");
                    state.trouble = Some(text);
                }
            }
        }
        Ok(())
    }

    /// Reads the record and follows it, after it has the changes made here. Returns its revision, 0
    /// if there is none, and its value.
    async fn follow_now(
        &self,
        state: &mut FollowState,
        cluster: &str,
        limit: Duration,
    ) -> Result<(i64, Option<Vec<u8>>), FollowFailure> {
        assert!(!cluster.is_empty(), "a cluster has a uuid");
        state.equal_at = None;
        for _ in 0..CHANGE_TRIES {
            let key = self.keys.users();
            let found = self.agreement.get(&key, limit).await.map_err(FollowFailure::Agreement)?;
            let revision = found.as_ref().map_or(0, |found| found.mod_revision);
            let agreed = found.map(|found| found.value);
            let generation = self.users.generation();
            let proposed = self.install(cluster, agreed.clone()).await?;
            let Some(proposed) = proposed else {
                state.equal_at = Some((revision, generation));
                return Ok((revision, agreed));
            };
            self.put(revision, proposed, limit).await.map_err(FollowFailure::Agreement)?;
        }
        // Other nodes are faster again and again: the next tick continues.
        Err(FollowFailure::Local("other nodes change them again and again".into()))
    }

    /// [`ClusterUsers::follow`] on a thread that may block.
    async fn install(
        &self,
        cluster: &str,
        agreed: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, FollowFailure> {
        let (users, cluster) = (Arc::clone(&self.users), cluster.to_owned());
        let following =
            tokio::task::spawn_blocking(move || users.follow(&cluster, agreed.as_deref()));
        match following.await {
            Ok(outcome) => outcome.map_err(FollowFailure::Local),
            Err(_) => Err(FollowFailure::Local("the thread that stores users panicked".into())),
        }
    }

    /// Replaces the record of this revision; false when another node was faster.
    async fn put(
        &self,
        revision: i64,
        users: Vec<u8>,
        limit: Duration,
    ) -> Result<bool, AgreementError> {
        assert!(!users.is_empty(), "a record is never empty");
        debug_assert!(revision >= 0, "revisions of etcd count from 1");
        let key = self.keys.users();
        let unchanged = match revision {
            0 => RecordComparison::Absent(key.clone()),
            _ => RecordComparison::ModifiedAt(key.clone(), revision),
        };
        let put = [RecordChange::put(key, users)];
        Ok(self.agreement.transact(&[unchanged], &put, limit).await?.is_some())
    }

    pub(crate) async fn change<E>(
        &self,
        change: &mut UsersChange<'_, E>,
    ) -> Result<(), UsersChangeError<E>> {
        if !self.is_admitted.load(Ordering::Acquire) {
            return Err(UsersChangeError::NotJoined);
        }
        let cluster = self.cluster(CHANGE_LIMIT).await?.ok_or(UsersChangeError::NotJoined)?;
        let mut state = self.state.lock().await;
        for _ in 0..CHANGE_TRIES {
            let (revision, agreed) =
                self.follow_now(&mut state, &cluster, CHANGE_LIMIT).await.map_err(failed)?;
            let changed = change(agreed.as_deref()).map_err(UsersChangeError::Rejected)?;
            let Some(users) = changed else { return Ok(()) };
            if self.put(revision, users, CHANGE_LIMIT).await? {
                return self
                    .follow_now(&mut state, &cluster, CHANGE_LIMIT)
                    .await
                    .map(drop)
                    .map_err(failed);
            }
        }
        Err(UsersChangeError::Contended)
    }

    pub(crate) async fn refresh(&self) -> Result<(), UsersChangeError<()>> {
        if !self.is_admitted.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(cluster) = self.cluster(REFRESH_LIMIT).await? else { return Ok(()) };
        let mut state = self.state.lock().await;
        self.follow_now(&mut state, &cluster, REFRESH_LIMIT).await.map(drop).map_err(failed)
    }

    async fn cluster(&self, limit: Duration) -> Result<Option<String>, AgreementError> {
        let found = self.agreement.get(&self.keys.identity(), limit).await?;
        let identity =
            found.and_then(|found| serde_json::from_slice::<ClusterIdentity>(&found.value).ok());
        Ok(identity.map(|identity| identity.uuid))
    }
}

fn failed<E>(failure: FollowFailure) -> UsersChangeError<E> {
    match failure {
        FollowFailure::Agreement(error) => UsersChangeError::Agreement(error),
        FollowFailure::Local(error) => UsersChangeError::Local(error),
    }
}
