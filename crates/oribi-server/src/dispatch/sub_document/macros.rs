//! Macros: operands that stand for properties of the version they are written in.
//!
//! CAS and seqno are not known before the version is queued, the checksum not before the body is complete,
//! and specs that come later may move or remove what earlier ones wrote. So a macro is first written as a
//! placeholder of its final length, and the places of those that are left are looked up in the finished
//! block. Placeholders hold a number that occurs nowhere in the document or the request, so nothing that
//! a client wrote is taken for one.

use oribi_engine::Stamp;
use oribi_protocol::status::Status;
use oribi_subdoc::{Path, lookup};

/// What a macro stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Macro {
    Cas,
    Seqno,
    ValueCrc32c,
}

/// What an operand with macros is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operand<'a> {
    /// An ordinary value.
    Plain,
    /// A property of the version that is being written.
    OfMutation(Macro),
    /// A property of the version that was there before: a path in the attribute `$document`.
    OfDocument(&'a [u8]),
}

impl<'a> Operand<'a> {
    pub(super) fn of(value: &'a [u8]) -> Result<Operand<'a>, Status> {
        let Some(rest) = value.strip_prefix(b"\"${$") else {
            return Ok(Macro::of(value)?.map_or(Operand::Plain, Operand::OfMutation));
        };
        let path = rest.strip_suffix(b"}\"").filter(|path| {
            path.strip_prefix(b"document").is_some_and(|inside| matches!(inside, [] | [b'.', ..]))
        });
        // The path begins with the dollar sign, which is part of the attribute's name.
        path.map(|path| Operand::OfDocument(&value[3..][..path.len() + 1]))
            .ok_or(Status::SubdocXattrUnknownVattrMacro)
    }
}

/// What is at the path of a macro in the text of `$document`.
pub(super) fn of_document<'t>(text: &'t [u8], path: &[u8]) -> Result<&'t [u8], Status> {
    let path = Path::parse(path).map_err(|_| Status::SubdocXattrUnknownVattrMacro)?;
    let span = lookup::get(text, &path).map_err(|_| Status::SubdocXattrUnknownVattrMacro)?;
    Ok(&text[span])
}

impl Macro {
    const ALL: [Macro; 3] = [Macro::Cas, Macro::Seqno, Macro::ValueCrc32c];

    /// The macro that an operand is; none when it is an ordinary value.
    pub(super) fn of(value: &[u8]) -> Result<Option<Macro>, Status> {
        match value {
            b"\"${Mutation.CAS}\"" => Ok(Some(Macro::Cas)),
            b"\"${Mutation.seqno}\"" => Ok(Some(Macro::Seqno)),
            b"\"${Mutation.value_crc32c}\"" => Ok(Some(Macro::ValueCrc32c)),
            _ if value.starts_with(b"\"${") => Err(Status::SubdocXattrUnknownMacro),
            _ => Ok(None),
        }
    }

    const fn digits(self) -> usize {
        match self {
            Macro::Cas | Macro::Seqno => 16,
            Macro::ValueCrc32c => 8,
        }
    }
}

/// The placeholders of one request.
pub(super) struct Placeholders {
    /// By kind of macro; each is as long as what takes its place, without quotes.
    texts: [String; 3],
}

impl Placeholders {
    /// Placeholders that occur in none of `texts`.
    pub(super) fn absent_from(texts: &[&[u8]]) -> Placeholders {
        let mut number = 0u32;
        loop {
            let made = Placeholders { texts: Macro::ALL.map(|kind| text(kind, number)) };
            let occurs =
                |text: &&[u8]| made.texts.iter().any(|one| find(text, one.as_bytes(), 0).is_some());
            if !texts.iter().any(occurs) {
                return made;
            }
            number = number.wrapping_add(1);
        }
    }

    /// The operand to write in place of a macro.
    pub(super) fn operand(&self, wanted: Macro) -> Vec<u8> {
        format!("\"0x{}\"", self.texts[wanted as usize]).into_bytes()
    }

