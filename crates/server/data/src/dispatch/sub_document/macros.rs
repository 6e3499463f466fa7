//! Macros: operands that stand for properties of the version they are written in.
//!
//! The CAS and seqno are unknown before the version is queued, and the checksum before the body is
//! complete. Later specs may also move or remove the results of earlier ones. A macro is therefore
//! first written as a placeholder of its final length. The finished block is then searched for the
//! placeholders that are left.
//!
//! A placeholder holds a number that occurs in none of the texts that may come into the block. A
//! client's text is therefore never taken for one. Numbers are drawn, not counted. A client that
//! wants every number taken would have to send them all, so one or two draws suffice in any case.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};

use memchr::memmem;
use oribi_engine::Stamp;
use oribi_protocol::status::Status;
use oribi_subdoc::{Path, lookup};

use super::binary_value;
use super::request::PathRequest;
use super::virtual_attributes::{self, AttributeSource};

/// A property that a macro stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Macro {
    Cas,
    Seqno,
    ValueCrc32c,
}

/// The kind of an operand that may be a macro.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MacroOperand<'a> {
    Plain,
    /// A property of the version that is being written.
    OfMutation(Macro),
    /// A property of the previous version: a path in the attribute `$document`.
    OfDocument(&'a [u8]),
}

impl<'a> MacroOperand<'a> {
    pub(super) fn of(value: &'a [u8]) -> Result<MacroOperand<'a>, Status> {
        let Some(rest) = value.strip_prefix(b"\"${$") else {
            return Ok(Macro::of(value)?.map_or(MacroOperand::Plain, MacroOperand::OfMutation));
        };
        let path = rest.strip_suffix(b"}\"").filter(|path| {
            path.strip_prefix(b"document").is_some_and(|inside| matches!(inside, [] | [b'.', ..]))
        });
        // The path begins with the dollar sign, which is part of the attribute's name.
        path.map(|path| MacroOperand::OfDocument(&value[3..][..path.len() + 1]))
            .ok_or(Status::SubdocXattrUnknownVattrMacro)
    }
}

/// The value at a macro's path in `$document`.
pub(super) fn of_document(document: &AttributeSource<'_>, path: &[u8]) -> Result<Vec<u8>, Status> {
    let path = Path::parse(path).map_err(|_| Status::SubdocXattrUnknownVattrMacro)?;
    let text = document.text(&path)?;
    let span = lookup::get(&text, &path).map_err(|_| Status::SubdocXattrUnknownVattrMacro)?;
    Ok(text[span].to_vec())
}

/// True for a macro whose value depends on the inflated body.
pub(super) fn is_of_body(operand: &[u8]) -> bool {
    match MacroOperand::of(operand) {
        Ok(MacroOperand::OfMutation(one)) => one == Macro::ValueCrc32c,
        Ok(MacroOperand::OfDocument(path)) => {
            Path::parse(path).is_ok_and(|path| virtual_attributes::is_of_body(&path))
        }
        Ok(MacroOperand::Plain) | Err(_) => false,
    }
}

impl Macro {
    const ALL: [Macro; 3] = [Macro::Cas, Macro::Seqno, Macro::ValueCrc32c];

    /// Parses the macro in an operand; `None` for an ordinary value.
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

/// End of the range of numbers: seven hexadecimal digits, which is the length of the shortest macro
/// without its letter.
const NUMBERS_END: u32 = 1 << 28;
const _: () = {
    let mut at = 0;
    while at < Macro::ALL.len() {
        assert!(Macro::ALL[at] as usize == at, "a macro is the place of its text");
        at += 1;
    }
};

/// The placeholders of one request.
pub(super) struct Placeholders {
    /// By kind of macro; each is as long as its replacement, without quotes.
    texts: [String; 3],
}

impl Placeholders {
    /// Chooses placeholders that occur neither in `attributes` nor in the texts that the request
    /// may put there.
    pub(super) fn absent_from(request: &PathRequest<'_>, attributes: &[u8]) -> Placeholders {
        // SipHash with a new secret key each time, so a client cannot predict the number.
        let draw = || RandomState::new().build_hasher().finish() as u32 % NUMBERS_END;
        Placeholders::first_absent(request, attributes, std::iter::repeat_with(draw))
    }

