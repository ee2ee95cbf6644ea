//! Policies from a file, one JSON object per line. The file is read only at the start.

use std::sync::Arc;

use api::{Str, Tree, json};
use kinds::User;

use super::rules::url_matches;
use super::{Attributes, Authorizer, Rule, UserRules, Verdict};

const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";

/// A line that is not a policy.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {source}")]
pub struct LineError {
    line: usize,
    source: PolicyError,
}

/// The errors in a policy.
#[derive(Debug, thiserror::Error)]
enum PolicyError {
    #[error(transparent)]
    Json(#[from] json::Error),
    #[error("it must be a Policy of {API_VERSION}")]
    Kind,
    #[error("spec is missing")]
    NoSpec,
    #[error("spec names neither a user nor a group")]
    NoSubject,
    #[error("spec.readonly must be a boolean")]
    NotBool,
    #[error("spec.{0} must be a string")]
    NotString(String),
    #[error("unknown field \"spec.{0}\"")]
    Unknown(String),
}

/// One line of a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
}

pub(crate) type Policies = Vec<Policy>;

/// Reads a policy file; an error names its line.
pub fn parse(text: &str) -> Result<Policies, LineError> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let meant = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    meant.map(|(at, line)| parse_line(line).map_err(|source| LineError { line: at, source })).collect()
}

fn parse_line(line: &str) -> Result<Policy, PolicyError> {
    let tree = json::decode(line.as_bytes())?;
    if tree.str("apiVersion") != API_VERSION || tree.str("kind") != "Policy" {
        return Err(PolicyError::Kind);
    }
    let spec = tree.at("spec");
    let fields = spec.as_map().ok_or(PolicyError::NoSpec)?;
    let mut policy = Policy::default();
    for (key, value) in fields.iter() {
        policy.set(key, value)?;
    }
    if policy.user.is_empty() && policy.group.is_empty() {
        return Err(PolicyError::NoSubject);
    }
    Ok(policy)
}

impl Policy {
    fn set(&mut self, key: &str, value: &Tree) -> Result<(), PolicyError> {
        let field = match key {
            "user" => &mut self.user,
            "group" => &mut self.group,
            "apiGroup" => &mut self.api_group,
            "resource" => &mut self.resource,
            "namespace" => &mut self.namespace,
            "nonResourcePath" => &mut self.path,
            "readonly" => {
                self.readonly = value.as_bool().ok_or(PolicyError::NotBool)?;
                return Ok(());
            }
            other => return Err(PolicyError::Unknown(other.to_string())),
        };
        *field = value.as_str().ok_or_else(|| PolicyError::NotString(key.to_string()))?.to_string();
        Ok(())
    }

    fn is_about(&self, user: &User) -> bool {
        let user_fits = self.user.is_empty() || self.user == "*" || self.user == user.name;
        let group_fits = self.group.is_empty() || self.group == "*" || user.groups.contains(&self.group);
        user_fits && group_fits
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !self.is_about(attributes.user) || (self.readonly && !attributes.is_read_only()) {
            return false;
        }
        let fits = |own: &str, requested: &str| own == "*" || own == requested;
        match attributes.path {
            Some(path) => url_matches(&self.path, path),
            None => {
                fits(&self.namespace, attributes.namespace)
                    && fits(&self.resource, attributes.resource)
                    && fits(&self.api_group, attributes.group)
            }
        }
    }

    fn rules(&self) -> impl Iterator<Item = Rule> {
        let words = |word: &str| vec![Str::new(word)];
        let verbs = match self.readonly {
            true => ["get", "list", "watch"].map(Str::new).to_vec(),
            false => words("*"),
        };
        let resources = Rule {
            verbs: verbs.clone(),
            groups: words(&self.api_group),
            resources: words(&self.resource),
            ..Rule::default()
        };
        let paths = Rule { verbs, urls: words(&self.path), ..Rule::default() };
        let resources = (!self.resource.is_empty()).then_some(resources);
        resources.into_iter().chain((!self.path.is_empty()).then_some(paths))
    }
}

/// The authorizer of a policy file.
pub struct Abac {
    policies: Arc<Policies>,
}

impl Abac {
    /// Authorizes by these policies.
    pub fn new(policies: Arc<Policies>) -> Abac {
        Abac { policies }
    }
}

impl Authorizer for Abac {
    fn decide(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        let allowed = self.policies.iter().any(|policy| policy.allows(attributes));
        Some(if allowed { Verdict::ALLOW } else { Verdict::no_opinion("No policy matched.") })
    }

    fn rules(&self, user: &User, namespace: &str) -> UserRules {
        let fits = |policy: &&Policy| policy.namespace == "*" || policy.namespace == namespace;
        let policies = self.policies.iter().filter(|policy| policy.is_about(user)).filter(fits);
        UserRules { rules: policies.flat_map(Policy::rules).collect(), ..UserRules::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(spec: &str) -> String {
        format!(r#"{{"apiVersion":"{API_VERSION}","kind":"Policy","spec":{spec}}}"#)
    }

    #[test]
    fn policies_match_user_place_and_kind_of_access() {
        let text = [
            "# people".to_string(),
            String::new(),
            line(r#"{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}"#),
            line(r#"{"user":"bob","namespace":"a","resource":"pods","readonly":true}"#),
            line(r#"{"group":"ops","nonResourcePath":"/logs/*"}"#),
            line(r#"{"user":"eve","group":"ops","namespace":"a","resource":"pods"}"#),
        ];
        let abac = Abac::new(Arc::new(parse(&text.join("\n")).expect("good lines")));
        let cases: [(&str, &[&str], &str, bool); 10] = [
            ("alice", &[], "delete apps:deployments@b", true),
            ("alice", &[], "get /x", false),
            ("bob", &[], "get pods@a", true),
            ("bob", &[], "delete pods@a", false),
            ("bob", &[], "get pods@b", false),
            ("bob", &[], "get secrets@a", false),
            ("x", &["ops"], "get /logs/a", true),
            ("x", &["ops"], "get /metrics", false),
            ("eve", &[], "get pods@a", false),
            ("eve", &["ops"], "delete pods@a", true),
        ];
        for (name, groups, requested, want) in cases {
            let groups = groups.iter().map(ToString::to_string).collect();
            let user = User { name: name.to_string(), groups, ..User::default() };
            let verdict = abac.decide(&Attributes::parse(&user, requested)).expect("at once");
            assert_eq!(verdict.is_allowed(), want, "{name} {requested}");
        }
        let bob = User { name: "bob".to_string(), ..User::default() };
        assert_eq!(abac.rules(&bob, "a").rules.len(), 1);
        assert_eq!(abac.rules(&bob, "b").rules.len(), 0);
    }

    #[test]
    fn an_error_names_its_line() {
        let good = line(r#"{"user":"a"}"#);
        let cases = [
            ("{", "line 2: "),
            (r#"{"user":"a"}"#, "line 2: it must be a Policy"),
            (&line(r#"{"user":"a","verb":"get"}"#), r#"line 2: unknown field "spec.verb""#),
            (&line(r#"{"user":1}"#), "line 2: spec.user must be a string"),
            (&line(r#"{"namespace":"a"}"#), "line 2: spec names neither"),
        ];
        for (bad, want) in cases {
            let error = parse(&format!("{good}\n{bad}")).expect_err("a bad line").to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
