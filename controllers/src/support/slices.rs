//! Packs endpoints into EndpointSlices: few and full slices, with as few changes as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::{Tree, list, tree};
use client::{Client, DeleteOptions, Index, Resource, Result, Selection, Store};

use super::batch::bounded;
use super::own_writes::OwnWrites;
use super::owner;

const RESOURCE: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");
pub(crate) const SLICES: Selection = Selection::all(RESOURCE);
/// Slices by `NAMESPACE/NAME` of their service.
pub(crate) const BY_SERVICE: Index =
    Index { name: "service", values: |slice| service_key(slice).into_iter().collect() };

pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
pub(crate) const LAST_TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Endpoints by identity: their addresses and target. Other fields may change in place.
pub(crate) type Endpoints = BTreeMap<String, Tree>;

/// Writes in the order of execution.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes {
    pub create: Vec<Tree>,
    pub update: Vec<Tree>,
    pub delete: Vec<Arc<Tree>>,
}

impl Changes {
    pub(crate) fn append(&mut self, mut other: Changes) {
        self.create.append(&mut other.create);
        self.update.append(&mut other.update);
        self.delete.append(&mut other.delete);
    }

    /// Turns a slice to delete into a slice to create if `may` allows it, which saves a write.
    pub(crate) fn recycle(&mut self, may: impl Fn(&Tree) -> bool) {
        let mut kept = Vec::new();
        for old in std::mem::take(&mut self.delete) {
            let fits = |new: &Tree| new.str("addressType") == old.str("addressType") && may(&old);
            match self.create.pop_if(|new| fits(new)) {
                None => kept.push(old),
                Some(mut new) => {
                    for field in ["name", "uid", "resourceVersion", "generateName"] {
                        new.child("metadata").set(field, old.str(&format!("metadata.{field}")));
                    }
                    self.update.push(new);
                }
            }
        }
        self.delete = kept;
    }
}

pub(crate) fn identity(endpoint: &Tree) -> String {
    let mut text = String::with_capacity(48);
    for address in endpoint.list("addresses") {
        text.push_str(address.as_str().unwrap_or(""));
        text.push(',');
    }
    text.push_str(endpoint.str("targetRef.namespace"));
    text.push('/');
    text.push_str(endpoint.str("targetRef.name"));
    text
}

/// Slices with equal ports contain endpoints of the same group.
pub(crate) fn ports_key(ports: &[Tree]) -> String {
    let text = |port: &Tree| {
        let number = port.int("port").unwrap_or(0);
        format!("{}\0{}\0{number}\0{}", port.str("name"), port.str("protocol"), port.str("appProtocol"))
    };
    let mut texts: Vec<String> = ports.iter().map(text).collect();
    texts.sort();
    texts.join("\n")
}

/// The template of a group of slices with the same ports.
pub(crate) struct Template {
    /// A slice without endpoints.
    pub empty: Tree,
    /// Whether the template owns all annotations.
    pub owns_annotations: bool,
    pub max_endpoints: usize,
}

/// An existing slice and its desired endpoints.
struct SliceAssignment {
    slice: Arc<Tree>,
    endpoints: Vec<Tree>,
    is_changed: bool,
}

/// Updates the slices of a group to the desired endpoints: existing endpoints are corrected in place, then changed
/// slices are filled, then an unchanged one, and only then a new slice is created.
pub(crate) fn pack(template: &Template, existing: &[Arc<Tree>], mut wanted: Endpoints) -> Changes {
    let mut held: Vec<SliceAssignment> = existing.iter().map(|slice| keep(slice, &mut wanted, template)).collect();
    let mut changes = Changes::default();
    let is_emptied = |held: &SliceAssignment| held.is_changed && held.endpoints.is_empty();
    changes.delete = held.iter().filter(|held| is_emptied(held)).map(|held| held.slice.clone()).collect();
    held.retain(|held| !is_emptied(held));
    let mut rest = wanted.into_values().collect::<Vec<Tree>>();
    rest.reverse();
    fill_changed(&mut held, &mut rest, template.max_endpoints);
    while !rest.is_empty() {
        match best_fit(&mut held, rest.len(), template.max_endpoints) {
            Some(slice) => {
                slice.is_changed = true;
                fill(&mut slice.endpoints, &mut rest, template.max_endpoints);
            }
            None => {
                let mut endpoints = Vec::new();
                fill(&mut endpoints, &mut rest, template.max_endpoints);
                changes.create.push(with_endpoints(template.empty.clone(), endpoints));
            }
        }
    }
    changes.update = held.into_iter().filter(|held| held.is_changed).map(|held| updated(held, template)).collect();
    changes
}

