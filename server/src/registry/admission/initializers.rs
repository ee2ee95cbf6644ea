//! Initializers, of old Kubernetes: a new object waits for the initializers whose rules match it, one after the other,
//! and is hidden until the list is empty. A user who may `initialize` a resource can change waiting objects, set a list
//! of their own, or an empty one to skip all.

use api::field::Errors;
use api::status::Status;
use api::{Tree, tree};
use kinds::initializers::{is_pending, normalize, validate, validate_update};

use super::{Attributes, Operation, PluginFuture};
use crate::authorization;

const STORAGE: &str = "initializerconfigurations";

pub(crate) fn mutate<'a>(
    attributes: &'a Attributes<'_>,
    object: Option<&'a mut Tree>,
    old: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let object = object.filter(|object| object.has("metadata") && concerns(attributes))?;
    match (attributes.operation, old) {
        (Operation::Create, _) if is_pending(object) => Some(Box::pin(create_with_initializers(attributes, object))),
        (Operation::Create, _) => {
            set_pending(attributes, object);
            None
        }
        (Operation::Update, Some(old)) => {
            normalize(object);
            (is_pending(object) || is_pending(old)).then_some(())?;
            Some(Box::pin(update(attributes, object, old)))
        }
        _ => None,
    }
}

/// Subresources can be written meanwhile, and admission configurations never wait.
fn concerns(attributes: &Attributes<'_>) -> bool {
    attributes.origin.is_some()
        && attributes.subresource.is_empty()
        && attributes.resource.kind.group() != "admissionregistration.k8s.io"
        && !attributes.resource.kind.storage().is_empty()
}

fn set_pending(attributes: &Attributes<'_>, object: &mut Tree) {
    // A mirror pod is already running.
    if object.map("metadata.annotations").contains("kubernetes.io/config.mirror") {
        return;
    }
    let configurations = attributes.registry.storage.objects(STORAGE, "");
    let kind = &attributes.resource.kind;
    let names = find(&configurations, kind.group(), kind.version(), kind.plural());
    if !names.is_empty() {
        let pending: Vec<Tree> = names.into_iter().map(|name| tree! { "name" => name }).collect();
        object.child("metadata").set("initializers", tree! { "pending" => pending });
    }
}

/// The names in the order of their configurations, each once.
fn find<'a>(configurations: &'a [Tree], group: &str, version: &str, plural: &str) -> Vec<&'a str> {
    let has = |rule: &Tree, key: &str, value: &str| {
        rule.list(key).iter().filter_map(Tree::as_str).any(|entry| entry == "*" || entry == value)
    };
    let matches = |rule: &Tree| {
        has(rule, "apiGroups", group) && has(rule, "apiVersions", version) && has(rule, "resources", plural)
    };
    let all = configurations.iter().flat_map(|configuration| configuration.list("initializers"));
    let mut names: Vec<&str> = Vec::new();
    for initializer in all.filter(|initializer| initializer.list("rules").iter().any(matches)) {
        if !names.contains(&initializer.str("name")) {
            names.push(initializer.str("name"));
        }
    }
    names
}

async fn create_with_initializers(attributes: &Attributes<'_>, object: &mut Tree) -> Result<(), Status> {
    check_right(attributes, "create with initializers denied").await?;
    normalize(object);
    let mut errors = Errors::new();
    validate(object, &mut errors);
    refuse(attributes, &errors)
}

async fn update(attributes: &Attributes<'_>, object: &Tree, old: &Tree) -> Result<(), Status> {
    let mut errors = Errors::new();
    validate_update(object, old, &mut errors);
    refuse(attributes, &errors)?;
    check_right(attributes, "update to uninitialized resource denied").await
}

fn refuse(attributes: &Attributes<'_>, errors: &Errors) -> Result<(), Status> {
    let kind = &attributes.resource.kind;
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(kind.group(), kind.kind(), attributes.name, errors)) }
}

async fn check_right(attributes: &Attributes<'_>, refusal: &str) -> Result<(), Status> {
    let kind = &attributes.resource.kind;
    let requested = authorization::Attributes {
        namespace: attributes.namespace,
        name: attributes.name.into(),
        ..authorization::Attributes::resource(attributes.user, "initialize", kind.group(), kind.plural())
    };
    let verdict = attributes.registry.authorizer.wait(&requested).await;
    if verdict.is_allowed() { Ok(()) } else { Err(attributes.forbidden(format!("{refusal}: {}", verdict.reason))) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    #[test]
    fn rules_name_what_waits() {
        let configurations = [
            json(
                r#"{"initializers":[{"name":"a","rules":[{"apiGroups":["apps"],"apiVersions":["*"],"resources":["deployments"]}]}]}"#,
            ),
            json(
                r#"{"initializers":[{"name":"b","rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]},{"name":"a","rules":[{"apiGroups":["apps"],"apiVersions":["v1"],"resources":["*"]}]}]}"#,
            ),
        ];
        let check = |group: &str, plural: &str, want: &[&str]| {
            assert_eq!(find(&configurations, group, "v1", plural), want, "{plural}");
        };
        check("apps", "deployments", &["a", "b"]);
        check("apps", "daemonsets", &["b", "a"]);
        check("", "pods", &["b"]);
    }
}
