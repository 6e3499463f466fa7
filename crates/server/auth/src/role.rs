//! Roles as an administrator writes them, and the access checks of the server.
//!
//! Owns: the text form of a role and [`Access`], its form for queries. A role is `admin`, or
//! `WORD[+WORD...]:BUCKET[/SCOPE[/COLLECTION]]` with the words of [`PrivilegeSet`] and `*` for
//! every bucket. The separator is a slash because names of buckets, scopes and collections never
//! contain one; a bucket name may contain a dot.
//!
//! Invariants: an administrator may do everything; a user without a role may do nothing. A role
//! refers to scopes and collections by name, so it also covers those created later under that name.
//! Callers: `user_file` (text), connection and admin HTTP (questions). This module does not know
//! how a user authenticated, or which scopes and collections exist.

use std::fmt;
use std::str::FromStr;

use oribi_config::{CollectionPath, is_bucket_name, is_collection_name};

use super::privilege::PrivilegeSet;

/// One right of one user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Everything: all buckets, and changes of buckets, scopes, collections and users.
    Admin,
    /// Privileges in some part of the buckets.
    Of(PrivilegeSet, RoleScope),
}

/// Where a role holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoleScope {
    /// Name of the bucket, `*` for all.
    pub bucket: String,
    /// Name of the scope, if the role is about one.
    pub scope: Option<String>,
    /// Name of the collection in that scope, if the role is about one.
    pub collection: Option<String>,
}

/// Why the text of a role was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoleError {
    /// Neither `admin` nor words followed by a place.
    #[error(
        "unknown role {0:?}: write admin, or WORD[+WORD...]:BUCKET[/SCOPE[/COLLECTION]] ('*' for all \
         buckets) with words like read-write, read-only, insert, meta or stats"
    )]
    UnknownRole(String),
    /// A word that stands for no privilege.
    #[error("unknown word {0:?} in a role: {words}", words = known_words())]
    UnknownWord(String),
    /// The text after the colon is neither `*` nor a bucket name.
    #[error("{0:?} is not a bucket name")]
    BadBucket(String),
    /// The text after a slash cannot be the name of a scope or collection.
    #[error("{0:?} is not the name of a scope or collection")]
    BadName(String),
}

fn known_words() -> String {
    let bundles = ["read-write", "read-only", "meta", "stats"].into_iter();
    let singles = super::Privilege::ALL.iter().map(|privilege| privilege.word());
    bundles.chain(singles).collect::<Vec<_>>().join(", ")
}

impl Role {
    /// A role that reads and writes documents of one bucket, or of all (`*`).
    pub fn read_write(bucket: &str) -> Role {
        Role::Of(PrivilegeSet::READ_WRITE, RoleScope::bucket(bucket))
    }

    /// A role that reads documents of one bucket, or of all (`*`).
    pub fn read_only(bucket: &str) -> Role {
        Role::Of(PrivilegeSet::READ_ONLY, RoleScope::bucket(bucket))
    }
}

impl RoleScope {
    /// The whole of one bucket, or of all (`*`).
    pub fn bucket(name: &str) -> RoleScope {
        RoleScope { bucket: name.to_owned(), scope: None, collection: None }
    }

    fn covers_bucket(&self, bucket: &str) -> bool {
        self.bucket == "*" || self.bucket == bucket
    }

    fn covers(&self, scope: &str, collection: &str) -> bool {
        self.scope.as_deref().is_none_or(|of| of == scope)
            && self.collection.as_deref().is_none_or(|of| of == collection)
    }
}

impl FromStr for RoleScope {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<RoleScope, RoleError> {
        let mut names = text.split('/');
        let bucket = names.next().unwrap_or_default();
        if bucket != "*" && !is_bucket_name(bucket) {
            return Err(RoleError::BadBucket(bucket.to_owned()));
        }
        let (scope, collection) = (names.next(), names.next());
        if let Some(bad) =
            scope.into_iter().chain(collection).find(|name| !is_collection_name(name))
        {
            return Err(RoleError::BadName(bad.to_owned()));
        }
        if names.next().is_some() {
            return Err(RoleError::UnknownRole(text.to_owned()));
        }
        let (scope, collection) = (scope.map(str::to_owned), collection.map(str::to_owned));
        debug_assert!(collection.is_none() || scope.is_some(), "a collection is in a scope");
        Ok(RoleScope { bucket: bucket.to_owned(), scope, collection })
    }
}

impl fmt::Display for RoleScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bucket)?;
        for name in self.scope.iter().chain(&self.collection) {
            write!(f, "/{name}")?;
        }
        Ok(())
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Role, RoleError> {
        if text == "admin" {
            return Ok(Role::Admin);
        }
        let Some((words, place)) = text.split_once(':') else {
            return Err(RoleError::UnknownRole(text.to_owned()));
        };
        let mut privileges = PrivilegeSet::NONE;
        for word in words.split('+') {
            let known = PrivilegeSet::from_word(word);
            let known = known.ok_or_else(|| RoleError::UnknownWord(word.to_owned()))?;
            privileges = privileges.and(known);
        }
        Ok(Role::Of(privileges, place.parse()?))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Admin => f.write_str("admin"),
            Role::Of(privileges, place) => write!(f, "{}:{place}", privileges.to_words()),
        }
    }
}

/// The rights of one user. SELECT_BUCKET and every admin HTTP request check them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    roles: Vec<Role>,
}

