//! The seed of a test that chooses at random.
//!
//! Owns the rule: `cargo test` runs fixed seeds, so every run of one commit makes the same choices.
//! Other seeds are a lane, `cargo xtask soak seeds`, which sets `ORIBI_TEST_SEED`. A seed that
//! failed joins the fixed ones as its own test. Property tests take the same rule from
//! `PROPTEST_RNG_SEED` in `.cargo/config.toml`.

use std::env;

const VARIABLE: &str = "ORIBI_TEST_SEED";

/// The seed in `ORIBI_TEST_SEED` (decimal, or hexadecimal after `0x`), or else `fixed`. Prints it,
/// so that a failing run shows how to repeat it.
///
/// # Panics
/// When the variable is not a number.
#[must_use]
pub fn seed(fixed: u64) -> u64 {
    let seed = env::var(VARIABLE).map_or(fixed, |text| {
        parse(&text).unwrap_or_else(|| panic!("{VARIABLE} is {text:?}, not a number"))
    });
    println!("seed {seed} ({VARIABLE}={seed} repeats it)");
    seed
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(parse("510004"), Some(510_004));
        assert_eq!(parse("0x510004"), Some(0x51_0004));
        assert_eq!(parse("random"), None);
    }
    /// Cargo sets it from `.cargo/config.toml`.
    #[test]
    fn property_tests_have_a_fixed_seed() {
        let seed = std::env::var("PROPTEST_RNG_SEED").expect("cargo sets the variable");
        assert!(parse(&seed).is_some(), "{seed}");
    }
}
