//! Computes the status of a definition: which of its names are accepted, whether it is established, and whether its
//! group needs an approval.

use api::{Tree, tree};

/// The finalizer that keeps a definition until its objects are deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const APPROVAL: &str = "api-approved.kubernetes.io";

/// A condition without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub name: &'static str,
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    pub(crate) fn new(name: &'static str, status: &'static str, reason: &'static str, message: &str) -> Condition {
        Condition { name, status, reason, message: message.to_string() }
    }

    fn is_in(&self, object: &Tree) -> bool {
        find(object, self.name).is_some_and(|known| {
            known.str("status") == self.status
                && known.str("reason") == self.reason
                && known.str("message") == self.message
        })
    }
}

fn find<'a>(object: &'a Tree, name: &str) -> Option<&'a Tree> {
    object.list("status.conditions").iter().find(|condition| condition.str("type") == name)
}

pub(crate) fn is_true(object: &Tree, name: &str) -> bool {
    find(object, name).is_some_and(|condition| condition.str("status") == "True")
}

/// Sets a condition; its time changes with its status.
pub(crate) fn set_condition(object: &mut Tree, condition: &Condition, now: &str) {
    let conditions = object.child("status").list_entry("conditions");
    match conditions.iter_mut().find(|known| known.str("type") == condition.name) {
        Some(known) => {
            if known.str("status") != condition.status {
                known.set("status", condition.status);
                known.set("lastTransitionTime", now);
            }
            known.set("reason", condition.reason);
            known.set("message", condition.message.as_str());
        }
        None => conditions.push(tree! {
            "type" => condition.name, "status" => condition.status, "lastTransitionTime" => now,
            "reason" => condition.reason, "message" => condition.message.as_str(),
        }),
    }
}

/// The names of a definition that must be unique in its group.
fn resource_names(names: &Tree) -> impl Iterator<Item = &str> {
    let short = names.list("shortNames").iter().filter_map(Tree::as_str);
    [names.str("plural"), names.str("singular")].into_iter().chain(short)
}

fn kind_names(names: &Tree) -> [&str; 2] {
    [names.str("kind"), names.str("listKind")]
}

/// A name that a definition has accepted, as an index has it: resources and kinds have names of their own.
pub(crate) fn resource_key(group: &str, name: &str) -> String {
    format!("{group}/{name}")
}

pub(crate) fn kind_key(group: &str, name: &str) -> String {
    format!("{group}//{name}")
}

/// The keys of the names that a definition has accepted.
pub(crate) fn accepted_keys(object: &Tree) -> Vec<String> {
    let (group, names) = (object.str("spec.group"), object.at("status.acceptedNames"));
    let resources = resource_names(names).filter(|name| !name.is_empty()).map(|name| resource_key(group, name));
    let kinds = kind_names(names).into_iter().filter(|name| !name.is_empty()).map(|name| kind_key(group, name));
    resources.chain(kinds).collect()
}

/// Whether a definition has names that are not accepted.
pub(crate) fn has_open_names(object: &Tree) -> bool {
    !is_same(object.at("spec.names"), object.at("status.acceptedNames"))
}

/// The new status of a definition whose names have to be checked, or None if it stays. `is_used` is called with the
/// keys of names.
pub(crate) fn accept_names(object: &Tree, is_used: impl Fn(&str) -> bool, now: &str) -> Option<Tree> {
    let (requested, accepted) = (object.at("spec.names"), object.at("status.acceptedNames"));
    if !has_open_names(object) {
        return None;
    }
    let group = object.str("spec.group");
    let (names, condition) =
        resolve(requested, accepted, &|name: &str| is_used(&resource_key(group, name)), &|name: &str| {
            is_used(&kind_key(group, name))
        });
    if is_same(&names, accepted) && condition.is_in(object) {
        return None;
    }
    let mut out = object.clone();
    let established = established(object, condition.status == "True");
    out.child("status").set("acceptedNames", names);
    set_condition(&mut out, &condition, now);
    if let Some(established) = established {
        set_condition(&mut out, &established, now);
    }
    Some(out)
}

/// Whether a definition of the group has a name already.
type NameLookup<'a> = &'a dyn Fn(&str) -> bool;

