//! Columns of the route table besides method and path: rights, audit and handler.

use std::future::Future;
use std::pin::Pin;

use super::message::HttpReply;
use super::request::AdminRequest;

/// The rights that a route needs before its handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// Any client; credentials are not looked at. For supervisors, balancers and the console.
    Anyone,
    /// Any client; wrong credentials are ignored.
    Guest,
    /// Clients without credentials and users; in development mode any client. Scripts that set up a
    /// server begin with this, and with the password that the server will have.
    GuestOrUser,
    /// Any user. The handler limits the answer to what the user may see.
    User,
    /// Users with some right in the bucket that the path names. The handler limits the answer.
    Bucket,
    /// As [`RouteAccess::Bucket`]; the handler needs rights in the collection that the path names.
    Collection,
    /// Users who see the statistics of all buckets.
    Statistics,
    /// Administrators, for reading about users.
    Security,
    /// Administrators; without credentials `guest_setup` decides.
    Setup,
    Admin,
}

/// Which requests of a user are audit events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuditRule {
    Nothing,
    /// Those refused for lack of rights.
    Refusals,
    Requests,
}

/// The future of an answer.
pub(crate) type ReplyFuture<'r> = Pin<Box<dyn Future<Output = HttpReply> + Send + 'r>>;

#[derive(Clone, Copy)]
pub(crate) enum Handler {
    Sync(fn(&AdminRequest) -> HttpReply),
    Async(for<'r> fn(&'r mut AdminRequest) -> ReplyFuture<'r>),
}

impl Handler {
    pub(crate) async fn run(self, request: &mut AdminRequest) -> HttpReply {
        match self {
            Handler::Sync(handler) => handler(request),
            Handler::Async(handler) => handler(request).await,
        }
    }
}
