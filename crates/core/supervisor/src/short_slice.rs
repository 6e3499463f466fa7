//! Lets a thread run soon after it wakes.
//!
//! Owns: one setting of the scheduler. Since Linux 6.12 a thread of the usual policies may choose
//! the length of its time slices. One with shorter slices takes the processor from one with longer
//! slices when it wakes, as long as it had no more than its part of the processor. Otherwise it
//! waits for the end of the other's slice, 3 to 4 ms. The thread gets no more processor time than
//! without. Older kernels ignore the length, other systems do not know it.
//!
//! Unsafe invariants: 1. The kernel writes no more than the given size of a live structure. 2. It
//! only reads a live structure.

#![allow(unsafe_code)]

/// Gives the calling thread the shortest slices that Linux supports. Policy and niceness stay;
/// threads of a real-time policy keep theirs. A refusal, by a sandbox for instance, changes
/// nothing.
#[cfg(target_os = "linux")]
pub fn take_short_slices() {
    if let Some(mut attributes) = linux::attributes()
        && linux::HAVE_SLICES.contains(&attributes.policy)
    {
        attributes.flags &= linux::RESET_ON_FORK;
        attributes.runtime_ns = linux::SLICE_NS;
        linux::set(&attributes);
    }
}

/// Does nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn take_short_slices() {}

#[cfg(target_os = "linux")]
mod linux {
    /// The least that the kernel takes, see `__setparam_fair` in kernel/sched/syscalls.c.
    pub const SLICE_NS: u64 = 100_000;
    pub const HAVE_SLICES: [u32; 2] = [0, 3];
    pub const RESET_ON_FORK: u64 = 1;

    /// `struct sched_attr` of sched_setattr(2), version 0.
    #[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(C)]
    pub struct Attributes {
        pub size: u32,
        pub policy: u32,
        pub flags: u64,
        pub nice: i32,
        pub priority: u32,
        /// Of the usual policies: the length of a slice, 0 on kernels without.
        pub runtime_ns: u64,
        pub deadline_ns: u64,
        pub period_ns: u64,
    }

    const SIZE: u32 = size_of::<Attributes>() as u32;

    /// Those of the calling thread.
    pub fn attributes() -> Option<Attributes> {
        let mut found = Attributes::default();
        // SAFETY: (1) `found` lives, and SIZE is its size.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut found, SIZE, 0) };
        (result == 0).then_some(found)
    }

    /// Sets those of the calling thread; false when the kernel refuses them.
    pub fn set(attributes: &Attributes) -> bool {
        let attributes = Attributes { size: SIZE, ..*attributes };
        // SAFETY: (2) `attributes` lives, and `size` is its size.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::{Attributes, SLICE_NS, attributes};
    use super::take_short_slices;

    #[test]
    fn only_the_slice_of_the_calling_thread_changes() {
        let before = attributes().expect("Linux has told them since 3.14");
        let own = std::thread::spawn(|| {
            take_short_slices();
            attributes().expect("as before")
        });
        let own = own.join().expect("it does not panic");
        // 0 before Linux 6.12.
        let runtime_ns = if before.runtime_ns == 0 { 0 } else { SLICE_NS };
        assert_eq!(own, Attributes { runtime_ns, ..before });
        assert_eq!(attributes(), Some(before));
    }
}
