//! Arguments of the benches: names, each with a value.

/// Hands each name and its value to `take`, which answers false for a name that it does not know.
/// `--bench`, which cargo adds, is passed over.
pub fn each(
    mut arguments: impl Iterator<Item = String>,
    mut take: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<(), String> {
    while let Some(name) = arguments.next() {
        if name == "--bench" {
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        if !take(&name, &value)? {
            return Err(format!("{name} is not known"));
        }
    }
    Ok(())
}

/// A number as a value, or as one of several.
pub fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}
