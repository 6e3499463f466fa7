//! `--filter`: which figures are wanted, by name.
//!
//! A text without `*` and `?` is wanted anywhere in the name; one with them has to match the whole
//! name. Case matters, as it does in the names.

use memchr::memmem::Finder;

/// See the module text.
#[derive(Clone, Debug)]
pub enum StatFilter {
    /// Found anywhere in the name.
    Contains(Box<Finder<'static>>),
    /// Matches the whole name; `*` is any number of bytes, `?` one.
    Glob(Vec<u8>),
}

impl StatFilter {
    /// A filter for what the user typed.
    pub fn new(text: &str) -> StatFilter {
        match text.contains(['*', '?']) {
            true => StatFilter::Glob(text.as_bytes().to_vec()),
            false => StatFilter::Contains(Box::new(Finder::new(text.as_bytes()).into_owned())),
        }
    }

    /// True when the figure of this name is wanted.
    pub fn matches(&self, name: &[u8]) -> bool {
        match self {
            StatFilter::Contains(finder) => finder.find(name).is_some(),
            StatFilter::Glob(pattern) => glob_matches(pattern, name),
        }
    }
}

/// Goes back to the last `*` on a mismatch and lets it take one byte more, so the time is bounded
/// by the product of the lengths.
fn glob_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut taken) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while taken < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, taken));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[taken] => {
                at += 1;
                taken += 1;
            }
            _ => {
                let Some((star_at, star_taken)) = star else { return false };
                star = Some((star_at, star_taken + 1));
                at = star_at + 1;
                taken = star_taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    //! Texts and patterns.

    use super::StatFilter;

    #[test]
    fn names_are_chosen() {
        for (filter, name, wanted) in [
            ("seqno", "vb_0:high_seqno", true),
            ("Seqno", "vb_0:high_seqno", false),
            ("", "anything", true),
            ("vb_?:*seqno", "vb_0:high_seqno", true),
            ("vb_?:*seqno", "vb_10:high_seqno", false),
            ("vb_*:high_*o", "vb_10:high_seqno", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("*_items", "curr_items", true),
            ("*_items", "curr_items_tot", false),
        ] {
            assert_eq!(StatFilter::new(filter).matches(name.as_bytes()), wanted, "{filter} {name}");
        }
    }

    /// A pattern that makes naive matchers exponential ends at once.
    #[test]
    fn many_stars_are_no_problem() {
        let filter = StatFilter::new(&"a*".repeat(40));
        assert!(!filter.matches(format!("{}b", "a".repeat(39)).as_bytes()));
    }
}
