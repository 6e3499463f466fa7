//! Tokens of change streams as text: where a reader stands, and where the next one continues.
//!
//! A [`Position`] is a place in one vbucket's history, with the fields of a stream request. A
//! [`ChangeToken`] is a position for each vbucket, and what holds for those without one. Both are
//! fields joined by commas, so positions joined by commas are a token too:
//!
//! | field | meaning |
//! |---|---|
//! | `VBUCKET:UUID:SEQNO` | a position at the end of a snapshot |
//! | `VBUCKET:UUID:SEQNO:START:END` | a position within the snapshot START to END |
//! | `manifest=UID` | the newest collections manifest that the reader has seen |
//! | `rest=now` | vbuckets without a position start now; else they start at the beginning |
//!
//! UUID and UID are hexadecimal, all else is decimal.
//!
//! Invariants: a position's seqno lies within its snapshot; a token has at most one position for
//! each vbucket, in the order of their numbers; what [`fmt::Display`] writes parses to the same.
//! The client and `oribi watch` use it.

use std::fmt;
use std::str::FromStr;

use oribi_types::{ManifestUid, Seqno, VbUuid, Vbid};

use crate::limits::VBUCKETS_MAX;

/// A place in the history of one vbucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Position {
    /// The vbucket.
    pub vbid: Vbid,
    /// Which of its histories.
    pub vb_uuid: VbUuid,
    /// The last seqno that the reader has.
    pub seqno: Seqno,
    /// First and last seqno of the snapshot that the reader is in; both are `seqno` at its end.
    pub snapshot: (Seqno, Seqno),
}

impl Position {
    /// The position before everything that a vbucket ever had.
    pub const fn beginning(vbid: Vbid) -> Position {
        Position { vbid, vb_uuid: VbUuid(0), seqno: Seqno(0), snapshot: (Seqno(0), Seqno(0)) }
    }

    /// The position at the end of a snapshot.
    pub const fn at(vbid: Vbid, vb_uuid: VbUuid, seqno: Seqno) -> Position {
        Position { vbid, vb_uuid, seqno, snapshot: (seqno, seqno) }
    }

    /// True when the reader has a whole snapshot: its copy of the vbucket is consistent.
    pub fn is_at_snapshot_end(&self) -> bool {
        self.seqno == self.snapshot.1
    }

    fn parse(text: &str) -> Option<Position> {
        let mut fields = text.split(':');
        let vbid = Vbid(decimal(fields.next()?)?.try_into().ok()?);
        let vb_uuid = VbUuid(hexadecimal(fields.next()?)?);
        let seqno = Seqno(decimal(fields.next()?)?);
        let snapshot = match (fields.next(), fields.next(), fields.next()) {
            (None, ..) => (seqno, seqno),
            (Some(start), Some(end), None) => (Seqno(decimal(start)?), Seqno(decimal(end)?)),
            _ => return None,
        };
        let is_valid = vbid.0 < VBUCKETS_MAX && snapshot.0 <= seqno && seqno <= snapshot.1;
        is_valid.then_some(Position { vbid, vb_uuid, seqno, snapshot })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { vbid, vb_uuid, seqno, snapshot: (start, end) } = self;
        write!(f, "{}:{:x}:{}", vbid.0, vb_uuid.0, seqno.0)?;
        match start == seqno && end == seqno {
            true => Ok(()),
            false => write!(f, ":{}:{}", start.0, end.0),
        }
    }
}

impl FromStr for Position {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Position, InvalidToken> {
        Position::parse(text).ok_or_else(|| InvalidToken::at(text))
    }
}

/// Where vbuckets without a position start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rest {
    /// With the oldest document.
    #[default]
    Beginning,
    /// With the next change.
    Now,
}

/// Where a reader of a whole bucket stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChangeToken {
    /// Newest collections manifest that the reader has seen; 0 for none.
    pub manifest_uid: ManifestUid,
    /// Where vbuckets without a position start.
    pub rest: Rest,
    positions: Vec<Position>,
}

impl ChangeToken {
    /// The token of a reader that has nothing.
    pub const fn new(rest: Rest) -> ChangeToken {
        ChangeToken { manifest_uid: ManifestUid(0), rest, positions: Vec::new() }
    }

    /// Sets the position of its vbucket.
    pub fn set(&mut self, position: Position) {
        match self.positions.binary_search_by_key(&position.vbid, |known| known.vbid) {
            Ok(index) => self.positions[index] = position,
            Err(index) => self.positions.insert(index, position),
        }
    }

    /// The position of a vbucket, if there is one.
    pub fn position(&self, vbid: Vbid) -> Option<&Position> {
        let index = self.positions.binary_search_by_key(&vbid, |known| known.vbid).ok()?;
        self.positions.get(index)
    }

    /// All positions, in the order of their vbuckets.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }
}

impl fmt::Display for ChangeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if self.manifest_uid.0 != 0 {
            write!(f, "manifest={}", self.manifest_uid)?;
            separator = ",";
        }
        if self.rest == Rest::Now {
            write!(f, "{separator}rest=now")?;
            separator = ",";
        }
        for position in &self.positions {
            write!(f, "{separator}{position}")?;
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for ChangeToken {
    type Err = InvalidToken;

    /// The empty text is the token of a reader that has nothing. Of several positions of one
    /// vbucket the last one counts.
    fn from_str(text: &str) -> Result<ChangeToken, InvalidToken> {
        let mut token = ChangeToken::default();
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(token);
        }
        for field in text.split(',') {
            match field.split_once('=') {
                None => token.set(field.parse()?),
                Some(("rest", "now")) => token.rest = Rest::Now,
                Some(("manifest", uid)) => {
                    let uid = hexadecimal(uid).ok_or_else(|| InvalidToken::at(field))?;
                    token.manifest_uid = ManifestUid(uid);
                }
                Some(_) => return Err(InvalidToken::at(field)),
            }
        }
        Ok(token)
    }
}

/// A text that is no token; it names the field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidToken(String);

/// A message shows this much of a field that is too long to be one.
const SHOWN_CHARS_MAX: usize = 120;

impl InvalidToken {
    fn at(field: &str) -> InvalidToken {
        InvalidToken(field.chars().take(SHOWN_CHARS_MAX).collect())
    }
}

impl fmt::Display for InvalidToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no part of a change token", self.0)
    }
}

impl std::error::Error for InvalidToken {}

/// Rust takes a sign in front of a number; a token has none.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn hexadecimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests;
