//! Runs a future of the store's runtime on the thread of a synchronous caller.
//!
//! The seam to the engine is synchronous. Tokio's own `block_on` panics on a thread that belongs to
//! some runtime, and the server's admin HTTP has such threads; parking the thread works anywhere.
//! Invariant: I/O and timers of the future are those of the store's runtime, whose threads drive
//! them.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use tokio::runtime::Handle;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls the future on this thread until it is ready.
pub(crate) fn block_on<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    let _entered = runtime.enter();
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}
