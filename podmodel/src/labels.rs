//! Labels as a sorted list: short texts are inline, so that a look-up touches one piece of memory.

use api::{Map, Str};

/// The labels of an object, sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels(Vec<(Str, Str)>);

impl Labels {
    /// Maps of a tree are sorted already.
    pub fn read(map: &Map) -> Labels {
        Labels(map.iter().map(|(key, value)| (Str::new(key), Str::new(value.as_str().unwrap_or("")))).collect())
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(name, _)| name.as_str().cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Whether a label has this value.
    pub fn has(&self, key: &str, value: &str) -> bool {
        self.get(key) == Some(value)
    }

    /// All labels.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a str)>>(pairs: T) -> Labels {
        let mut labels: Vec<_> = pairs.into_iter().map(|(key, value)| (Str::new(key), Str::new(value))).collect();
        labels.sort();
        labels.dedup_by(|later, earlier| later.0 == earlier.0);
        Labels(labels)
    }
}
