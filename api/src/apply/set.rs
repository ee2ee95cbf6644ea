//! A set of field paths as a trie: the fields of a manager. Entries are sorted in the order of upstream's path
//! elements, so that set operations are merges of sorted vectors.

use std::cmp::Ordering;

use crate::tree::{Str, Tree};

/// One path element.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Element {
    /// A field of a struct or an entry of a map.
    Field(Str),
    /// The list item with these key fields, sorted by name.
    Key(Box<[(Str, Tree)]>),
    /// The set item with this value.
    Value(Box<Tree>),
    /// An item by index.
    Index(i64),
}

impl Element {
    pub(crate) fn field(name: &str) -> Element {
        Element::Field(Str::new(name))
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }

    pub(crate) fn order(&self, other: &Element) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => order_keys(a, b),
            (Element::Value(a), Element::Value(b)) => order_values(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// The text of a path element in messages: `.spec`, `[name="a"]`, `[="x"]`, `[3]`.
impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", value_text(value))?;
                }
                f.write_str("]")
            }
            Element::Value(value) => write!(f, "[={}]", value_text(value)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn value_text(value: &Tree) -> String {
    String::from_utf8_lossy(&crate::json::encode(value, None)).into_owned()
}

fn order_keys(a: &[(Str, Tree)], b: &[(Str, Tree)]) -> Ordering {
    for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
        let order = a_name.cmp(b_name).then_with(|| order_values(a_value, b_value));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// Numbers before strings before booleans before lists before maps before null.
pub(crate) fn order_values(a: &Tree, b: &Tree) -> Ordering {
    match (a, b) {
        (Tree::Int(a), Tree::Int(b)) => a.cmp(b),
        (Tree::Float(a), Tree::Float(b)) => a.total_cmp(b),
        (Tree::Int(a), Tree::Float(b)) => (*a as f64).total_cmp(b),
        (Tree::Float(a), Tree::Int(b)) => a.total_cmp(&(*b as f64)),
        (Tree::Str(a), Tree::Str(b)) => a.cmp(b),
        (Tree::Bool(a), Tree::Bool(b)) => a.cmp(b),
        (Tree::List(a), Tree::List(b)) => order_lists(a, b),
        (Tree::Map(a), Tree::Map(b)) => {
            let fields = a.iter().zip(b.iter()).map(|(a, b)| a.0.cmp(b.0).then_with(|| order_values(a.1, b.1)));
            fields.into_iter().find(|order| order.is_ne()).unwrap_or(a.len().cmp(&b.len()))
        }
        _ => value_rank(a).cmp(&value_rank(b)),
    }
}

fn order_lists(a: &[Tree], b: &[Tree]) -> Ordering {
    let items = a.iter().zip(b).map(|(a, b)| order_values(a, b));
    items.into_iter().find(|order| order.is_ne()).unwrap_or(a.len().cmp(&b.len()))
}

fn value_rank(value: &Tree) -> u8 {
    match value {
        Tree::Int(_) | Tree::Float(_) => 0,
        Tree::Str(_) => 1,
        Tree::Bool(_) => 2,
        Tree::List(_) => 3,
        Tree::Map(_) => 4,
        Tree::Null => 5,
    }
}

/// An element, whether its path is in the set, and the paths below it. Never empty: it is a member or has children.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub(crate) element: Element,
    /// Whether the path itself is in the set.
    pub member: bool,
    /// The paths below it.
    pub children: FieldSet,
}

/// Sorted by element, without duplicates.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FieldSet {
    entries: Vec<Entry>,
}

