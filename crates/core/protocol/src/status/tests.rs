//! The status table is consistent and holds the codes that clients know.

use super::*;

#[test]
fn codes_and_names_agree() {
    let known = (0..=u16::MAX).filter_map(Status::from_u16).count();
    assert_eq!(known, Status::all().len());
    assert!(Status::all().is_sorted());
    for status in Status::all() {
        assert_eq!(Status::from_u16(status.code()), Some(*status));
        assert_eq!(status.name(), format!("{status:?}"));
        assert!(!status.description().is_empty());
    }
}

#[test]
fn spot_checks() {
    for (code, status) in [
        (0x00, Status::Success),
        (0x07, Status::NotMyVbucket),
        (0x21, Status::AuthContinue),
        (0x86, Status::Etmpfail),
        (0x88, Status::UnknownCollection),
        (0xa3, Status::SyncWriteAmbiguous),
        (0xd8, Status::SubdocFieldNotBinaryValue),
    ] {
        assert_eq!(Status::from_u16(code), Some(status));
    }
}
