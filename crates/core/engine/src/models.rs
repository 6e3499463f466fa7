//! Model checks: small programs of two and three threads, run in every order that is possible.
//!
//! Owns: the models of state that threads share without one lock around all of it, and of the time
//! between two holds of a lock. They run the code of this crate, not copies of it: a module
//! with its own atomics takes them from its parent, and is compiled here a second time with
//! the checker's. The checker is loom, because it knows the memory orderings of C11 and not only
//! interleavings: a reference count that releases too weakly is wrong in no interleaving, and loom
//! finds it. A model has canaries, bugs that it has to find. `cargo test -p oribi-engine models`
//! runs them in seconds.

mod count;
mod grace;
mod growth;
mod miss;
mod queue;
