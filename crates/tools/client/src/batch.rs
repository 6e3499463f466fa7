//! Answers to a batch of requests, on their way from connections to the one task that takes them.
//!
//! Connections put answers in, from any thread; the owner takes all of them at once. It swaps two
//! vectors and reuses them, so that an answer costs no allocation. The owner's
//! operations in flight bound the memory.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::response::ResponseResult;

/// An answer with the number that its request has in the batch.
pub(crate) type NumberedResponse = (u64, ResponseResult);

/// See the module text.
#[derive(Default)]
pub(crate) struct RequestBatch(Mutex<Ready>);

#[derive(Default)]
struct Ready {
    answers: Vec<NumberedResponse>,
    /// The task that waits for the next one.
    waker: Option<Waker>,
}

impl RequestBatch {
    /// Puts an answer in and wakes the owner if it waits.
    pub fn put(&self, number: u64, answer: ResponseResult) {
        let mut ready = self.0.lock();
        ready.answers.push((number, answer));
        let waker = ready.waker.take();
        drop(ready);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what is present into `out`, which is empty; false when nothing is.
    pub fn try_take(&self, out: &mut Vec<NumberedResponse>) -> bool {
        std::mem::swap(&mut self.0.lock().answers, out);
        !out.is_empty()
    }

    /// Waits until something is there and takes it into `out`, which is empty. Only one task waits.
    pub async fn take(&self, out: &mut Vec<NumberedResponse>) {
        poll_fn(|context| {
            let mut ready = self.0.lock();
            if ready.answers.is_empty() {
                ready.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            std::mem::swap(&mut ready.answers, out);
            Poll::Ready(())
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    //! What is put in comes out, once, and wakes who waits.

    use std::sync::Arc;

    use super::*;
    use crate::error::ClientError;

    fn answer() -> ResponseResult {
        Err(ClientError::NotOffered("it"))
    }

    #[tokio::test]
    async fn answers_come_out_once_and_in_order() {
        let batch = Arc::new(RequestBatch::default());
        let mut taken = Vec::new();
        assert!(!batch.try_take(&mut taken));
        batch.put(1, answer());
        batch.put(2, answer());
        assert!(batch.try_take(&mut taken));
        let numbers = |taken: &[NumberedResponse]| {
            taken.iter().map(|(number, _)| *number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&taken), [1, 2]);
        taken.clear();
        assert!(!batch.try_take(&mut taken));

        let other = batch.clone();
        let putting = tokio::spawn(async move {
            // The test's task waits by now: it runs on this thread and has nothing else to do.
            other.put(3, answer());
        });
        batch.take(&mut taken).await;
        assert_eq!(numbers(&taken), [3]);
        putting.await.expect("no panic");
    }
}
