//! Users over HTTP, as the client libraries' user managers call it, and as backups take them.
//!
//! Owns: the JSON of a user and of a role, the fields of a form, and the wording of each error,
//! which those managers search for. Invariants: a change that was answered with 200 is durable and
//! in force; a role that is not known is refused by name; passwords are in no answer, and their
//! verifiers only in that to `GET /settings/rbac/backup`. There are no
//! groups and no domain but `local`: their lists are empty, and requests to add one are refused.
//! Caller: `routes`, which has checked the rights.

use std::sync::Arc;

use hyper::StatusCode;
use oribi_auth::couchbase_role::{COUCHBASE_ROLES, RoleDescription, described, parse_list};
use oribi_auth::{
    DEVELOPMENT_NAME, RestoredUsers, Role, RoleScope, StoredUser, UserChange, UserChangeError,
};
use oribi_system::clock::iso_8601;
use serde_json::{Value, json};

use super::blocking::{blocking, failed};
use super::cluster::refused;
use super::message::{
    FormFields, HttpRejection, HttpReply, empty, error, field_error, json_reply, whole,
};
use super::request::AdminRequest;
use super::state::AdminState;

/// Roles may be in buckets, scopes and collections that are created later.
const ALLOW_MISSING: &str = "allowMissing";

/// Fields of a form about a user. The last three are Oribi's own.
const KNOWN_FIELDS: [&str; 7] = [
    "name",
    "password",
    "roles",
    "groups",
    "memcachedBucket",
    "memcachedCollection",
    ALLOW_MISSING,
];

/// Bytes of a form with all users: about 10,000 of them.
pub(crate) const BACKUP_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) fn roles() -> HttpReply {
    json_reply(&roles_json())
}

/// The list of groups, or of external users: there are none.
pub(crate) fn empty_list() -> HttpReply {
    json_reply(&json!([]))
}

/// 404 for any group.
pub(crate) fn unknown_group() -> HttpReply {
    not_found("Unknown group.")
}

/// 400 for a request to add a group.
pub(crate) fn no_groups() -> HttpReply {
    error(StatusCode::BAD_REQUEST, NO_GROUPS)
}

/// 400 for a request to add a user of another domain.
pub(crate) fn no_external_users() -> HttpReply {
    error(StatusCode::BAD_REQUEST, "There are no external users, only local ones")
}

/// `POST /controller/changePassword`: a user's own password.
pub(crate) async fn change_password(request: &AdminRequest) -> HttpReply {
    let (state, form) = (&request.state, &request.form);
    if let Err(reply) = form.only(&["password"]) {
        return *reply;
    }
    let Some(password) = form.get("password") else {
        return field_error("password", "The value must be supplied");
    };
    let password = Some(password.as_bytes().to_vec());
    apply(
        state,
        UserChange {
            name: request.user().identity.name.clone(),
            password,
            ..UserChange::default()
        },
        false,
    )
    .await
}

const NO_GROUPS: &str = "There are no groups of users here: give each user its roles";

/// A role as client libraries read one: its name and its place.
pub(crate) fn role_json(role: &Role) -> Value {
    let RoleDescription { name, place } = described(role);
    let mut value = json!({ "role": name });
    let Some(place) = place else { return value };
    value["bucket_name"] = json!(place.bucket);
    for (field, name) in [("scope_name", &place.scope), ("collection_name", &place.collection)] {
        if let Some(name) = name {
            value[field] = json!(name);
        }
    }
    value
}

fn user_json(user: &StoredUser) -> Value {
    let role = |role: &Role| {
        let mut value = role_json(role);
        let name = value["role"].as_str().unwrap_or_default();
        if COUCHBASE_ROLES.iter().any(|known| known.is_scoped && known.name == name) {
            for field in ["scope_name", "collection_name"] {
                if value.get(field).is_none() {
                    value[field] = json!("*");
                }
            }
        }
        value["origins"] = json!([{ "type": "user" }]);
        value
    };
    let mut value = json!({
        "id": user.name,
        "domain": if user.is_initial { "admin" } else { "local" },
        "name": user.display_name.as_deref().unwrap_or_default(),
        "roles": user.roles.iter().map(role).collect::<Vec<_>>(),
        "groups": [],
        "external_groups": [],
    });
    if let Some(unix_s) = user.password_changed_unix_s {
        value["password_change_date"] = json!(iso_8601(unix_s));
    }
    if let Some(bucket) = &user.bucket {
        value["memcachedBucket"] = json!(bucket);
    }
    if let Some(collection) = &user.collection {
        value["memcachedCollection"] = json!(collection.to_string());
    }
    value
}

