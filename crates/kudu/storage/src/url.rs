//! `kudu://HOST:PORT[,HOST:PORT...][/DATABASE][?tablets=16&replicas=3]`: the place of a bucket's
//! table.
//!
//! Owns: parsing and printing. Invariant: a parsed URL prints as a URL that parses to the same. The
//! server's settings call this, so every error uses the words of the URL.

use std::fmt;
use std::str::FromStr;

use oribi_kudu::HostPort;

/// Prefix of every URL of this kind.
const SCHEME: &str = "kudu://";
/// Default database of the tables.
const DATABASE: &str = "oribi";
/// Default number of tablets of a new table.
const TABLETS: u16 = 16;
/// There are no more vbuckets than that, and each lives in one tablet.
const TABLETS_MAX: u16 = 1024;
const REPLICAS_MAX: u32 = 7;
/// Longest name of a database. Kudu allows 256 bytes for a table, of which the bucket takes up to
/// 100.
const DATABASE_BYTES_MAX: usize = 100;

/// The place of a bucket's table, and the parameters for its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KuduUrl {
    masters: Vec<HostPort>,
    database: String,
    tablets: u16,
    replicas: Option<u32>,
}

/// Why a URL is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; it is written kudu://HOST:PORT[,HOST:PORT...][/DATABASE][?tablets=16&replicas=3]")]
pub struct KuduUrlError(String);

impl KuduUrl {
    /// True for a text that is intended as such a URL, valid or not.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with("kudu:")
    }

    /// The addresses of the masters, separated by commas.
    pub fn masters(&self) -> String {
        self.masters.iter().map(HostPort::to_string).collect::<Vec<_>>().join(",")
    }

    /// The name of a bucket's table.
    pub fn table_of(&self, bucket: &str) -> String {
        format!("{}.{bucket}", self.database)
    }

    /// Number of tablets of a new table for a bucket of `vbuckets` vbuckets.
    pub fn tablets_for(&self, vbuckets: u16) -> u16 {
        self.tablets.min(vbuckets).max(1)
    }

    /// Replicas of each tablet of a new table; the cluster's default when not set.
    pub fn replicas(&self) -> Option<u32> {
        self.replicas
    }
}

impl FromStr for KuduUrl {
    type Err = KuduUrlError;

    fn from_str(text: &str) -> Result<KuduUrl, KuduUrlError> {
        let wrong = |what: String| KuduUrlError(what);
        let rest = text
            .strip_prefix(SCHEME)
            .ok_or_else(|| wrong(format!("{text:?} does not begin with {SCHEME}")))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (masters, database) = rest.split_once('/').unwrap_or((rest, DATABASE));
        let masters = masters
            .split(',')
            .map(|master| master.parse::<HostPort>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(format!("a master's address is wrong: {error}")))?;
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if database.is_empty()
            || database.len() > DATABASE_BYTES_MAX
            || !database.bytes().all(is_name_byte)
        {
            return Err(wrong(format!(
                "the database {database:?} is not a name of up to {DATABASE_BYTES_MAX} letters, digits, _ and -"
            )));
        }
        let mut url =
            KuduUrl { masters, database: database.to_owned(), tablets: TABLETS, replicas: None };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            url.set(pair)?;
        }
        Ok(url)
    }
}

impl KuduUrl {
    fn set(&mut self, pair: &str) -> Result<(), KuduUrlError> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let number = value.parse::<u16>();
        match (name, number) {
            ("tablets", Ok(tablets @ 1..=TABLETS_MAX)) => self.tablets = tablets,
            ("tablets", _) => {
                return Err(KuduUrlError(format!(
                    "tablets={value:?} is not a number from 1 to {TABLETS_MAX}"
                )));
            }
            ("replicas", Ok(replicas))
                if replicas % 2 == 1 && u32::from(replicas) <= REPLICAS_MAX =>
            {
                self.replicas = Some(replicas.into());
            }
            ("replicas", _) => {
                return Err(KuduUrlError(format!(
                    "replicas={value:?} is not an odd number up to {REPLICAS_MAX}"
                )));
            }
            (other, _) => {
                return Err(KuduUrlError(format!("there is no option {other:?}")));
            }
        }
        Ok(())
    }
}

impl fmt::Display for KuduUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}?tablets={}", self.masters(), self.database, self.tablets)?;
        match self.replicas {
            Some(replicas) => write!(f, "&replicas={replicas}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KuduUrl;

    #[test]
    fn printed_urls_parse_to_the_same() {
        for (text, printed) in [
            ("kudu://127.0.0.1", "kudu://127.0.0.1:7051/oribi?tablets=16"),
            ("kudu://a:1,b:2/db?replicas=3", "kudu://a:1,b:2/db?tablets=16&replicas=3"),
            ("kudu://a/x_-9?tablets=4&replicas=1", "kudu://a:7051/x_-9?tablets=4&replicas=1"),
        ] {
            let url: KuduUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), printed);
            assert_eq!(url.to_string().parse(), Ok(url));
        }
        let url: KuduUrl = "kudu://a/db?tablets=4".parse().unwrap();
        assert_eq!((url.table_of("b"), url.replicas()), ("db.b".to_owned(), None));
        assert_eq!((url.tablets_for(1024), url.tablets_for(2), url.tablets_for(0)), (4, 2, 1));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("kudu:/a", "does not begin"),
            ("kudu://", "address"),
            ("kudu://a:b", "address"),
            ("kudu://a,,b", "address"),
            ("kudu://a/", "database"),
            ("kudu://a/x.y", "database"),
            ("kudu://a?tablets=0", "tablets"),
            ("kudu://a?tablets=2000", "tablets"),
            ("kudu://a?replicas=2", "replicas"),
            ("kudu://a?replicas=9", "replicas"),
            ("kudu://a?shards=1", "no option"),
        ] {
            let error = text.parse::<KuduUrl>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(error.contains("kudu://HOST:PORT"), "{text}: {error}");
        }
        assert!(KuduUrl::is_meant_by("kudu:x") && !KuduUrl::is_meant_by("log"));
    }
}
