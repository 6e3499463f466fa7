//! Uuids of buckets: 32 hexadecimal digits.

pub(super) fn random_u64() -> u64 {
    getrandom::u64().expect("the system call blocks until there is entropy and does not fail then")
}

/// True for a possible uuid of a bucket.
pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn new_uuid() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
}
