//! The value in the request path: a JSON-like tree with small strings and sorted maps. Defaults, prepare, patch and
//! apply modify it; no cache stores it.

use compact_str::CompactString;

/// Up to 24 bytes are stored inline, which covers most keys and values of Kubernetes objects.
pub type Str = CompactString;

/// The maximum depth of a tree. Every decoder rejects deeper input, so that recursion cannot overflow the stack.
pub const MAX_DEPTH: usize = 256;

/// A JSON-like value: the form of every object in this program.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Tree {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Str),
    List(Vec<Tree>),
    Map(Map),
}

/// Entries sorted by key, without duplicates. The encoder applies the schema order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Map {
    entries: Vec<(Str, Tree)>,
}

/// Maps up to this size are searched linearly.
const LINEAR: usize = 12;

static NULL: Tree = Tree::Null;
static EMPTY_MAP: Map = Map { entries: Vec::new() };

impl Map {
    /// An empty map.
    pub const fn new() -> Map {
        Map { entries: Vec::new() }
    }

    /// Takes entries in any order; the last of equal keys wins, and `duplicate` is called for each.
    pub fn from_entries(mut entries: Vec<(Str, Tree)>, mut duplicate: impl FnMut(&str)) -> Map {
        if entries.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return Map { entries };
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                duplicate(&later.0);
                std::mem::swap(later, earlier);
            }
            same
        });
        Map { entries }
    }

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(k, _)| k.as_str().cmp(key))
    }

    /// The value of a key; None for a missing key.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        // Linear search is faster for few keys.
        if self.entries.len() <= LINEAR {
            let found = self.entries.iter().find(|(k, _)| k.len() == key.len() && k.as_str() == key);
            return found.map(|(_, value)| value);
        }
        self.find(key).ok().map(|at| &self.entries[at].1)
    }

    /// The value of a key, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        self.find(key).ok().map(|at| &mut self.entries[at].1)
    }

    /// Whether the key exists.
    pub fn contains(&self, key: &str) -> bool {
        self.find(key).is_ok()
    }

    /// Sets the value of a key; returns the previous one.
    pub fn insert(&mut self, key: impl Into<Str>, value: impl Into<Tree>) -> Option<Tree> {
        let key = key.into();
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.entries[at].1, value.into())),
            Err(at) => {
                self.entries.insert(at, (key, value.into()));
                None
            }
        }
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Tree> {
        self.find(key).ok().map(|at| self.entries.remove(at).1)
    }

    /// The value under `key`, inserted by `make` if it is missing.
    pub fn get_or_insert(&mut self, key: &str, make: impl FnOnce() -> Tree) -> &mut Tree {
        let at = match self.find(key) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, (Str::new(key), make()));
                at
            }
        };
        &mut self.entries[at].1
    }

    /// Removes the entries for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Tree) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, sorted by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Tree)> + ExactSizeIterator {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The entries, sorted by key, to change their values.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&str, &mut Tree)> {
        self.entries.iter_mut().map(|(key, value)| (key.as_str(), value))
    }

    /// The keys, sorted.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.entries.iter().map(|(key, _)| key.as_str())
    }

    /// The entry at an index in key order.
    pub(crate) fn entry_at(&self, at: usize) -> (&str, &Tree) {
        let (key, value) = &self.entries[at];
        (key, value)
    }

    /// The entries, for moving them.
    pub fn into_entries(self) -> Vec<(Str, Tree)> {
        self.entries
    }

    /// A string value, or empty if it is missing or of another type.
    pub fn str(&self, key: &str) -> &str {
        self.get(key).and_then(Tree::as_str).unwrap_or("")
    }
}

/// The parts of a dotted path. They are short, for which the searcher of `str::split` is slow.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.bytes().position(|byte| byte == b'.') else { return rest.take() };
        rest = Some(&text[end + 1..]);
        Some(&text[..end])
    })
}

/// Reads. A missing step returns the null tree, so that reads can be chained.
impl Tree {
    /// An empty map as a value.
    pub fn map_new() -> Tree {
        Tree::Map(Map::new())
    }

