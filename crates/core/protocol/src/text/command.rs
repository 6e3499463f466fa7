//! The commands of the text protocol, borrowed from the input.

use super::meta::Meta;

/// A command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command<'a> {
    /// One key of `get`, `gets`, `gat` or `gats`.
    Get {
        /// The key.
        key: &'a [u8],
        /// The command's options for all of its keys.
        keys: Keys,
        /// No key follows: the answer ends after this document.
        is_last: bool,
    },
    /// The end of such a command without another key.
    End,
    /// A command with a data block.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// No answer is sent.
        quiet: bool,
    },
    /// `incr` and `decr`.
    Count {
        /// The key.
        key: &'a [u8],
        /// The amount.
        delta: u64,
        /// Down instead of up.
        decrement: bool,
        /// No answer is sent.
        quiet: bool,
    },
    /// `touch`.
    Touch {
        /// The key.
        key: &'a [u8],
        /// As on the binary wire.
        expiry: u32,
        /// No answer is sent.
        quiet: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// Seconds or UNIX time; 0 for now.
        delay: u32,
        /// No answer is sent.
        quiet: bool,
    },
    /// `verbosity`.
    Verbosity {
        /// No answer is sent.
        quiet: bool,
    },
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// `stats`.
    Stats {
        /// Everything after the command.
        group: &'a [u8],
    },
    /// `mn`.
    MetaNoop,
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`.
    MetaCount(Meta<'a>),
    /// `me`.
    MetaDebug(Meta<'a>),
    /// Not a command.
    Invalid(Fault),
}

/// A line that is no command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The answer.
    pub answer: &'static str,
    /// No answer is sent.
    pub quiet: bool,
    /// Bytes of a data block that follow and are passed over.
    pub skip_bytes: usize,
}

impl Fault {
    /// A line without a data block.
    pub(super) const fn new(answer: &'static str) -> Fault {
        Fault { answer, quiet: false, skip_bytes: 0 }
    }
}

/// Options of a `get` and its like, for all keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Answers have the CAS.
    pub with_cas: bool,
    /// The expiry that the documents get, as on the binary wire.
    pub expiry: Option<u32>,
}

/// Which command with a data block it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreMode {
    /// `set`.
    Set,
    /// `add`.
    Add,
    /// `replace`.
    Replace,
    /// `append`.
    Append,
    /// `prepend`.
    Prepend,
    /// `cas`.
    Cas,
}

/// A command with a data block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Store<'a> {
    /// Which one.
    pub mode: StoreMode,
    /// The key, as it was sent.
    pub key: &'a [u8],
    /// Client flags.
    pub flags: u32,
    /// As on the binary wire.
    pub expiry: u32,
    /// The CAS that the document must have.
    pub cas: Option<u64>,
    /// No answer is sent; for `ms`, no expected answer.
    pub quiet: bool,
    /// The flags of an `ms`.
    pub meta: Option<Meta<'a>>,
    /// The data block.
    pub value: &'a [u8],
    /// The data block ends as it must.
    pub is_terminated: bool,
}
