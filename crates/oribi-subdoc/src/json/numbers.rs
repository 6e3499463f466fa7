//! What numbers look like, all those of a block at once.
//!
//! A number is a run of bytes out of digits, signs, points and the exponent's letter; which of them may be beside
//! which says nearly everything. Besides, a point stands only behind digits that no point and no exponent came
//! before, an exponent's letter only behind digits of no exponent, and 0 is not followed by a digit where it begins
//! a number. Runs that begin with something else than a digit or a minus are literals, and others look at them.

use super::carry::{Behind, Runs};
use crate::byte_masks::TokenBytes;

/// What was seen before a block.
#[derive(Default)]
pub(super) struct Numbers {
    literals: Runs,
    digits: Behind,
    points: Behind,
    fractions: Runs,
    first_minuses: Behind,
    first_zeroes: Behind,
    powers: Powers,
}

/// What was seen of the exponents.
#[derive(Default)]
struct Powers {
    exponents: Behind,
    signs: Behind,
    digits: Runs,
}

/// What there was in a block.
pub(super) struct Found {
    /// The first bytes of what should be literals.
    pub(super) literals: u64,
    /// Not 0 when a number is none.
    pub(super) wrong: u64,
}

impl Numbers {
    /// Takes the next block, whose numbers and literals are at `scalars` and begin at `starts`.
    #[inline(always)]
    pub(super) fn take(&mut self, found: &TokenBytes, scalars: u64, starts: u64) -> Found {
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
        Found { literals, wrong }
    }
}

impl Powers {
    /// Not 0 when the block before ended in an exponent.
    #[inline(always)]
    fn before(&self) -> u64 {
        self.exponents.last() | self.signs.last() | self.digits.last()
    }

    /// Takes what is in the numbers of the next block; the signs are those that do not begin a number.
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
