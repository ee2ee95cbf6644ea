//! The audit policy: which requests are recorded, at which level, and at which stages. Pure after it is read.

use std::path::Path;

use api::Tree;
use kinds::User;

use crate::common::files::{Error, File};
use crate::request::audit::{Decision, Level, STAGES, bit};
use crate::request::info::RequestInfo;

/// An audit policy: the first rule that matches a request decides.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    decision: Decision,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    namespaces: Vec<String>,
    resources: Vec<Resources>,
    urls: Vec<String>,
}

#[derive(Debug)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

const VERSIONS: &[&str] = &["audit.k8s.io/v1"];
const RULE_FIELDS: &[&str] = &[
    "level",
    "users",
    "userGroups",
    "verbs",
    "resources",
    "namespaces",
    "nonResourceURLs",
    "omitStages",
    "omitManagedFields",
];

impl Policy {
    /// Reads a policy file.
    pub fn read(path: &Path) -> Result<Policy, Error> {
        Policy::of(&File::read(path, "Policy", VERSIONS)?)
    }

    fn of(file: &File) -> Result<Policy, Error> {
        let tree = &file.tree;
        file.only(tree, "", &["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"])?;
        let omitted = stages(file, tree, "omitStages")?;
        let rules = tree.list("rules");
        if rules.is_empty() {
            return Err(file.wrong("rules", "", "a policy needs at least one"));
        }
        let common = Decision { level: Level::None, omitted, omit_managed_fields: tree.bool("omitManagedFields") };
        let rules = rules.iter().enumerate().map(|(at, rule)| Rule::of(file, rule, at, common));
        Ok(Policy { rules: rules.collect::<Result<_, _>>()? })
    }

    /// The first rule that matches decides; without one nothing is recorded.
    pub fn decide(&self, info: &RequestInfo, user: Option<&User>) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.matches(info, user));
        rule.map_or(Decision::default(), |rule| rule.decision(info))
    }
}

fn stages(file: &File, tree: &Tree, field: &str) -> Result<u8, Error> {
    file.texts(tree, field)?.iter().try_fold(0, |all, name| {
        let known = STAGES.iter().find(|(known, _)| known == name);
        let (_, stage) = known.ok_or_else(|| file.wrong(field, name, "unknown stage"))?;
        Ok(all | bit(*stage))
    })
}

fn level(file: &File, rule: &Tree, field: &str) -> Result<Level, Error> {
    let name = rule.str("level");
    let unknown =
        || file.wrong(&format!("{field}.level"), name, "it must be None, Metadata, Request or RequestResponse");
    Level::ALL.into_iter().find(|level| level.name() == name).ok_or_else(unknown)
}

impl Rule {
    fn of(file: &File, rule: &Tree, at: usize, common: Decision) -> Result<Rule, Error> {
        let field = format!("rules[{at}]");
        file.only(rule, &field, RULE_FIELDS)?;
        let texts = |name: &str| file.texts(rule, &format!("{field}.{name}"));
        let resources: Result<Vec<_>, _> =
            rule.list("resources").iter().map(|one| Resources::of(file, one, &field)).collect();
        let (resources, urls, namespaces) = (resources?, texts("nonResourceURLs")?, texts("namespaces")?);
        if !urls.is_empty() && (!resources.is_empty() || !namespaces.is_empty()) {
            let why = "a rule is about resources or about paths, not both";
            return Err(file.wrong(&format!("{field}.nonResourceURLs"), &urls[0], why));
        }
        if let Some(url) = urls.iter().find(|url| !is_url(url)) {
            let why = "it must be * or begin with /, with * at its end alone";
            return Err(file.wrong(&format!("{field}.nonResourceURLs"), url, why));
        }
        Ok(Rule {
            decision: Decision {
                level: level(file, rule, &field)?,
                omitted: common.omitted | stages(file, rule, "omitStages")?,
                omit_managed_fields: rule.at("omitManagedFields").as_bool().unwrap_or(common.omit_managed_fields),
            },
            users: texts("users")?,
            groups: texts("userGroups")?,
            verbs: texts("verbs")?,
            namespaces,
            resources,
            urls,
        })
    }

