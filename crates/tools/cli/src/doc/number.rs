//! Numbers on the command line that may be hexadecimal.

/// A number as people write flags and CAS values: decimal, or hexadecimal after 0x.
pub fn parse_u64(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a whole number is needed, or 0x and hexadecimal digits".to_owned())
}

/// As [`parse_u64`], for 32 bits.
pub fn parse_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_u64(text)?).map_err(|_| "the number has more than 32 bits".to_owned())
}
