//! Where a session's rows come from, as far as the session has to know.
//!
//! Owns the seam for what belongs to a run of statements and not to one table: its beginning, its
//! interruption, and its cost.

use tokio::runtime::Runtime;

/// See the module text.
pub trait Backend: Send + Sync {
    /// The runtime, for tasks concurrent with the statement.
    fn runtime(&self) -> &Runtime;

    /// Ends any wait of a statement, until [`Backend::begin_statement`].
    fn interrupt(&self);

    /// Whether the statement was interrupted.
    fn is_interrupted(&self) -> bool;

    /// Begins a run: forgets an interruption and the cost of the statements before.
    fn begin_statement(&self);

    /// What the scans of the statement have cost so far.
    fn cost(&self) -> String;
}
