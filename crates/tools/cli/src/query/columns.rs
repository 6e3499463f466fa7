//! The columns of a result: those of its signature, else those of its first rows.

use std::collections::HashMap;

use super::row::OutputRow;

/// See the module text.
#[derive(Debug, Default)]
pub struct OutputColumns {
    names: Vec<String>,
    positions: HashMap<String, usize>,
    /// How many the signature named.
    fixed: usize,
}

impl OutputColumns {
    /// The columns that a signature names, which may be none.
    pub fn of_signature(signature: &str) -> OutputColumns {
        let mut columns = OutputColumns::default();
        for name in OutputRow::names_in_signature(signature).unwrap_or_default() {
            if columns.position(&name).is_none() {
                columns.add(name);
            }
        }
        columns.fixed = columns.len();
        columns
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Adds a column that is not there yet, and returns its position.
    pub fn add(&mut self, name: String) -> usize {
        let at = self.names.len();
        self.positions.insert(name.clone(), at);
        self.names.push(name);
        at
    }

    /// Keeps the columns of the signature only.
    pub fn forget_added(&mut self) {
        for name in self.names.drain(self.fixed..) {
            self.positions.remove(&name);
        }
    }
}
