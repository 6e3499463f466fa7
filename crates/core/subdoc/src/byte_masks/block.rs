//! A block of a text, and the masks of its bytes.

/// Bytes per block of structure.
pub(crate) const BLOCK_BYTES: usize = 64;

/// A block of a text.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// The structural bytes of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Structure {
    pub(crate) quotes: u64,
    pub(crate) backslashes: u64,
    pub(crate) opens: u64,
    pub(crate) closes: u64,
}

/// The bytes of a block that delimit strings, and the invalid ones in them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TextBytes {
    pub(crate) quotes: u64,
    pub(crate) backslashes: u64,
    /// All bytes below the space.
    pub(crate) controls: u64,
    pub(crate) high: u64,
}

/// The bytes of a block that matter outside strings for the JSON check.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TokenBytes {
    pub(crate) opens: u64,
    pub(crate) closes: u64,
    pub(crate) colons: u64,
    pub(crate) commas: u64,
    /// Space, line feed, carriage return and tab.
    pub(crate) spaces: u64,
    pub(crate) digits: u64,
    pub(crate) zeroes: u64,
    pub(crate) points: u64,
    pub(crate) exponents: u64,
    pub(crate) pluses: u64,
    pub(crate) minuses: u64,
}

/// The bytes of 16 that a reader of strings must look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StringBytes {
    /// Quotes, backslashes and control characters.
    pub(crate) stops: u32,
    pub(crate) high: u32,
}
