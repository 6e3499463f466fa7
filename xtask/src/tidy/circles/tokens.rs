//! Words and signs of a source, without test code.
//!
//! The input has no comments and literals any more ([`super::super::code_mask`]). What stands
//! behind `#[cfg(test)]` is dropped with its attribute, wherever it stands: an item, a field, a
//! match arm, a statement.

/// A word, `::`, or one sign.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodeToken<'a> {
    pub text: &'a str,
    pub line: usize,
}

impl CodeToken<'_> {
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_char)
    }
}

/// Tokens of `code` that are built into the program.
pub(super) fn shipped_tokens(code: &str) -> Vec<CodeToken<'_>> {
    let all = tokens(code);
    let mut shipped = Vec::with_capacity(all.len());
    let mut at = 0;
    while at < all.len() {
        if is_test_attribute(&all[at..]) {
            at = end_of_item(&all, at);
        } else {
            shipped.push(all[at]);
            at += 1;
        }
    }
    shipped
}

/// Index behind the bracket that closes the one at `open`.
pub(super) fn behind_group(tokens: &[CodeToken], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

fn is_word_char(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn tokens(code: &str) -> Vec<CodeToken<'_>> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if is_word_char(first) => rest.find(|c| !is_word_char(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            // A lifetime; the characters between quotes are masked.
            '\'' => rest[1..].find(|c| !is_word_char(c)).map_or(rest.len(), |end| end + 1),
            _ => first.len_utf8(),
        };
        let text = &rest[..length];
        if !first.is_whitespace() && first != '\'' {
            tokens.push(CodeToken { text, line });
        }
        line += usize::from(first == '\n');
        rest = &rest[length..];
    }
    tokens
}

/// `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_test_attribute(tokens: &[CodeToken]) -> bool {
    let starts = |texts: &[&str]| {
        texts.len() <= tokens.len()
            && texts.iter().zip(tokens).all(|(text, token)| *text == token.text)
    };
    starts(&["#", "[", "cfg", "(", "test", ")"])
        || starts(&["#", "[", "cfg", "(", "all", "(", "test", ","])
}

/// Index behind what the attribute at `start` belongs to.
fn end_of_item(tokens: &[CodeToken], start: usize) -> usize {
    let mut at = start;
    while tokens.get(at).is_some_and(|token| token.text == "#") {
        at = behind_group(tokens, at + 1);
    }
    // `pub`, `unsafe` and the like do not say what follows; the first word that does decides where
    // it ends.
    let kind = tokens[at..].iter().map(|token| token.text).find(|text| {
        matches!(*text, "use" | "let" | "const" | "static" | "type" | "=" | ":" | "{" | "," | ";")
            || matches!(*text, "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "extern")
    });
    let at_semicolon = matches!(kind, Some("use" | "let" | "static" | "type"));
    let is_item = matches!(
        kind,
        Some("fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "extern" | "const")
    );
    while let Some(token) = tokens.get(at) {
        match token.text {
            "}" | ")" | "]" => return at,
            ";" => return at + 1,
            "," if !at_semicolon && !is_item => return at + 1,
            "{" if !at_semicolon => return behind_group(tokens, at),
            "(" | "[" | "{" => at = behind_group(tokens, at),
            _ => at += 1,
        }
    }
    at
}
