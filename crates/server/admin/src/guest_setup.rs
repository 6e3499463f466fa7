//! Set-up requests without credentials ([`Access::Setup`]).
//!
//! Owns: which of them succeed. Invariants:
//! - a server in development mode, which listens on loopback only, is set up;
//! - any other server answers 200 when the request changes nothing, else 401 with the reason;
//! - `/settings/web` proves its password as a login does.
//!
//! Caller: `router`, which has checked host names.
//!
//! [`Access::Setup`]: super::routes::RouteAccess::Setup

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::WWW_AUTHENTICATE;
use oribi_auth::DEVELOPMENT_NAME;

use super::audit::AdminClient;
use super::login::TooManyLogins;
use super::message::{FormFields, HttpReply, busy, error, forbidden, unauthorized};
use super::origin;
use super::request::AdminRequest;
use super::routes::{Route, RouteAccess};
use super::setup::{is_own_host, web_reply};
use super::state::AdminState;

/// Paths that are distinguished; the other one is that of the host name.
const SERVICES: &str = "/node/controller/setupServices";
const POOL: &str = "/pools/default";
const WEB: &str = "/settings/web";

/// Serves a request of a set-up without credentials.
pub(super) async fn serve(
    route: &Route,
    mut request: AdminRequest,
    client: &AdminClient,
) -> HttpReply {
    assert_eq!(route.access, RouteAccess::Setup, "only a set-up may lack credentials");
    if origin::is_from_elsewhere(request.headers()) {
        return forbidden("same origin");
    }
    if let Err(reply) = request.read_form().await {
        return *reply;
    }
    let state = Arc::clone(&request.state);
    let log = &state.server.access.audit;
    if state.server.access.users.is_development() {
        let developer = state.server.access.users.current(DEVELOPMENT_NAME);
        let reply = route.handler.run(&mut request).await;
        if let Some(developer) = developer {
            let described = (request.method(), &*request.segments());
            state.audit.requested(log, client, &developer, described, &reply);
        }
        return reply;
    }
    let changes_nothing = match route.path {
        WEB => knows_administrator(&state, &request.form, client).await,
        SERVICES => Ok(true),
        POOL => Ok(request.form.text("clusterName").is_none()),
        _ => Ok(request.form.get("hostname").is_some_and(|host| is_own_host(&state, host))),
    };
    match changes_nothing {
        Err(TooManyLogins) => busy("too many passwords are being checked"),
        Ok(true) if route.path == WEB => web_reply(&state, &request.host()),
        Ok(true) => route.handler.run(&mut request).await,
        Ok(false) => {
            let described = (request.method(), &*request.segments());
            state.audit.refused(log, client, None, described);
            already_set_up(unauthorized(request.headers()))
        }
    }
}

/// 401 with the reason, and the challenge that any 401 has.
fn already_set_up(mut unauthorized: HttpReply) -> HttpReply {
    let mut reply = error(
        StatusCode::UNAUTHORIZED,
        "This server has users already: send the credentials of an administrator. Without them \
         only a request that changes nothing succeeds",
    );
    let challenge = unauthorized.headers_mut().remove(WWW_AUTHENTICATE);
    reply.headers_mut().extend(challenge.map(|challenge| (WWW_AUTHENTICATE, challenge)));
    reply
}

/// True when the form has the name and the password of an administrator.
async fn knows_administrator(
    state: &Arc<AdminState>,
    form: &FormFields,
    client: &AdminClient,
) -> Result<bool, TooManyLogins> {
    let (Some(name), Some(password)) = (form.get("username"), form.get("password")) else {
        return Ok(false);
    };
    let recorder = (&*state.server, &state.audit);
    let password = password.as_bytes().to_vec();
    let identity = state.logins.verify(name.to_owned(), password, recorder, client).await?;
    Ok(identity.is_some_and(|identity| identity.access.is_admin()))
}
