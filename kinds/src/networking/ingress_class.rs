//! IngressClass.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::ingress::validate_reference_names;
use crate::kind::{Kind, column};
use crate::{cells, checks, strategy};

const SPEC: Path<'static> = Path::root("spec");
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
const CONTROLLER_MAX: usize = 250;

pub(crate) static KIND: Kind = Kind {
    set_defaults,
    prepare_create: strategy::create,
    prepare_update: strategy::update,
    validate,
    validate_update,
    columns: &[
        column("Name", "string", "name", 0),
        column("Controller", "string", "", 0),
        column("Parameters", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    cells: row,
    ..Kind::cluster("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "ingressclass")
};

fn set_defaults(class: &mut Tree) {
    if let Some(parameters @ Tree::Map(_)) = class.at_mut("spec.parameters") {
        parameters.set_default("scope", "Cluster");
    }
}

fn validate(class: &Tree, errors: &mut Errors) {
    let controller = class.str("spec.controller");
    let path = SPEC.field("controller");
    if controller.is_empty() {
        errors.required(&path, "");
    } else {
        if controller.len() > CONTROLLER_MAX {
            errors.too_long(&path, CONTROLLER_MAX);
        }
        for (value, message) in validation::domain_prefixed_path(controller) {
            errors.invalid(&path, value, &message);
        }
    }
    if class.at("spec").has("parameters") {
        validate_parameters(class.at("spec.parameters"), &SPEC.field("parameters"), errors);
    }
}

fn validate_parameters(parameters: &Tree, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = parameters.at("apiGroup").as_str() {
        errors.invalid_all(&path.field("apiGroup"), group, validation::dns1123_subdomain(group));
    }
    validate_reference_names(parameters, &["kind", "name"], path, errors);
    let namespace = parameters.at("namespace").as_str();
    match (parameters.at("scope").as_str(), namespace) {
        (None, _) => errors.required(&path.field("scope"), ""),
        (Some("Namespace"), None) => {
            errors.required(&path.field("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(namespace)) => {
            errors.invalid_all(&path.field("namespace"), namespace, validation::dns1123_label(namespace));
        }
        (Some("Cluster"), Some(_)) => {
            errors.forbidden(&path.field("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => errors.not_supported(&path.field("scope"), other, &["Cluster", "Namespace"]),
    }
}

fn validate_update(class: &Tree, old: &Tree, errors: &mut Errors) {
    validate(class, errors);
    checks::declared_immutable((class.at("spec"), old.at("spec")), "controller", &SPEC, errors);
}

fn row(class: &Tree, now: i64) -> Vec<Tree> {
    let name = class.str("metadata.name");
    let default = class.map("metadata.annotations").str(DEFAULT_ANNOTATION) == "true";
    vec![
        Tree::from(if default { format!("{name} (default)") } else { name.to_string() }),
        Tree::from(class.str("spec.controller")),
        Tree::from(parameters(class.at("spec.parameters"))),
        cells::age(class, now),
    ]
}

fn parameters(parameters: &Tree) -> String {
    if parameters.is_null() {
        return "<none>".to_string();
    }
    let (kind, name) = (parameters.str("kind"), parameters.str("name"));
    match parameters.at("apiGroup").as_str() {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn parameters_say_their_scope() {
        let cases = [
            (tree! { "kind" => "A", "name" => "b" }, ""),
            (
                tree! { "kind" => "A", "name" => "b", "scope" => "Namespace" },
                "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
            ),
            (tree! { "kind" => "A" }, "spec.parameters.name: Required value"),
        ];
        for (parameters, want) in cases {
            let spec = tree! { "controller" => "example.com/c", "parameters" => parameters };
            let mut class = tree! { "spec" => spec };
            set_defaults(&mut class);
            let mut errors = Errors::new();
            validate(&class, &mut errors);
            let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert_eq!(text, want);
        }
    }
}