/// Every free name is accepted, even if other names conflict; the last conflict is the reason.
fn resolve(requested: &Tree, accepted: &Tree, resources: NameLookup<'_>, kinds: NameLookup<'_>) -> (Tree, Condition) {
    let mut names = accepted.clone();
    let mut condition = Condition::new("NamesAccepted", "True", "NoConflicts", "no conflicts found");
    let mut refuse = |reason: &'static str, message: String| {
        condition = Condition { name: "NamesAccepted", status: "False", reason, message };
    };
    let rows = [
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ];
    for (key, reason, used) in rows {
        let conflicts = conflicts(requested.at(key), accepted.at(key), used);
        match conflicts.as_slice() {
            [] => copy(&mut names, requested, key),
            [only] => refuse(reason, only.clone()),
            many => refuse(reason, format!("[{}]", many.join(", "))),
        }
    }
    copy(&mut names, requested, "categories");
    (names, condition)
}

fn copy(names: &mut Tree, requested: &Tree, key: &str) {
    match requested.get(key) {
        Some(value) => names.set(key, value.clone()),
        None => drop(names.remove(key)),
    }
}

fn conflicts(requested: &Tree, accepted: &Tree, is_used: NameLookup<'_>) -> Vec<String> {
    let texts = |tree: &Tree| -> Vec<String> {
        let items = tree.as_list().map_or_else(|| vec![tree.clone()], <[Tree]>::to_vec);
        items.iter().filter_map(Tree::as_str).map(str::to_string).collect()
    };
    let own = texts(accepted);
    let taken = texts(requested).into_iter().filter(|name| !own.contains(name) && is_used(name));
    taken.map(|name| format!("{name:?} is already in use")).collect()
}

/// A definition that was established once stays so.
fn established(object: &Tree, is_accepted: bool) -> Option<Condition> {
    if is_accepted && !is_true(object, "Established") {
        return Some(Condition::new("Established", "False", "Installing", "the initial names have been accepted"));
    }
    let missing = || Condition::new("Established", "False", "NotAccepted", "not all names are accepted");
    find(object, "Established").is_none().then(missing)
}

fn is_same(one: &Tree, other: &Tree) -> bool {
    let is_same_list = |key: &str| one.list(key) == other.list(key);
    ["plural", "singular", "kind", "listKind"].iter().all(|key| one.str(key) == other.str(key))
        && is_same_list("shortNames")
        && is_same_list("categories")
}

/// Established once its names are accepted.
pub(crate) fn establish(object: &Tree, now: &str) -> Option<Tree> {
    if !is_true(object, "NamesAccepted") || is_true(object, "Established") {
        return None;
    }
    let message = "the initial names have been accepted";
    let mut out = object.clone();
    set_condition(&mut out, &Condition::new("Established", "True", "InitialNamesAccepted", message), now);
    Some(out)
}

/// Whether a definition in a group of the community is approved; None in other groups, or if that is known.
pub(crate) fn check_approval(object: &Tree, now: &str) -> Option<Tree> {
    let condition = approval(object)?;
    if condition.is_in(object) {
        return None;
    }
    let mut out = object.clone();
    set_condition(&mut out, &condition, now);
    Some(out)
}

/// The condition of schemas that are not structural; None if it stays as it is.
pub(crate) fn check_structure(object: &Tree, now: &str) -> Option<Tree> {
    const NAME: &str = "NonStructuralSchema";
    let mut out = object.clone();
    match violations(object) {
        Some(message) => {
            let condition = Condition { name: NAME, status: "True", reason: "Violations", message };
            if condition.is_in(object) {
                return None;
            }
            set_condition(&mut out, &condition, now);
        }
        None => {
            find(object, NAME)?;
            out.child("status").list_entry("conditions").retain(|condition| condition.str("type") != NAME);
        }
    }
    Some(out)
}