    fn matches(&self, info: &RequestInfo, user: Option<&User>) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|known| known == text);
        let user_matches = self.users.is_empty() || user.is_some_and(|user| has(&self.users, &user.name));
        let group_matches =
            self.groups.is_empty() || user.is_some_and(|user| user.groups.iter().any(|group| has(&self.groups, group)));
        let verb_matches = self.verbs.is_empty() || has(&self.verbs, info.verb);
        user_matches && group_matches && verb_matches && self.place_matches(info)
    }

    fn place_matches(&self, info: &RequestInfo) -> bool {
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            let named = self.namespaces.is_empty() || self.namespaces.contains(&info.namespace);
            return info.is_resource && named && self.names(info).is_some_and(|_| true);
        }
        self.urls.is_empty() || (!info.is_resource && self.urls.iter().any(|url| url_matches(url, &info.path)))
    }

    /// Whether the rule names the resource, and whether by its own name.
    fn names(&self, info: &RequestInfo) -> Option<bool> {
        if self.resources.is_empty() {
            return Some(false);
        }
        let found = self.resources.iter().filter_map(|resources| resources.names(info));
        found.reduce(|a, b| a || b)
    }

    /// Bodies that hold credentials are recorded only if a rule names their resource: a rule about everything must not
    /// fill the log with them.
    fn decision(&self, info: &RequestInfo) -> Decision {
        let mut decision = self.decision;
        if holds_credentials(info) && self.names(info) != Some(true) {
            decision.level = decision.level.min(Level::Metadata);
        }
        decision
    }
}

fn holds_credentials(info: &RequestInfo) -> bool {
    matches!(
        (info.group.as_str(), info.resource.as_str(), info.subresource.as_str()),
        ("", "secrets", _) | ("", "serviceaccounts", "token") | ("authentication.k8s.io", "tokenreviews", _)
    )
}

impl Resources {
    fn of(file: &File, one: &Tree, field: &str) -> Result<Resources, Error> {
        let field = format!("{field}.resources");
        file.only(one, &field, &["group", "resources", "resourceNames"])?;
        let texts = |name: &str| file.texts(one, &format!("{field}.{name}"));
        let (resources, names) = (texts("resources")?, texts("resourceNames")?);
        if !names.is_empty() && resources.is_empty() {
            return Err(file.wrong(&format!("{field}.resourceNames"), &names[0], "it needs resources beside it"));
        }
        Ok(Resources { group: one.str("group").to_string(), resources, names })
    }

    /// Whether the entry names the resource, and whether by its own name.
    fn names(&self, info: &RequestInfo) -> Option<bool> {
        if self.group != info.group || !(self.names.is_empty() || self.names.contains(&info.name)) {
            return None;
        }
        if self.resources.is_empty() {
            return Some(false);
        }
        self.resources.iter().filter_map(|pattern| resource_matches(pattern, info)).reduce(|a, b| a || b)
    }
}

/// `pods`, `pods/log`, `pods/*`, `*/scale` and `*`; true if the resource is named explicitly.
fn resource_matches(pattern: &str, info: &RequestInfo) -> Option<bool> {
    if pattern == "*" {
        return Some(false);
    }
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    let matches = (resource == "*" || resource == info.resource)
        && (subresource == info.subresource || (subresource == "*" && pattern.contains('/')));
    let by_name = resource != "*";
    (matches && !(resource == "*" && subresource.is_empty())).then_some(by_name)
}

fn is_url(url: &str) -> bool {
    url == "*" || (url.starts_with('/') && !url[..url.len() - 1].contains('*'))
}

