//! How writes and counters are made.

use oribi_types::{Cas, DurabilityLevel};

/// Flags that Couchbase SDKs expect of a JSON document: format 2 in the high byte ("common flags"),
/// and the legacy value that older ones look for.
pub const FLAGS_JSON: u32 = 0x0200_0006;

/// How a write is made.
///
/// ```
/// use oribi_client::{DurabilityLevel, WriteOptions};
///
/// let options = WriteOptions::json().expiry(3600).durability(DurabilityLevel::Majority);
/// assert_eq!(options.expiry, 3600);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Write only if the document has this CAS; 0 for any.
    pub cas: Cas,
    /// Flags of the document, for example [`FLAGS_JSON`].
    pub flags: u32,
    /// Expiry: 0 for none, up to 30 days in seconds from now, larger as UNIX time.
    pub expiry: u32,
    /// When the server may answer.
    pub durability: DurabilityLevel,
    /// How long the server may take for the durability; the server decides if not given.
    pub durability_timeout_ms: Option<u16>,
    /// Keep the expiry that the document has.
    pub preserve_expiry: bool,
}

impl WriteOptions {
    /// Any CAS, no flags, no expiry, no durability.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// The same, with [`FLAGS_JSON`].
    pub fn json() -> WriteOptions {
        WriteOptions::default().flags(FLAGS_JSON)
    }

    /// Writes only if the document has this CAS.
    pub fn cas(mut self, cas: Cas) -> WriteOptions {
        self.cas = cas;
        self
    }

    /// Sets the flags of the document.
    pub fn flags(mut self, flags: u32) -> WriteOptions {
        self.flags = flags;
        self
    }

    /// Sets the expiry: 0 for none, up to 30 days in seconds from now, larger as UNIX time.
    pub fn expiry(mut self, expiry: u32) -> WriteOptions {
        self.expiry = expiry;
        self
    }

    /// Answers only when the write is as durable as this.
    pub fn durability(mut self, level: DurabilityLevel) -> WriteOptions {
        self.durability = level;
        self
    }

    /// Limits how long the server may take for the durability.
    pub fn durability_timeout_ms(mut self, timeout_ms: u16) -> WriteOptions {
        self.durability_timeout_ms = Some(timeout_ms);
        self
    }

    /// Keeps the expiry that the document has, or sets it anew.
    pub fn preserve_expiry(mut self, is_kept: bool) -> WriteOptions {
        self.preserve_expiry = is_kept;
        self
    }
}

/// How a counter is changed.
///
/// ```
/// use oribi_client::CounterOptions;
///
/// let visit = CounterOptions::increment(1).initial(1).expiry(3600);
/// assert_eq!(visit.initial, Some(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CounterOptions {
    /// The number that is added, or subtracted when `is_decrement` is set.
    pub delta: u64,
    /// Subtract instead of add; the value stops at zero.
    pub is_decrement: bool,
    /// Value of a counter that does not exist; `None` refuses to create one.
    pub initial: Option<u64>,
    /// Expiry of a counter that is created.
    pub expiry: u32,
    /// When the server may answer.
    pub durability: DurabilityLevel,
}

impl CounterOptions {
    /// Adds `delta` to a counter that exists.
    pub fn increment(delta: u64) -> CounterOptions {
        let durability = DurabilityLevel::None;
        CounterOptions { delta, is_decrement: false, initial: None, expiry: 0, durability }
    }

    /// Subtracts `delta` from a counter that exists; the value stops at zero.
    pub fn decrement(delta: u64) -> CounterOptions {
        CounterOptions { is_decrement: true, ..CounterOptions::increment(delta) }
    }

    /// Creates a counter that does not exist, with this value.
    pub fn initial(mut self, value: u64) -> CounterOptions {
        self.initial = Some(value);
        self
    }

    /// Sets the expiry of a counter that is created.
    pub fn expiry(mut self, expiry: u32) -> CounterOptions {
        self.expiry = expiry;
        self
    }

    /// Answers only when the change is as durable as this.
    pub fn durability(mut self, level: DurabilityLevel) -> CounterOptions {
        self.durability = level;
        self
    }
}
