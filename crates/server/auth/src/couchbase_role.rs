//! Roles under the names that Couchbase's clients use, such as `data_reader[orders:eu:invoices]`.
//!
//! Owns: the table of names and the syntax with brackets. A name stands in the table when a role
//! of Oribi means the same for documents and statistics. The words of Oribi's own roles are names,
//! too: `read-only+insert[orders]`. Invariants: a name that is not known is refused, never ignored;
//! the description of a role, written as text, is read as the same role. Callers: the admin HTTP
//! and the file of `--init`.

use super::privilege::{Privilege, PrivilegeSet};
use super::role::{Role, RoleError, RoleScope};

/// One of Couchbase's roles that exists here.
pub struct CouchbaseRole {
    /// Name on the wire.
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    /// Its privileges; `None` for the administrator's role.
    privileges: Option<PrivilegeSet>,
    /// True when it can be limited to a scope or collection.
    pub is_scoped: bool,
}

/// Everything about documents, as Couchbase's `bucket_full_access` allows: all but operator
/// statistics.
const FULL_ACCESS: PrivilegeSet = PrivilegeSet::ALL.without(PrivilegeSet::of(&[Privilege::Stats]));

/// Every role of Couchbase's that a role of Oribi equals.
pub const COUCHBASE_ROLES: [CouchbaseRole; 7] = [
    CouchbaseRole {
        name: "admin",
        title: "Full Admin",
        description: "Everything: documents, buckets, collections, users.",
        privileges: None,
        is_scoped: false,
    },
    CouchbaseRole {
        name: "bucket_full_access",
        title: "Application Access",
        description: "Read and write the documents of a bucket, with metadata, and its changes.",
        privileges: Some(FULL_ACCESS),
        is_scoped: false,
    },
    CouchbaseRole {
        name: "data_reader",
        title: "Data Reader",
        description: "Read documents and their metadata, and scan them.",
        privileges: Some(PrivilegeSet::of(&[
            Privilege::Read,
            Privilege::MetaRead,
            Privilege::RangeScan,
        ])),
        is_scoped: true,
    },
    CouchbaseRole {
        name: "data_writer",
        title: "Data Writer",
        description: "Create, change and delete documents; reading them needs data_reader.",
        privileges: Some(PrivilegeSet::of(&[
            Privilege::Insert,
            Privilege::Upsert,
            Privilege::Delete,
        ])),
        is_scoped: true,
    },
    CouchbaseRole {
        name: "data_dcp_reader",
        title: "Data DCP Reader",
        description: "Follow all changes of documents.",
        privileges: Some(PrivilegeSet::of(&[
            Privilege::Read,
            Privilege::MetaRead,
            Privilege::SystemXattrRead,
            Privilege::DcpStream,
        ])),
        is_scoped: true,
    },
    CouchbaseRole {
        name: "data_monitoring",
        title: "Data Monitor",
        description: "Read statistics.",
        privileges: Some(PrivilegeSet::of(&[Privilege::SimpleStats])),
        is_scoped: true,
    },
    CouchbaseRole {
        name: "replication_target",
        title: "XDCR Inbound",
        description: "Read and write documents with their metadata.",
        privileges: Some(PrivilegeSet::of(&[
            Privilege::MetaRead,
            Privilege::MetaWrite,
            Privilege::SimpleStats,
        ])),
        is_scoped: false,
    },
];

/// A role as clients name it: a name, and where it holds.
pub struct RoleDescription<'a> {
    /// Couchbase's name, or Oribi's words where no name of Couchbase's means the same.
    pub name: String,
    /// Where the role holds; `None` for the administrator's role.
    pub place: Option<&'a RoleScope>,
}

/// The name of a role for clients.
pub fn described(role: &Role) -> RoleDescription<'_> {
    let Role::Of(privileges, place) = role else {
        return RoleDescription { name: "admin".to_owned(), place: None };
    };
    let fits = |known: &&CouchbaseRole| {
        known.privileges == Some(*privileges) && (known.is_scoped || place.scope.is_none())
    };
    let name = match COUCHBASE_ROLES.iter().find(fits) {
        Some(known) => known.name.to_owned(),
        None => privileges.to_words(),
    };
    RoleDescription { name, place: Some(place) }
}

/// Roles separated by commas, in Couchbase's syntax.
///
/// # Errors
/// Every role that is not known here, as it was written.
pub fn parse_list(text: &str) -> Result<Vec<Role>, Vec<String>> {
    let (mut roles, mut unknown) = (Vec::new(), Vec::new());
    for one in text.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        match parse(one) {
            Some(role) if roles.contains(&role) => {}
            Some(role) => roles.push(role),
            None => unknown.push(one.to_owned()),
        }
    }
    if unknown.is_empty() { Ok(roles) } else { Err(unknown) }
}

/// One role, in Couchbase's syntax or in Oribi's. Command line, file of `--init`, REST and console
/// all take both.
///
/// # Errors
/// Reason why it is invalid.
pub fn parse_role(text: &str) -> Result<Role, RoleError> {
    match parse(text) {
        Some(role) => Ok(role),
        None => text.parse(),
    }
}

