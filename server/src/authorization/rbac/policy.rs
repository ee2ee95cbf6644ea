//! The roles and bindings of a new cluster, read from the table next to this file.

use std::collections::BTreeSet;

use api::{Tree, tree};

use super::GROUP;

const TABLE: &str = include_str!("rbac.txt");

/// A role or a binding of the table.
pub(crate) struct Object {
    pub plural: &'static str,
    pub tree: Tree,
}

pub(crate) fn cluster_objects() -> Vec<Object> {
    objects().into_iter().filter(|object| object.tree.str("metadata.namespace").is_empty()).collect()
}

pub(crate) fn namespaced_objects() -> Vec<Object> {
    objects().into_iter().filter(|object| !object.tree.str("metadata.namespace").is_empty()).collect()
}

/// A cluster role of the table; null if the table does not have it.
pub(crate) fn cluster_role(name: &str) -> Tree {
    let is = |object: &Object| object.plural == "clusterroles" && object.tree.str("metadata.name") == name;
    objects().into_iter().find(is).map(|object| object.tree).unwrap_or_default()
}

/// The users as which controllers act: the accounts to which the roles of controllers are bound.
pub(crate) fn controller_users() -> BTreeSet<String> {
    let is_bound = |object: &Object| object.tree.str("metadata.name").starts_with("system:controller:");
    let bindings: Vec<Object> = objects().into_iter().filter(is_bound).collect();
    let subjects = bindings.iter().flat_map(|binding| binding.tree.list("subjects"));
    let accounts = subjects.filter(|subject| subject.str("kind") == "ServiceAccount");
    accounts.map(|account| account_user(account.str("namespace"), account.str("name"))).collect()
}

fn account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Every object of the table. Lines that are indented belong to the role above them.
fn objects() -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("  ") {
            Some(rule) => {
                if let Some(role) = objects.last_mut() {
                    add_rule(&mut role.tree, rule);
                }
            }
            None => objects.extend(read_object(line)),
        }
    }
    objects
}

fn read_object(line: &str) -> Option<Object> {
    let (keyword, rest) = line.split_once(' ')?;
    match keyword {
        "clusterrole" => {
            let (name, gathered_by) = rest.split_once(" to ").unwrap_or((rest, ""));
            let mut role = object("ClusterRole", "clusterroles", name);
            role.tree.set("rules", Tree::Null);
            if !gathered_by.is_empty() {
                role.tree.child("metadata.labels").set(&gather_label(gathered_by), "true");
            }
            Some(role)
        }
        "role" => Some(object("Role", "roles", rest)),
        "binding" => {
            let (name, subjects) = rest.split_once(" :")?;
            Some(binding(object("ClusterRoleBinding", "clusterrolebindings", name), "ClusterRole", name, subjects))
        }
        "rolebinding" => {
            let (names, subjects) = rest.split_once(" :")?;
            let (name, role) = names.split_once(' ')?;
            Some(binding(object("RoleBinding", "rolebindings", name), "Role", role, subjects))
        }
        _ => None,
    }
}

fn object(kind: &str, plural: &'static str, name: &str) -> Object {
    let mut metadata = tree! {
        "labels" => tree! { "kubernetes.io/bootstrapping" => "rbac-defaults" },
        "annotations" => tree! { "rbac.authorization.kubernetes.io/autoupdate" => "true" },
    };
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    if !namespace.is_empty() {
        metadata.set("namespace", namespace);
    }
    metadata.set("name", name);
    let tree = tree! { "kind" => kind, "apiVersion" => "rbac.authorization.k8s.io/v1", "metadata" => metadata };
    Object { plural, tree }
}

fn gather_label(group: &str) -> String {
    format!("{GROUP}/aggregate-to-{group}")
}

