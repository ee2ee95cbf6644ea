//! Resource names (cpu, memory, example.com/gpu) and their quantities.

use api::Tree;
use api::field::{Errors, Path};
use api::quantity::Quantity;
use api::validation::qualified_name;

const CONTAINER: &[&str] = &["cpu", "memory", "ephemeral-storage"];
const QUOTA: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const INTEGER: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Without a domain, or in the kubernetes.io domain.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// A resource of another domain, such as a device.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether a request may be below its limit.
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

pub(crate) fn is_standard_for_quota(name: &str) -> bool {
    QUOTA.contains(&name) || is_huge_page(name.strip_prefix("requests.").unwrap_or(name))
}

fn is_standard(name: &str) -> bool {
    is_standard_for_quota(name) || name == "storage"
}

fn is_standard_for_containers(name: &str) -> bool {
    CONTAINER.contains(&name) || is_huge_page(name)
}

pub(crate) fn validate_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let messages = qualified_name(name);
    if !messages.is_empty() {
        errors.invalid_all(path, name, messages);
    } else if !name.contains('/') && !is_standard(name) {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
}

pub(crate) fn validate_container_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_name(name, path, errors);
    if !name.contains('/') {
        if !is_standard_for_containers(name) {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

pub(crate) fn validate_quota_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_name(name, path, errors);
    if !name.contains('/') && !is_standard_for_quota(name) {
        errors.invalid(path, name, "must be a standard resource for quota");
    }
}

/// Not negative, and whole where the resource is counted.
pub(crate) fn validate_quantity(name: &str, value: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let quantity = read(value);
    if quantity.is_negative() {
        errors.invalid(path, value, "must be greater than or equal to 0");
    }
    if (INTEGER.contains(&name) || is_extended(name)) && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path, value, "must be an integer");
    }
}

pub(crate) fn validate_positive(value: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let quantity = read(value);
    if quantity.is_negative() || quantity.is_zero() {
        errors.invalid(path, value, "must be greater than zero");
    }
}

/// Rounds the quantities of a resource list up to thousandths, upstream's precision.
pub(crate) fn round_up(parent: &mut Tree, field: &str) {
    let Some(Tree::Map(list)) = parent.get_mut(field) else { return };
    for (_, value) in list.iter_mut() {
        let quantity = read(value);
        let rounded = Quantity::milli(quantity.milli_value(), quantity.format());
        // Quantities that exceed 64 bits of thousandths have no fraction.
        if quantity < rounded {
            *value = Tree::from(rounded.to_string());
        }
    }
}

/// Parses a canonical quantity; zero if it is invalid, which decoding has excluded.
pub fn read(value: &Tree) -> Quantity {
    Quantity::parse(value.as_str().unwrap_or("0")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validates_resource_names() {
        let check = |judge: fn(&str, &Path<'_>, &mut Errors), name: &str, want: usize| {
            let mut errors = Errors::new();
            judge(name, &Path::root("r"), &mut errors);
            assert_eq!(errors.len(), want, "{name}");
        };
        check(validate_container_name, "cpu", 0);
        check(validate_container_name, "hugepages-2Mi", 0);
        check(validate_container_name, "example.com/gpu", 0);
        check(validate_container_name, "storage", 1);
        check(validate_container_name, "weird", 2);
        check(validate_quota_name, "requests.hugepages-2Mi", 0);
        check(validate_quota_name, "count/deployments.apps", 0);
        check(validate_quota_name, "bogus", 2);
        check(validate_name, "storage", 0);
    }

    #[test]
    fn counted_resources_are_integers() {
        let check = |name: &str, value: &str, want: usize| {
            let mut errors = Errors::new();
            validate_quantity(name, &Tree::from(value), &Path::root("r"), &mut errors);
            assert_eq!(errors.len(), want, "{name} {value}");
        };
        check("cpu", "1500m", 0);
        check("pods", "1500m", 1);
        check("example.com/gpu", "2", 0);
        check("memory", "-1", 1);
    }
}
