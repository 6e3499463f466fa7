//! The user that a client's certificate names.
//!
//! The first rule that yields a name decides, even if there is no such user: a later rule must not
//! turn an unknown user into a known one. [`NameRule`] has the form of a rule.

use oribi_config::{NameField, NameRule};
use oribi_tls::certificate::Certificate;

/// The user that a certificate names by the first rule that yields one.
pub fn certificate_user<'c>(rules: &[NameRule], certificate: &'c Certificate) -> Option<&'c str> {
    rules.iter().find_map(|rule| user_by(rule, certificate))
}

fn user_by<'c>(rule: &NameRule, certificate: &'c Certificate) -> Option<&'c str> {
    let values = match rule.field {
        NameField::CommonName => certificate.common_name.as_slice(),
        NameField::Email => &certificate.emails,
        NameField::Dns => &certificate.dns_names,
        NameField::Uri => &certificate.uris,
    };
    values.iter().find_map(|value| {
        let rest = value.strip_prefix(rule.prefix.as_str())?;
        let name = rest.split(rule.delimiters.as_slice()).next()?;
        (!name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use oribi_tls::certificate::Certificate;

    use super::{NameRule, certificate_user};

    fn named(rules: &[&str]) -> Option<String> {
        let certificate = Certificate {
            common_name: Some("service-billing".to_owned()),
            dns_names: vec!["host.example.org".to_owned(), "user-db.example.org".to_owned()],
            emails: vec!["alice@example.org".to_owned()],
            uris: vec!["urn:app:alice/eu".to_owned()],
            ..Certificate::default()
        };
        let rules: Vec<NameRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        certificate_user(&rules, &certificate).map(str::to_owned)
    }

    #[test]
    fn prefix_and_delimiters_are_left_out() {
        for (rules, expected) in [
            (&["subject.cn"][..], Some("service-billing")),
            (&["subject.cn|service-"], Some("billing")),
            (&["san.email||@"], Some("alice")),
            (&["san.dns|user-|.:"], Some("db")),
            (&["san.uri|urn:app:|/#"], Some("alice")),
            (&["san.uri|urn:other:", "subject.cn|service-"], Some("billing")),
            (&["subject.cn|nobody-", "san.email|bob"], None),
            (&["subject.cn|service-billing"], None),
            (&[], None),
        ] {
            assert_eq!(named(rules).as_deref(), expected, "{rules:?}");
        }
        for bad in ["", "cn", "subject.CN", "|x"] {
            bad.parse::<NameRule>().expect_err(bad);
        }
    }
}
