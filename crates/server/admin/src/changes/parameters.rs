//! The query of a stream of changes: the options of `oribi watch`, by the same names.
//!
//! Owns: which parameters there are. Invariant: an unknown parameter or value is refused, so that a
//! misspelt filter does not show everything.

use std::ops::Range;

use oribi_protocol::change_token::{ChangeToken, Rest};

use crate::message::{HttpRejection, decode, field_error};

/// Which documents are wanted, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CollectionSelection {
    All,
    /// Those of a scope.
    Scope(String),
    /// Those of collections, as `scope.collection`.
    Collections(Vec<String>),
}

/// See the module text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChangesParameters {
    pub shown: CollectionSelection,
    pub from: ChangeToken,
    /// Vbuckets to follow, if not all.
    pub vbuckets: Option<Range<u16>>,
    pub until_now: bool,
    pub values: bool,
    pub xattrs: bool,
    pub snapshots: bool,
    /// Only the last event of each send has an id.
    pub sparse_ids: bool,
}

impl ChangesParameters {
    /// Reads a query.
    ///
    /// # Errors
    /// 400 with the name of the parameter.
    pub fn parse(query: &str) -> Result<ChangesParameters, HttpRejection> {
        let mut read = ChangesParameters {
            shown: CollectionSelection::All,
            from: ChangeToken::new(Rest::Now),
            vbuckets: None,
            until_now: false,
            values: false,
            xattrs: false,
            snapshots: false,
            sparse_ids: false,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = decode(name, true).zip(decode(value, true));
            let (name, value) =
                decoded.ok_or_else(|| field_error("_", "The query is not URL-encoded"))?;
            read.take(&name, value)?;
        }
        Ok(read)
    }

    fn take(&mut self, name: &str, value: String) -> Result<(), HttpRejection> {
        match name {
            "collection" => self.add_collection(value)?,
            "scope" if self.shown == CollectionSelection::All => {
                self.shown = CollectionSelection::Scope(value)
            }
            "scope" => return Err(field_error(name, "There is one scope, or collections").into()),
            "from" => self.from = place(&value)?,
            "vbuckets" => self.vbuckets = Some(range(&value)?),
            "until-now" => self.until_now = flag(name, &value)?,
            "with-values" => self.values = flag(name, &value)?,
            "with-xattrs" => self.xattrs = flag(name, &value)?,
            "snapshots" => self.snapshots = flag(name, &value)?,
            "sparse-ids" => self.sparse_ids = flag(name, &value)?,
            _ => return Err(field_error(name, "Unsupported parameter").into()),
        }
        Ok(())
    }

    fn add_collection(&mut self, path: String) -> Result<(), HttpRejection> {
        match &mut self.shown {
            CollectionSelection::All => self.shown = CollectionSelection::Collections(vec![path]),
            CollectionSelection::Collections(paths) => paths.push(path),
            CollectionSelection::Scope(_) => {
                let message = "There is one scope, or collections";
                return Err(field_error("collection", message).into());
            }
        }
        Ok(())
    }
}

fn place(text: &str) -> Result<ChangeToken, HttpRejection> {
    match text {
        "now" => Ok(ChangeToken::new(Rest::Now)),
        "beginning" => Ok(ChangeToken::new(Rest::Beginning)),
        token => token.parse().map_err(|error| {
            field_error("from", &format!("{error} (now, beginning or a token)")).into()
        }),
    }
}

/// `FIRST-LAST` or `NUMBER`, both included.
fn range(text: &str) -> Result<Range<u16>, HttpRejection> {
    let number = |text: &str| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_plain)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
    range
        .and_then(|(first, last)| Some(first..last.checked_add(1)?))
        .ok_or_else(|| field_error("vbuckets", "The value must be FIRST-LAST").into())
}

/// A parameter without a value is on.
fn flag(name: &str, value: &str) -> Result<bool, HttpRejection> {
    match value {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(field_error(name, "The value must be true or false").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_the_options_of_watch_say() {
        let read = ChangesParameters::parse("").unwrap();
        assert_eq!(
            (&read.shown, read.values, read.until_now),
            (&CollectionSelection::All, false, false)
        );
        assert_eq!(read.from, ChangeToken::new(Rest::Now));
        let query = "collection=shop.a&collection=b%20c&from=5:3fa2:1042&with-values&with-xattrs&until-now=1\
                     &snapshots=true&sparse-ids=false&vbuckets=0-3";
        let read = ChangesParameters::parse(query).unwrap();
        assert_eq!(
            read.shown,
            CollectionSelection::Collections(vec!["shop.a".into(), "b c".into()])
        );
        assert_eq!(read.from.to_string(), "5:3fa2:1042");
        assert_eq!(read.vbuckets, Some(0..4));
        assert!(read.values && read.xattrs && read.until_now && read.snapshots && !read.sparse_ids);
        let read = ChangesParameters::parse("scope=shop&from=beginning&vbuckets=7").unwrap();
        assert_eq!(
            (read.shown, read.vbuckets),
            (CollectionSelection::Scope("shop".into()), Some(7..8))
        );
        assert_eq!(read.from, ChangeToken::new(Rest::Beginning));
    }

    #[test]
    fn misspelt_parameters_are_rejected() {
        for query in [
            "colection=a",
            "from=yesterday",
            "scope=a&collection=b",
            "collection=b&scope=a",
            "scope=a&scope=b",
            "with-values=maybe",
            "vbuckets=3-1",
            "vbuckets=-1",
            "vbuckets=+1-2",
            "vbuckets=0-65535",
            "vbuckets=x",
            "from=%zz",
        ] {
            let refused = ChangesParameters::parse(query).expect_err(query);
            assert_eq!(refused.status(), 400, "{query}");
        }
    }
}
