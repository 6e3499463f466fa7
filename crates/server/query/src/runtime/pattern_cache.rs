//! The compiled patterns that a statement keeps.

use std::rc::Rc;

use regex::Regex;

use crate::like::Like;
use crate::value::Text;

#[derive(Default)]
pub struct PatternCache {
    pub likes: Vec<(Text, Text, Rc<Like>)>,
    pub regexes: Vec<(Text, Rc<SearchPattern>)>,
}

/// A regular expression, and the bound on its states.
pub struct SearchPattern {
    pub(super) regex: Regex,
    pub(super) states: usize,
    pub(super) kept_bytes: usize,
}
