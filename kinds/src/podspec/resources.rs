//! Resource requirements of containers and pods.

pub(crate) mod aggregate;

use api::Tree;
use api::field::{Errors, FieldError, Path, Reason, Value, go_quote};
use api::quantity::Quantity;

use super::check;
use super::small_set::SmallSet;
pub(crate) use crate::resources::{
    is_huge_page, is_overcommit_allowed, read, validate_container_name, validate_name, validate_quantity,
};

const POD_LEVEL: &[&str] = &["cpu", "memory"];

/// Whether a resource may be set at pod level.
pub(crate) fn is_pod_level(name: &str) -> bool {
    POD_LEVEL.contains(&name) || is_huge_page(name)
}

/// The object that a resource list belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Container,
    Pod,
}

pub(crate) fn validate_requirements(tree: &Tree, level: Level, claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let limits = path.field("limits");
    let requests = path.field("requests");
    let mut named = NamedResources::default();
    for (name, value) in tree.map("limits").iter() {
        named.note(name);
        validate_entry(name, value, level, &limits.key(name), errors);
    }
    for (name, value) in tree.map("requests").iter() {
        named.note(name);
        validate_entry(name, value, level, &requests.key(name), errors);
        validate_against_limit(name, value, tree.map("limits").get(name), &requests, &limits, errors);
    }
    if named.huge_pages && !named.cpu_or_memory {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    validate_claims(tree.list("claims"), claims, &path.field("claims"), errors);
}

#[derive(Default)]
struct NamedResources {
    cpu_or_memory: bool,
    huge_pages: bool,
}

impl NamedResources {
    fn note(&mut self, name: &str) {
        self.cpu_or_memory |= POD_LEVEL.contains(&name);
        self.huge_pages |= is_huge_page(name);
    }
}

fn validate_entry(name: &str, value: &Tree, level: Level, path: &Path<'_>, errors: &mut Errors) {
    match level {
        Level::Container => validate_container_name(name, path, errors),
        Level::Pod if is_pod_level(name) => validate_name(name, path, errors),
        Level::Pod => errors.not_supported(path, name, POD_LEVEL),
    }
    validate_quantity(name, value, path, errors);
    if is_huge_page(name) && !is_multiple_of_page(name, value) {
        let text = value.as_str().unwrap_or("");
        errors.invalid(path, text, &format!("{text} is not positive integer multiple of {name}"));
    }
}

fn is_multiple_of_page(name: &str, value: &Tree) -> bool {
    let Some(Ok(page)) = name.strip_prefix("hugepages-").map(Quantity::parse) else { return false };
    let bytes = page.value();
    bytes > 0 && page.milli_value() % 1000 == 0 && read(value).value() % bytes == 0
}

fn validate_against_limit(
    name: &str,
    value: &Tree,
    limit: Option<&Tree>,
    requests: &Path<'_>,
    limits: &Path<'_>,
    errors: &mut Errors,
) {
    let overcommit = is_overcommit_allowed(name);
    let Some(limit) = limit else {
        if !overcommit {
            errors.required(limits, "Limit must be set for non overcommitable resources");
        }
        return;
    };
    // Equal texts are the common case, and need no parsing.
    if value == limit {
        return;
    }
    let text = limit.as_str().unwrap_or("");
    match read(value).cmp(&read(limit)) {
        std::cmp::Ordering::Equal => {}
        _ if !overcommit => errors.invalid(requests, value, &format!("must be equal to {name} limit of {text}")),
        std::cmp::Ordering::Greater => {
            errors.invalid(requests, value, &format!("must be less than or equal to {name} limit of {text}"));
        }
        std::cmp::Ordering::Less => {}
    }
}

/// A container may use each claim of its pod once, as a whole or by request.
fn validate_claims(claims: &[Tree], pod_claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if claims.is_empty() {
        return;
    }
    let known: SmallSet<&str> = pod_claims.iter().copied().collect();
    // Requests of a claim, whole claims, and claims with a request in use.
    let (mut requests, mut whole, mut parts) = (SmallSet::new(), SmallSet::new(), SmallSet::new());
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (claim.str("name"), claim.str("request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if whole.contains(&name) || (request.is_empty() && parts.contains(&name)) {
            errors.duplicate(&path, name);
        } else if request.is_empty() {
            whole.insert(name);
        } else {
            check::dns_label(request, &path.field("request"), errors);
            parts.insert(name);
            if !requests.insert((name, request)) {
                errors.duplicate(&path, format!("{name}/{request}"));
            }
        }
        if !known.contains(&name) {
            claim_not_found(name, pod_claims, &path, errors);
        }
    }
}

fn claim_not_found(name: &str, pod_claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let mut names: Vec<&str> = pod_claims.to_vec();
    names.sort_unstable();
    let rest = if names.is_empty() { " which is empty".to_string() } else { format!(": {}", names.join(", ")) };
    errors.push(FieldError {
        reason: Reason::NotFound,
        field: path.to_string(),
        message: format!("Not found: {}: must be one of the names in pod.spec.resourceClaims{rest}", go_quote(name)),
    });
}

/// Pod-level resources, by themselves and compared with the containers.
pub(crate) fn validate_pod_level(spec: &Tree, claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let Some(resources) = spec.get("resources") else { return };
    if resources.has("claims") {
        errors.forbidden(&path.field("claims"), "claims cannot be set for Resources at pod-level");
    }
    validate_requirements(resources, Level::Pod, claims, path, errors);
    let requests = path.field("requests");
    for (name, sum) in aggregate::requests(spec).iter().filter(|(name, _)| is_pod_level(name)) {
        let own = resources.map("requests").get(name).map(read).unwrap_or_default();
        if *sum > own {
            let text = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid(&requests.key(name), own.to_string(), &text);
        }
    }
    validate_container_limits(spec, resources, path, errors);
}

fn validate_container_limits(spec: &Tree, resources: &Tree, path: &Path<'_>, errors: &mut Errors) {
    let containers = path.field("containers");
    for (index, container) in spec.list("containers").iter().enumerate() {
        for (name, limit) in container.map("resources.limits").iter() {
            let Some(pod) = resources.map("limits").get(name) else { continue };
            if read(limit) > read(pod) {
                let text = format!("must be less than or equal to pod limits of {}", pod.as_str().unwrap_or(""));
                errors.invalid(&containers.index(index).key(name).field("limits"), Value::from(limit), &text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{list, tree};

    fn check(requirements: Tree, expected: &[&str]) {
        let mut errors = Errors::new();
        validate_requirements(&requirements, Level::Container, &["own"], &Path::root("r"), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{requirements:?}");
    }

    #[test]
    fn validates_requirements() {
        check(tree! { "limits" => tree! { "cpu" => "1" }, "requests" => tree! { "cpu" => "500m" } }, &[]);
        check(
            tree! { "limits" => tree! { "cpu" => "1" }, "requests" => tree! { "cpu" => "2" } },
            &["r.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"],
        );
        check(
            tree! { "requests" => tree! { "example.com/gpu" => "1" } },
            &["r.limits: Required value: Limit must be set for non overcommitable resources"],
        );
        check(
            tree! { "limits" => tree! { "hugepages-2Mi" => "1Mi" } },
            &[
                "r.limits[hugepages-2Mi]: Invalid value: \"1Mi\": 1Mi is not positive integer multiple of hugepages-2Mi",
                "r: Forbidden: HugePages require cpu or memory",
            ],
        );
        check(
            tree! { "claims" => list![tree! { "name" => "own" }, tree! { "name" => "own", "request" => "a" }, tree! { "name" => "x" }] },
            &[
                "r.claims[1]: Duplicate value: \"own\"",
                "r.claims[2]: Not found: \"x\": must be one of the names in pod.spec.resourceClaims: own",
            ],
        );
    }
}
