//! Selectors of pods and of nodes, compiled: they match without reading a tree.

use api::{Str, Tree};

use super::{Labels, texts};

/// The operator of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    /// An unknown operator, which matches nothing.
    Unknown,
}

/// A requirement for the value of a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    pub key: Str,
    pub operator: Operator,
    /// Sorted.
    pub values: Vec<Str>,
}

impl Requirement {
    /// A requirement with sorted values.
    pub fn new(key: &str, operator: Operator, mut values: Vec<Str>) -> Requirement {
        values.sort();
        values.dedup();
        Requirement { key: Str::new(key), operator, values }
    }

    /// Reads a match expression.
    pub fn read(expression: &Tree) -> Requirement {
        let operator = match expression.str("operator") {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => Operator::Unknown,
        };
        Requirement::new(expression.str("key"), operator, texts(expression.list("values")))
    }

    /// Whether a value, or its absence, satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|one| one == value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value).is_some_and(|(value, bound)| value > bound),
            Operator::Lt => self.compare(value).is_some_and(|(value, bound)| value < bound),
            Operator::Unknown => false,
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        let [bound] = self.values.as_slice() else { return None };
        Some((value?.parse().ok()?, bound.parse().ok()?))
    }
}

/// A selector of pods or namespaces by their labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Selector {
    /// Sorted, so that equal selectors are equal.
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Selector {
    /// The selector of all objects.
    pub fn everything() -> Selector {
        Selector::default()
    }

    /// The selector of no object.
    pub fn nothing() -> Selector {
        Selector { requirements: Vec::new(), nothing: true }
    }

    /// A LabelSelector; one that is not there selects nothing.
    pub fn read(selector: &Tree) -> Selector {
        if selector.is_null() {
            return Selector::nothing();
        }
        let equal = |(key, value): (&str, &Tree)| {
            Requirement::new(key, Operator::In, vec![Str::new(value.as_str().unwrap_or(""))])
        };
        let labels = selector.map("matchLabels").iter().map(equal);
        let expressions = selector.list("matchExpressions").iter().map(Requirement::read);
        Selector::of(labels.chain(expressions).collect())
    }

    /// The selector of objects that satisfy all requirements.
    pub fn of(mut requirements: Vec<Requirement>) -> Selector {
        requirements.sort();
        requirements.dedup();
        Selector { requirements, nothing: false }
    }

    /// The same with one requirement more; nothing stays nothing.
    pub fn and(mut self, requirement: Requirement) -> Selector {
        if let Err(at) = self.requirements.binary_search(&requirement) {
            self.requirements.insert(at, requirement);
        }
        self
    }

    /// Whether the labels are selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels.get(&requirement.key)))
    }

    /// Whether every object is selected.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether no object is selected.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// All requirements.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }
}

/// A term of a node selector. A term without requirements selects no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeTerm {
    pub labels: Vec<Requirement>,
    /// Of fields only `metadata.name` is known.
    pub fields: Vec<Requirement>,
}

impl NodeTerm {
    /// Reads a node selector term.
    pub fn read(term: &Tree) -> NodeTerm {
        let requirements = |list: &str| term.list(list).iter().map(Requirement::read).collect();
        NodeTerm { labels: requirements("matchExpressions"), fields: requirements("matchFields") }
    }

    /// Whether the term has no requirement, and so selects no node.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether a node satisfies the term.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let field = |one: &Requirement| one.matches((one.key == "metadata.name").then_some(name));
        !self.is_empty()
            && self.labels.iter().all(|one| one.matches(labels.get(&one.key)))
            && self.fields.iter().all(field)
    }
}

/// Terms of which one has to match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NodeSelector {
    pub terms: Vec<NodeTerm>,
}

impl NodeSelector {
    /// Reads a node selector.
    pub fn read(selector: &Tree) -> NodeSelector {
        NodeSelector { terms: selector.list("nodeSelectorTerms").iter().map(NodeTerm::read).collect() }
    }

    /// Whether a node satisfies one of the terms.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_match_as_upstreams() {
        let labels = Labels::from_iter([("disk", "ssd"), ("size", "3"), ("empty", "")]);
        let cases = [
            ("disk", Operator::In, vec!["hdd", "ssd"], true),
            ("disk", Operator::In, vec!["hdd"], false),
            ("other", Operator::In, vec![""], false),
            ("empty", Operator::In, vec![""], true),
            ("disk", Operator::NotIn, vec!["ssd"], false),
            ("other", Operator::NotIn, vec!["ssd"], true),
            ("disk", Operator::Exists, vec![], true),
            ("other", Operator::Exists, vec![], false),
            ("disk", Operator::DoesNotExist, vec![], false),
            ("other", Operator::DoesNotExist, vec![], true),
            ("size", Operator::Gt, vec!["2"], true),
            ("size", Operator::Gt, vec!["3"], false),
            ("size", Operator::Lt, vec!["4"], true),
            ("disk", Operator::Lt, vec!["4"], false),
            ("disk", Operator::Unknown, vec![], false),
        ];
        for (key, operator, values, want) in cases {
            let requirement = Requirement::new(key, operator, values.iter().map(|one| Str::new(one)).collect());
            assert_eq!(requirement.matches(labels.get(key)), want, "{requirement:?}");
        }
    }

    #[test]
    fn a_selector_that_is_missing_selects_nothing_and_an_empty_one_all() {
        let labels = Labels::from_iter([("a", "1")]);
        assert!(!Selector::read(&Tree::Null).matches(&labels));
        assert!(Selector::read(&api::tree! {}).matches(&labels));
        let one = Requirement::new("a", Operator::In, vec!["1".into()]);
        assert_eq!(Selector::of(vec![one.clone()]), Selector::everything().and(one.clone()).and(one));
    }

    #[test]
    fn an_empty_term_of_a_node_selector_selects_nothing() {
        let labels = Labels::default();
        assert!(!NodeTerm::default().matches("a", &labels));
        let named = Requirement::new("metadata.name", Operator::In, vec!["a".into()]);
        let term = NodeTerm { labels: vec![], fields: vec![named] };
        assert!(term.matches("a", &labels) && !term.matches("b", &labels));
    }
}