fn roles_json() -> Value {
    let roles = COUCHBASE_ROLES.iter().map(|role| {
        let mut value = json!({ "role": role.name, "name": role.title, "desc": role.description });
        if role.name != "admin" {
            value["bucket_name"] = json!("*");
        }
        if role.is_scoped {
            value["scope_name"] = json!("*");
            value["collection_name"] = json!("*");
        }
        value
    });
    roles.collect()
}

async fn stored(state: &Arc<AdminState>) -> Result<Vec<StoredUser>, HttpRejection> {
    let users = Arc::clone(&state.server.access.users);
    match blocking(move || users.stored()).await? {
        Ok(users) => Ok(users),
        Err(failure) => Err(failed("read the users", &failure).into()),
    }
}

/// The users. The administrator of the set-up is none of the local ones: scripts drop all of those.
pub(crate) async fn list(state: &Arc<AdminState>, with_initial: bool) -> HttpReply {
    match stored(state).await {
        Ok(users) => {
            let listed = users.iter().filter(|user| with_initial || !user.is_initial);
            json_reply(&listed.map(user_json).collect())
        }
        Err(reply) => *reply,
    }
}

pub(crate) async fn get(state: &Arc<AdminState>, name: &str) -> HttpReply {
    match stored(state).await {
        Ok(users) => match users.iter().find(|user| user.name == name) {
            Some(user) => json_reply(&user_json(user)),
            None => unknown(),
        },
        Err(reply) => *reply,
    }
}

/// Adds or changes a user. A PUT states the whole user but the password; a PATCH some properties of
/// one that exists.
pub(crate) async fn put(
    state: &Arc<AdminState>,
    name: &str,
    form: &FormFields,
    is_put: bool,
) -> HttpReply {
    let change = match checked_change(state, name, form, is_put).await {
        Ok(change) => change,
        Err(reply) => return *reply,
    };
    let reply = apply(state, change, is_put).await;
    match ended_development(&reply) {
        true => as_ending(whole(StatusCode::OK, "text/plain", ending_of_development(name))),
        false => reply,
    }
}

/// The mark of the answer to a request that ended the development mode.
#[derive(Clone, Copy)]
struct DevelopmentEnding;

/// Marks an answer as that to the request that ended the development mode.
pub(crate) fn as_ending(mut reply: HttpReply) -> HttpReply {
    reply.extensions_mut().insert(DevelopmentEnding);
    reply
}

/// True for an answer with this mark.
pub(crate) fn ended_development(reply: &HttpReply) -> bool {
    reply.extensions().get::<DevelopmentEnding>().is_some()
}

/// Facts for the client that created the first administrator.
fn ending_of_development(name: &str) -> String {
    format!(
        "The development mode has ended: log in as {name}. The login {DEVELOPMENT_NAME} of the \
         development mode is refused now, except on this connection, and clients that had used it \
         are disconnected. Start a server with --admin-user NAME and the password in \
         ORIBI_ADMIN_PASSWORD to have an administrator from the beginning\n"
    )
}

/// The change in a form. A new role is refused in a bucket, scope or collection that does not
/// exist, because it is misspelt more often than it is early.
async fn checked_change(
    state: &Arc<AdminState>,
    name: &str,
    form: &FormFields,
    is_put: bool,
) -> Result<UserChange, HttpRejection> {
    let change = change_of(name, form, is_put)?;
    if form.flag(ALLOW_MISSING)? == Some(true) {
        return Ok(change);
    }
    let present = stored(state).await?.into_iter().find(|user| user.name == name);
    let present = present.map(|user| user.roles).unwrap_or_default();
    let roles = change.roles.iter().flatten().filter(|role| !present.contains(role));
    check_places(state, roles)?;
    Ok(change)
}

fn check_places<'a>(
    state: &AdminState,
    roles: impl Iterator<Item = &'a Role>,
) -> Result<(), HttpRejection> {
    let exists = |place: &RoleScope| {
        let Some(handle) = state.server.buckets.get(&place.bucket) else {
            return place.bucket == "*";
        };
        let manifest = handle.bucket().manifest();
        match (&place.scope, &place.collection) {
            (None, _) => true,
            (Some(scope), None) => manifest.scopes().iter().any(|other| other.name == *scope),
            (Some(scope), Some(name)) => manifest.collection_id(scope, name).is_ok(),
        }
    };
    let missing = roles.filter_map(|role| match role {
        Role::Of(_, place) if !exists(place) => Some(place.to_string().replace('/', ":")),
        _ => None,
    });
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    let message = format!(
        "Cannot assign roles to user because the following roles are unknown, malformed or role \
         parameters are undefined: there is no bucket, scope or collection [{}]",
        missing.join(","),
    );
    Err(field_error("roles", &message).into())
}

