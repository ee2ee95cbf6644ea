//! Grants by subject. Pure: it is fed with changes and queried for the grants of a user.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use api::{Tree, json};
use kinds::User;

use super::super::Rule;
use crate::storage::cache::{DerivedState, Item};

/// A binding refers to a role that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}.{} {name:?} not found", if *of_cluster { "clusterrole" } else { "role" }, super::GROUP)]
pub(crate) struct RoleNotFound {
    of_cluster: bool,
    name: Box<str>,
}

/// A role that one subject has by one binding.
#[derive(Debug, Default)]
pub(crate) struct Grant {
    /// "" for a binding of the whole cluster.
    namespace: Box<str>,
    binding: Box<str>,
    /// True for a ClusterRole.
    of_cluster: bool,
    /// The key of the role: `NAME`, or `NAMESPACE/NAME`.
    role: Box<str>,
    subject_kind: Box<str>,
    /// `NAME`, or `NAME/NAMESPACE` of a service account.
    subject: Box<str>,
    /// How the audit log names it.
    quoted: OnceLock<Box<[u8]>>,
}

impl Grant {
    pub(crate) fn new(reference: &Tree, namespace: &str) -> Grant {
        let of_cluster = reference.str("kind") == "ClusterRole";
        let name = reference.str("name");
        let role = if of_cluster { name.into() } else { format!("{namespace}/{name}").into() };
        Grant { namespace: namespace.into(), of_cluster, role, ..Grant::default() }
    }

    /// The text after a prefix, as a JSON string.
    pub(crate) fn quoted(&self, prefix: &'static str) -> &[u8] {
        self.quoted.get_or_init(|| {
            let mut out = Vec::new();
            json::write_string(&mut out, &format!("{prefix}{self}"));
            out.into()
        })
    }

    fn role_name(&self) -> &str {
        self.role.rsplit_once('/').map_or(&self.role, |(_, name)| name)
    }

    fn role_kind(&self) -> &'static str {
        if self.of_cluster { "ClusterRole" } else { "Role" }
    }

    fn role_missing(&self) -> RoleNotFound {
        RoleNotFound { of_cluster: self.of_cluster, name: self.role_name().into() }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (binding, namespace) = (&self.binding, &self.namespace);
        match namespace.is_empty() {
            true => write!(f, "ClusterRoleBinding {binding:?}")?,
            false => write!(f, "RoleBinding \"{binding}/{namespace}\"")?,
        }
        let Grant { subject_kind, subject, .. } = self;
        write!(f, " of {} {:?} to {subject_kind} {subject:?}", self.role_kind(), self.role_name())
    }
}

/// The grants of one scope: a namespace or the whole cluster.
#[derive(Default)]
struct GrantLists {
    users: HashMap<Box<str>, Vec<Arc<Grant>>>,
    groups: HashMap<Box<str>, Vec<Arc<Grant>>>,
}

#[derive(Default)]
pub(crate) struct Index {
    /// The rules by `NAMESPACE/NAME`.
    roles: HashMap<Arc<str>, Vec<Rule>>,
    cluster_roles: HashMap<Arc<str>, Vec<Rule>>,
    cluster: GrantLists,
    namespaces: HashMap<Box<str>, GrantLists>,
}

impl DerivedState for Index {
    fn apply(&mut self, source: usize, old: Option<&Item>, new: Option<&Item>) {
        match source {
            0 => set_role(&mut self.roles, old, new),
            1 => set_role(&mut self.cluster_roles, old, new),
            _ => {
                old.into_iter().for_each(|item| self.unbind(item));
                new.into_iter().for_each(|item| self.bind(item));
            }
        }
    }
}

fn set_role(roles: &mut HashMap<Arc<str>, Vec<Rule>>, old: Option<&Item>, new: Option<&Item>) {
    match new {
        Some(item) => {
            let role = json::decode_only(&item.bytes, &["rules"]).unwrap_or_default();
            roles.insert(item.key.clone(), Rule::read_all(&role));
        }
        None => drop(old.and_then(|item| roles.remove(&*item.key))),
    }
}

