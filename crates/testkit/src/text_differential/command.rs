//! A command as bytes with gaps for what is known only when it is sent.
//!
//! Owns: its rendering. Keys get the prefix of the run, and CAS values come from earlier answers.

/// A CAS that no document has, above all that either server gives: with flag I a lower one stores a
/// stale document.
pub(super) const WRONG_CAS: &[u8] = b"9223372036854775807";

/// A part of a command.
#[derive(Clone, Debug)]
pub(super) enum CommandPiece {
    Bytes(Vec<u8>),
    /// The prefix of the run and this.
    Key(Vec<u8>),
    /// The same in base64.
    KeyBase64(Vec<u8>),
    /// One of the CAS values that `gets` has shown of the document: the last, the one before, ...
    Cas(usize),
}

/// One command, its data included.
#[derive(Clone, Debug, Default)]
pub(super) struct TextCommand {
    pub(super) pieces: Vec<CommandPiece>,
    /// The server closes the connection.
    pub(super) is_last: bool,
    /// It changes a time to live, or may let a reader win. Oribi's document then has another CAS,
    /// memcached's has not.
    pub(super) touches: bool,
    /// The announced length is not that of the data.
    pub(super) may_swallow: bool,
}

impl TextCommand {
    pub(super) fn new(name: impl AsRef<[u8]>) -> TextCommand {
        TextCommand::default().and(name.as_ref())
    }

    pub(super) fn and(mut self, bytes: impl AsRef<[u8]>) -> TextCommand {
        self.pieces.push(CommandPiece::Bytes(bytes.as_ref().to_vec()));
        self
    }

    /// Adds a space and a token.
    pub(super) fn token(self, token: impl AsRef<[u8]>) -> TextCommand {
        self.and(" ").and(token)
    }

    /// Adds a space and a piece.
    pub(super) fn piece(mut self, piece: CommandPiece) -> TextCommand {
        self = self.and(" ");
        self.pieces.push(piece);
        self
    }

    /// Marks a command that changes a time to live.
    pub(super) fn touching(self) -> TextCommand {
        TextCommand { touches: true, ..self }
    }

    /// The same, but CAS values that it would take from earlier answers match nothing.
    pub(super) fn without_cas(mut self) -> TextCommand {
        for piece in &mut self.pieces {
            if let CommandPiece::Cas(_) = piece {
                *piece = CommandPiece::Bytes(WRONG_CAS.to_vec());
            }
        }
        self
    }

    /// The bytes to send. `cas_values` gives those that a document has shown.
    pub(super) fn rendered<'a>(
        &self,
        prefix: &str,
        cas_values: impl Fn(&[u8]) -> &'a [u64],
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            match piece {
                CommandPiece::Bytes(part) => bytes.extend_from_slice(part),
                CommandPiece::Key(name) => bytes.extend(key(prefix, name)),
                CommandPiece::KeyBase64(name) => bytes.extend(base64(&key(prefix, name))),
                CommandPiece::Cas(back) => {
                    let document = self.pieces.iter().find_map(|piece| match piece {
                        CommandPiece::Key(name) => Some(key(prefix, name)),
                        _ => None,
                    });
                    let seen = document.map_or(&[][..], |document| cas_values(&document));
                    match seen.len().checked_sub(back + 1).or(seen.len().checked_sub(1)) {
                        Some(at) => bytes.extend_from_slice(seen[at].to_string().as_bytes()),
                        None => bytes.extend_from_slice(WRONG_CAS),
                    }
                }
            }
        }
        bytes
    }
}

fn key(prefix: &str, name: &[u8]) -> Vec<u8> {
    [prefix.as_bytes(), name].concat()
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for part in bytes.chunks(3) {
        let word = part.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - part.len()));
        let digits = (0..4).map(|at| DIGITS[(word >> (18 - 6 * at) & 63) as usize]);
        text.extend(digits.take(part.len() + 1));
        text.extend(std::iter::repeat_n(b'=', 3 - part.len()));
    }
    text
}
