//! The user of a connection: login state, rights, and the SASL exchange in progress.
//!
//! Invariants:
//! - a connection without a user has no rights;
//! - rights belong to the pair of user and bucket. They are computed when either changes or the
//!   users do, never per operation.

use std::sync::Arc;

use oribi_auth::{Identity, SaslServer, UserStore};

use super::rights::Rights;

/// How the client logged in.
enum LoginState {
    /// Not yet: since when, in milliseconds on the worker's monotonic clock.
    Unknown { since_ms: u64 },
    /// Development mode: the client has the user of unauthenticated clients.
    Guest(Arc<Identity>),
    /// The client proved this identity.
    Proved(Arc<Identity>),
}

/// See the module text.
pub(crate) struct ConnectionUser {
    login: LoginState,
    /// Rights of the user in the selected bucket.
    rights: Rights,
    sasl: Option<Box<SaslServer>>,
}

impl ConnectionUser {
    /// A connection that has no user, since `now_ms`.
    pub fn unknown(now_ms: u64) -> ConnectionUser {
        let login = LoginState::Unknown { since_ms: now_ms };
        ConnectionUser { login, rights: Rights::default(), sasl: None }
    }

    #[inline]
    pub fn identity(&self) -> Option<&Arc<Identity>> {
        match &self.login {
            LoginState::Unknown { .. } => None,
            LoginState::Guest(identity) | LoginState::Proved(identity) => Some(identity),
        }
    }

    #[inline]
    pub fn is_known(&self) -> bool {
        !matches!(self.login, LoginState::Unknown { .. })
    }

    /// True for a client that never authenticated, in development mode.
    pub fn is_guest(&self) -> bool {
        matches!(self.login, LoginState::Guest(_))
    }

    /// The user's name; empty without a user.
    pub fn name(&self) -> &str {
        self.identity().map_or("", |identity| &identity.name)
    }

    /// Since when the connection has no user; `None` when it has one.
    pub fn unknown_since_ms(&self) -> Option<u64> {
        match self.login {
            LoginState::Unknown { since_ms } => Some(since_ms),
            LoginState::Guest(_) | LoginState::Proved(_) => None,
        }
    }

    #[inline]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    pub fn rights_mut(&mut self) -> &mut Rights {
        &mut self.rights
    }

    /// Makes a proved identity the user. The caller computes the rights next.
    pub fn prove(&mut self, identity: Arc<Identity>) {
        self.login = LoginState::Proved(identity);
        debug_assert!(self.is_known() && !self.is_guest(), "a proved user is no guest");
    }

    /// Gives a client without a user that of unauthenticated clients.
    pub fn admit_guest(&mut self, identity: Arc<Identity>) {
        assert!(!self.is_known(), "a proved identity is never replaced by a guest");
        self.login = LoginState::Guest(identity);
    }

    /// Forgets the user. A client that had one gets as much time to log in as a new connection;
    /// any other client gets no extra time.
    pub fn forget(&mut self, now_ms: u64) {
        if self.is_known() {
            self.login = LoginState::Unknown { since_ms: now_ms };
            debug_assert!(self.identity().is_none(), "a user who is forgotten has no identity");
        }
    }

    /// The present state of the user in `users`; `None` when the user no longer exists.
    pub fn current(&self, users: &UserStore) -> Option<Arc<Identity>> {
        match &self.login {
            LoginState::Unknown { .. } => None,
            LoginState::Guest(_) => users.anonymous(),
            LoginState::Proved(identity) => users.current(&identity.name),
        }
    }

    /// Replaces the user by its present state. The caller computes the rights next.
    pub fn update(&mut self, current: Arc<Identity>) {
        assert!(self.is_guest() || *self.name() == *current.name, "a user keeps its name");
        match &mut self.login {
            LoginState::Unknown { .. } => panic!("only a known user changes"),
            LoginState::Guest(identity) | LoginState::Proved(identity) => *identity = current,
        }
    }

    /// Computes the rights in this bucket, or those while none is selected.
    pub fn compute_rights(&mut self, bucket: Option<&str>) {
        self.rights = match (self.identity(), bucket) {
            (Some(identity), Some(bucket)) => Rights::of(identity, bucket),
            (Some(identity), None) => Rights::outside(identity),
            (None, _) => Rights::default(),
        };
    }

    /// Begins a SASL exchange in place of the last one.
    pub fn begin_sasl(&mut self, sasl: Box<SaslServer>) {
        assert!(!self.is_known(), "an exchange begins with no user, so a failed one leaves none");
        self.sasl = Some(sasl);
        debug_assert!(self.is_in_exchange(), "an exchange has begun");
    }

    pub fn sasl_mut(&mut self) -> Option<&mut SaslServer> {
        self.sasl.as_deref_mut()
    }

    pub fn is_in_exchange(&self) -> bool {
        self.sasl.is_some()
    }

    /// Ends the SASL exchange.
    pub fn end_sasl(&mut self) -> Option<Box<SaslServer>> {
        self.sasl.take()
    }
}
