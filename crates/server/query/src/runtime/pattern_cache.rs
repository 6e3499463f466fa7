//! The compiled patterns that a statement keeps.

use std::ops::Deref;
use std::rc::Rc;

use regex::Regex;

use crate::like::Like;
use crate::value::Text;
use crate::value::reservation::ValueReservation;

#[derive(Default)]
pub struct PatternCache {
    pub likes: Vec<(Text, Text, Rc<LikePattern>)>,
    pub regexes: Vec<(Text, Rc<SearchPattern>)>,
}

/// A regular expression, the bound on its states, and its memory until its last user drops it.
pub struct SearchPattern {
    pub(super) regex: Regex,
    pub(super) states: usize,
    pub(super) _memory: ValueReservation,
}

/// A LIKE pattern, and its memory until its last user drops it.
pub struct LikePattern {
    pub(super) like: Like,
    pub(super) _memory: ValueReservation,
}

impl Deref for LikePattern {
    type Target = Like;

    fn deref(&self) -> &Like {
        &self.like
    }
}
