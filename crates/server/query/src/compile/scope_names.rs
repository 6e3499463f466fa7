//! The names of one scope. The latest binding of a name hides those before it.
//!
//! A look-up in a long list goes through a table, so that a chain of many LET or WITH terms
//! compiles in linear time.

use std::collections::HashMap;

use crate::value::Text;

/// Names up to which a look-up compares each.
const LISTED_MAX: usize = 16;

pub struct ScopeNames<B> {
    list: Vec<(Text, B)>,
    /// The latest place of each name in a list of more than `LISTED_MAX`.
    latest: HashMap<Text, usize>,
}

impl<B> Default for ScopeNames<B> {
    fn default() -> ScopeNames<B> {
        ScopeNames { list: Vec::new(), latest: HashMap::new() }
    }
}

impl<B> ScopeNames<B> {
    pub fn push(&mut self, name: Text, binding: B) {
        self.list.push((name, binding));
        let count = self.list.len();
        match count.cmp(&(LISTED_MAX + 1)) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => self.index(),
            std::cmp::Ordering::Greater => {
                self.latest.insert(self.list[count - 1].0.clone(), count - 1);
            }
        }
        assert!(self.latest.is_empty() == (count <= LISTED_MAX), "a long list has a table");
    }

    /// Takes the latest binding away.
    pub fn pop(&mut self) -> Option<(Text, B)> {
        let last = self.list.pop();
        self.index();
        debug_assert!(self.latest.len() <= self.list.len(), "a name of the table is listed");
        last
    }

    pub fn find(&self, name: &Text) -> Option<&B> {
        match self.latest.is_empty() {
            true => self.list.iter().rev().find(|(known, _)| known == name).map(|(_, one)| one),
            false => self.latest.get(name).map(|place| &self.list[*place].1),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &(Text, B)> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut (Text, B)> {
        self.list.iter_mut()
    }

    fn index(&mut self) {
        self.latest.clear();
        if self.list.len() > LISTED_MAX {
            let places = self.list.iter().enumerate();
            self.latest = places.map(|(place, (name, _))| (name.clone(), place)).collect();
        }
    }
}

impl<B> From<Vec<(Text, B)>> for ScopeNames<B> {
    fn from(list: Vec<(Text, B)>) -> ScopeNames<B> {
        let mut names = ScopeNames { list, latest: HashMap::new() };
        names.index();
        names
    }
}

#[cfg(test)]
mod tests {
    //! The table answers as the list.

    use super::*;

    fn slot(names: &ScopeNames<usize>, name: &str) -> Option<usize> {
        names.find(&Text::from(name)).copied()
    }

    #[test]
    fn the_latest_binding_of_a_name_counts() {
        for others in [0, 15, 16, 17, 100] {
            let mut names = ScopeNames::default();
            names.push("a".into(), 1);
            for number in 0..others {
                names.push(format!("x{number}").as_str().into(), 1_000 + number);
            }
            names.push("a".into(), 2);
            assert_eq!(slot(&names, "a"), Some(2), "{others}");
            assert_eq!(slot(&names, "b"), None, "{others}");
            assert_eq!(slot(&names, "x14"), (others > 14).then_some(1_014), "{others}");
            names.pop();
            assert_eq!(slot(&names, "a"), Some(1), "{others}");
        }
    }
}
