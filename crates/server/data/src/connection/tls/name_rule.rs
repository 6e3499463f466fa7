//! Rules that find a user's name in a certificate.
//!
//! The model is Couchbase's: rules in an order, each with a field, a prefix that the field begins
//! with and that is removed, and characters that end the name. The first rule that yields a name
//! decides, even if there is no such user: a later rule must not turn an unknown user into a known
//! one.

use std::str::FromStr;

use oribi_tls::certificate::Certificate;

/// Why the text of a rule is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is no rule: write subject.cn, san.email, san.dns or san.uri, and perhaps |PREFIX and |CHARACTERS"
)]
pub struct NameRuleError(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    CommonName,
    Email,
    Dns,
    Uri,
}

/// See the module text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRule {
    field: Field,
    prefix: String,
    delimiters: Vec<char>,
}

impl FromStr for NameRule {
    type Err = NameRuleError;

    /// `FIELD`, `FIELD|PREFIX` or `FIELD|PREFIX|CHARACTERS`.
    fn from_str(text: &str) -> Result<NameRule, NameRuleError> {
        let mut parts = text.splitn(3, '|');
        let field = match parts.next() {
            Some("subject.cn") => Field::CommonName,
            Some("san.email") => Field::Email,
            Some("san.dns") => Field::Dns,
            Some("san.uri") => Field::Uri,
            _ => return Err(NameRuleError(text.to_owned())),
        };
        let prefix = parts.next().unwrap_or_default().to_owned();
        let delimiters = parts.next().unwrap_or_default().chars().collect();
        Ok(NameRule { field, prefix, delimiters })
    }
}

impl NameRule {
    /// The user that a certificate names by this rule.
    fn user<'c>(&self, certificate: &'c Certificate) -> Option<&'c str> {
        let values = match self.field {
            Field::CommonName => certificate.common_name.as_slice(),
            Field::Email => &certificate.emails,
            Field::Dns => &certificate.dns_names,
            Field::Uri => &certificate.uris,
        };
        values.iter().find_map(|value| {
            let rest = value.strip_prefix(self.prefix.as_str())?;
            let name = rest.split(self.delimiters.as_slice()).next()?;
            (!name.is_empty()).then_some(name)
        })
    }
}

/// The user that a certificate names by the first rule that yields one.
pub(super) fn user<'c>(rules: &[NameRule], certificate: &'c Certificate) -> Option<&'c str> {
    rules.iter().find_map(|rule| rule.user(certificate))
}

#[cfg(test)]
mod tests {
    use oribi_tls::certificate::Certificate;

    use super::{NameRule, user};

    fn named(rules: &[&str]) -> Option<String> {
        let certificate = Certificate {
            common_name: Some("service-billing".to_owned()),
            dns_names: vec!["host.example.org".to_owned(), "user-db.example.org".to_owned()],
            emails: vec!["alice@example.org".to_owned()],
            uris: vec!["urn:app:alice/eu".to_owned()],
            ..Certificate::default()
        };
        let rules: Vec<NameRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        user(&rules, &certificate).map(str::to_owned)
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
