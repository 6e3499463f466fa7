//! Release notes: the section of CHANGELOG.md that describes a version.

use anyhow::{Context, Result, bail};

/// The text under `## [VERSION]`, without the heading.
pub(super) fn of(changelog: &str, version: &str) -> Result<String> {
    let heading = format!("## [{version}]");
    let (_, rest) = changelog
        .split_once(&heading)
        .with_context(|| format!("CHANGELOG.md has no section \"{heading}\""))?;
    let body = rest.split_once('\n').map_or("", |(_, body)| body);
    let body = body.split("\n## [").next().unwrap_or_default().trim();
    if body.is_empty() {
        bail!("the section \"{heading}\" of CHANGELOG.md is empty");
    }
    Ok(format!("# Oribi {version}\n\n{body}\n"))
}

#[cfg(test)]
mod tests {
    use super::of;

    const CHANGELOG: &str = "# Changelog\n\n## [0.2.0] - unreleased\n\n### Added\n- Two.\n\n\
        ## [0.1.0] - 2026-01-01\n\n### Added\n- One.\n\n## [0.0.1] - 2025\n";

    #[test]
    fn the_notes_are_the_section_of_the_version() {
        assert_eq!(of(CHANGELOG, "0.2.0").unwrap(), "# Oribi 0.2.0\n\n### Added\n- Two.\n");
        assert_eq!(of(CHANGELOG, "0.1.0").unwrap(), "# Oribi 0.1.0\n\n### Added\n- One.\n");
    }

    #[test]
    fn a_version_without_notes_is_refused() {
        assert!(of(CHANGELOG, "0.3.0").is_err());
        assert!(of(CHANGELOG, "0.0.1").is_err());
    }
}
