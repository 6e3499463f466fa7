//! Environment variables with a misspelt name.
//!
//! Owns: the list of names that Oribi reads, and the largest edit distance of a misspelling. A
//! variable that resembles none of them belongs to another program.

use super::table::SETTINGS;

/// Variables that are not settings of the server.
const OTHERS: [&str; 8] = [
    "ORIBI_ADMIN_PASSWORD",
    "ORIBI_CONFIG",
    "ORIBI_HOST",
    "ORIBI_NEW_PASSWORD",
    "ORIBI_PASSWORD",
    "ORIBI_TARGET_PASSWORD",
    "ORIBI_TOOLS_VERSION",
    "ORIBI_USER",
];

/// Most letters by which a misspelt name differs.
const DISTANCE_MAX: usize = 2;

/// Variables of an environment that nothing reads, each with the name that it resembles.
pub fn misspelt_variables(names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    let known: Vec<String> =
        SETTINGS.iter().map(|one| one.variable()).chain(OTHERS.map(str::to_owned)).collect();
    let unknown = names.filter(|name| name.starts_with("ORIBI_") && !known.contains(name));
    let nearest = |name: String| {
        let distances = known.iter().map(|one| (strsim::damerau_levenshtein(&name, one), one));
        let (distance, one) = distances.min()?;
        (distance <= DISTANCE_MAX).then(|| (name.clone(), one.clone()))
    };
    unknown.filter_map(nearest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_variables_name_the_nearest_one() {
        let names = ["ORIBI_PROT", "ORIBI_WORKER", "ORIBI_PORT", "ORIBI_KUDU_HOME", "PATH"];
        let found = misspelt_variables(names.into_iter().map(str::to_owned));
        let expected = [("ORIBI_PROT", "ORIBI_PORT"), ("ORIBI_WORKER", "ORIBI_WORKERS")];
        assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
