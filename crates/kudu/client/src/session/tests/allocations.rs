//! The memory cost of a row, measured with a counting allocator.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::memory_table::{MemoryTable, hashed_by_key, loadgen_schema};
use super::*;
use crate::proto::tserver::WriteResponsePb;
use crate::session::write_target::{TableView, TargetFuture};

/// A table that accepts all batches at once without looking; or none while it is closed.
#[derive(Debug)]
struct Drain {
    table: Arc<MemoryTable>,
    is_closed: AtomicBool,
}

impl WriteTarget for Drain {
    fn view(&self, reload: bool, deadline: Instant) -> TargetFuture<'_, TableView> {
        self.table.view(reload, deadline)
    }

    fn write<'a>(
        &'a self,
        _tablet_id: &'a str,
        request: &'a WriteRequest,
        _deadline: Instant,
    ) -> TargetFuture<'a, WriteResponsePb> {
        Box::pin(async move {
            drop(request.pieces("0", None, None));
            while self.is_closed.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            Ok(WriteResponsePb::default())
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn request_bytes_max(&self) -> usize {
        self.table.request_bytes_max
    }
}

/// A session whose rows go nowhere, with 8 tablets as `perf loadgen` has by default.
fn draining_session(options: SessionOptions) -> (Session, Arc<Drain>) {
    let schema = loadgen_schema();
    let table = MemoryTable::new(schema.clone(), 8);
    let drain = Arc::new(Drain { table, is_closed: AtomicBool::new(false) });
    (Session::with_target(&schema, &hashed_by_key(&schema, 8), drain.clone(), options), drain)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// A row of loadgen: 31 bytes and a string of 32.
const ROW_BYTES: u64 = 63;

async fn apply_rows(session: &mut Session, keys: std::ops::Range<i64>) {
    for key in keys {
        let mut row = session.insert();
        row.set_i64(0, key).unwrap();
        row.set_i32(1, key as i32).unwrap();
        row.set_string(2, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx").unwrap();
        row.apply().await.unwrap();
    }
}

#[test]
fn a_row_costs_no_allocation_once_buffers_are_warm() {
    let (runtime, rows) = (runtime(), 100_000);
    let _context = runtime.enter();
    let (mut session, _drain) = draining_session(options(FlushMode::Background));
    runtime.block_on(async {
        apply_rows(&mut session, 0..rows).await;
        session.flush().await.unwrap();
    });
    let before = session.statistics().writes;
    let counted = allocation_counter::measure(|| {
        runtime.block_on(async {
            apply_rows(&mut session, rows..2 * rows).await;
            session.flush().await.unwrap();
        });
    });
    let writes = session.statistics().writes - before;
    assert!(writes < 50, "{writes} writes");
    // A batch costs its task and a few small pieces of its request; a row costs nothing.
    assert!(counted.count_total <= 30 * writes, "{counted:?} for {writes} writes of {rows} rows");
}

#[test]
fn buffered_rows_take_little_more_than_their_bytes() {
    let (runtime, rows) = (runtime(), 200_000);
    let _context = runtime.enter();
    for flush_mode in [FlushMode::Manual, FlushMode::Background] {
        let options = SessionOptions { buffer_bytes_max: 64 << 20, ..options(flush_mode) };
        let (mut session, drain) = draining_session(options);
        drain.is_closed.store(true, Ordering::Relaxed);
        let counted = allocation_counter::measure(|| {
            runtime.block_on(apply_rows(&mut session, 0..rows));
        });
        assert_eq!(session.buffered_bytes() as u64, rows as u64 * ROW_BYTES);
        let beyond = counted.bytes_current as f64 / rows as f64 - ROW_BYTES as f64;
        assert!(beyond <= 16.0, "{beyond} bytes for each row in {flush_mode:?}");
        drain.is_closed.store(false, Ordering::Relaxed);
        runtime.block_on(session.flush()).unwrap();
    }
}

#[test]
fn freeing_a_batch_does_not_depend_on_its_rows() {
    let freed = |rows: i64| {
        let runtime = runtime();
        let _context = runtime.enter();
        let options = SessionOptions { buffer_bytes_max: 64 << 20, ..options(FlushMode::Manual) };
        let (mut session, _drain) = draining_session(options);
        runtime.block_on(apply_rows(&mut session, 0..rows));
        let sealed = session.shared.filling.lock().seal_all();
        let batches = sealed.len();
        // What is taken back is counted as negative allocations of bytes, and by how many frees.
        let counted = allocation_counter::measure(|| drop(sealed));
        (batches, counted.count_current)
    };
    // Two buffers for each of the eight tablets, and the list of them.
    assert_eq!(freed(1_000), (8, -17));
    assert_eq!(freed(100_000), (8, -17));
}