impl Index {
    /// Visits each grant of a user with the rules of its role, or with the reason why they are missing, until `look`
    /// returns that it is done. Grants of the cluster come first, then those of the namespace.
    pub(crate) fn visit<'a>(
        &'a self,
        user: &User,
        namespace: &str,
        mut look: impl FnMut(&'a Arc<Grant>, Result<&'a [Rule], RoleNotFound>) -> bool,
    ) {
        let local = if namespace.is_empty() { None } else { self.namespaces.get(namespace) };
        for lists in std::iter::once(&self.cluster).chain(local) {
            let groups = user.groups.iter().filter_map(|group| lists.groups.get(group.as_str()));
            for grant in lists.users.get(user.name.as_str()).into_iter().chain(groups).flatten() {
                if !look(grant, self.role(grant)) {
                    return;
                }
            }
        }
    }

    pub(super) fn role(&self, grant: &Grant) -> Result<&[Rule], RoleNotFound> {
        let found = match grant.of_cluster {
            true => self.cluster_roles.get(&*grant.role),
            false => self.roles.get(&*grant.role),
        };
        found.map(Vec::as_slice).ok_or_else(|| grant.role_missing())
    }

    fn lists(&mut self, namespace: &str) -> &mut GrantLists {
        if namespace.is_empty() { &mut self.cluster } else { self.namespaces.entry(namespace.into()).or_default() }
    }

    fn bind(&mut self, item: &Item) {
        let binding = read_binding(item);
        let lists = self.lists(item.namespace());
        for subject in binding.list("subjects") {
            let Some((is_group, name)) = subject_identity(subject, item.namespace()) else { continue };
            let map = if is_group { &mut lists.groups } else { &mut lists.users };
            let grants = map.entry(name.into()).or_default();
            // A subject that is named twice has the role once.
            if grants.iter().any(|grant| *grant.binding == *item.name()) {
                continue;
            }
            // In the order of names: reasons must not depend on the order of writes.
            let at = grants.partition_point(|grant| *grant.binding < *item.name());
            grants.insert(at, Arc::new(grant(&binding, subject, item)));
        }
    }

    fn unbind(&mut self, item: &Item) {
        let binding = read_binding(item);
        let lists = self.lists(item.namespace());
        for subject in binding.list("subjects") {
            let Some((is_group, name)) = subject_identity(subject, item.namespace()) else { continue };
            let map = if is_group { &mut lists.groups } else { &mut lists.users };
            let Some(grants) = map.get_mut(name.as_str()) else { continue };
            grants.retain(|grant| *grant.binding != *item.name());
            if grants.is_empty() {
                map.remove(name.as_str());
            }
        }
        if lists.users.is_empty() && lists.groups.is_empty() {
            self.namespaces.remove(item.namespace());
        }
    }
}

fn read_binding(item: &Item) -> Tree {
    json::decode_only(&item.bytes, &["roleRef", "subjects"]).unwrap_or_default()
}

/// The group or the user of a subject; None for an invalid subject.
fn subject_identity(subject: &Tree, namespace: &str) -> Option<(bool, String)> {
    let name = subject.str("name");
    match subject.str("kind") {
        "User" => Some((false, name.to_string())),
        "Group" => Some((true, name.to_string())),
        "ServiceAccount" => {
            let namespace = account_namespace(subject, namespace);
            (!namespace.is_empty()).then(|| (false, format!("system:serviceaccount:{namespace}:{name}")))
        }
        _ => None,
    }
}

/// An account without a namespace is of the binding's.
fn account_namespace<'a>(subject: &'a Tree, namespace: &'a str) -> &'a str {
    match subject.str("namespace") {
        "" => namespace,
        named => named,
    }
}