fn add_rule(role: &mut Tree, line: &str) {
    if let Some(group) = line.strip_prefix("gather ") {
        let mut labels = tree! {};
        labels.set(&gather_label(group), "true");
        role.child("aggregationRule").list_entry("clusterRoleSelectors").push(tree! { "matchLabels" => labels });
        return;
    }
    role.list_entry("rules").push(rule(line));
}

/// A rule as the table writes it.
pub(crate) fn rule(line: &str) -> Tree {
    match line.split_once(" url ") {
        Some((verbs, urls)) => tree! { "verbs" => words(verbs), "nonResourceURLs" => words(urls) },
        None => resource_rule(line),
    }
}

fn resource_rule(line: &str) -> Tree {
    let mut rule = tree! {};
    for (key, part) in ["verbs", "apiGroups", "resources", "resourceNames"].into_iter().zip(line.split(" : ")) {
        rule.set(key, words(part));
    }
    rule
}

fn words(text: &str) -> Vec<Tree> {
    text.split_whitespace().map(|word| Tree::from(if word == "core" { "" } else { word })).collect()
}

fn binding(mut object: Object, role_kind: &str, role: &str, subjects: &str) -> Object {
    object.tree.set("roleRef", tree! { "apiGroup" => GROUP, "kind" => role_kind, "name" => role });
    let subjects: Vec<Tree> = subjects.split_whitespace().filter_map(subject).collect();
    if !subjects.is_empty() {
        object.tree.set("subjects", subjects);
    }
    object
}

fn subject(text: &str) -> Option<Tree> {
    let (kind, name) = text.split_once(':')?;
    Some(match kind {
        "user" => tree! { "kind" => "User", "apiGroup" => GROUP, "name" => name },
        "group" => tree! { "kind" => "Group", "apiGroup" => GROUP, "name" => name },
        _ => {
            let (namespace, name) = name.split_once('/')?;
            tree! { "kind" => "ServiceAccount", "namespace" => namespace, "name" => name }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let objects = objects();
        let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', ' '])).count();
        assert_eq!(objects.len(), lines);
        for object in &objects {
            let kind = object.tree.str("kind");
            let name = object.tree.str("metadata.name");
            let rules = object.tree.list("rules");
            assert!(!kind.ends_with("Role") || !rules.is_empty() || object.tree.has("aggregationRule"), "{name}");
            assert!(!kind.ends_with("Binding") || object.tree.has("subjects") || name == "system:node", "{name}");
        }
    }

    #[test]
    fn controllers_are_the_bound_accounts() {
        let users = controller_users();
        let is_in = |name: &str| users.contains(&format!("system:serviceaccount:kube-system:{name}"));
        assert!(is_in("deployment-controller") && is_in("bootstrap-signer") && is_in("token-cleaner"));
        assert!(!is_in("kube-dns") && !is_in("kube-controller-manager") && !is_in("default"));
    }

    #[test]
    fn rules_subjects_and_labels_are_as_written() {
        let objects = objects();
        let find = |kind: &str, name: &str| {
            let is = |object: &&Object| object.tree.str("kind") == kind && object.tree.str("metadata.name") == name;
            &objects.iter().find(is).expect("the table has it").tree
        };
        let admin = find("ClusterRole", "cluster-admin").list("rules");
        assert_eq!(admin[0], resource_rule("* : * : *"));
        assert_eq!(admin[1].list("nonResourceURLs"), words("*"));
        let edit = find("ClusterRole", "edit");
        assert_eq!(edit.map("metadata.labels").str("rbac.authorization.k8s.io/aggregate-to-admin"), "true");
        assert_eq!(edit.list("aggregationRule.clusterRoleSelectors").len(), 1);
        let reader = find("Role", "extension-apiserver-authentication-reader");
        assert_eq!(reader.str("metadata.namespace"), "kube-system");
        assert_eq!(reader.list("rules")[0].list("apiGroups"), [Tree::from("")]);
        let dns = find("ClusterRoleBinding", "system:kube-dns");
        assert_eq!(dns.list("subjects")[0].str("namespace"), "kube-system");
    }
}
