//! A node: what it offers and whom it takes.

use api::{Str, Tree};

use super::{Labels, Resources, Taint, texts};

/// The parts of a node that scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    pub name: Str,
    pub uid: Str,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    pub allowed_pods: i64,
    /// Sorted by name; an image stands under each of its names.
    pub images: Vec<Image>,
    /// Sorted.
    pub declared_features: Vec<Str>,
}

/// An image that is present on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub name: Str,
    pub size: i64,
}

impl Node {
    /// Reads a node object.
    pub fn read(node: &Tree) -> Node {
        let allocatable = node.map("status.allocatable");
        let amount = |name: &str| api::quantity::Quantity::parse(allocatable.str(name)).map_or(0, |one| one.value());
        let mut declared_features = texts(node.list("status.declaredFeatures"));
        declared_features.sort();
        Node {
            name: Str::new(node.str("metadata.name")),
            uid: Str::new(node.str("metadata.uid")),
            labels: Labels::read(node.map("metadata.labels")),
            taints: node.list("spec.taints").iter().filter_map(Taint::read).collect(),
            unschedulable: node.bool("spec.unschedulable"),
            allocatable: Resources::read(allocatable),
            allowed_pods: amount("pods"),
            images: images(node),
            declared_features,
        }
    }

    /// The size of an image, if it is present.
    pub fn image_size(&self, name: &str) -> Option<i64> {
        let at = self.images.binary_search_by(|image| image.name.as_str().cmp(name)).ok()?;
        Some(self.images[at].size)
    }

    /// Region and zone, by which the search alternates; "" if the node has neither.
    pub fn zone(&self) -> Str {
        let label = |new: &str, old: &str| self.labels.get(new).or_else(|| self.labels.get(old)).unwrap_or("");
        let region = label("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region");
        let zone = label("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone");
        match (region, zone) {
            ("", "") => Str::default(),
            _ => Str::from(format!("{region}:\0:{zone}")),
        }
    }
}

fn images(node: &Tree) -> Vec<Image> {
    let of = |image: &Tree| {
        let size = image.int("sizeBytes").unwrap_or(0);
        texts(image.list("names")).into_iter().map(move |name| Image { name, size }).collect::<Vec<_>>()
    };
    let mut images: Vec<Image> = node.list("status.images").iter().flat_map(of).collect();
    images.sort_by(|a, b| a.name.cmp(&b.name));
    images.dedup_by(|later, earlier| later.name == earlier.name);
    images
}
