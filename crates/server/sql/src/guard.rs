//! What statements of strangers may do: read.
//!
//! It owns the authorizer and the limits of a restricted database. SQLite asks the authorizer about
//! every action of a statement while it compiles it; the list of what is allowed is short, and
//! everything else is refused, later inventions included. Invariants: nothing that such a statement
//! does touches a file, changes a setting, or outlives the database; all memory is SQLite's heap,
//! which [`bound_heap`] bounds for the whole process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use anyhow::{Context, Result};
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;

/// Functions that do more than compute.
const REFUSED_FUNCTIONS: [&str; 6] =
    ["load_extension", "fts3_tokenizer", "sqlite_log", "readfile", "writefile", "edit"];

/// Questions about a table's columns.
const ALLOWED_PRAGMAS: [&str; 3] = ["table_info", "table_xinfo", "table_list"];

/// Longest text or bytes that a statement may make: three of the largest document.
const VALUE_BYTES_MAX: i32 = 64 << 20;

/// Longest statement.
pub const STATEMENT_BYTES_MAX: usize = 64 << 10;

/// Depth of an expression, which SQLite compiles by recursion.
const EXPRESSION_DEPTH_MAX: i32 = 200;

/// Parts of a `union`.
const COMPOUND_MAX: i32 = 64;

/// Columns of a result or of an `order by`.
const COLUMNS_MAX: i32 = 256;

/// Instructions of a compiled statement.
const INSTRUCTIONS_MAX: i32 = 100_000;

/// Longest pattern of `like` and `glob`, whose search cannot be interrupted.
const PATTERN_BYTES_MAX: i32 = 1024;

/// Set while this crate itself declares a table.
pub type Declaring = Arc<AtomicBool>;

/// Restricts a connection to reading.
pub fn restrict(connection: &mut Connection) -> Result<Declaring> {
    for (limit, most) in [
        (Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, i32::try_from(STATEMENT_BYTES_MAX)?),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, EXPRESSION_DEPTH_MAX),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, COMPOUND_MAX),
        (Limit::SQLITE_LIMIT_COLUMN, COLUMNS_MAX),
        (Limit::SQLITE_LIMIT_VDBE_OP, INSTRUCTIONS_MAX),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, most)?;
    }
    // Sorting and grouping use the heap, so there are no temporary files.
    connection.execute_batch("pragma temp_store = memory; pragma trusted_schema = off")?;
    let declaring = Declaring::default();
    let is_declaring = Arc::clone(&declaring);
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        match is_declaring.load(SeqCst) || is_allowed(&context.action) {
            true => Authorization::Allow,
            false => Authorization::Deny,
        }
    }))?;
    Ok(declaring)
}

fn is_allowed(action: &AuthAction<'_>) -> bool {
    match action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => {
            !REFUSED_FUNCTIONS.iter().any(|name| name.eq_ignore_ascii_case(function_name))
        }
        AuthAction::Pragma { pragma_name, .. } => {
            ALLOWED_PRAGMAS.iter().any(|name| name.eq_ignore_ascii_case(pragma_name))
        }
        _ => false,
    }
}

/// Bounds the heap that all databases of this process share.
pub fn bound_heap(connection: &Connection, bytes: u64) -> Result<()> {
    let set = format!("pragma hard_heap_limit = {bytes}");
    let now = connection.query_row(&set, [], |row| row.get::<_, i64>(0));
    now.context("bounding SQLite's memory").map(|_| ())
}
