//! Suggestions for the name of an unknown keyspace.

/// Names that an error lists, at most.
const LISTED_MAX: usize = 8;

/// How similar a name must be to be suggested, from 0 to 1.
const SIMILAR_MIN: f64 = 0.6;

/// Advice for an error text that contains the unknown name, such as `default:b.s.c`.
pub fn advice(names: &[String], error: &str) -> String {
    if names.is_empty() {
        return "there are no keyspaces (that this user may read)".to_owned();
    }
    let wanted = wanted_in(error).to_ascii_lowercase();
    let mut similar: Vec<(f64, &String)> = names
        .iter()
        .map(|name| (similarity(&name.replace('`', "").to_ascii_lowercase(), &wanted), name))
        .filter(|(similarity, _)| *similarity >= SIMILAR_MIN)
        .collect();
    similar.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    if let Some((_, name)) = similar.first() {
        return format!("did you mean {name}?");
    }
    let listed: Vec<&str> = names.iter().take(LISTED_MAX).map(String::as_str).collect();
    let more = match names.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("there are {}{more}", listed.join(", "))
}

/// The name in an error's text: its last word that is none of English.
fn wanted_in(error: &str) -> &str {
    let mut words = error.split([' ', '\'', '"', ',', ';']).filter(|word| !word.is_empty());
    let path = words.clone().find_map(|word| word.strip_prefix("default:"));
    let trimmed = path.or_else(|| words.next_back()).unwrap_or_default();
    trimmed.trim_end_matches(['.', '-'])
}

/// 1 for the same name. `scope.collection` is nearly `bucket.scope.collection`.
fn similarity(name: &str, wanted: &str) -> f64 {
    let is_end = name.strip_suffix(wanted).is_some_and(|front| front.ends_with('.'));
    let parts = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (have, want) = (parts(name), parts(wanted));
    let has_ends = want.len() == 2 && have.len() == 3 && have[0] == want[0] && have[2] == want[1];
    match is_end || has_ends {
        true => 1.0,
        false => strsim::normalized_damerau_levenshtein(name, wanted),
    }
}

#[cfg(test)]
mod tests {
    //! Suggestions.

    use super::*;

    #[test]
    fn unknown_names_suggest_neighbours() {
        let names = ["beer", "`default`", "shop", "shop.eu.orders"].map(str::to_owned);
        for (wanted, expected) in [
            ("default:shpo", "did you mean shop?"),
            ("default:defualt", "did you mean `default`?"),
            ("default:eu.orders", "did you mean shop.eu.orders?"),
            ("default:shop.orders", "did you mean shop.eu.orders?"),
            ("orders", "did you mean shop.eu.orders?"),
            ("zzz", "there are beer, `default`, shop, shop.eu.orders"),
        ] {
            let error = format!("Keyspace not found in datastore: {wanted}");
            assert_eq!(advice(&names, &error), expected, "{wanted}");
        }
        assert!(advice(&[], "x").contains("no keyspaces"));
    }
}