impl Access {
    /// Rights made of `roles`; an empty list allows nothing.
    pub fn new(roles: Vec<Role>) -> Access {
        Access { roles }
    }

    /// True when the user may change buckets, scopes and collections, and do everything else.
    pub fn is_admin(&self) -> bool {
        self.roles.contains(&Role::Admin)
    }

    /// True when the user may do anything in some part of `bucket`.
    pub fn reaches(&self, bucket: &str) -> bool {
        self.is_admin() || self.grants(bucket).next().is_some()
    }

    /// The user's privileges in every collection of `bucket`.
    pub fn everywhere(&self, bucket: &str) -> PrivilegeSet {
        if self.is_admin() {
            return PrivilegeSet::ALL;
        }
        let whole = self.grants(bucket).filter(|(_, place)| place.scope.is_none());
        whole.fold(PrivilegeSet::NONE, |sum, (privileges, _)| sum.and(privileges))
    }

    /// The user's privileges in some collection of `bucket`, whether or not it exists.
    pub fn somewhere(&self, bucket: &str) -> PrivilegeSet {
        let everywhere = self.everywhere(bucket);
        self.grants(bucket).fold(everywhere, |sum, (privileges, _)| sum.and(privileges))
    }

    /// The user's privileges in one collection of `bucket`.
    pub fn within(&self, bucket: &str, scope: &str, collection: &str) -> PrivilegeSet {
        let here = self.grants(bucket).filter(|(_, place)| place.covers(scope, collection));
        here.fold(self.everywhere(bucket), |sum, (privileges, _)| sum.and(privileges))
    }

    /// True when the user may see that `bucket` has this scope.
    pub fn sees_scope(&self, bucket: &str, scope: &str) -> bool {
        let sees = |place: &RoleScope| place.scope.as_deref().is_none_or(|of| of == scope);
        self.is_admin() || self.grants(bucket).any(|(_, place)| sees(place))
    }

    /// The roles that this was built from, in the order in which they were given.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Privileges in some part of a bucket.
    fn grants(&self, bucket: &str) -> impl Iterator<Item = (PrivilegeSet, &RoleScope)> {
        self.roles.iter().filter_map(move |role| match role {
            Role::Of(privileges, place) if place.covers_bucket(bucket) => {
                Some((*privileges, place))
            }
            _ => None,
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub name: String,
    /// Privileges of this user.
    pub access: Access,
    /// The default bucket for clients that cannot select one, if an administrator has set it.
    pub bucket: Option<String>,
    /// Their collection in their bucket, if an administrator has set it.
    pub collection: Option<CollectionPath>,
}

#[cfg(test)]
mod tests {
    use super::super::Privilege;
    use super::*;

    const READ: PrivilegeSet = PrivilegeSet::READ_ONLY;
    const WRITE: PrivilegeSet = PrivilegeSet::READ_WRITE;

    fn access(roles: &[&str]) -> Access {
        Access::new(roles.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn text_form_round_trips() {
        let roles = [
            "admin",
            "read-write:default",
            "read-only:*",
            "read-only:a-b_c.d%20",
            "read-write:orders/_default",
            "read-only+insert:orders/eu/cus%tomers-1",
            "meta+stats:*",
            "upsert:*/s/c",
        ];
        for text in roles {
            assert_eq!(text.parse::<Role>().unwrap().to_string(), text);
        }
        let bad = [
            "",
            "Admin",
            "read-write",
            "read-write:",
            "read-only:a b",
            "writer:x",
            ":b",
            "+:b",
            "admin:b",
            "admin+read:b",
            "read-only:b/",
            "read-only:b//c",
            "read-only:b/s/",
            "read-only:b/s/c/d",
            "read-only:b/a.b",
            "read-only:*/*",
            "read-only+:b",
        ];
        for text in bad {
            assert!(text.parse::<Role>().is_err(), "{text:?} must be refused");
        }
    }

    #[test]
    fn rights_follow_the_roles() {
        let some = access(&["read-write:orders", "read-only:default"]);
        assert!(some.everywhere("orders").holds(WRITE));
        assert_eq!(some.everywhere("default"), READ);
        assert!(some.reaches("default") && !some.reaches("other"));
        assert!(some.everywhere("other").is_empty() && !some.is_admin());

        let admin = access(&["admin"]);
        assert!(admin.is_admin() && admin.reaches("x"));
        assert_eq!(admin.within("x", "s", "c"), PrivilegeSet::ALL);

        let everywhere = access(&["read-only:*"]);
        assert_eq!(everywhere.everywhere("x"), READ);
        assert!(!Access::default().reaches("x"));
    }

    #[test]
    fn scoped_rights_stay_in_place_and_add_up() {
        let some = access(&["read-only:b/s", "read-write:b/s/c", "insert:*/t/u"]);
        assert!(some.everywhere("b").is_empty() && some.reaches("b") && some.reaches("other"));
        assert_eq!(some.within("b", "s", "c"), WRITE);
        assert_eq!(some.within("b", "s", "d"), READ);
        assert!(some.within("b", "r", "c").is_empty());
        assert_eq!(some.within("other", "t", "u"), Privilege::Insert.into());
        assert!(some.within("other", "s", "c").is_empty());
        assert_eq!(some.somewhere("b"), WRITE);
        assert!(some.sees_scope("b", "t") && !some.sees_scope("b", "r"));
        assert!(!some.sees_scope("other", "s"));
    }
}
