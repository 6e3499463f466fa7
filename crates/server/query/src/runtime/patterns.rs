//! The compiled patterns of a statement: LIKE, and regular expressions.
//!
//! A search cannot be stopped in the middle, and takes at most a step for each byte of its text and
//! state of its pattern. So the steps of a search are bounded before it begins, and the deadline is
//! checked between searches as often as their steps ask for.

use std::rc::Rc;

use regex::Regex;

use super::Runtime;
use super::pattern_cache::{LikePattern, SearchPattern};
use crate::error::{QueryError, Result};
use crate::like::Like;
use crate::limits::{
    PATTERNS_MAX, REGEX_BYTES_MAX, REGEX_BYTES_MIN, REGEX_CACHE_BYTES_MAX, REGEX_STEPS_MAX,
};
use crate::value::Text;

/// Bytes of a state of a compiled regular expression, at least.
const STATE_BYTES: usize = 32;

/// Steps of a search that take about as long as walking a byte of JSON.
const STEPS_OF_A_BYTE: usize = 4;

/// Bytes of JSON that are walked in the time of compiling one byte.
const COMPILE_WORK: usize = 16;

impl SearchPattern {
    /// The expression for a search in a text of so many bytes.
    pub fn search(&self, bytes: usize, rt: &Runtime<'_>) -> Result<&Regex> {
        assert!(self.states > 0, "an expression has a state");
        let steps = bytes.saturating_mul(self.states);
        if steps > REGEX_STEPS_MAX {
            return Err(QueryError::evaluation(format!(
                "The regular expression is too large for a text of {bytes} bytes; this one may \
                 have {}",
                REGEX_STEPS_MAX / self.states
            )));
        }
        rt.work(steps / STEPS_OF_A_BYTE)?;
        Ok(&self.regex)
    }
}

impl Runtime<'_> {
    /// The compiled LIKE pattern.
    pub fn like(&self, pattern: &Text, escape: &Text) -> Result<Rc<LikePattern>> {
        let likes = &mut self.patterns.borrow_mut().likes;
        let known = likes.iter().find(|(known, by, _)| known == pattern && by == escape);
        if let Some((_, _, like)) = known {
            return Ok(like.clone());
        }
        if likes.len() >= PATTERNS_MAX {
            likes.remove(0);
        }
        let _memory = self.reserve_value(Like::bytes_max(pattern.as_bytes().len()))?;
        let like = Like::new(&pattern.to_str(), &escape.to_str())?;
        let like = Rc::new(LikePattern { like, _memory });
        likes.push((pattern.clone(), escape.clone(), like.clone()));
        assert!(likes.len() <= PATTERNS_MAX, "few patterns are kept");
        Ok(like)
    }

    /// The compiled regular expression.
    pub fn regex(&self, pattern: &Text) -> Result<Rc<SearchPattern>> {
        let regexes = &mut self.patterns.borrow_mut().regexes;
        if let Some((_, regex)) = regexes.iter().find(|(known, _)| known == pattern) {
            return Ok(regex.clone());
        }
        if regexes.len() >= PATTERNS_MAX {
            regexes.remove(0);
        }
        let regex = Rc::new(self.compile_regex(pattern)?);
        regexes.push((pattern.clone(), regex.clone()));
        assert!(regexes.len() <= PATTERNS_MAX, "few expressions are kept");
        Ok(regex)
    }

    /// Compiles with growing bounds on the size, because the library does not say the size.
    fn compile_regex(&self, pattern: &Text) -> Result<SearchPattern> {
        self.work(pattern.as_bytes().len())?;
        let text = pattern.to_str();
        let mut bytes_max = REGEX_BYTES_MIN;
        loop {
            // The expression forwards and backwards, its searches, and caches for both ways.
            let memory = self.reserve_value(4 * bytes_max + 2 * REGEX_CACHE_BYTES_MAX)?;
            self.work(COMPILE_WORK * bytes_max)?;
            let built = regex::RegexBuilder::new(&text)
                .size_limit(bytes_max)
                .dfa_size_limit(REGEX_CACHE_BYTES_MAX)
                .build();
            match built {
                Ok(regex) => {
                    let states = bytes_max / STATE_BYTES;
                    return Ok(SearchPattern { regex, states, _memory: memory });
                }
                Err(regex::Error::CompiledTooBig(_)) if bytes_max < REGEX_BYTES_MAX => {
                    self.check_deadline()?;
                    bytes_max *= 4;
                    assert!(bytes_max <= REGEX_BYTES_MAX, "the last step is the bound");
                }
                Err(error) => {
                    return Err(QueryError::evaluation(format!(
                        "The regular expression {pattern} is invalid: {error}"
                    )));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Memory of compiled patterns: kept with the cache, given back with it.

    use super::*;
    use crate::compile::index_keys::NoDocuments;
    use crate::memory_budget::MemoryBudget;
    use crate::prepared::PreparedStatements;
    use crate::runtime::QueryParameters;

    struct UnboundedBudget;

    impl MemoryBudget for UnboundedBudget {
        fn reserve(&self, _: usize) -> bool {
            true
        }

        fn release(&self, _: usize) {}
    }

    #[test]
    fn cached_like_patterns_keep_their_memory() {
        let (prepared, parameters) = (PreparedStatements::default(), QueryParameters::default());
        let rt = Runtime::new(&NoDocuments, &prepared, &parameters, &UnboundedBudget);
        let escape = Text::from("\\");
        for turn in 0..3 * PATTERNS_MAX {
            let pattern = Text::from(format!("{turn:010000}%").as_str());
            let used = rt.used();
            assert!(rt.like(&pattern, &escape).expect("a pattern").prefix().len() == 10_000);
            rt.release_to(used);
            let kept = Like::bytes_max(10_001) * (turn + 1).min(PATTERNS_MAX);
            assert_eq!(rt.in_use(), kept, "turn {turn}");
        }
    }

    #[test]
    fn cached_expression_keeps_its_memory() {
        let (prepared, parameters) = (PreparedStatements::default(), QueryParameters::default());
        let rt = Runtime::new(&NoDocuments, &prepared, &parameters, &UnboundedBudget);
        rt.keep(1_000).expect("the budget has no bound");
        let pattern = |number: usize| Text::from(format!("a{number}").as_str());
        drop(rt.regex(&pattern(0)).expect("a small expression"));
        let one = rt.in_use() - 1_000;
        assert!(one > REGEX_CACHE_BYTES_MAX, "an expression has its caches");
        for turn in 1..4 * PATTERNS_MAX {
            let used = rt.used();
            drop(rt.regex(&pattern(turn)).expect("a small expression"));
            rt.release_to(used);
            assert_eq!(rt.in_use(), 1_000 + one * (turn + 1).min(PATTERNS_MAX), "turn {turn}");
        }
        rt.give_back(1_000);
        assert_eq!(rt.in_use(), one * PATTERNS_MAX);
    }
}