    /// Whether the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Tree::Null)
    }

    /// The value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        if let Tree::Bool(value) = self { Some(*value) } else { None }
    }

    /// The value of an integer.
    pub fn as_int(&self) -> Option<i64> {
        if let Tree::Int(value) = self { Some(*value) } else { None }
    }

    /// The value of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Tree::Str(value) = self { Some(value) } else { None }
    }

    /// The items of a list.
    pub fn as_list(&self) -> Option<&[Tree]> {
        if let Tree::List(items) = self { Some(items) } else { None }
    }

    /// The items of a list, to change them.
    pub fn as_list_mut(&mut self) -> Option<&mut Vec<Tree>> {
        if let Tree::List(items) = self { Some(items) } else { None }
    }

    /// The entries of a map.
    pub fn as_map(&self) -> Option<&Map> {
        if let Tree::Map(map) = self { Some(map) } else { None }
    }

    /// The entries of a map, to change them.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        if let Tree::Map(map) = self { Some(map) } else { None }
    }

    /// The value of a key; None for a missing key.
    pub fn get(&self, key: &str) -> Option<&Tree> {
        self.as_map().and_then(|map| map.get(key))
    }

    /// The value of a key, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Tree> {
        self.as_map_mut().and_then(|map| map.get_mut(key))
    }

    /// Present and not null.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !value.is_null())
    }

    /// Follows a dotted path of field names: `pod.at("spec.securityContext")`.
    pub fn at(&self, path: &str) -> &Tree {
        let mut here = self;
        for step in steps(path) {
            match here.get(step) {
                Some(next) => here = next,
                None => return &NULL,
            }
        }
        here
    }

    /// The value at a dotted path, to change it.
    pub fn at_mut(&mut self, path: &str) -> Option<&mut Tree> {
        let mut here = self;
        for step in steps(path) {
            here = here.get_mut(step)?;
        }
        Some(here)
    }

    /// The string at a dotted path, or "".
    pub fn str(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or("")
    }

    /// The integer at a dotted path.
    pub fn int(&self, path: &str) -> Option<i64> {
        self.at(path).as_int()
    }

    /// The boolean at a dotted path, or false.
    pub fn bool(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or(false)
    }

    /// The list at a dotted path, or an empty one.
    pub fn list(&self, path: &str) -> &[Tree] {
        self.at(path).as_list().unwrap_or(&[])
    }

    /// The map at a dotted path, or an empty one.
    pub fn map(&self, path: &str) -> &Map {
        self.at(path).as_map().unwrap_or(&EMPTY_MAP)
    }
}

/// Depth.
impl Tree {
    /// Whether there is a value more than `levels` levels below. Stops at the first one.
    pub fn exceeds_depth(&self, levels: usize) -> bool {
        let is_deeper = |item: &Tree| levels == 0 || item.exceeds_depth(levels - 1);
        match self {
            Tree::List(items) => items.iter().any(is_deeper),
            Tree::Map(map) => map.iter().any(|(_, item)| is_deeper(item)),
            _ => false,
        }
    }
}

/// Writes.
impl Tree {
    /// Sets a field; a tree that is not a map becomes one.
    pub fn set(&mut self, key: &str, value: impl Into<Tree>) {
        self.make_map().insert(key, value);
    }

