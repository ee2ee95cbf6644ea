//! Policy rules, read once from a role and then matched against many requests.

use api::{Str, Tree};

use super::Attributes;

/// One rule of a role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Rule {
    pub verbs: Vec<Str>,
    pub groups: Vec<Str>,
    pub resources: Vec<Str>,
    /// Empty for all names.
    pub names: Vec<Str>,
    pub urls: Vec<Str>,
}

impl Rule {
    pub(crate) fn read(rule: &Tree) -> Rule {
        let words = |key: &str| rule.list(key).iter().filter_map(Tree::as_str).map(Str::new).collect();
        Rule {
            verbs: words("verbs"),
            groups: words("apiGroups"),
            resources: words("resources"),
            names: words("resourceNames"),
            urls: words("nonResourceURLs"),
        }
    }

    /// The rules of a role.
    pub(crate) fn read_all(role: &Tree) -> Vec<Rule> {
        role.list("rules").iter().map(Rule::read).collect()
    }

    pub(crate) fn to_tree(&self) -> Tree {
        let mut tree = Tree::map_new();
        let fields = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        for (key, words) in fields.into_iter().filter(|(_, words)| !words.is_empty()) {
            tree.set(key, words.iter().map(|word| Tree::from(word.as_str())).collect::<Vec<_>>());
        }
        tree
    }

    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, attributes.verb) {
            return false;
        }
        match attributes.path {
            Some(path) => self.urls.iter().any(|url| url_matches(url, path)),
            None => {
                has_or_all(&self.groups, attributes.group)
                    && self.resources.iter().any(|resource| resource_matches(resource, attributes))
                    && (self.names.is_empty() || has(&self.names, &attributes.name))
            }
        }
    }
}

pub(super) fn has(words: &[Str], word: &str) -> bool {
    words.iter().any(|other| other == word)
}

pub(crate) fn has_or_all(words: &[Str], word: &str) -> bool {
    words.iter().any(|other| other == word || other == "*")
}

/// `*`, `pods`, `pods/log`, or `*/log` for a subresource of all resources.
fn resource_matches(rule: &str, attributes: &Attributes<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    let (resource, subresource) = rule.split_once('/').unwrap_or((rule, ""));
    if subresource != attributes.subresource {
        return false;
    }
    resource == attributes.resource || (resource == "*" && !subresource.is_empty())
}

/// A URL may end in `*`.
pub(crate) fn url_matches(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use kinds::User;

    use super::*;

    #[test]
    fn rules_match_as_upstream_matches_them() {
        let rule = |text: &str| Rule::read(&crate::authorization::rbac::policy::rule(text));
        let cases = [
            ("get : core : pods", "get pods", true),
            ("get : core : pods", "list pods", false),
            ("get : core : pods", "get pods/log", false),
            ("get : core : pods/log", "get pods/log", true),
            ("get : core : pods/log", "get pods", false),
            ("get : apps : */scale", "get apps:deployments/scale", true),
            ("get : apps : */scale", "get apps:deployments", false),
            ("get : apps : */scale", "get apps:deployments/status", false),
            ("* : * : *", "delete apps:deployments/scale", true),
            ("get : apps : deployments", "get deployments", false),
            ("get : core : secrets : one", "get secrets one", true),
            ("get : core : secrets : one", "get secrets two", false),
            ("get : core : secrets : one", "list secrets", false),
            ("get url /metrics", "get pods", false),
            ("get url /debug/*", "get /debug/x", true),
            ("get url /debug/*", "get /debug", false),
            ("get url *", "get /x", true),
            ("get url /api", "get /api/", false),
            ("get : * : *", "get /x", false),
        ];
        let user = User::default();
        for (text, requested, want) in cases {
            assert_eq!(rule(text).allows(&Attributes::parse(&user, requested)), want, "{text} / {requested}");
        }
    }
}