fn change_of(name: &str, form: &FormFields, is_put: bool) -> Result<UserChange, HttpRejection> {
    form.only(&KNOWN_FIELDS)?;
    if form.get("groups").is_some() {
        return Err(field_error("groups", NO_GROUPS).into());
    }
    let roles = match form.text("roles") {
        Some(text) => Some(parse_list(text).map_err(|unknown| unknown_roles(&unknown))?),
        None => is_put.then(Vec::new),
    };
    let text = |field| form.text(field).map(str::to_owned);
    Ok(UserChange {
        name: name.to_owned(),
        password: form.get("password").map(|password| password.as_bytes().to_vec()),
        roles,
        display_name: text("name").or_else(|| is_put.then(String::new)),
        bucket: text("memcachedBucket"),
        collection: text("memcachedCollection"),
        is_initial: false,
    })
}

fn unknown_roles(unknown: &[String]) -> HttpReply {
    let known: Vec<&str> = COUCHBASE_ROLES.iter().map(|role| role.name).collect();
    let message = format!(
        "Cannot assign roles to user because the following roles are unknown, malformed or role \
         parameters are undefined: [{}]. Known are {} with their parameters, such as \
         data_reader[BUCKET:SCOPE:COLLECTION], and Oribi's own words, such as read-write[BUCKET]",
        unknown.join(","),
        known.join(", "),
    );
    field_error("roles", &message)
}

pub(crate) async fn apply(state: &Arc<AdminState>, change: UserChange, may_add: bool) -> HttpReply {
    let (users, name) = (Arc::clone(&state.server.access.users), change.name.clone());
    let was_development = users.is_development();
    let reply = match blocking(move || users.change(change, may_add)).await {
        Ok(outcome) => reply_of(outcome.map(drop), &name, "changed a user"),
        Err(reply) => return *reply,
    };
    match was_development && reply.status() == StatusCode::OK {
        true => as_ending(reply),
        false => reply,
    }
}

pub(crate) async fn remove(state: &Arc<AdminState>, name: &str) -> HttpReply {
    let (users, removed) = (Arc::clone(&state.server.access.users), name.to_owned());
    match blocking(move || users.remove(&removed)).await {
        Ok(outcome) => reply_of(outcome, name, "removed a user"),
        Err(reply) => *reply,
    }
}

/// All users as the users file has them, with verifiers.
pub(crate) async fn backup(state: &Arc<AdminState>) -> HttpReply {
    let users = Arc::clone(&state.server.access.users);
    match blocking(move || users.backup()).await {
        Ok(Ok(users)) => json_reply(&users),
        Ok(Err(failure)) => failed("read the users", &failure),
        Err(reply) => *reply,
    }
}

/// Adds the users of a backup; those that are there stay unless `canOverwrite` says otherwise.
pub(crate) async fn restore(state: &Arc<AdminState>, form: &FormFields) -> HttpReply {
    if let Err(reply) = form.only(&["backup", "canOverwrite"]) {
        return *reply;
    }
    let replaces = match form.get("canOverwrite") {
        Some("true") => true,
        None | Some("false") => false,
        Some(_) => return field_error("canOverwrite", "The value must be true or false"),
    };
    let Some(backup) = form.get("backup") else {
        return field_error("backup", "The value must be supplied");
    };
    let (users, backup) = (Arc::clone(&state.server.access.users), backup.to_owned());
    let was_development = users.is_development();
    match blocking(move || users.restore(&backup, replaces)).await {
        Ok(Ok(restored)) => {
            let RestoredUsers { created, overwritten, skipped } = restored;
            let (new, changed) = (created.len(), overwritten.len());
            tracing::info!(new, changed, "restored users");
            let reply = json_reply(&json!({
                "usersCreated": created,
                "usersOverwritten": overwritten,
                "usersSkipped": skipped,
            }));
            match was_development && new > 0 {
                true => as_ending(reply),
                false => reply,
            }
        }
        Ok(Err(failure)) => reply_of(Err(failure), "", ""),
        Err(reply) => *reply,
    }
}

fn reply_of(outcome: Result<(), UserChangeError>, name: &str, done: &str) -> HttpReply {
    match outcome {
        Ok(()) => {
            tracing::info!(user = name, "{done}");
            empty(StatusCode::OK)
        }
        Err(UserChangeError::Unknown) => unknown(),
        Err(UserChangeError::Refused { field, message }) => field_error(field, &message),
        Err(failure @ UserChangeError::File(_)) => failed("change a user", &failure),
        Err(failure @ UserChangeError::Cluster(_)) => {
            tracing::warn!(user = name, error = %failure, "cannot change a user");
            refused(StatusCode::SERVICE_UNAVAILABLE, &failure.to_string())
        }
    }
}

/// 404 for a user, whichever the method: some client libraries parse no other words.
pub(crate) fn unknown() -> HttpReply {
    not_found("Unknown user.")
}

/// 404 in the words that client libraries look for: a JSON text, not an object.
fn not_found(words: &str) -> HttpReply {
    whole(StatusCode::NOT_FOUND, "application/json", json!(words).to_string())
}
