//! Rights: attributes of the system, and requests that change and reveal at once.

use oribi_protocol::opcode::Opcode::*;
use oribi_protocol::status::Status;

use super::{mutate, one};
use crate::dispatch::tests::Client;

const XATTR: u8 = 0x04;

/// An administrator's client, and a document with a user's and a system's attribute.
fn owner() -> Client {
    let mut client = Client::modern();
    client.set(b"k", br#"{"n":1}"#);
    for path in ["user", "_sys"] {
        let reply = one(&mut client, SubdocDictUpsert, XATTR, path, "7");
        assert_eq!(reply.status, Status::Success);
    }
    client
}

// Compat (Sub-document operations): `$XTOC` names system attributes only to users who may read them
#[test]
fn system_xattr_names_are_shown_by_rights() {
    // Regression: `$XTOC` listed them to every user who could read the document.
    let owner = owner();
    for (roles, names) in [
        (&["read:default"][..], r#"["user"]"#),
        (&["read:default/_default/_default"], r#"["user"]"#),
        (&["read+system-xattr-read:default"], r#"["user","_sys"]"#),
        (&["read-only:default/_default"], r#"["user","_sys"]"#),
    ] {
        let reply = one(&mut owner.beside(roles), SubdocGet, XATTR, "$XTOC", "");
        assert_eq!((reply.status, &reply.value[..]), (Status::Success, names.as_bytes()));
    }
}

#[test]
fn mutations_that_reveal_content_need_read_rights() {
    // Regression: a counter answers the attribute's value, and an attribute that became the body is
    // readable.
    let owner = owner();
    let (no, yes) = (Status::Eaccess, Status::Success);
    let write = "upsert+system-xattr-write";
    for (opcode, path, rights, status) in [
        (SubdocDictUpsert, "_sys", write.to_owned(), yes),
        (SubdocCounter, "_sys", format!("{write}+read"), no),
        (SubdocCounter, "_sys", format!("{write}+system-xattr-read"), no),
        (SubdocCounter, "_sys", format!("{write}+read+system-xattr-read"), yes),
        (SubdocCounter, "user", "upsert".to_owned(), no),
        (SubdocCounter, "user", "upsert+read".to_owned(), yes),
        (SubdocReplaceBodyWithXattr, "user", "upsert".to_owned(), no),
        (SubdocReplaceBodyWithXattr, "user", "upsert+read".to_owned(), yes),
        (SubdocReplaceBodyWithXattr, "_sys", format!("{write}+read"), no),
        (SubdocReplaceBodyWithXattr, "_sys", format!("{write}+read+system-xattr-read"), yes),
    ] {
        let mut client = owner.beside(&[&format!("{rights}:default")]);
        let value = if opcode == SubdocReplaceBodyWithXattr { "" } else { "1" };
        let single = one(&mut client, opcode, XATTR, path, value).status;
        let listed = mutate(&mut client, &[], 0, &[(opcode, XATTR, path, value)]).status;
        assert_eq!((single, listed), (status, status), "{opcode:?} {path} with {rights}");
    }
}
