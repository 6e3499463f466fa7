//! The compiled patterns that a statement keeps.

use std::rc::Rc;

use regex::Regex;

use crate::like::Like;
use crate::value::Text;
use crate::value::reservation::ValueReservation;

#[derive(Default)]
pub struct PatternCache {
    pub likes: Vec<(Text, Text, Rc<Like>)>,
    pub regexes: Vec<(Text, Rc<SearchPattern>)>,
}

/// A regular expression, the bound on its states, and its memory until its last user drops it.
pub struct SearchPattern {
    pub(super) regex: Regex,
    pub(super) states: usize,
    pub(super) _memory: ValueReservation,
}