/// The violations as one text, each once.
fn violations(object: &Tree) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for error in kinds::structural_violations(object).iter().map(ToString::to_string) {
        if !texts.contains(&error) {
            texts.push(error);
        }
    }
    match texts.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn approval(object: &Tree) -> Option<Condition> {
    const NAME: &str = "KubernetesAPIApprovalPolicyConformant";
    let group = object.str("spec.group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')));
    if !is_protected {
        return None;
    }
    let (state, message) = kinds::custom::approval_state(object.map("metadata.annotations").str(APPROVAL));
    use kinds::custom::Approval;
    Some(match state {
        Approval::Missing => Condition::new(NAME, "False", "MissingAnnotation", &message),
        Approval::Invalid => Condition::new(NAME, "False", "InvalidAnnotation", &message),
        Approval::Bypassed => Condition::new(NAME, "False", "UnapprovedAnnotation", &message),
        Approval::Approved => Condition::new(NAME, "True", "ApprovedAnnotation", &message),
    })
}

/// Whether a definition waits for the deletion of its objects.
pub(crate) fn is_finalized_here(object: &Tree) -> bool {
    object.at("metadata").has("deletionTimestamp")
        && object.list("metadata.finalizers").iter().any(|name| name.as_str() == Some(FINALIZER))
}

/// The definition after its objects are deleted.
pub(crate) fn release(object: &Tree, condition: &Condition, now: &str) -> Tree {
    let mut out = object.clone();
    set_condition(&mut out, condition, now);
    if let Some(Tree::List(finalizers)) = out.at_mut("metadata.finalizers") {
        finalizers.retain(|name| name.as_str() != Some(FINALIZER));
    }
    out
}

/// The APIService of a version that definitions serve.
pub(crate) fn api_service(group: &str, version: &str) -> Tree {
    tree! {
        "apiVersion" => "apiregistration.k8s.io/v1", "kind" => "APIService",
        "metadata" => tree! {
            "name" => format!("{version}.{group}"),
            "labels" => tree! { AUTOMANAGED => "true" },
        },
        "spec" => tree! {
            "group" => group, "version" => version, "groupPriorityMinimum" => 1000, "versionPriority" => 100,
        },
    }
}

/// An APIService of definitions with the specification that it should have; none if it has it, or is not ours.
pub(crate) fn restore(current: &Tree, desired: &Tree) -> Option<Tree> {
    if !is_automanaged(current) || current.at("spec") == desired.at("spec") {
        return None;
    }
    let mut restored = current.clone();
    restored.set("spec", desired.at("spec").clone());
    Some(restored)
}

/// The group versions that a definition serves, as the names of their APIServices.
pub(crate) fn served_versions(object: &Tree) -> Vec<String> {
    let served = object.list("spec.versions").iter().filter(|version| version.bool("served"));
    served.map(|version| format!("{}.{}", version.str("name"), object.str("spec.group"))).collect()
}

/// Whether an APIService was created for definitions.
pub(crate) fn is_automanaged(registered: &Tree) -> bool {
    registered.map("metadata.labels").str(AUTOMANAGED) == "true"
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::list;

    #[test]
    fn changed_api_services_are_reset() {
        let desired = api_service("e.com", "v1");
        assert_eq!(restore(&desired, &desired), None);
        let mut changed = desired.clone();
        changed.child("spec").set("versionPriority", 7);
        assert_eq!(restore(&changed, &desired).as_ref(), Some(&desired));
        changed.child("metadata").remove("labels");
        assert_eq!(restore(&changed, &desired), None, "a user's own");
    }

    fn definition(plural: &str, kind: &str, accepted: Tree) -> Tree {
        let names = tree! {
            "plural" => plural, "singular" => kind.to_lowercase(), "kind" => kind, "listKind" => format!("{kind}List"),
            "shortNames" => list!["s"],
        };
        tree! { "spec" => tree! { "group" => "e.com", "names" => names }, "status" => tree! { "acceptedNames" => accepted } }
    }

    /// The names that these definitions have accepted.
    fn in_use(definitions: &[&Tree]) -> impl Fn(&str) -> bool + use<> {
        let keys: Vec<String> = definitions.iter().flat_map(|object| accepted_keys(object)).collect();
        move |key| keys.iter().any(|known| known == key)
    }

    fn summary(object: &Tree) -> Vec<String> {
        let text = |condition: &Tree| {
            format!(
                "{}={} {}: {}",
                condition.str("type"),
                condition.str("status"),
                condition.str("reason"),
                condition.str("message")
            )
        };
        object.list("status.conditions").iter().map(text).collect()
    }

    #[test]
    fn free_names_are_accepted_and_then_established() {
        let object = definition("foos", "Foo", Tree::Null);
        let accepted = accept_names(&object, in_use(&[&object]), "t").expect("a change");
        assert_eq!(
            summary(&accepted),
            [
                "NamesAccepted=True NoConflicts: no conflicts found",
                "Established=False Installing: the initial names have been accepted",
            ]
        );
        assert_eq!(accepted.at("status.acceptedNames"), accepted.at("spec.names"));
        assert!(accept_names(&accepted, in_use(&[&accepted]), "t").is_none());
        let established = establish(&accepted, "t").expect("a change");
        assert!(is_true(&established, "Established"));
        assert!(establish(&established, "t").is_none());
    }

    #[test]
    fn taken_names_are_refused() {
        let first = definition("foos", "Foo", Tree::Null);
        let first = accept_names(&first, in_use(&[&first]), "t").expect("a change");
        let second = definition("fooz", "Foo", Tree::Null);
        let refused = accept_names(&second, in_use(&[&first, &second]), "t").expect("a change");
        assert_eq!(
            summary(&refused),
            [
                "NamesAccepted=False ListKindConflict: \"FooList\" is already in use",
                "Established=False NotAccepted: not all names are accepted",
            ]
        );
        assert_eq!(refused.str("status.acceptedNames.plural"), "fooz");
        assert!(refused.at("status.acceptedNames.kind").is_null());
        let freed = accept_names(&refused, in_use(&[&refused]), "t").expect("a change");
        assert!(is_true(&freed, "NamesAccepted"));
    }

    #[test]
    fn schemas_that_are_not_structural_are_reported() {
        let with = |props: Tree| {
            let version = tree! { "name" => "v1", "schema" => tree! { "openAPIV3Schema" => props } };
            tree! { "spec" => tree! { "group" => "e.com", "versions" => list![version] } }
        };
        let typed = tree! { "type" => "object", "properties" => tree! { "a" => tree! { "type" => "string" } } };
        assert_eq!(check_structure(&with(typed.clone()), "t"), None);
        let open = tree! { "type" => "object", "properties" => tree! { "a" => tree! {}, "b" => tree! {} } };
        let found = check_structure(&with(open), "t").expect("a condition");
        let at = |name: &str| {
            let schema = "spec.versions[0].schema.openAPIV3Schema";
            format!("{schema}.properties[{name}].type: Required value: must not be empty for specified object fields")
        };
        assert_eq!(summary(&found), [format!("NonStructuralSchema=True Violations: [{}, {}]", at("a"), at("b"))]);
        assert_eq!(check_structure(&found, "t"), None, "it is known");
        let mut repaired = with(typed);
        repaired.set("status", found.at("status").clone());
        assert_eq!(summary(&check_structure(&repaired, "t").expect("a change")), [""; 0]);
        repaired.child("spec").set("preserveUnknownFields", true);
        let found = check_structure(&repaired, "t").expect("a change");
        let message = "spec.preserveUnknownFields: Invalid value: true: must be false";
        assert_eq!(summary(&found), [format!("NonStructuralSchema=True Violations: {message}")]);
    }

    #[test]
    fn community_groups_need_an_approval() {
        let check = |group: &str, annotation: Option<&str>, want: Option<(&str, &str)>| {
            let mut object = tree! { "spec" => tree! { "group" => group } };
            if let Some(annotation) = annotation {
                object.child("metadata.annotations").set(APPROVAL, annotation);
            }
            let found = approval(&object).map(|condition| (condition.status, condition.reason));
            assert_eq!(found, want, "{group}");
        };
        check("e.com", None, None);
        check("x.k8s.io", None, Some(("False", "MissingAnnotation")));
        check(
            "x.k8s.io",
            Some("https://github.com/kubernetes/kubernetes/pull/78458"),
            Some(("True", "ApprovedAnnotation")),
        );
        check("x.k8s.io", Some("unapproved, experimental"), Some(("False", "UnapprovedAnnotation")));
        check("x.kubernetes.io", Some("bad"), Some(("False", "InvalidAnnotation")));
    }
}