/// One role: `NAME`, `NAME[BUCKET[:SCOPE[:COLLECTION]]]` or `WORDS:BUCKET[/SCOPE[/COLLECTION]]`.
fn parse(text: &str) -> Option<Role> {
    if text.contains(':') && !text.contains('[') {
        return text.parse().ok();
    }
    let (name, place) = match text.split_once('[') {
        Some((name, rest)) => (name, rest.strip_suffix(']')?),
        None => (text, ""),
    };
    if name == "admin" {
        return place.is_empty().then_some(Role::Admin);
    }
    let place = parse_place(place)?;
    let known = COUCHBASE_ROLES.iter().find(|role| role.name == name);
    let privileges = match known {
        Some(known) if place.scope.is_some() && !known.is_scoped => return None,
        Some(known) => known.privileges?,
        None => words(name)?,
    };
    Some(Role::Of(privileges, place))
}

/// `BUCKET[:SCOPE[:COLLECTION]]`, where `*` stands for every one.
fn parse_place(text: &str) -> Option<RoleScope> {
    let mut names: Vec<&str> = text.split(':').collect();
    while names.len() > 1 && names.last() == Some(&"*") {
        names.pop();
    }
    names.join("/").parse().ok()
}

fn words(text: &str) -> Option<PrivilegeSet> {
    text.split('+')
        .try_fold(PrivilegeSet::NONE, |sum, word| Some(sum.and(PrivilegeSet::from_word(word)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A role in the syntax that [`parse`] reads.
    fn written(role: &Role) -> String {
        let RoleDescription { name, place } = described(role);
        match place {
            None => name,
            Some(place) => format!("{name}[{}]", place.to_string().replace('/', ":")),
        }
    }

    #[test]
    fn both_syntaxes_are_one_role() {
        for (ours, theirs) in [
            ("read-only:b/s", "read-only[b:s]"),
            ("read+meta-read+range-scan:b", "data_reader[b]"),
            ("admin", "admin"),
        ] {
            assert_eq!(parse_role(ours), parse_role(theirs), "{ours}");
            assert_eq!(parse_list(ours).map(|roles| roles[0].clone()).ok(), parse_role(ours).ok());
        }
        let error = parse_role("reader:b").expect_err("no such word");
        assert!(error.to_string().contains("reader"), "{error}");
    }

    #[test]
    fn couchbase_role_names_round_trip() {
        let same = [
            ("admin", "admin"),
            ("data_reader[b]", "read+meta-read+range-scan:b"),
            ("data_reader[*]", "read+meta-read+range-scan:*"),
            ("data_writer[b:s]", "insert+upsert+delete:b/s"),
            ("data_writer[b:s:c]", "insert+upsert+delete:b/s/c"),
            ("data_dcp_reader[b]", "read+meta-read+system-xattr-read+change-streams:b"),
            ("data_monitoring[*]", "simple-stats:*"),
            ("bucket_full_access[b.1]", "read-write+meta+change-streams:b.1"),
            ("replication_target[b]", "meta+simple-stats:b"),
            ("read-write[b:s:c]", "read-write:b/s/c"),
            ("read-only+insert[b]", "read-only+insert:b"),
            ("bucket_full_access[b]", "read-write+meta+change-streams:b"),
        ];
        for (couchbase, oribi) in same {
            let role = oribi.parse::<Role>().unwrap();
            assert_eq!(parse_list(couchbase), Ok(vec![role.clone()]), "{couchbase}");
            assert_eq!(written(&role), couchbase);
        }
        let wild = [
            ("data_reader[b:*:*]", "data_reader[b]"),
            ("data_reader[b:s:*]", "data_reader[b:s]"),
            ("admin[]", "admin"),
        ];
        for (long, short) in wild {
            assert_eq!(parse_list(long), parse_list(short), "{long}");
        }
        assert_eq!(parse_list("").unwrap(), []);
        assert_eq!(parse_list("admin, data_reader[b],admin").unwrap().len(), 2);
    }

    #[test]
    fn roles_without_a_counterpart_are_refused_by_name() {
        let unknown = [
            "ro_admin",
            "cluster_admin",
            "bucket_admin[b]",
            "query_select[b:s:c]",
            "data_reader",
            "data_reader[]",
            "data_reader[b",
            "data_reader[b]]",
            "data_reader[a b]",
            "data_reader[b:s:c:d]",
            "data_reader[b:*:c]",
            "bucket_full_access[b:s]",
            "admin[b]",
            "read-only",
            "[b]",
            "+[b]",
        ];
        for text in unknown {
            assert_eq!(parse_list(text), Err(vec![text.to_owned()]));
        }
        let some = "data_reader[b],nonsense,data_writer";
        assert_eq!(parse_list(some), Err(vec!["nonsense".to_owned(), "data_writer".to_owned()]));
    }

    #[test]
    fn no_two_roles_of_the_table_are_the_same() {
        for (index, role) in COUCHBASE_ROLES.iter().enumerate() {
            let twin = COUCHBASE_ROLES[..index]
                .iter()
                .find(|other| other.name == role.name || other.privileges == role.privileges);
            assert!(twin.is_none(), "{}", role.name);
        }
    }
}
