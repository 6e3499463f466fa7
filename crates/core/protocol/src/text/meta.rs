//! The flags of meta commands (`mg`, `ms`, `md`, `ma`).
//!
//! Owns: which flags there are, their arguments, and the words for wrong ones. One set of flags
//! serves all commands; a flag without a meaning for a command is ignored, as in memcached. The
//! server reads the flags again, in order, when it answers.

use super::tokens::Tokens;
use super::{base64, number};
use crate::limits::KEY_BYTES_MAX;

/// Most tokens of a meta command: the command, the key, and these many more.
const FLAGS_MAX: usize = 17;

/// Longest opaque, its letter included.
const OPAQUE_BYTES_MAX: usize = 32;

/// Bytes that the longest decoded key takes.
pub const DECODED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

/// Flags of a meta command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta<'a> {
    /// The key as it was sent.
    pub key: &'a [u8],
    /// All flags as they were sent, for the answer.
    pub flags: Flags<'a>,
    /// `b`: the key is in base64.
    pub is_base64: bool,
    /// `q`: expected answers are left out.
    pub quiet: bool,
    /// `v`: the answer has the value.
    pub shows_value: bool,
    /// `u`: the read is not a use of the document.
    pub is_no_use: bool,
    /// `h` or `l`: the answer reports earlier reads.
    pub shows_history: bool,
    /// `I`: mark as stale.
    pub invalidates: bool,
    /// `x`: remove the value.
    pub removes_value: bool,
    /// `T`: new expiry, as on the binary wire.
    pub expiry: Option<u32>,
    /// `N`: create on a miss, with this expiry.
    pub vivify: Option<u32>,
    /// `R`: the reader wins when fewer seconds than these are left; as an expiry.
    pub recache: Option<u32>,
    /// `C`: the CAS that is demanded.
    pub cas: Option<u64>,
    /// `E`: the CAS of the new version.
    pub new_cas: Option<u64>,
    /// `F`: client flags.
    pub client_flags: u32,
    /// `M`: the mode, 0 for none.
    pub mode: u8,
    /// `D`: the amount to count by.
    pub delta: Option<u64>,
    /// `J`: the first value of a counter.
    pub initial: u64,
    /// `O` is longer than an answer repeats; the last fault that is looked for.
    pub(super) has_long_opaque: bool,
}

/// The flags of a command, in the order in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags<'a>(&'a [u8]);

impl<'a> Flags<'a> {
    /// Each flag: its letter first, then its argument.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        Tokens::new(self.0)
    }
}

impl<'a> Meta<'a> {
    /// The document's key, decoded into `room` if it was sent in base64. `room` has
    /// [`DECODED_KEY_BYTES_MAX`] bytes.
    pub fn decoded_key<'k>(&self, room: &'k mut [u8]) -> &'k [u8]
    where
        'a: 'k,
    {
        match self.is_base64 {
            true => base64::decode(self.key, room).unwrap_or_default(),
            false => self.key,
        }
    }

    /// Reads the flags after `key`.
    ///
    /// # Errors
    /// The answer to a command with a wrong flag.
    pub(super) fn parse(key: &'a [u8], tokens: Tokens<'a>) -> Result<Meta<'a>, &'static str> {
        const WRONG_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
        let mut meta = Meta { key, flags: Flags(tokens.rest()), ..Meta::default() };
        let mut seen = 0_u128;
        let mut fault = None;
        for flag in tokens {
            let (letter, argument) = (flag[0], &flag[1..]);
            let bit = 1_u128.checked_shl(u32::from(letter)).unwrap_or(0);
            if letter >= 127 || seen & bit != 0 {
                return Err("CLIENT_ERROR duplicate flag");
            }
            seen |= bit;
            match letter {
                b'b' if base64::decode(key, &mut [0; DECODED_KEY_BYTES_MAX]).is_none() => {
                    fault = Some("CLIENT_ERROR error decoding key");
                }
                b'M' if argument.len() != 1 => {
                    fault = Some("CLIENT_ERROR incorrect length for M token");
                }
                b'O' => meta.has_long_opaque = flag.len() > OPAQUE_BYTES_MAX,
                _ => match meta.take(letter, argument) {
                    Some(true) => {}
                    Some(false) => {
                        fault = match letter {
                            b'F' => fault.or(Some("CLIENT_ERROR bad command line format")),
                            b'J' => Some("CLIENT_ERROR invalid numeric initial value"),
                            b'D' => Some("CLIENT_ERROR invalid numeric delta value"),
                            _ => Some(WRONG_TOKEN),
                        }
                    }
                    None => return Err("CLIENT_ERROR invalid flag"),
                },
            }
        }
        fault.map_or(Ok(meta), Err)
    }

    /// The command, unless its opaque is too long.
    pub(super) fn with_short_opaque(self) -> Result<Meta<'a>, &'static str> {
        match self.has_long_opaque {
            true => Err("CLIENT_ERROR opaque token too long"),
            false => Ok(self),
        }
    }

    /// Takes one flag. False when its argument is wrong, `None` when there is no such flag.
    fn take(&mut self, letter: u8, argument: &[u8]) -> Option<bool> {
        fn set<T>(to: &mut Option<T>, value: Option<T>) -> bool {
            let is_right = value.is_some();
            *to = value;
            is_right
        }
        Some(match letter {
            b'N' => set(&mut self.vivify, number::expiry(argument)),
            b'T' => set(&mut self.expiry, number::expiry(argument)),
            b'R' => set(&mut self.recache, number::expiry(argument)),
            b'C' => set(&mut self.cas, number::unsigned(argument)),
            b'E' => set(&mut self.new_cas, number::unsigned(argument)),
            b'D' => set(&mut self.delta, number::unsigned(argument)),
            b'F' => number::flags(argument).map(|flags| self.client_flags = flags).is_some(),
            b'J' => number::unsigned(argument).map(|first| self.initial = first).is_some(),
            _ => {
                match letter {
                    b'b' => self.is_base64 = true,
                    b'q' => self.quiet = true,
                    b'v' => self.shows_value = true,
                    b'u' => self.is_no_use = true,
                    b'h' | b'l' => self.shows_history = true,
                    b'I' => self.invalidates = true,
                    b'x' => self.removes_value = true,
                    b'M' => self.mode = argument[0],
                    b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' => {}
                    _ => return None,
                }
                true
            }
        })
    }

    /// True when more flags follow than a command may have.
    pub(super) fn has_too_many(tokens: Tokens<'_>) -> bool {
        tokens.take(FLAGS_MAX + 1).count() > FLAGS_MAX
    }
}
