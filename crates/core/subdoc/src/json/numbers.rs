//! Checks the form of all numbers in a block at once.
//!
//! A number is a run of digits, signs, points and the exponent's letter, and the rules for adjacent
//! bytes say nearly everything. In addition, a point follows only digits without an earlier point
//! or exponent. An exponent's letter follows only digits outside an exponent. A leading 0 is not
//! followed by a digit. Runs that begin with another byte than a digit or a minus are literals, and
//! other code checks them.

use super::carry::{PreviousMask, Runs};
use crate::byte_masks::TokenBytes;

/// The state before a block.
#[derive(Default)]
pub(super) struct Numbers {
    literals: Runs,
    digits: PreviousMask,
    points: PreviousMask,
    fractions: Runs,
    first_minuses: PreviousMask,
    first_zeroes: PreviousMask,
    powers: Powers,
}

/// The state of the exponents.
#[derive(Default)]
struct Powers {
    exponents: PreviousMask,
    signs: PreviousMask,
    digits: Runs,
}

/// The result for a block.
pub(super) struct NumberToken {
    /// The first bytes of presumed literals.
    pub(super) literals: u64,
    /// Not 0 if a number is malformed.
    pub(super) wrong: u64,
}

impl Numbers {
    /// Processes the next block, whose numbers and literals are at `scalars` and begin at `starts`.
    #[inline(always)]
    pub(super) fn take(&mut self, found: &TokenBytes, scalars: u64, starts: u64) -> NumberToken {
        let literals = starts & !(found.digits | found.minuses);
        let numbers = scalars & !self.literals.whole(literals, scalars);
        let digits = found.digits & numbers;
        let points = found.points & numbers;
        let minuses = found.minuses & numbers;
        let first_minuses = minuses & starts;

        let behind_points = self.points.of(points);
        let behind_minuses = self.first_minuses.of(first_minuses);
        let mut wrong = (behind_points | behind_minuses) & !digits;
        wrong |= self.fractions.ends(behind_points & digits, digits) & points;
        let first_digits = (starts | behind_minuses) & digits;
        wrong |= self.first_zeroes.of(first_digits & found.zeroes) & digits;
        let behind_digits = self.digits.of(digits);
        wrong |= points & !behind_digits;

        // Few numbers have an exponent.
        let exponents = found.exponents & numbers;
        if exponents | self.powers.before() == 0 {
            wrong |= numbers & !(digits | points | first_minuses);
        } else {
            let signs = (minuses | (found.pluses & numbers)) & !first_minuses;
            wrong |= numbers & !(digits | points | exponents | first_minuses | signs);
            wrong |= exponents & !behind_digits;
            wrong |= self.powers.take(digits, points, exponents, signs);
        }
        NumberToken { literals, wrong }
    }
}

impl Powers {
    /// Not 0 if the previous block ended in an exponent.
    #[inline(always)]
    fn before(&self) -> u64 {
        self.exponents.last() | self.signs.last() | self.digits.last()
    }

    /// Checks the numbers of the next block; the signs are those that do not begin a number.
    #[inline(always)]
    fn take(&mut self, digits: u64, points: u64, exponents: u64, signs: u64) -> u64 {
        let behind_exponents = self.exponents.of(exponents);
        let behind_signs = self.signs.of(signs);
        let mut wrong = signs & !behind_exponents;
        wrong |= behind_exponents & !(digits | signs);
        wrong |= behind_signs & !digits;
        let first_digits = (behind_exponents | behind_signs) & digits;
        wrong | (self.digits.ends(first_digits, digits) & (points | exponents))
    }
}
