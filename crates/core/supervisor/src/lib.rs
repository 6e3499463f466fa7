//! The threads of the server: how each is started, named and watched, and what a panic in one
//! means.
//!
//! Owns: the list of running threads, and one policy. A thread owns state: should it panic, that
//! state may be half-changed and its waiters would never return. So the process says what and why
//! and ends at once, before the stack unwinds and releases locks, with [`PANIC_EXIT_CODE`]. What
//! was acknowledged as durable is on disk, and clients that waited see a closed connection.
//! A [`job`] owns nothing: should it panic, it alone is answered with an error, and its thread
//! continues.
//! Invariant: the server starts threads only through [`spawn`]; `cargo xtask tidy` looks for
//! others. Callers: every crate that is linked into the server. It knows nothing of what the
//! threads do.

mod planted;
mod short_slice;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use parking_lot::Mutex;

pub use planted::plant;
pub use short_slice::take_short_slices;

/// Status of a process that ended because a thread that owns state could not continue. The number
/// is `EX_SOFTWARE` of sysexits(3).
pub const PANIC_EXIT_CODE: i32 = 70;

/// The current effect of a panic on this thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The thread was not started here; its starter decides what follows.
    Unwatched,
    OwnsState,
    /// One answer is an error.
    Job,
}

thread_local! {
    static STANDING: Cell<Standing> = const { Cell::new(Standing::Unwatched) };
}

/// Names of the threads that run, by the order in which they were started.
static RUNNING: Mutex<(u64, BTreeMap<u64, String>)> = Mutex::new((0, BTreeMap::new()));

/// A job has panicked. The log has the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobPanic;

/// Starts a thread that owns state.
///
/// # Errors
/// The operating system's, when it refuses a thread.
pub fn spawn<R: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    watch_panics();
    let name = name.into();
    std::thread::Builder::new().name(name.clone()).spawn(move || {
        let _listed = ThreadListing::new(name);
        let _standing = StandingGuard::set(Standing::OwnsState);
        work()
    })
}

/// Runs something whose panic harms only its caller: it changes nothing that others rely on.
///
/// # Errors
/// It panicked.
pub fn job<R>(what: &'static str, work: impl FnOnce() -> R) -> Result<R, JobPanic> {
    watch_panics();
    let _standing = StandingGuard::set(Standing::Job);
    let done = catch_unwind(AssertUnwindSafe(|| {
        plant(what);
        work()
    }));
    done.map_err(|_| JobPanic)
}

/// [`job`] for work that waits in between.
pub fn job_future<F: Future>(what: &'static str, future: F) -> JobFuture<F> {
    watch_panics();
    JobFuture { what, future: Box::pin(future) }
}

pub struct JobFuture<F> {
    what: &'static str,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for JobFuture<F> {
    type Output = Result<F::Output, JobPanic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (what, future) = (self.what, &mut self.future);
        match job(what, || future.as_mut().poll(context)) {
            Ok(poll) => poll.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

/// Ends the process because the calling thread cannot do its work any more, without any panic.
pub fn end_process(why: &str) -> ! {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    tracing::error!(thread, why, "a thread cannot go on; the process ends");
    std::process::exit(PANIC_EXIT_CODE)
}

/// Names of the threads that run now, in the order in which they were started.
pub fn running() -> Vec<String> {
    RUNNING.lock().1.values().cloned().collect()
}

/// Looks at every panic of the process, from the first thread on.
fn watch_panics() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            judge(panic);
        }));
    });
}

/// Runs on the thread that panics, before its stack unwinds.
fn judge(panic: &PanicHookInfo<'_>) {
    // A thread that is past the end of its locals owns nothing any more.
    let standing = STANDING.try_with(Cell::get).unwrap_or(Standing::Unwatched);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    match standing {
        Standing::Unwatched => {}
        Standing::Job => {
            tracing::error!(thread, %panic, "a job panicked; its caller gets an error")
        }
        Standing::OwnsState => {
            tracing::error!(thread, %panic, code = PANIC_EXIT_CODE, "a thread that owns state panicked; the process ends");
            std::process::exit(PANIC_EXIT_CODE);
        }
    }
}

/// A standing until this value goes.
struct StandingGuard(Standing);

impl StandingGuard {
    fn set(standing: Standing) -> StandingGuard {
        StandingGuard(STANDING.replace(standing))
    }
}

impl Drop for StandingGuard {
    fn drop(&mut self) {
        STANDING.set(self.0);
    }
}

/// A place in the list of threads until this value goes.
struct ThreadListing(u64);

impl ThreadListing {
    fn new(name: String) -> ThreadListing {
        let (next, names) = &mut *RUNNING.lock();
        *next += 1;
        names.insert(*next, name);
        ThreadListing(*next)
    }
}

impl Drop for ThreadListing {
    fn drop(&mut self) {
        RUNNING.lock().1.remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_is_listed_by_its_name_while_it_runs() {
        let (stop, stopped) = channel::<()>();
        let (started, starts) = channel();
        let thread = spawn("listed", move || {
            started.send(()).unwrap();
            stopped.recv().is_err()
        });
        starts.recv().unwrap();
        assert!(running().contains(&"listed".to_owned()), "{:?}", running());
        drop(stop);
        assert!(thread.unwrap().join().unwrap());
        assert!(!running().contains(&"listed".to_owned()), "{:?}", running());
    }

    #[test]
    fn a_job_that_panics_leaves_its_thread_alive() {
        let thread = spawn("lane", || {
            let first = job("a job", || panic!("planted"));
            let second = job("a job", || 7);
            let is_watched = STANDING.get() == Standing::OwnsState;
            (first, second, is_watched)
        });
        assert_eq!(thread.unwrap().join().unwrap(), (Err::<(), _>(JobPanic), Ok(7), true));
    }

    #[test]
    fn a_future_that_panics_ends_with_an_error() {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut polls = 0;
        let future = std::future::poll_fn(|_| {
            polls += 1;
            match polls {
                1 => Poll::<()>::Pending,
                _ => panic!("planted"),
            }
        });
        let mut job = Box::pin(job_future("a job", future));
        assert_eq!(job.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(job.as_mut().poll(&mut context), Poll::Ready(Err(JobPanic)));
    }

    /// The process that panics is this test's, started again.
    #[test]
    fn a_panicking_thread_ends_the_process_with_its_code() {
        const CHILD: &str = "ORIBI_SUPERVISOR_CHILD";
        if std::env::var_os(CHILD).is_some() {
            let _ = spawn("owner", || panic!("planted")).unwrap().join();
            std::process::exit(0);
        }
        let name = "tests::a_panicking_thread_ends_the_process_with_its_code";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = child.args([name, "--exact"]).env(CHILD, "1").output().unwrap();
        assert_eq!(ended.status.code(), Some(PANIC_EXIT_CODE), "{ended:?}");
    }
}
