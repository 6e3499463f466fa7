//! Options of a change stream.

use std::time::Duration;

use oribi_protocol::change_token::{ChangeToken, Rest};
use oribi_types::Vbid;

/// Bytes that a node may send ahead of the application.
const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// Longest silence of a node that is asked to show that it lives.
const NOOP_INTERVAL: Duration = Duration::from_secs(10);

/// Which changes a stream shows, from where on, and with what.
///
/// ```
/// use oribi_client::DcpStreamOptions;
///
/// let options = DcpStreamOptions::new().collection("shop.orders").from_now().values(true);
/// assert_eq!(options.collections, ["shop.orders"]);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DcpStreamOptions {
    /// Paths of the collections to show; empty for all.
    pub collections: Vec<String>,
    /// Name of a scope to show, with collections that are created later. Not next to `collections`.
    pub scope: Option<String>,
    /// Vbuckets to show; empty for all.
    pub vbuckets: Vec<Vbid>,
    /// Where to begin.
    pub from: ChangeToken,
    /// Ends the stream behind what was the last change of each vbucket when it began.
    pub until_now: bool,
    /// Brings values.
    pub values: bool,
    /// Brings extended attributes.
    pub attributes: bool,
    /// Bytes that each node may send before the application has taken them; at least one document
    /// more than that is in memory.
    pub window_bytes: u32,
    /// How often a node shows that it lives; one that is silent for more than twice as long is
    /// connected to again.
    pub noop_interval: Duration,
    /// The stream's name in the server's statistics. A random part is added.
    pub name: String,
}

impl DcpStreamOptions {
    /// All changes of all collections from the beginning on, with values and without attributes.
    pub fn new() -> DcpStreamOptions {
        DcpStreamOptions {
            collections: Vec::new(),
            scope: None,
            vbuckets: Vec::new(),
            from: ChangeToken::new(Rest::Beginning),
            until_now: false,
            values: true,
            attributes: false,
            window_bytes: WINDOW_BYTES,
            noop_interval: NOOP_INTERVAL,
            name: "oribi-client".to_owned(),
        }
    }

    /// Adds a collection, as `scope.collection`, or `collection` for one in the default scope.
    pub fn collection(mut self, path: impl Into<String>) -> DcpStreamOptions {
        self.collections.push(path.into());
        self
    }

    /// Shows the collections of a scope.
    pub fn scope(mut self, name: impl Into<String>) -> DcpStreamOptions {
        self.scope = Some(name.into());
        self
    }

    /// Shows only these vbuckets, so that several streams share the work. The token of such a
    /// stream has the other vbuckets where its own first token had them.
    pub fn vbuckets(mut self, vbuckets: impl IntoIterator<Item = Vbid>) -> DcpStreamOptions {
        self.vbuckets = vbuckets.into_iter().collect();
        self
    }

    /// Begins with the oldest document: the present state first, then changes.
    pub fn from_beginning(mut self) -> DcpStreamOptions {
        self.from = ChangeToken::new(Rest::Beginning);
        self
    }

    /// Begins with the next change.
    pub fn from_now(mut self) -> DcpStreamOptions {
        self.from = ChangeToken::new(Rest::Now);
        self
    }

    /// Continues where [`crate::DcpStream::token`] was taken.
    pub fn resume(mut self, token: ChangeToken) -> DcpStreamOptions {
        self.from = token;
        self
    }

    /// Ends after the present last changes, or does not.
    pub fn until_now(mut self, is_wanted: bool) -> DcpStreamOptions {
        self.until_now = is_wanted;
        self
    }

    /// Brings values, or only that documents changed.
    pub fn values(mut self, are_wanted: bool) -> DcpStreamOptions {
        self.values = are_wanted;
        self
    }

    /// Brings extended attributes, or does not.
    pub fn attributes(mut self, are_wanted: bool) -> DcpStreamOptions {
        self.attributes = are_wanted;
        self
    }

    /// Sets how much each node may send ahead.
    pub fn window_bytes(mut self, bytes: u32) -> DcpStreamOptions {
        self.window_bytes = bytes;
        self
    }

    /// Sets how often a node shows that it lives; whole seconds, at least one.
    pub fn noop_interval(mut self, interval: Duration) -> DcpStreamOptions {
        self.noop_interval = interval;
        self
    }

    /// Sets what the server's statistics call the stream.
    pub fn name(mut self, name: impl Into<String>) -> DcpStreamOptions {
        self.name = name.into();
        self
    }
}

impl Default for DcpStreamOptions {
    fn default() -> DcpStreamOptions {
        DcpStreamOptions::new()
    }
}
