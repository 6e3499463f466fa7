//! Rules that say where a certificate names its user.
//!
//! The model is Couchbase's: an ordered list of rules. A rule has a field, a prefix to remove, and
//! characters that end the name. The first rule that yields a name decides, even if no such user
//! exists: a later rule must not turn an unknown user into a known one.

use std::str::FromStr;

/// Why the text of a rule is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{0:?} is no rule: write subject.cn, san.email, san.dns or san.uri, and perhaps |PREFIX and |CHARACTERS"
)]
pub struct NameRuleError(String);

/// NameField of a certificate that may hold a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameField {
    /// The common name of the subject.
    CommonName,
    /// An email address among the alternative names.
    Email,
    /// A DNS name among them.
    Dns,
    /// A URI among them.
    Uri,
}

/// See the module text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRule {
    pub field: NameField,
    /// Text that the field begins with and the name does not.
    pub prefix: String,
    /// Characters that end the name.
    pub delimiters: Vec<char>,
}

impl FromStr for NameRule {
    type Err = NameRuleError;

    /// `FIELD`, `FIELD|PREFIX` or `FIELD|PREFIX|CHARACTERS`.
    fn from_str(text: &str) -> Result<NameRule, NameRuleError> {
        let mut parts = text.splitn(3, '|');
        let field = match parts.next() {
            Some("subject.cn") => NameField::CommonName,
            Some("san.email") => NameField::Email,
            Some("san.dns") => NameField::Dns,
            Some("san.uri") => NameField::Uri,
            _ => return Err(NameRuleError(text.to_owned())),
        };
        let prefix = parts.next().unwrap_or_default().to_owned();
        let delimiters = parts.next().unwrap_or_default().chars().collect();
        Ok(NameRule { field, prefix, delimiters })
    }
}
