//! Matches requests with flow schemas: subjects, resource rules and paths, compiled once per object. Pure.

use api::Tree;
use kinds::User;

use crate::request::info::RequestInfo;

/// The attributes of a request that schemas match.
pub(crate) struct RequestDigest<'a> {
    pub info: &'a RequestInfo,
    pub user: &'a str,
    pub groups: &'a [String],
}

impl<'a> RequestDigest<'a> {
    pub(crate) fn new(info: &'a RequestInfo, user: Option<&'a User>) -> RequestDigest<'a> {
        match user {
            Some(user) => RequestDigest { info, user: &user.name, groups: &user.groups },
            None => RequestDigest { info, user: "system:anonymous", groups: &[] },
        }
    }

    fn in_group(&self, wanted: &str) -> bool {
        let anonymous = self.groups.is_empty() && wanted == "system:unauthenticated";
        anonymous || wanted == ANY || self.groups.iter().any(|group| group == wanted)
    }
}

const ANY: &str = "*";

#[derive(Debug)]
enum Subject {
    User(String),
    Group(String),
    /// The user names of the accounts: one, or all of a namespace.
    Account(String),
    Accounts(String),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: ValueSet,
    groups: ValueSet,
    resources: ValueSet,
    cluster_scope: bool,
    namespaces: ValueSet,
}

#[derive(Debug)]
struct PathRule {
    verbs: ValueSet,
    urls: Vec<String>,
}

/// One of `spec.rules`: a subject, and its requests.
#[derive(Debug)]
pub(crate) struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

/// A list of values; `*` matches all.
#[derive(Debug)]
struct ValueSet {
    any: bool,
    texts: Vec<String>,
}

impl ValueSet {
    fn new(list: &[Tree]) -> ValueSet {
        let texts = texts(list);
        ValueSet { any: texts.iter().any(|text| text == ANY), texts }
    }

    fn has(&self, text: &str) -> bool {
        self.any || self.texts.iter().any(|known| known == text)
    }
}

fn texts(list: &[Tree]) -> Vec<String> {
    list.iter().filter_map(Tree::as_str).map(str::to_string).collect()
}

impl Rule {
    pub(crate) fn compile(rule: &Tree) -> Rule {
        Rule {
            subjects: rule.list("subjects").iter().filter_map(Subject::compile).collect(),
            resources: rule.list("resourceRules").iter().map(ResourceRule::compile).collect(),
            paths: rule.list("nonResourceRules").iter().map(PathRule::compile).collect(),
        }
    }

    pub(crate) fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        let does = if digest.info.is_resource {
            self.resources.iter().any(|rule| rule.matches(digest.info))
        } else {
            self.paths.iter().any(|rule| rule.matches(digest.info))
        };
        does && self.subjects.iter().any(|subject| subject.matches(digest))
    }
}

impl Subject {
    fn compile(subject: &Tree) -> Option<Subject> {
        Some(match subject.str("kind") {
            "User" => Subject::User(subject.str("user.name").to_string()),
            "Group" => Subject::Group(subject.str("group.name").to_string()),
            "ServiceAccount" => {
                let prefix = format!("system:serviceaccount:{}:", subject.str("serviceAccount.namespace"));
                match subject.str("serviceAccount.name") {
                    ANY => Subject::Accounts(prefix),
                    name => Subject::Account(prefix + name),
                }
            }
            _ => return None,
        })
    }

    fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        match self {
            Subject::User(name) => name == ANY || name == digest.user,
            Subject::Group(name) => digest.in_group(name),
            Subject::Account(name) => name == digest.user,
            Subject::Accounts(prefix) => digest.user.starts_with(prefix.as_str()),
        }
    }
}

