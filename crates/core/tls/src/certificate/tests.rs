//! Certificates made by rcgen, damaged ones, and the calendar.

use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair, SanType, date_time_ymd};

use super::{days_since_1970, read, time};

fn der(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let mut params = CertificateParams::default();
    change(&mut params);
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

fn full() -> Vec<u8> {
    der(|params| {
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.subject_alt_names = vec![
            SanType::DnsName("www.example.org".try_into().unwrap()),
            SanType::Rfc822Name("alice@example.org".try_into().unwrap()),
            SanType::URI("urn:app:alice".try_into().unwrap()),
            SanType::DnsName("other".try_into().unwrap()),
        ];
        params.not_before = date_time_ymd(1999, 12, 31);
        params.not_after = date_time_ymd(2050, 3, 1);
    })
}

#[test]
fn names_and_times_are_read() {
    let certificate = read(&full()).unwrap();
    assert_eq!(certificate.common_name.as_deref(), Some("alice"));
    assert_eq!(certificate.dns_names, ["www.example.org", "other"]);
    assert_eq!(certificate.emails, ["alice@example.org"]);
    assert_eq!(certificate.uris, ["urn:app:alice"]);
    assert_eq!(certificate.not_before_unix_s, 946_598_400);
    assert_eq!(certificate.not_after_unix_s, 2_529_705_600);
}

#[test]
fn names_that_are_not_plain_text_do_not_count() {
    let certificate = read(&der(|params| {
        params.distinguished_name.push(DnType::CommonName, "admin\0.example.org");
    }));
    assert_eq!(certificate.unwrap().common_name, None);
}

#[test]
fn calendar_is_the_gregorian_one() {
    for (date, days) in [
        ((1970, 1, 1), 0),
        ((1969, 12, 31), -1),
        ((2000, 2, 29), 11_016),
        ((2000, 3, 1), 11_017),
        ((2100, 3, 1), 47_541),
    ] {
        assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
    }
    assert_eq!(time((0x17, b"491231235959Z")), Ok(2_524_607_999));
    assert_eq!(time((0x17, b"500101000000Z")), Ok(-631_152_000));
    for bad in [&b""[..], b"Z", b"4912312359Z", b"491231235959", b"49123123595xZ"] {
        time((0x17, bad)).expect_err("malformed");
    }
}

proptest! {
    #[test]
    fn damaged_certificates_are_errors_or_certificates(
        flips in proptest::collection::vec((0_usize..2000, any::<u8>()), 0..4),
        keep in 0_usize..2000,
    ) {
        let mut der = full();
        for (position, byte) in flips {
            let position = position % der.len();
            der[position] = byte;
        }
        der.truncate(keep);
        // Only that it returns.
        let _ = read(&der);
    }

    #[test]
    fn any_bytes_are_an_error_or_a_certificate(der in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&der);
    }

    #[test]
    fn a_certificate_that_is_cut_off_is_refused(keep in 0_usize..1000) {
        let der = full();
        let keep = keep % der.len();
        prop_assert!(read(&der[..keep]).is_err());
    }
}