/// The entries of two sets, or of one.
enum EntryPair<'a> {
    Left(&'a Entry),
    Right(&'a Entry),
    Both(&'a Entry, &'a Entry),
}

impl FieldSet {
    /// An empty set.
    pub const fn new() -> FieldSet {
        FieldSet { entries: Vec::new() }
    }

    /// Dotted paths of plain fields: `FieldSet::of(&["spec", "metadata.labels"])`.
    pub fn of(paths: &[&str]) -> FieldSet {
        let mut set = FieldSet::new();
        for path in paths {
            let elements: Vec<Element> = path.split('.').map(Element::field).collect();
            set.insert(&elements);
        }
        set
    }

    pub(crate) fn from_path(path: &[Element]) -> FieldSet {
        let mut set = FieldSet::new();
        set.insert(path);
        set
    }

    pub(super) fn with_capacity(capacity: usize) -> FieldSet {
        FieldSet { entries: Vec::with_capacity(capacity) }
    }

    /// Appends an entry; the caller ensures the order, or calls `sort` at the end.
    pub(super) fn push(&mut self, element: Element, member: bool, children: FieldSet) {
        if member || !children.is_empty() {
            self.entries.push(Entry { element, member, children });
        }
    }

    pub(super) fn sort(&mut self) {
        if !self.entries.is_sorted_by(|a, b| a.element.order(&b.element).is_lt()) {
            self.entries.sort_by(|a, b| a.element.order(&b.element));
            self.entries.dedup_by(|later, earlier| {
                let same = later.element.order(&earlier.element).is_eq();
                if same {
                    earlier.member |= later.member;
                    earlier.children = earlier.children.union(&later.children);
                }
                same
            });
        }
    }

    /// The entries, sorted by element.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether the set has no paths.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.element.order(element))
    }

    pub(crate) fn get(&self, element: &Element) -> Option<&Entry> {
        self.find(element).ok().map(|at| &self.entries[at])
    }

    pub(crate) fn get_field(&self, name: &str) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| match &entry.element {
            Element::Field(field) => field.as_str().cmp(name),
            _ => Ordering::Greater,
        });
        found.ok().map(|at| &self.entries[at])
    }

    pub(crate) fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.find(first) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, Entry { element: first.clone(), member: false, children: FieldSet::new() });
                at
            }
        };
        let entry = &mut self.entries[at];
        if rest.is_empty() {
            entry.member = true;
        } else {
            entry.children.insert(rest);
        }
    }

    pub(crate) fn has(&self, path: &[Element]) -> bool {
        match path.split_first() {
            None => false,
            Some((last, [])) => self.get(last).is_some_and(|entry| entry.member),
            Some((first, rest)) => self.get(first).is_some_and(|entry| entry.children.has(rest)),
        }
    }

    /// The paths of either set.
    pub fn union(&self, other: &FieldSet) -> FieldSet {
        self.zip(other, |pick| match pick {
            EntryPair::Left(entry) | EntryPair::Right(entry) => Some((entry.member, entry.children.clone())),
            EntryPair::Both(a, b) => Some((a.member || b.member, a.children.union(&b.children))),
        })
    }

    /// The paths of both sets.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.zip(other, |pick| match pick {
            EntryPair::Both(a, b) => Some((a.member && b.member, a.children.intersection(&b.children))),
            _ => None,
        })
    }

    /// The paths only in this set.
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        self.zip(other, |pick| match pick {
            EntryPair::Left(entry) => Some((entry.member, entry.children.clone())),
            EntryPair::Right(_) => None,
            EntryPair::Both(a, b) => Some((a.member && !b.member, a.children.difference(&b.children))),
        })
    }

    /// `difference` in place, for the common case of few removals.
    pub fn subtract(&mut self, other: &FieldSet) {
        let mut others = other.entries.iter().peekable();
        self.entries.retain_mut(|entry| {
            while others.next_if(|other| other.element.order(&entry.element).is_lt()).is_some() {}
            if let Some(other) = others.next_if(|other| other.element.order(&entry.element).is_eq()) {
                entry.member &= !other.member;
                entry.children.subtract(&other.children);
            }
            entry.member || !entry.children.is_empty()
        });
    }

    /// `union` of two owned sets.
    pub fn joined(self, other: FieldSet) -> FieldSet {
        match (self.is_empty(), other.is_empty()) {
            (_, true) => self,
            (true, false) => other,
            _ => self.union(&other),
        }
    }

    /// Like `difference`, but members of the other set also remove everything below them.
    pub(crate) fn recursive_difference(&self, other: &FieldSet) -> FieldSet {
        self.zip(other, |pick| match pick {
            EntryPair::Left(entry) => Some((entry.member, entry.children.clone())),
            EntryPair::Right(_) => None,
            EntryPair::Both(_, b) if b.member => None,
            EntryPair::Both(a, b) => Some((a.member, a.children.recursive_difference(&b.children))),
        })
    }

    /// The members without members below them.
    pub fn leaves(&self) -> FieldSet {
        let mut out = FieldSet::with_capacity(self.entries.len());
        for entry in &self.entries {
            let member = entry.member && entry.children.is_empty();
            out.push(entry.element.clone(), member, entry.children.leaves());
        }
        out
    }

    /// Whether the two sets have a path in common.
    pub(crate) fn intersects(&self, other: &FieldSet) -> bool {
        let (mut a, mut b) = (self.entries.iter().peekable(), other.entries.iter().peekable());
        while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
            match left.element.order(&right.element) {
                Ordering::Less => drop(a.next()),
                Ordering::Greater => drop(b.next()),
                Ordering::Equal => {
                    if left.member && right.member || left.children.intersects(&right.children) {
                        return true;
                    }
                    a.next();
                    b.next();
                }
            }
        }
        false
    }

    /// Calls `each` with every path, members of a level before the levels below.
    pub(crate) fn each_path(&self, mut each: impl FnMut(&[Element])) {
        self.walk(&mut Vec::new(), &mut each);
    }

    fn walk(&self, path: &mut Vec<Element>, each: &mut impl FnMut(&[Element])) {
        for entry in self.entries.iter().filter(|entry| entry.member) {
            path.push(entry.element.clone());
            each(path);
            path.pop();
        }
        for entry in self.entries.iter().filter(|entry| !entry.children.is_empty()) {
            path.push(entry.element.clone());
            entry.children.walk(path, each);
            path.pop();
        }
    }

    fn zip(&self, other: &FieldSet, mut keep: impl FnMut(EntryPair<'_>) -> Option<(bool, FieldSet)>) -> FieldSet {
        let mut out = FieldSet::with_capacity(self.entries.len());
        let (mut at, mut other_at) = (0, 0);
        loop {
            let (element, kept) = match (self.entries.get(at), other.entries.get(other_at)) {
                (None, None) => return out,
                (Some(a), None) => (a, keep(EntryPair::Left(a))),
                (None, Some(b)) => (b, keep(EntryPair::Right(b))),
                (Some(a), Some(b)) => match a.element.order(&b.element) {
                    Ordering::Less => (a, keep(EntryPair::Left(a))),
                    Ordering::Greater => (b, keep(EntryPair::Right(b))),
                    Ordering::Equal => (a, keep(EntryPair::Both(a, b))),
                },
            };
            at += usize::from(self.entries.get(at).is_some_and(|a| a.element.order(&element.element).is_eq()));
            other_at +=
                usize::from(other.entries.get(other_at).is_some_and(|b| b.element.order(&element.element).is_eq()));
            if let Some((member, children)) = kept {
                out.push(element.element.clone(), member, children);
            }
        }
    }
}

/// The text of a whole path: `.spec.ports[port=80,protocol="TCP"].name`.
pub(crate) fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}
