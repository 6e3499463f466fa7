//! Bounds of a statement. Each keeps some input from growing memory, time or the stack.

/// Nested expressions, subqueries and parentheses. A level takes at most 2 KiB of stack in the
/// parser, the compiler and the evaluator each, so 100 levels fit a thread of 2 MiB also in a
/// build without optimisation.
pub(crate) const NESTING_MAX: usize = 100;

/// Bytes of one statement.
pub(crate) const STATEMENT_BYTES_MAX: usize = 20 << 20;

/// Bytes that one call of a function may produce, as in the reference.
pub(crate) const FUNCTION_BYTES_MAX: usize = 20 << 20;

/// Nesting of a stored value that comparison and the functions follow. Deeper parts compare by
/// their text.
pub(crate) const VALUE_DEPTH_MAX: usize = 200;

/// Bytes of a value that a statement builds, with shared parts counted each time they occur: the
/// longest row that a server sends.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// Levels of a value that a statement builds. Writing, comparing and dropping it take some hundred
/// bytes of stack a level.
pub(crate) const VALUE_LEVELS_MAX: usize = 500;

/// Bytes a compiled regular expression may take, and the least that is tried. Each step is four
/// times as large.
pub(crate) const REGEX_BYTES_MAX: usize = 1 << 20;
pub(crate) const REGEX_BYTES_MIN: usize = 1 << 10;

/// Bytes of the states that a search caches, for each direction.
pub(crate) const REGEX_CACHE_BYTES_MAX: usize = 256 << 10;

/// Steps of one search, which nothing can stop: seconds. A small expression may search the largest
/// text.
pub(crate) const REGEX_STEPS_MAX: usize = 1 << 30;

/// Work on one document for one index, in checks of [`TURNS_BETWEEN_CHECKS`] turns: a million
/// turns, which take a second or some. A document of 20 MB is walked with a fiftieth.
pub(crate) const INDEX_CHECKS_MAX: u32 = 4 << 10;

/// Memory for the values and entries of one document in one index.
pub(crate) const INDEX_EVALUATION_BYTES_MAX: usize = 64 << 20;

/// Compiled patterns that a statement keeps.
pub(crate) const PATTERNS_MAX: usize = 16;

const _: () = assert!(REGEX_BYTES_MIN / 32 * FUNCTION_BYTES_MAX <= REGEX_STEPS_MAX);
const _: () = assert!(REGEX_BYTES_MIN < REGEX_BYTES_MAX);
const _: () = assert!(REGEX_CACHE_BYTES_MAX <= REGEX_BYTES_MAX);
const _: () = assert!(NESTING_MAX < VALUE_DEPTH_MAX && VALUE_DEPTH_MAX < VALUE_LEVELS_MAX);
const _: () = assert!(STATEMENT_BYTES_MAX <= VALUE_BYTES_MAX);
const _: () = assert!(FUNCTION_BYTES_MAX <= VALUE_BYTES_MAX);
const _: () = assert!(PREPARED_MAX * PREPARED_BYTES_MIN <= PREPARED_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_FREE < RESERVE_STEP_BYTES);
const _: () = assert!(INDEX_EVALUATION_BYTES_MAX <= VALUE_BYTES_MAX);
const _: () = assert!(INDEX_CHECKS_MAX > 0 && TURNS_BETWEEN_CHECKS > 0 && BYTES_OF_A_TURN > 0);
const _: () = assert!(ERRORS_MAX > 0 && PATTERNS_MAX > 0 && RECURSION_LEVELS_MAX > 0);
const _: () = assert!(INFER_DEPTH_MAX < VALUE_DEPTH_MAX);
// Tokens have positions of 32 bits.
const _: () = assert!(STATEMENT_BYTES_MAX < u32::MAX as usize);
// Steps of four times as much end at the bound.
const _: () = assert!((REGEX_BYTES_MAX / REGEX_BYTES_MIN).ilog2().is_multiple_of(2));
const _: () = assert!((REGEX_BYTES_MAX / REGEX_BYTES_MIN).is_power_of_two());

/// Rounds of a recursive `WITH` without options.
pub(crate) const RECURSION_LEVELS_MAX: usize = 10_000;

/// Bytes up to which a value holds no reservation.
pub(crate) const VALUE_BYTES_FREE: usize = 4 << 10;

/// Memory is asked for in steps of this size.
pub(crate) const RESERVE_STEP_BYTES: usize = 64 << 10;

/// Prepared statements that are kept. The oldest is removed.
pub(crate) const PREPARED_MAX: usize = 4_096;

/// Bytes of the texts, trees and plans of all of them.
pub(crate) const PREPARED_BYTES_MAX: usize = 16 << 20;

/// Bytes of the smallest one, next to its tree: names, and places in tables.
pub(crate) const PREPARED_BYTES_MIN: usize = 1 << 10;

/// Rows or loop turns between two checks of the deadline.
pub(crate) const TURNS_BETWEEN_CHECKS: u32 = 256;

/// Bytes that an operation walks in about the time of a turn.
pub(crate) const BYTES_OF_A_TURN: usize = 1 << 10;

/// Bytes of a key in a hash table. A longer key is replaced by its digest.
pub(crate) const KEY_BYTES_MAX: usize = 1 << 10;

/// Errors and warnings in one answer.
pub(crate) const ERRORS_MAX: usize = 64;

/// Documents of a sample of INFER, its values at a place, its flavors, and the fields and levels of
/// a schema. A flavor is compared with every document.
pub(crate) const INFER_SAMPLE_MAX: usize = 100_000;
pub(crate) const INFER_VALUES_MAX: usize = 1_000;
pub(crate) const INFER_FLAVORS_MAX: usize = 100;
pub(crate) const INFER_FIELDS_MAX: usize = 1_000;
pub(crate) const INFER_DEPTH_MAX: usize = 16;
