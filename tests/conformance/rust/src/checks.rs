//! Expectations that a step returns as errors, and waiting with a deadline.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use couchbase::error::{Error, ErrorKind};
use tokio::time::{Instant, sleep, timeout};

/// The detail to print after a step, or why it failed.
pub type Outcome = Result<String, Failure>;
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The SDK leaves time limits to the caller: without one it retries for ever.
const OPERATION_SECONDS_MAX: u64 = 10;

pub fn check(condition: bool, what: &str) -> Result<(), Failure> {
    if condition { Ok(()) } else { Err(format!("expected: {what}").into()) }
}

pub fn equal<T: PartialEq + Debug>(actual: T, expected: T) -> Result<(), Failure> {
    if actual == expected {
        Ok(())
    } else {
        Err(format!("expected {expected:?}, got {actual:?}").into())
    }
}

/// Checks that a call is refused with exactly this kind.
pub fn fails<T>(result: Result<T, Error>, expected: ErrorKind) -> Result<(), Failure> {
    match result {
        Ok(_) => Err(format!("expected {expected:?}, got a result").into()),
        Err(error) if *error.kind() == expected => Ok(()),
        Err(error) => Err(format!("expected {expected:?}, got {error}").into()),
    }
}

/// Limits one call to the time that every healthy one needs at most. The SDK's futures are so
/// deeply nested that the compiler gives up on their layout unless they are boxed.
pub async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    let limit = Duration::from_secs(OPERATION_SECONDS_MAX);
    Ok(timeout(limit, Box::pin(call)).await.map_err(|_| "an operation timed out")??)
}

/// Repeats a call until it succeeds, for half a minute, because time heals.
pub async fn eventually<T, F>(mut call: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Error>>,
{
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match within(call()).await {
            Ok(value) => return Ok(value),
            Err(failure) if Instant::now() > deadline => return Err(failure),
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}