    /// Sets a field if it is missing or null.
    pub fn set_default(&mut self, key: &str, value: impl Into<Tree>) {
        if !self.has(key) {
            self.set(key, value);
        }
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Tree> {
        self.as_map_mut().and_then(|map| map.remove(key))
    }

    /// Removes the value at a dotted path; false if it is missing.
    pub fn remove_at(&mut self, path: &str) -> bool {
        match path.rsplit_once('.') {
            Some((parent, key)) => self.at_mut(parent).and_then(|tree| tree.remove(key)).is_some(),
            None => self.remove(path).is_some(),
        }
    }

    /// The map at a dotted path, created if missing or null.
    pub fn child(&mut self, path: &str) -> &mut Tree {
        let mut here = self;
        for step in steps(path) {
            here = here.make_map().get_or_insert(step, Tree::map_new);
            if here.is_null() {
                *here = Tree::map_new();
            }
        }
        here
    }

    /// The items at a dotted path, mutable; empty if there is no list.
    pub fn list_mut(&mut self, path: &str) -> &mut [Tree] {
        match self.at_mut(path) {
            Some(Tree::List(items)) => items,
            _ => &mut [],
        }
    }

    /// The list under a field, created if missing or null.
    pub fn list_entry(&mut self, key: &str) -> &mut Vec<Tree> {
        let slot = self.make_map().get_or_insert(key, || Tree::List(Vec::new()));
        if !matches!(slot, Tree::List(_)) {
            *slot = Tree::List(Vec::new());
        }
        match slot {
            Tree::List(items) => items,
            _ => unreachable!("the slot was made a list above"),
        }
    }

    /// Takes the value, leaving null.
    pub fn take(&mut self) -> Tree {
        std::mem::take(self)
    }

    fn make_map(&mut self) -> &mut Map {
        if !matches!(self, Tree::Map(_)) {
            *self = Tree::map_new();
        }
        match self {
            Tree::Map(map) => map,
            _ => unreachable!("the tree was made a map above"),
        }
    }
}

impl From<&str> for Tree {
    fn from(value: &str) -> Tree {
        Tree::Str(Str::new(value))
    }
}

impl From<String> for Tree {
    fn from(value: String) -> Tree {
        Tree::Str(Str::from(value))
    }
}

impl From<&String> for Tree {
    fn from(value: &String) -> Tree {
        Tree::Str(Str::new(value))
    }
}

impl From<Str> for Tree {
    fn from(value: Str) -> Tree {
        Tree::Str(value)
    }
}

impl From<bool> for Tree {
    fn from(value: bool) -> Tree {
        Tree::Bool(value)
    }
}

impl From<i64> for Tree {
    fn from(value: i64) -> Tree {
        Tree::Int(value)
    }
}

impl From<i32> for Tree {
    fn from(value: i32) -> Tree {
        Tree::Int(value.into())
    }
}

impl From<Vec<Tree>> for Tree {
    fn from(value: Vec<Tree>) -> Tree {
        Tree::List(value)
    }
}

impl From<Map> for Tree {
    fn from(value: Map) -> Tree {
        Tree::Map(value)
    }
}

/// Builds a map tree: `tree! { "key" => "Exists", "seconds" => 300 }`.
#[macro_export]
macro_rules! tree {
    ($($key:expr => $value:expr),* $(,)?) => {{
        #[allow(unused_mut)]
        let mut map = $crate::tree::Map::new();
        $(map.insert($key, $value);)*
        $crate::tree::Tree::Map(map)
    }};
}

/// Builds a list tree: `list![tree! { "name" => "a" }, "b", 3]`.
#[macro_export]
macro_rules! list {
    ($($item:expr),* $(,)?) => {
        $crate::tree::Tree::List(vec![$($crate::tree::Tree::from($item)),*])
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_stay_sorted_and_the_last_duplicate_wins() {
        let mut seen = Vec::new();
        let entries = vec![("b".into(), Tree::Int(1)), ("a".into(), Tree::Int(2)), ("b".into(), Tree::Int(3))];
        let map = Map::from_entries(entries, |key| seen.push(key.to_string()));
        assert_eq!(map.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(map.get("b"), Some(&Tree::Int(3)));
        assert_eq!(seen, ["b"]);
    }

    #[test]
    fn follows_and_creates_paths() {
        let mut tree = tree! { "spec" => tree! { "replicas" => 3 } };
        assert_eq!(tree.int("spec.replicas"), Some(3));
        assert!(tree.at("spec.missing.deeper").is_null());
        tree.child("spec.template.metadata").set("name", "x");
        assert_eq!(tree.str("spec.template.metadata.name"), "x");
        assert!(tree.remove_at("spec.replicas"));
        assert_eq!(tree.int("spec.replicas"), None);
    }
}
