//! Extended resources by device classes: what containers request of a resource becomes a claim.

use api::{Str, Tree, tree};
use podmodel::ContainerResources;

use crate::Inventory;

/// The request of the scheduler's claim from which a container gets its extended resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMapping {
    pub container: Str,
    pub resource: Str,
    pub request: Str,
}

/// The requests of the claim for a pod's extended resources, and what they are for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExtendedRequests {
    pub requests: Vec<Tree>,
    pub mappings: Vec<RequestMapping>,
}

/// Whether a resource can be provided by devices.
pub fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/") || name.starts_with("requests.");
    !is_native || name.starts_with("deviceclass.resource.kubernetes.io/")
}

/// One request of a container.
#[derive(Clone)]
struct ContainerRequest {
    name: Str,
    count: i64,
}

/// The requests for the resources that a node provides by devices. Containers that run together get devices of their
/// own; an init container uses those of later containers, and what it needs besides is shared by all init containers.
pub fn extended_requests(
    containers: &[ContainerResources],
    resources: &[Str],
    inventory: &Inventory,
) -> ExtendedRequests {
    let mut all = ExtendedRequests::default();
    let mut names = resources.to_vec();
    names.sort();
    for resource in &names {
        if let Some(class) = inventory.class_of_resource(resource) {
            add_requests(&mut all, containers, resource, &class.name);
        }
    }
    all.requests.sort_by(|one, other| one.str("name").cmp(other.str("name")));
    all
}

fn add_requests(all: &mut ExtendedRequests, containers: &[ContainerResources], resource: &Str, class: &str) {
    let mut own: Vec<Option<ContainerRequest>> = vec![None; containers.len()];
    let lives_long = |container: &ContainerResources| !container.is_init || container.is_sidecar;
    for (at, container) in containers.iter().enumerate().filter(|(_, one)| lives_long(one)) {
        let (request, mappings) = request(at, container, resource, &[]);
        own[at] = request;
        all.mappings.extend(mappings);
    }
    let (mut largest, mut names, mut short): (Option<ContainerRequest>, Vec<Str>, Vec<RequestMapping>) =
        Default::default();
    for (at, container) in containers.iter().enumerate().filter(|(_, one)| !lives_long(one)) {
        let (request, mappings) = request(at, container, resource, &own[at..]);
        if let Some(request) = request {
            names.push(request.name.clone());
            if largest.as_ref().is_none_or(|largest| largest.count < request.count) {
                largest = Some(request);
            }
        }
        short.extend(mappings);
    }
    if let Some(largest) = &largest {
        let replaced = short.iter_mut().filter(|mapping| names.contains(&mapping.request));
        replaced.for_each(|mapping| mapping.request = largest.name.clone());
    }
    all.mappings.extend(short);
    all.requests.extend(largest.into_iter().chain(own.into_iter().flatten()).map(|request| to_tree(&request, class)));
}

/// The request of a container besides those that it can reuse, and all requests from which it gets the resource.
fn request(
    at: usize,
    container: &ContainerResources,
    resource: &Str,
    reusable: &[Option<ContainerRequest>],
) -> (Option<ContainerRequest>, Vec<RequestMapping>) {
    let Some(position) = container.requests.iter().position(|(name, count)| name == resource && *count > 0) else {
        return (None, Vec::new());
    };
    let mapping = |request: &Str| RequestMapping {
        container: container.name.clone(),
        resource: resource.clone(),
        request: request.clone(),
    };
    let (desired, mut found, mut mappings) = (container.requests[position].1, 0, Vec::new());
    for request in reusable.iter().flatten() {
        found += request.count;
        mappings.push(mapping(&request.name));
        if found >= desired {
            return (None, mappings);
        }
    }
    let request =
        ContainerRequest { name: Str::from(format!("container-{at}-request-{position}")), count: desired - found };
    mappings.push(mapping(&request.name));
    (Some(request), mappings)
}

fn to_tree(request: &ContainerRequest, class: &str) -> Tree {
    tree! {
        "name" => request.name.clone(),
        "exactly" => tree! {
            "deviceClassName" => class,
            "allocationMode" => "ExactCount",
            "count" => request.count,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceClass;

    fn container(name: &str, is_init: bool, is_sidecar: bool, count: i64) -> ContainerResources {
        let requests = vec![(Str::new("cpu"), 1), (Str::new("example.com/gpu"), count)];
        ContainerResources { name: Str::new(name), is_init, is_sidecar, requests }
    }

    fn check(containers: &[ContainerResources], want: &[(&str, i64)], mappings: &[(&str, &str)]) {
        let mut inventory = Inventory::default();
        inventory.put_class(DeviceClass::read(&tree! {
            "metadata" => tree! { "name" => "gpu" },
            "spec" => tree! { "extendedResourceName" => "example.com/gpu" },
        }));
        let found = extended_requests(containers, &["example.com/gpu".into()], &inventory);
        let requests = found.requests.iter().map(|one| (one.str("name"), one.int("exactly.count").unwrap_or(0)));
        assert_eq!(requests.collect::<Vec<_>>(), want);
        let of = |one: &RequestMapping| (one.container.to_string(), one.request.to_string());
        let want: Vec<_> = mappings.iter().map(|(one, other)| (one.to_string(), other.to_string())).collect();
        assert_eq!(found.mappings.iter().map(of).collect::<Vec<_>>(), want);
    }

    #[test]
    fn containers_get_requests_of_their_own() {
        check(
            &[container("a", false, false, 2), container("b", false, false, 1)],
            &[("container-0-request-1", 2), ("container-1-request-1", 1)],
            &[("a", "container-0-request-1"), ("b", "container-1-request-1")],
        );
        check(&[container("a", false, false, 0)], &[], &[]);
    }

    #[test]
    fn init_containers_use_the_devices_of_later_ones() {
        check(
            &[container("i", true, false, 1), container("a", false, false, 2)],
            &[("container-1-request-1", 2)],
            &[("a", "container-1-request-1"), ("i", "container-1-request-1")],
        );
        check(
            &[container("i", true, false, 3), container("j", true, false, 4), container("a", false, false, 2)],
            &[("container-1-request-1", 2), ("container-2-request-1", 2)],
            &[
                ("a", "container-2-request-1"),
                ("i", "container-2-request-1"),
                ("i", "container-1-request-1"),
                ("j", "container-2-request-1"),
                ("j", "container-1-request-1"),
            ],
        );
    }

    #[test]
    fn native_resources_are_not_provided_by_devices() {
        let check = |name: &str, want: bool| assert_eq!(is_extended(name), want, "{name}");
        check("example.com/gpu", true);
        check("cpu", false);
        check("kubernetes.io/x", false);
        check("requests.example.com/gpu", false);
        check("deviceclass.resource.kubernetes.io/gpu", true);
    }
}
