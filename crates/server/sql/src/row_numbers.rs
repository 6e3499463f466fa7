//! The row numbers of a virtual table, by which SQLite identifies its rows.
//!
//! It owns the form of a number, and the check whether a statement needs any. Invariant: a number
//! identifies a row in every scan, because SQLite compares numbers of several scans: of the
//! branches of an `or` that find the same row, and of the rows that a right join has already found.
//! It is therefore a 64-bit hash of the row's primary key, with a secret seed. Two of a million
//! rows share a number once in 37 million statements (their pairs divided by 2^64). Reading keys
//! costs, so statements whose program asks for no number, such as a `count(*)`, skip it. An
//! unexpected request for a number is an error, never a wrong number. [`super::virtual_table`]
//! calls it for rows and `session` for statements.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anyhow::Result;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};

use crate::source::RowStream;

/// Name of the instruction that asks for a number.
const ASKS: &str = "Rowid";

/// See the module text. Clones are the same.
#[derive(Clone, Default)]
pub struct RowNumbers {
    are_left_out: Arc<AtomicBool>,
    seed: RandomState,
}

impl RowNumbers {
    /// Checks whether SQLite's program of a statement, which is about to run, asks for numbers.
    /// True when in doubt: a wrong answer costs only the reading of keys.
    pub fn look_at(&self, connection: &Connection, statement: &Statement<'_>) {
        let are_needed = asks_for_numbers(connection, statement).unwrap_or(true);
        self.are_left_out.store(!are_needed, SeqCst);
    }

    /// Whether scans have to read the keys of rows; they do until a statement was looked at.
    pub fn are_needed(&self) -> bool {
        !self.are_left_out.load(SeqCst)
    }

    /// The number of the current row, whose key is in these columns.
    ///
    /// # Errors
    /// When the row cannot be read.
    pub fn number(&self, rows: &dyn RowStream, key: &[usize]) -> Result<i64> {
        let mut hasher = self.seed.build_hasher();
        for column in key {
            hash_cell(rows.cell(*column)?, &mut hasher);
        }
        Ok(hasher.finish().cast_signed())
    }
}

/// None when SQLite does not explain the statement.
fn asks_for_numbers(connection: &Connection, statement: &Statement<'_>) -> Option<bool> {
    if statement.is_explain() != 0 {
        return Some(false);
    }
    let mut program = connection.prepare(&format!("explain {}", statement.expanded_sql()?)).ok()?;
    let mut instructions = program.raw_query();
    while let Some(instruction) = instructions.next().ok()? {
        if instruction.get_ref("opcode").ok()?.as_str().ok()? == ASKS {
            return Some(true);
        }
    }
    Some(false)
}

/// Adds a cell of a key. Each has its type and length in front, so that neighbours do not run into
/// each other.
fn hash_cell(cell: ValueRef<'_>, hasher: &mut impl Hasher) {
    match cell {
        ValueRef::Null => 0_u8.hash(hasher),
        ValueRef::Integer(number) => (1_u8, number).hash(hasher),
        ValueRef::Real(number) => (2_u8, number.to_bits()).hash(hasher),
        ValueRef::Text(bytes) => (3_u8, bytes).hash(hasher),
        ValueRef::Blob(bytes) => (4_u8, bytes).hash(hasher),
    }
}