impl ResourceRule {
    fn compile(rule: &Tree) -> ResourceRule {
        ResourceRule {
            verbs: ValueSet::new(rule.list("verbs")),
            groups: ValueSet::new(rule.list("apiGroups")),
            resources: ValueSet::new(rule.list("resources")),
            cluster_scope: rule.bool("clusterScope"),
            namespaces: ValueSet::new(rule.list("namespaces")),
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let place = if info.namespace.is_empty() { self.cluster_scope } else { self.namespaces.has(&info.namespace) };
        place && self.verbs.has(info.verb) && self.groups.has(&info.group) && self.has_resource(info)
    }

    /// `pods/log` for a subresource, compared in two steps: nothing is concatenated per request.
    fn has_resource(&self, info: &RequestInfo) -> bool {
        if info.subresource.is_empty() {
            return self.resources.has(&info.resource);
        }
        let is = |known: &String| {
            known.split_once('/').is_some_and(|(of, sub)| of == info.resource && sub == info.subresource)
        };
        self.resources.any || self.resources.texts.iter().any(is)
    }
}

impl PathRule {
    fn compile(rule: &Tree) -> PathRule {
        PathRule { verbs: ValueSet::new(rule.list("verbs")), urls: texts(rule.list("nonResourceURLs")) }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let is = |url: &String| match url.strip_suffix('*') {
            Some(prefix) => info.path.starts_with(prefix),
            None => *url == info.path,
        };
        self.verbs.has(info.verb) && self.urls.iter().any(is)
    }
}

#[cfg(test)]
mod tests {
    use api::{list, tree};
    use http::Method;

    use super::*;
    use crate::request::info::Query;

    fn rule() -> Rule {
        Rule::compile(&tree! {
            "subjects" => list![
                tree! { "kind" => "User", "user" => tree! { "name" => "ada" } },
                tree! { "kind" => "Group", "group" => tree! { "name" => "team" } },
                tree! {
                    "kind" => "ServiceAccount",
                    "serviceAccount" => tree! { "namespace" => "kube-system", "name" => "*" },
                },
            ],
            "resourceRules" => list![
                tree! {
                    "verbs" => list!["get", "list"], "apiGroups" => list![""],
                    "resources" => list!["pods", "pods/log"], "namespaces" => list!["prod"],
                },
                tree! {
                    "verbs" => list!["*"], "apiGroups" => list!["*"], "resources" => list!["nodes"],
                    "clusterScope" => true,
                },
            ],
            "nonResourceRules" => list![tree! { "verbs" => list!["get"], "nonResourceURLs" => list!["/a", "/b/*"] }],
        })
    }

    #[test]
    fn rules_match_who_what_and_where() {
        let cases = [
            ("ada", "", "GET", "/api/v1/namespaces/prod/pods", true),
            ("bob", "team", "GET", "/api/v1/namespaces/prod/pods/x", true),
            ("bob", "other", "GET", "/api/v1/namespaces/prod/pods/x", false),
            ("system:serviceaccount:kube-system:x", "", "GET", "/api/v1/namespaces/prod/pods/x", true),
            ("system:serviceaccount:other:x", "", "GET", "/api/v1/namespaces/prod/pods/x", false),
            ("ada", "", "GET", "/api/v1/namespaces/dev/pods", false),
            ("ada", "", "GET", "/api/v1/pods", false),
            ("ada", "", "DELETE", "/api/v1/namespaces/prod/pods/x", false),
            ("ada", "", "GET", "/api/v1/namespaces/prod/pods/x/log", true),
            ("ada", "", "GET", "/api/v1/namespaces/prod/pods/x/status", false),
            ("ada", "", "DELETE", "/api/v1/nodes/x", true),
            ("ada", "", "GET", "/a", true),
            ("ada", "", "GET", "/a/b", false),
            ("ada", "", "GET", "/b/c", true),
        ];
        for (name, group, method, path, want) in cases {
            let method: Method = method.parse().expect("a method");
            let info = RequestInfo::parse(&method, path, &Query::default());
            let groups = [group.to_string()];
            let digest = RequestDigest { info: &info, user: name, groups: &groups };
            assert_eq!(rule().matches(&digest), want, "{name} {group} {method} {path}");
        }
    }
}