    /// Writes the checksum where it belongs in a finished block, and says where the rest does.
    pub(super) fn settle(
        &self,
        block: &mut [u8],
        value_crc32c: impl FnOnce() -> u32,
    ) -> Vec<Stamp> {
        let mut stamps = Vec::new();
        stamps.extend(self.places(block, Macro::Cas).map(|at| Stamp::Cas { at }));
        stamps.extend(self.places(block, Macro::Seqno).map(|at| Stamp::Seqno { at }));
        let places: Vec<usize> = self.places(block, Macro::ValueCrc32c).collect();
        if !places.is_empty() {
            let digits = format!("{:08x}", value_crc32c());
            for at in places {
                block[at..at + digits.len()].copy_from_slice(digits.as_bytes());
            }
        }
        stamps
    }

    fn places<'a>(&'a self, block: &'a [u8], wanted: Macro) -> impl Iterator<Item = usize> + 'a {
        let text = self.texts[wanted as usize].as_bytes();
        let mut from = 0;
        std::iter::from_fn(move || {
            let at = find(block, text, from)?;
            from = at + text.len();
            Some(at)
        })
    }
}

/// A letter that is no digit, and a number.
fn text(kind: Macro, number: u32) -> String {
    let letter = ['C', 'S', 'V'][kind as usize];
    format!("{letter}{number:0width$}", width = kind.digits() - 1)
        .chars()
        .take(kind.digits())
        .collect()
}

fn find(text: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let found = text.get(from..)?.windows(wanted.len()).position(|window| window == wanted);
    found.map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use oribi_engine::Stamp;
    use oribi_protocol::status::Status;

    use super::{Macro, Operand, Placeholders, of_document};

    #[test]
    fn macros_are_whole_operands() {
        assert_eq!(Macro::of(b"\"${Mutation.CAS}\""), Ok(Some(Macro::Cas)));
        assert_eq!(Macro::of(b"\"${Mutation.cas}\""), Err(Status::SubdocXattrUnknownMacro));
        assert_eq!(Macro::of(b"\"a ${Mutation.CAS}\""), Ok(None));
        assert_eq!(Macro::of(b"12"), Ok(None));
    }

    #[test]
    fn macros_of_the_document_are_paths() {
        let text = br#"{"$document":{"CAS":"0x01","exptime":3}}"#;
        for (value, wanted) in [
            (r#""${$document}""#, Ok(&br#"{"CAS":"0x01","exptime":3}"#[..])),
            (r#""${$document.CAS}""#, Ok(b"\"0x01\"")),
            (r#""${$document.exptime}""#, Ok(b"3")),
            (r#""${$document.nope}""#, Err(Status::SubdocXattrUnknownVattrMacro)),
            (r#""${$document..}""#, Err(Status::SubdocXattrUnknownVattrMacro)),
        ] {
            let Ok(Operand::OfDocument(path)) = Operand::of(value.as_bytes()) else {
                panic!("{value} is a macro of the document")
            };
            assert_eq!(of_document(text, path), wanted, "{value}");
        }
        for value in [r#""${$documents}""#, r#""${$vbucket}""#, r#""${$document""#] {
            let refused = Operand::of(value.as_bytes());
            assert_eq!(refused, Err(Status::SubdocXattrUnknownVattrMacro), "{value}");
        }
        let cas = Operand::of(b"\"${Mutation.CAS}\"");
        assert_eq!(cas, Ok(Operand::OfMutation(Macro::Cas)));
        assert_eq!(Operand::of(b"1"), Ok(Operand::Plain));
    }

    #[test]
    fn what_a_client_wrote_is_never_a_placeholder() {
        let forged = b"0xC000000000000000 V0000000 S000000000000001";
        let made = Placeholders::absent_from(&[&forged[..]]);
        let [cas, seqno, crc] =
            [Macro::Cas, Macro::Seqno, Macro::ValueCrc32c].map(|kind| made.operand(kind));
        let mut block = [&forged[..], &seqno, &cas, &crc, &cas].concat();
        assert_eq!((cas.len(), seqno.len(), crc.len()), (20, 20, 12));
        let stamps = made.settle(&mut block, || 0xab);
        let (seqno_at, cas_at) = (forged.len() + 3, forged.len() + 23);
        let last = cas_at + 20 + 12;
        let wanted =
            [Stamp::Cas { at: cas_at }, Stamp::Cas { at: last }, Stamp::Seqno { at: seqno_at }];
        assert_eq!(stamps, wanted);
        assert_eq!(&block[..forged.len()], forged);
        assert!(block.windows(12).any(|window| window == b"\"0x000000ab\""));
    }
}
