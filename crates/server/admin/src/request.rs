//! A request with its context when its handler runs.
//!
//! Owns: the parts of the request and its user. Invariant: the router fills in the user before the
//! handler of a route that needs one runs, and the form of a route that has one. Callers: `router`
//! makes it, the handlers in `routes` read it.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::Method;
use hyper::body::{Body as _, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;

use super::message::{BODY_BYTES_MAX, FormFields, HttpRejection, host_of, no_memory};
use super::state::AdminState;
use super::user_context::UserContext;
use oribi_server::admin_api::memory::Reservation;

/// Parts of a request besides its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestBody {
    /// Nothing that is read.
    Empty,
    /// A form of at most so many bytes, read before the handler runs.
    Form(usize),
    /// At most so many bytes, which the handler reads.
    Stream(usize),
}

pub(crate) struct AdminRequest {
    pub(crate) state: Arc<AdminState>,
    /// The path of the route, with names in braces.
    pattern: &'static str,
    body_kind: RequestBody,
    pub(crate) head: Parts,
    /// The decoded segments of the path.
    pub(crate) path: Vec<String>,
    /// Empty unless the route has a form.
    pub(crate) form: FormFields,
    user: Option<UserContext>,
    body: Option<Incoming>,
    /// Memory for a form above [`BODY_BYTES_MAX`].
    _form_memory: Option<Reservation>,
}

impl AdminRequest {
    pub(crate) fn new(
        state: Arc<AdminState>,
        (pattern, body_kind): (&'static str, RequestBody),
        (head, body): (Parts, Incoming),
        path: Vec<String>,
    ) -> AdminRequest {
        assert!(pattern.starts_with('/'), "the path of a route is absolute");
        AdminRequest {
            state,
            pattern,
            body_kind,
            head,
            path,
            form: FormFields::default(),
            user: None,
            body: Some(body),
            _form_memory: None,
        }
    }

    pub(crate) fn method(&self) -> &Method {
        &self.head.method
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The query of the URI, or nothing.
    pub(crate) fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// The host name that the client used.
    pub(crate) fn host(&self) -> String {
        host_of(&self.head.headers)
    }

    pub(crate) fn has_credentials(&self) -> bool {
        self.head.headers.contains_key(AUTHORIZATION)
    }

    /// The path for log lines and audit events.
    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// The segments that stand where the route's path has names in braces.
    pub(crate) fn captures<const N: usize>(&self) -> [&str; N] {
        let mut captures = [""; N];
        let segments = self.path.iter().zip(self.pattern.split('/').skip(1));
        let named = segments.filter(|(_, pattern)| pattern.starts_with('{'));
        let mut count = 0;
        for (segment, _) in named {
            captures[count] = segment;
            count += 1;
        }
        assert_eq!(count, N, "a handler reads all names of its route's path");
        captures
    }

    /// The user of a route that needs one.
    pub(crate) fn user(&self) -> &UserContext {
        self.user.as_ref().expect("the router sets the user of a route that needs one")
    }

    /// The user, if the request has one.
    pub(crate) fn known_user(&self) -> Option<&UserContext> {
        self.user.as_ref()
    }

    pub(crate) fn set_user(&mut self, user: UserContext) {
        assert!(self.user.is_none(), "a request has one user");
        self.user = Some(user);
    }

    /// The body, which the handler of a route with [`RequestBody::Stream`] reads, and its limit.
    pub(crate) fn take_body(&mut self) -> (Incoming, usize) {
        let body = self.body.take().expect("a body is read once");
        match self.body_kind {
            RequestBody::Stream(bytes_max) | RequestBody::Form(bytes_max) => (body, bytes_max),
            RequestBody::Empty => (body, 0),
        }
    }

    /// Reads the form of a route that has one.
    pub(crate) async fn read_form(&mut self) -> Result<(), HttpRejection> {
        let RequestBody::Form(bytes_max) = self.body_kind else { return Ok(()) };
        debug_assert!(self._form_memory.is_none(), "a form is read once");
        let (body, _) = self.take_body();
        if bytes_max > BODY_BYTES_MAX {
            let memory = &self.state.server.connections.memory;
            let held = memory.hold(memory_of_form(&body, bytes_max));
            self._form_memory = Some(held.ok_or_else(|| no_memory(memory))?);
        }
        self.form = FormFields::read(body, bytes_max).await?;
        Ok(())
    }
}

/// Bytes that a large form takes in memory: itself, its fields, and the values made of them.
fn memory_of_form(body: &Incoming, bytes_max: usize) -> usize {
    let announced = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
    3 * announced.map_or(bytes_max, |bytes| bytes.min(bytes_max))
}