fn grant(binding: &Tree, subject: &Tree, item: &Item) -> Grant {
    let kind = subject.str("kind");
    let subject = match kind {
        "ServiceAccount" => format!("{}/{}", subject.str("name"), account_namespace(subject, item.namespace())),
        _ => subject.str("name").to_string(),
    };
    Grant {
        binding: item.name().into(),
        subject_kind: kind.into(),
        subject: subject.into(),
        ..Grant::new(binding.at("roleRef"), item.namespace())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::authorization::Attributes;

    fn item(key: &str, json: &str) -> Item {
        Item::new(key, 1, Bytes::from(json.to_string()))
    }

    fn role(key: &str, verb: &str) -> Item {
        item(key, &format!(r#"{{"rules":[{{"verbs":["{verb}"],"apiGroups":[""],"resources":["pods"]}}]}}"#))
    }

    fn binding(key: &str, role: &str, subject: &str) -> Item {
        let (kind, name) = role.split_once(' ').expect("a kind");
        item(key, &format!(r#"{{"roleRef":{{"kind":"{kind}","name":"{name}"}},"subjects":[{subject}]}}"#))
    }

    const JANE: &str = r#"{"kind":"User","name":"jane"}"#;
    const DEVS: &str = r#"{"kind":"Group","name":"devs"}"#;
    const ROBOT: &str = r#"{"kind":"ServiceAccount","name":"robot"}"#;

    fn index() -> Index {
        let mut index = Index::default();
        let objects = [
            (0, role("a/reader", "get")),
            (1, role("lister", "list")),
            (2, binding("a/jane", "Role reader", JANE)),
            (2, binding("a/robot", "Role reader", ROBOT)),
            (2, binding("b/devs", "ClusterRole lister", DEVS)),
            (2, binding("b/gone", "Role nope", JANE)),
            (3, binding("all", "ClusterRole lister", DEVS)),
        ];
        for (source, item) in &objects {
            index.apply(*source, None, Some(item));
        }
        index
    }

    /// The reason of the grant that allows it, or what is missing.
    fn ask(index: &Index, user: &str, groups: &[&str], requested: &str) -> String {
        let groups = groups.iter().map(ToString::to_string).collect();
        let user = User { name: user.to_string(), groups, ..User::default() };
        let attributes = Attributes::parse(&user, requested);
        let mut found = String::new();
        index.visit(&user, attributes.namespace, |grant, rules| match rules {
            Ok(rules) if rules.iter().any(|rule| rule.allows(&attributes)) => {
                found = grant.to_string();
                false
            }
            Ok(_) => true,
            Err(error) => {
                found = error.to_string();
                true
            }
        });
        found
    }

    #[test]
    fn grants_are_found_by_user_group_and_account() {
        let index = index();
        let robot = "system:serviceaccount:a:robot";
        let cases: [(&str, &[&str], &str, &str); 8] = [
            ("jane", &[], "get pods@a", r#"RoleBinding "jane/a" of Role "reader" to User "jane""#),
            ("jane", &[], "list pods@a", ""),
            ("jane", &[], "get pods", ""),
            ("jane", &[], "get pods@b", r#"role.rbac.authorization.k8s.io "nope" not found"#),
            (robot, &[], "get pods@a", r#"RoleBinding "robot/a" of Role "reader" to ServiceAccount "robot/a""#),
            (robot, &[], "get pods@b", ""),
            ("x", &["devs"], "list pods@b", r#"ClusterRoleBinding "all" of ClusterRole "lister" to Group "devs""#),
            ("x", &["devs"], "list pods", r#"ClusterRoleBinding "all" of ClusterRole "lister" to Group "devs""#),
        ];
        for (user, groups, requested, want) in cases {
            assert_eq!(ask(&index, user, groups, requested), want, "{user} {requested}");
        }
    }

    #[test]
    fn changes_are_followed() {
        let mut index = index();
        index.apply(0, Some(&role("a/reader", "get")), Some(&role("a/reader", "delete")));
        assert_eq!(ask(&index, "jane", &[], "get pods@a"), "");
        assert_ne!(ask(&index, "jane", &[], "delete pods@a"), "");
        let (jane, devs) = (binding("a/jane", "Role reader", JANE), binding("a/jane", "Role reader", DEVS));
        index.apply(2, Some(&jane), Some(&devs));
        assert_eq!(ask(&index, "jane", &[], "delete pods@a"), "");
        assert_ne!(ask(&index, "x", &["devs"], "delete pods@a"), "");
        index.apply(2, Some(&devs), None);
        index.apply(2, Some(&binding("a/robot", "Role reader", ROBOT)), None);
        assert_eq!(ask(&index, "x", &["devs"], "delete pods@a"), "");
        assert!(!index.namespaces.contains_key("a"), "nothing is kept for a namespace without bindings");
        index.apply(0, Some(&role("a/reader", "delete")), None);
        assert!(index.roles.is_empty());
    }
}
