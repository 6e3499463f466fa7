//! LIKE: `%` is any run of characters, `_` any one.
//!
//! The match remembers only the last `%`, so its time is at most the product of both lengths.

use crate::error::{QueryError, Result};

#[derive(Debug)]
pub struct Like {
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq)]
enum Part {
    Byte(u8),
    AnyCharacter,
    AnyRun,
}

impl Like {
    /// Bytes of a compiled pattern of so many bytes, at most.
    pub const fn bytes_max(pattern_bytes: usize) -> usize {
        pattern_bytes * size_of::<Part>()
    }

    /// Compiles a pattern with its escape, which is one character.
    pub fn new(pattern: &str, escape: &str) -> Result<Like> {
        let mut escapes = escape.chars();
        let (Some(escape), None) = (escapes.next(), escapes.next()) else {
            return Err(QueryError::evaluation("The escape of LIKE is one character"));
        };
        let mut parts = Vec::with_capacity(pattern.len());
        let mut characters = pattern.chars();
        while let Some(character) = characters.next() {
            let literal = match character {
                c if c == escape => match characters.next() {
                    Some(next) if next == escape || next == '%' || next == '_' => next,
                    Some(next) => {
                        push(&mut parts, c);
                        next
                    }
                    None => {
                        return Err(QueryError::evaluation("A LIKE pattern ends with its escape"));
                    }
                },
                '%' => {
                    if parts.last() != Some(&Part::AnyRun) {
                        parts.push(Part::AnyRun);
                    }
                    continue;
                }
                '_' => {
                    parts.push(Part::AnyCharacter);
                    continue;
                }
                c => c,
            };
            push(&mut parts, literal);
        }
        let is_run = |part: &Part| *part == Part::AnyRun;
        let are_runs = |pair: &[Part]| pair.iter().all(is_run);
        debug_assert!(!parts.windows(2).any(are_runs), "no run follows another");
        Ok(Like { parts })
    }

    /// Whether the whole text matches.
    ///
    /// # Errors
    /// Those of `work`, which gets the number of bytes that were compared, every few thousand.
    pub fn matches(&self, text: &[u8], work: &mut dyn FnMut(usize) -> Result<()>) -> Result<bool> {
        const STEPS: usize = 4 << 10;
        let (mut at, mut part) = (0, 0);
        let mut retry = None;
        let mut steps = 0;
        loop {
            steps += 1;
            if steps == STEPS {
                // A step takes longer than to walk a byte.
                work(16 * STEPS)?;
                steps = 0;
            }
            debug_assert!(at <= text.len(), "a match stays inside the text");
            debug_assert!(part <= self.parts.len(), "a match stays inside the pattern");
            match self.parts.get(part) {
                Some(Part::AnyRun) => {
                    part += 1;
                    if part == self.parts.len() {
                        return Ok(true);
                    }
                    retry = Some((at, part));
                    continue;
                }
                Some(Part::Byte(byte)) if text.get(at) == Some(byte) => {
                    (at, part) = (at + 1, part + 1);
                    continue;
                }
                Some(Part::AnyCharacter) if at < text.len() => {
                    (at, part) = (next_character(text, at), part + 1);
                    continue;
                }
                None if at == text.len() => return Ok(true),
                _ => {}
            }
            match retry {
                Some((start, after)) if start < text.len() => {
                    let start = match self.parts.get(after) {
                        // The next place where the part after the run can begin.
                        Some(Part::Byte(byte)) => match memchr::memchr(*byte, &text[start + 1..]) {
                            Some(skipped) => start + 1 + skipped,
                            None => return Ok(false),
                        },
                        _ => next_character(text, start),
                    };
                    retry = Some((start, after));
                    (at, part) = (start, after);
                }
                _ => return Ok(false),
            }
        }
    }

    /// The bytes that every match begins with.
    pub fn prefix(&self) -> Vec<u8> {
        let bytes = self.parts.iter().map_while(|part| match part {
            Part::Byte(byte) => Some(*byte),
            _ => None,
        });
        bytes.collect()
    }
}

fn push(parts: &mut Vec<Part>, character: char) {
    parts.extend(character.encode_utf8(&mut [0; 4]).bytes().map(Part::Byte));
}

fn next_character(text: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while text.get(at).is_some_and(|byte| byte & 0xC0 == 0x80) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::Like;

    fn matches(pattern: &str, text: &str) -> bool {
        Like::new(pattern, "\\")
            .expect("the pattern is valid")
            .matches(text.as_bytes(), &mut |_| Ok(()))
            .expect("nothing ends the search")
    }

    #[test]
    fn runs_and_single_characters_match() {
        assert!(matches("%a%o%", "East Fjord"));
        assert!(matches("_", "é"));
        assert!(matches("a%c", "abcabc"));
        assert!(!matches("b%", "abc"));
        assert!(matches(r"a\%b", "a%b") && !matches(r"a\%b", "axb"));
    }

    #[test]
    fn a_pattern_of_many_runs_ends_quickly() {
        let text = "a".repeat(20_000);
        assert!(!matches(&("%a".repeat(50) + "%b"), &text));
    }
}
