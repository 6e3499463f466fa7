//! Rows in the buffers of a session, with 8 tablets as `perf loadgen` has by default.
//!
//! The session has no cluster. Filled once, it is dropped with everything in it; and the same rows
//! are run through it in the background, to see what a row costs until its request is laid out.

use std::hint::black_box;
use std::time::Duration;

use oribi_kudu::{
    ColumnSchema, DataType, FlushMode, Schema, Session, SessionError, SessionOptions,
};
use tokio::runtime::Runtime;

const STRING: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime needs only memory")
}

/// A session that holds all its rows.
pub(crate) fn filled_session(runtime: &Runtime, rows: usize) -> Session {
    let options = SessionOptions::new().flush_mode(FlushMode::Manual).buffer_bytes_max(usize::MAX);
    let mut session = session(runtime, options);
    runtime.block_on(apply(&mut session, rows)).expect("the rows fit their table");
    session
}

/// Processor time for `rows` rows from their first cell to the laid-out request, with warm buffers.
pub(crate) fn time_of_rows(runtime: &Runtime, rows: usize) -> Duration {
    let mut session = session(runtime, SessionOptions::new().buffer_bytes_max(4 << 20));
    runtime
        .block_on(async {
            apply(&mut session, rows.min(100_000)).await?;
            session.flush().await?;
            let started = crate::processor_time();
            apply(&mut session, rows).await?;
            session.flush().await?;
            Ok::<_, SessionError>(crate::processor_time() - started)
        })
        .expect("the rows fit their table")
}

fn session(runtime: &Runtime, options: SessionOptions) -> Session {
    let schema = Schema::builder()
        .column(ColumnSchema::builder("key", DataType::Int64).key())
        .column(ColumnSchema::builder("int_val", DataType::Int32))
        .column(ColumnSchema::builder("string_val", DataType::String))
        .build()
        .expect("the columns of perf loadgen");
    let _context = runtime.enter();
    Session::dry_run(&schema, 8, options).expect("eight buckets are allowed")
}

async fn apply(session: &mut Session, rows: usize) -> Result<(), SessionError> {
    for number in 0..rows {
        let mut row = session.insert();
        row.set_i64(0, black_box(number as i64))?;
        row.set_i32(1, black_box(number as i32))?;
        row.set_string(2, black_box(STRING))?;
        row.apply().await?;
    }
    Ok(())
}
