//! Random bytes from the operating system.

/// Random bytes for salts, nonces and per-process keys.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes)
        .expect("the system call blocks until the kernel has entropy and does not fail after that");
    bytes
}