    fn first_absent(
        request: &PathRequest<'_>,
        attributes: &[u8],
        mut numbers: impl Iterator<Item = u32>,
    ) -> Placeholders {
        let texts: Vec<Cow<'_, [u8]>> =
            attribute_texts(request).chain([Cow::Borrowed(attributes)]).collect();
        let made = numbers.find_map(|number| {
            let made = Placeholders { texts: Macro::ALL.map(|kind| text(kind, number)) };
            let occurs = |text: &Cow<'_, [u8]>| {
                made.texts.iter().any(|one| memmem::find(text, one.as_bytes()).is_some())
            };
            (!texts.iter().any(occurs)).then_some(made)
        });
        made.expect("a request is too short to hold all numbers, and the draws do not end")
    }

    /// The operand that is written in place of a macro.
    pub(super) fn operand(&self, wanted: Macro) -> Vec<u8> {
        format!("\"0x{}\"", self.texts[wanted as usize]).into_bytes()
    }

    /// Writes the checksum into a finished block, and returns the places of the other properties.
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
            debug_assert_eq!(digits.len(), Macro::ValueCrc32c.digits(), "digits replace a text");
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
            let at = from + memmem::find(block.get(from..)?, text)?;
            from = at + text.len();
            Some(at)
        })
    }
}

/// A letter and a number. Two of the letters are no digits. Behind the third, the other texts have
/// too little space for it to begin there.
fn text(kind: Macro, number: u32) -> String {
    debug_assert!(number < NUMBERS_END, "a number has seven digits");
    let letter = ['C', 'S', 'V'][kind as usize];
    format!("{letter}{number:0width$X}", width = kind.digits() - 1)
}