/// Moves the endpoints that this slice has already from `wanted` to the slice.
fn keep(slice: &Arc<Tree>, wanted: &mut Endpoints, template: &Template) -> SliceAssignment {
    let mut endpoints = Vec::new();
    let mut is_changed = !is_marked(slice, template);
    let there = slice.list("endpoints");
    for endpoint in there {
        let Some(now) = wanted.remove(&identity(endpoint)) else { continue };
        is_changed |= now != *endpoint;
        endpoints.push(now);
    }
    // Endpoints beyond the limit move to another slice.
    for endpoint in endpoints.drain(endpoints.len().min(template.max_endpoints)..) {
        wanted.insert(identity(&endpoint), endpoint);
    }
    is_changed |= endpoints.len() != there.len();
    SliceAssignment { slice: slice.clone(), endpoints, is_changed }
}

fn is_marked(slice: &Tree, template: &Template) -> bool {
    let same = |field: &str| slice.map(field) == template.empty.map(field);
    same("metadata.labels") && (!template.owns_annotations || same("metadata.annotations"))
}

/// The fullest first, so that few slices stay half empty.
fn fill_changed(held: &mut [SliceAssignment], rest: &mut Vec<Tree>, limit: usize) {
    let mut order: Vec<usize> = (0..held.len()).filter(|at| held[*at].is_changed).collect();
    order.sort_by_key(|at| std::cmp::Reverse(held[*at].endpoints.len()));
    for at in order {
        fill(&mut held[at].endpoints, rest, limit);
    }
}

/// The unchanged slice that would be fullest with all remaining endpoints; None if they fit in none.
fn best_fit(held: &mut [SliceAssignment], left: usize, limit: usize) -> Option<&mut SliceAssignment> {
    let fits = |held: &&mut SliceAssignment| !held.is_changed && held.endpoints.len() + left <= limit;
    held.iter_mut().filter(fits).max_by_key(|held| held.endpoints.len())
}

fn fill(endpoints: &mut Vec<Tree>, rest: &mut Vec<Tree>, limit: usize) {
    while endpoints.len() < limit
        && let Some(endpoint) = rest.pop()
    {
        endpoints.push(endpoint);
    }
}

fn updated(held: SliceAssignment, template: &Template) -> Tree {
    let mut slice = with_endpoints(writable(&held.slice), held.endpoints);
    slice.child("metadata").set("labels", template.empty.at("metadata.labels").clone());
    if template.owns_annotations {
        slice.child("metadata").set("annotations", template.empty.at("metadata.annotations").clone());
    }
    slice
}

/// A copy with apiVersion and kind, which listed objects lack.
pub(crate) fn writable(slice: &Tree) -> Tree {
    let mut slice = slice.clone();
    slice.set("apiVersion", "discovery.k8s.io/v1");
    slice.set("kind", "EndpointSlice");
    slice
}

/// An empty list is omitted, as upstream does.
fn with_endpoints(mut slice: Tree, endpoints: Vec<Tree>) -> Tree {
    match endpoints.is_empty() {
        true => drop(slice.remove("endpoints")),
        false => slice.set("endpoints", endpoints),
    }
    slice
}