fn url_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::audit::Stage;
    use crate::request::info::Query;

    fn policy(text: &str) -> Result<Policy, Error> {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}");
        Policy::of(&File::parse(Path::new("p.yaml"), text.as_bytes(), "Policy", VERSIONS)?)
    }

    const RULES: &str = r#"
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
- level: None
  nonResourceURLs: ["/healthz*", "/version"]
- level: Metadata
  resources: [{group: "", resources: ["configmaps", "pods/log", "pods/*"]}]
  omitStages: [ResponseStarted]
- level: Request
  userGroups: [team]
  namespaces: [prod]
- level: RequestResponse
  resources: [{group: "", resources: [secrets], resourceNames: [loud]}]
- level: Request
  resources: [{group: ""}, {group: apps, resources: ["*"]}]
"#;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(RULES).expect("a policy");
        let cases = [
            ("system:kube-proxy", "GET", "/api/v1/pods?watch=1", Level::None),
            ("ada", "GET", "/healthz/ping", Level::None),
            ("ada", "GET", "/metrics", Level::None),
            ("ada", "GET", "/api/v1/namespaces/a/configmaps/x", Level::Metadata),
            ("ada", "GET", "/api/v1/namespaces/a/pods/x/log", Level::Metadata),
            ("ada", "GET", "/api/v1/namespaces/a/pods/x/status", Level::Metadata),
            ("ada", "GET", "/api/v1/namespaces/a/pods/x", Level::Metadata),
            ("ada", "GET", "/api/v1/namespaces/a/services/x", Level::Request),
            ("ada", "GET", "/apis/apps/v1/namespaces/a/deployments", Level::Request),
            ("ada", "GET", "/apis/batch/v1/namespaces/a/jobs", Level::None),
            ("team", "GET", "/apis/batch/v1/namespaces/prod/jobs", Level::Request),
            // Only a rule that names secrets records their content.
            ("ada", "GET", "/api/v1/namespaces/a/secrets/loud", Level::RequestResponse),
            ("ada", "GET", "/api/v1/namespaces/a/secrets/other", Level::Metadata),
            ("team", "GET", "/api/v1/namespaces/prod/secrets", Level::Metadata),
            ("ada", "POST", "/api/v1/namespaces/a/serviceaccounts/x/token", Level::Metadata),
        ];
        for (name, method, path, want) in cases {
            let method: Method = method.parse().expect("a method");
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let info = RequestInfo::parse(&method, path, &Query::parse(query));
            let user = User { name: name.to_string(), groups: vec![name.to_string()], ..User::default() };
            assert_eq!(policy.decide(&info, Some(&user)).level, want, "{name} {method} {path}");
        }
        let info = RequestInfo::parse(&Method::GET, "/api/v1/namespaces/a/configmaps/x", &Query::default());
        let decision = policy.decide(&info, None);
        assert!(!decision.records(Stage::RequestReceived) && !decision.records(Stage::ResponseStarted));
        assert!(decision.records(Stage::ResponseComplete));
    }

    #[test]
    fn errors_name_the_line() {
        let cases = [
            ("rules: []\n", "p.yaml: rules: a policy needs"),
            ("rules:\n- level: All\n", "p.yaml:4: rules[0].level: All: it must be"),
            ("rules:\n- level: None\n  user: [a]\n", "p.yaml:5: rules[0]: user: unknown field"),
            ("omitStages: [Begin]\nrules:\n- level: None\n", "p.yaml:3: omitStages: Begin"),
            ("rules:\n- level: None\n  nonResourceURLs: [x]\n", "rules[0].nonResourceURLs: x: it must"),
            ("rules:\n- level: None\n  namespaces: [a]\n  nonResourceURLs: [/x]\n", "resources or about paths"),
        ];
        for (text, want) in cases {
            let error = policy(text).expect_err("a bad policy").to_string();
            assert!(error.contains(want), "{error} has no {want}");
        }
    }
}
