//! Replaces the Kudu URL in a build without that feature.
//!
//! Owns: the error that such a build gives for a `kudu://` URL.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// The place of a bucket's table, of which this build has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KuduUrl(Infallible);

impl KuduUrl {
    /// No URL is ever made.
    pub fn absurd(&self) -> ! {
        match self.0 {}
    }

    /// True for a text that is intended as such a URL, valid or not.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with("kudu:")
    }
}

impl FromStr for KuduUrl {
    type Err = &'static str;

    fn from_str(_text: &str) -> Result<KuduUrl, &'static str> {
        Err("this build has no Kudu; build it with --features kudu")
    }
}

impl fmt::Display for KuduUrl {
    fn fmt(&self, _formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}