/// The texts that a request may put into the attributes: keys, which are written as the path spells
/// them, and operands. Values of macros about the document are not among them: in those, a capital
/// letter never stands before a digit.
fn attribute_texts<'r>(request: &'r PathRequest<'_>) -> impl Iterator<Item = Cow<'r, [u8]>> {
    let of_attributes = request.specs.iter().filter(|spec| spec.xattr.is_some());
    of_attributes.flat_map(|spec| {
        let operand = match spec.is_binary {
            true => Cow::Owned(binary_value::encode(spec.value)),
            false => Cow::Borrowed(spec.value),
        };
        [Cow::Borrowed(spec.path_text), operand]
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use oribi_engine::Stamp;
    use oribi_protocol::opcode::Opcode;
    use oribi_protocol::status::Status;

    use oribi_types::{Cas, VbUuid};

    use super::super::request::SubDocumentKind;
    use super::super::view::View;
    use super::super::virtual_attributes::AttributeSource;
    use super::{Macro, MacroOperand, PathRequest, Placeholders, is_of_body, of_document, text};
    use crate::connection::features::Features;

    #[test]
    fn macros_are_whole_operands() {
        assert_eq!(Macro::of(b"\"${Mutation.CAS}\""), Ok(Some(Macro::Cas)));
        assert_eq!(Macro::of(b"\"${Mutation.cas}\""), Err(Status::SubdocXattrUnknownMacro));
        assert_eq!(Macro::of(b"\"a ${Mutation.CAS}\""), Ok(None));
        assert_eq!(Macro::of(b"12"), Ok(None));
    }

    #[test]
    fn macros_of_the_document_are_paths() {
        let document = AttributeSource::new(None, Cas(1), View::default(), VbUuid(2));
        for (value, wanted) in [
            (r#""${$document.CAS}""#, Ok(&b"\"0x0000000000000001\""[..])),
            (r#""${$document.exptime}""#, Ok(b"0")),
            (r#""${$document.datatype[0]}""#, Ok(b"\"raw\"")),
            (r#""${$document.nope}""#, Err(Status::SubdocXattrUnknownVattrMacro)),
            (r#""${$document..}""#, Err(Status::SubdocXattrUnknownVattrMacro)),
        ] {
            let Ok(MacroOperand::OfDocument(path)) = MacroOperand::of(value.as_bytes()) else {
                panic!("{value} is a macro of the document")
            };
            let found = of_document(&document, path);
            assert_eq!(found.as_deref().map_err(|status| *status), wanted, "{value}");
        }
        for (value, expected) in [
            (r#""${$document}""#, true),
            (r#""${$document.value_crc32c}""#, true),
            (r#""${$document.value_\u0063rc32c}""#, true),
            (r#""${Mutation.value_crc32c}""#, true),
            (r#""${$document.value_bytes}""#, false),
            (r#""${Mutation.CAS}""#, false),
            ("1", false),
        ] {
            assert_eq!(is_of_body(value.as_bytes()), expected, "{value}");
        }
        for value in [r#""${$documents}""#, r#""${$vbucket}""#, r#""${$document""#] {
            let refused = MacroOperand::of(value.as_bytes());
            assert_eq!(refused, Err(Status::SubdocXattrUnknownVattrMacro), "{value}");
        }
        let cas = MacroOperand::of(b"\"${Mutation.CAS}\"");
        assert_eq!(cas, Ok(MacroOperand::OfMutation(Macro::Cas)));
        assert_eq!(MacroOperand::of(b"1"), Ok(MacroOperand::Plain));
    }

    const XATTR: u8 = 0x04;
    const BINARY: u8 = 0x24;

    /// Builds a list of upserts.
    fn request<'a>(list: &'a mut Vec<u8>, specs: &[(u8, &str, &[u8])]) -> PathRequest<'a> {
        for (flags, path, value) in specs {
            list.extend([Opcode::SubdocDictUpsert as u8, *flags]);
            list.extend((path.len() as u16).to_be_bytes());
            list.extend((value.len() as u32).to_be_bytes());
            list.extend(path.as_bytes());
            list.extend(*value);
        }
        let features = Features::granted([0x06, 0x20, 0x21].into_iter());
        PathRequest::of_list(SubDocumentKind::Mutation, features, &[], list).ok().unwrap()
    }

    /// The first of the numbers 0, 1, 2... that neither the request nor the document contains.
    fn first_number(specs: &[(u8, &str, &[u8])], attributes: &[u8]) -> u32 {
        let mut drawn = 0;
        let numbers = (0..).inspect(|number| drawn = *number);
        Placeholders::first_absent(&request(&mut Vec::new(), specs), attributes, numbers);
        drawn
    }

    #[test]
    fn placeholders_occur_in_no_replacement() {
        assert_eq!(first_number(&[(XATTR, "x", b"1")], b""), 0);
        for kind in Macro::ALL {
            let taken = text(kind, 0);
            let (operand, path) = (format!("\"{taken}\""), format!("x.{taken}"));
            assert_eq!(first_number(&[(XATTR, "x", operand.as_bytes())], b""), 1);
            assert_eq!(first_number(&[(XATTR, &path, b"1")], b""), 1);
            assert_eq!(first_number(&[(XATTR, "x", b"1")], taken.as_bytes()), 1);
            // The same text in base64.
            let bytes = STANDARD.decode(&taken).unwrap();
            assert_eq!(first_number(&[(BINARY, "x", &bytes)], b""), 1);
            assert_eq!(first_number(&[(BINARY, "x", taken.as_bytes())], b""), 0);
            // The body does not get into the attributes.
            assert_eq!(first_number(&[(0, &path, operand.as_bytes())], b""), 0);
        }
    }

    #[test]
    fn a_client_cannot_make_the_search_long() {
        // Regression: numbers were counted up from 0, and each was searched in the whole request.
        let taken: String = (0..20_000).map(|number| text(Macro::ValueCrc32c, number)).collect();
        let operand = format!("\"{taken}\"");
        let mut list = Vec::new();
        let request = request(&mut list, &[(XATTR, "x", operand.as_bytes())]);
        let made = Placeholders::absent_from(&request, b"");
        assert!(!taken.contains(&made.texts[Macro::ValueCrc32c as usize]));
        let other = Placeholders::absent_from(&request, b"");
        assert_ne!(made.texts, other.texts, "who knows one does not know the next");
    }

    #[test]
    fn client_values_are_never_placeholders() {
        let forged = b"0xC000000000000000 V0000000 S000000000000001";
        let made = Placeholders::first_absent(
            &request(&mut Vec::new(), &[(XATTR, "x", b"1")]),
            forged,
            0..3,
        );
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