/// A slice without endpoints that belongs to `owner`.
pub(crate) fn empty_slice(owner: &Tree, address_type: &str, ports: &[Tree], labels: Tree) -> Tree {
    let name = owner.str("metadata.name");
    // A name of the maximum length gets no dash.
    let prefix = if name.len() < 253 { format!("{name}-") } else { name.to_string() };
    let metadata = tree! { "generateName" => prefix, "labels" => labels, "ownerReferences" => list![owner::controller_reference(owner)] };
    let mut slice = tree! {
        "apiVersion" => "discovery.k8s.io/v1",
        "kind" => "EndpointSlice",
        "metadata" => metadata,
        "addressType" => address_type,
    };
    if !ports.is_empty() {
        slice.set("ports", ports.to_vec());
    }
    slice
}

pub(crate) fn is_owned_by(slice: &Tree, owner: &Tree) -> bool {
    let same = |reference: &Tree| {
        reference.str("uid") == owner.str("metadata.uid") && reference.str("kind") == owner.str("kind")
    };
    slice.list("metadata.ownerReferences").iter().any(same)
}

/// Slices by the key of their ports, sorted by name.
pub(crate) fn by_ports<'a>(slices: impl Iterator<Item = &'a Arc<Tree>>) -> BTreeMap<String, Vec<Arc<Tree>>> {
    let mut groups: BTreeMap<String, Vec<Arc<Tree>>> = BTreeMap::new();
    for slice in slices {
        groups.entry(ports_key(slice.list("ports"))).or_default().push(slice.clone());
    }
    groups
}

/// Existing groups that are not desired.
pub(crate) fn obsolete_groups<'a>(
    there: &'a BTreeMap<String, Vec<Arc<Tree>>>,
    wanted: &BTreeSet<String>,
) -> impl Iterator<Item = Arc<Tree>> + 'a {
    let wanted = wanted.clone();
    there.iter().filter(move |(key, _)| !wanted.contains(*key)).flat_map(|(_, slices)| slices.iter().cloned())
}

pub(crate) fn service_key(slice: &Tree) -> Option<String> {
    let name = slice.map("metadata.labels").str(SERVICE_NAME);
    (!name.is_empty()).then(|| format!("{}/{name}", slice.str("metadata.namespace")))
}

pub(crate) fn is_managed_by(slice: &Tree, manager: &str) -> bool {
    slice.map("metadata.labels").str(MANAGED_BY) == manager
}

/// The slices of a service with a managed-by label.
pub(crate) fn slices_of_service(slices: &Store, service: &str, manager: &str) -> Vec<Arc<Tree>> {
    slices.find(BY_SERVICE, service).into_iter().filter(|slice| is_managed_by(slice, manager)).collect()
}

/// Executes the changes: creates first and deletes last, since no endpoint may be missing in between. Requests of one
/// type run concurrently. Rejections by a terminating namespace are ignored.
pub(crate) async fn execute(client: &Client, own: &OwnWrites, namespace: &str, changes: Changes) -> Result<()> {
    let create = async |slice: &Tree| match client.create(RESOURCE, namespace, slice).await {
        Err(error) if error.is_terminating() => Ok(()),
        result => result.map(|made| own.record(&made)),
    };
    let update = async |slice: &Tree| {
        let written = client.update(RESOURCE, namespace, slice.str("metadata.name"), slice).await?;
        own.record(&written);
        Ok(())
    };
    let delete = async |slice: &Arc<Tree>| match client
        .delete(RESOURCE, namespace, slice.str("metadata.name"), DeleteOptions::of(slice))
        .await
    {
        Err(error) if !error.is_not_found() => Err(error),
        _ => {
            own.record_deleted(slice);
            Ok(())
        }
    };
    first_failure(bounded(changes.create.iter().map(create)).await)?;
    first_failure(bounded(changes.update.iter().map(update)).await)?;
    first_failure(bounded(changes.delete.iter().map(delete)).await)
}

fn first_failure(results: Vec<Result<()>>) -> Result<()> {
    results.into_iter().find(Result::is_err).unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests;
