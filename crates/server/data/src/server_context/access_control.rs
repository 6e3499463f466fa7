//! Users, the audit log and TLS: the parts that decide about and record a client's identity.

use std::sync::Arc;

use oribi_auth::UserStore;
use oribi_auth::audit::AuditLog;

use crate::connection::tls::Tls;

/// See the module text.
pub struct AccessControl {
    pub users: Arc<UserStore>,
    pub audit: AuditLog,
    /// The TLS configuration, if TLS is enabled.
    pub tls: Option<Arc<Tls>>,
}

impl AccessControl {
    /// Access for these users, without an audit log and without TLS.
    pub fn new(users: Arc<UserStore>) -> AccessControl {
        AccessControl { users, audit: AuditLog::default(), tls: None }
    }
}
