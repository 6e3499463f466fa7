//! A JSON check, byte by byte as in RFC 8259: the model for detection.
//!
//! It knows no blocks, so the position in a block cannot affect it. It nests as deep as detection,
//! which serde_json does not.

use crate::limits::JSON_DEPTH_MAX;

/// The expected result of [`crate::json::nesting`].
pub fn nesting(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?;
    let mut reader = Reader { text, at: 0, deepest: 0 };
    reader.value(0)?;
    (reader.at == text.len()).then_some(reader.deepest)
}

/// The expected result of [`crate::json::list_nesting`].
pub fn list_nesting(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?;
    let mut reader = Reader { text, at: 0, deepest: 0 };
    reader.value(0)?;
    while reader.take(b",") {
        reader.value(0)?;
    }
    (reader.at == text.len()).then_some(reader.deepest)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    deepest: usize,
}

impl Reader<'_> {
    fn take(&mut self, name: &[u8]) -> bool {
        let is_there = self.text[self.at..].starts_with(name);
        self.at += if is_there { name.len() } else { 0 };
        is_there
    }

    fn any_of(&mut self, bytes: &[u8]) -> bool {
        let is_there = self.text.get(self.at).is_some_and(|byte| bytes.contains(byte));
        self.at += usize::from(is_there);
        is_there
    }

    fn space(&mut self) {
        while self.any_of(b" \t\n\r") {}
    }

    /// A value in `depth` containers, with whitespace around it.
    fn value(&mut self, depth: usize) -> Option<()> {
        self.space();
        if self.take(b"{") {
            self.container(depth + 1, b"}", true)?;
        } else if self.take(b"[") {
            self.container(depth + 1, b"]", false)?;
        } else if self.take(b"\"") {
            self.string()?;
        } else if !(self.take(b"true") || self.take(b"false") || self.take(b"null")) {
            self.number()?;
        }
        self.space();
        Some(())
    }

    fn container(&mut self, depth: usize, end: &[u8], is_object: bool) -> Option<()> {
        if depth > JSON_DEPTH_MAX {
            return None;
        }
        self.deepest = self.deepest.max(depth);
        self.space();
        if self.take(end) {
            return Some(());
        }
        loop {
            if is_object {
                self.space();
                self.take(b"\"").then_some(())?;
                self.string()?;
                self.space();
                self.take(b":").then_some(())?;
            }
            self.value(depth)?;
            if self.take(end) {
                return Some(());
            }
            self.take(b",").then_some(())?;
        }
    }

    /// The rest of a string after an opening quote.
    fn string(&mut self) -> Option<()> {
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => {
                    self.at += 1;
                    if self.take(b"u") {
                        for _ in 0..4 {
                            self.any_of(b"0123456789abcdefABCDEF").then_some(())?;
                        }
                    } else {
                        self.any_of(b"\"\\/bfnrt").then_some(())?;
                    }
                }
                0..=0x1f => return None,
                _ => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        self.take(b"-");
        if !self.take(b"0") {
            self.digits()?;
        }
        if self.take(b".") {
            self.digits()?;
        }
        if self.any_of(b"eE") {
            self.any_of(b"+-");
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        self.any_of(b"0123456789").then_some(())?;
        while self.any_of(b"0123456789") {}
        Some(())
    }
}
