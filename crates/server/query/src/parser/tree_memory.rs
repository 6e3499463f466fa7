//! The memory of a statement's tree and plan, before they are built.
//!
//! Each kind of token has a bound on what it adds to both: the nodes themselves, lists that grow by
//! doubling, and copies of names. `tests/statement_memory.rs` compares the bounds with what an
//! allocator counts.

use crate::lexer::keywords::Keyword;
use crate::lexer::{Punctuation, Token, TokenKind};

/// Copies of a name in tree, plan and signature, and of a constant.
const NAME_COPIES: usize = 16;
const CONSTANT_COPIES: usize = 4;

/// Bytes that the tree and the plan of these tokens take at most.
pub fn tree_bytes(tokens: &[Token]) -> usize {
    let after_name = |place: usize| place > 0 && is_name(tokens[place - 1].kind);
    let bytes = |(place, token): (usize, &Token)| bytes_of(*token, after_name(place));
    tokens.iter().enumerate().map(bytes).sum()
}

fn is_name(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::Name | TokenKind::QuotedName | TokenKind::FoldedName)
}

fn bytes_of(token: Token, after_name: bool) -> usize {
    let text = (token.end - token.start) as usize;
    match token.kind {
        // A subquery: its tree, its plan, and a scope while it is compiled.
        TokenKind::Word(Keyword::SELECT) => 2_048,
        TokenKind::Word(_) => 512,
        // A call.
        TokenKind::Mark(Punctuation::OpenParen) if after_name => 1_024,
        TokenKind::Mark(Punctuation::OpenParen) => 128,
        TokenKind::Mark(Punctuation::OpenBracket | Punctuation::OpenBrace) => 768,
        TokenKind::Mark(_) => 64,
        TokenKind::End => 0,
        kind if is_name(kind) => 1_024 + NAME_COPIES * text,
        _ => 320 + CONSTANT_COPIES * text,
    }
}
