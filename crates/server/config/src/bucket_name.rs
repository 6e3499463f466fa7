//! The rule for bucket names.

/// True for a valid bucket name: 1 to 100 letters, digits and `._%-`, not starting with a dot. The
/// name is also a directory name, hence the last rule.
pub fn is_bucket_name(name: &str) -> bool {
    (1..=100).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._%-".contains(&byte))
}
