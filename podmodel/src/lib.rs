//! Pods and nodes as plain values: what a pod requests, which nodes it accepts, what a node offers, and the conditions
//! that a node reports of a pod. Objects are parsed once into values that compare and hash. The scheduler, the kubelet
//! and fake nodes share them; nothing here knows the cluster around an object, or how objects are transferred.

#![warn(unreachable_pub)]

mod affinity;
mod claims;
pub mod conditions;
mod features;
mod labels;
mod node;
mod pod;
mod ports;
mod requests;
mod resources;
mod selector;
mod spec;
mod spread;
pub mod storage;
mod taints;
mod volumes;

pub use affinity::{AffinityTerm, PodAffinity};
pub use claims::{ClaimSource, ContainerResources, PodClaim, PodClaimStatus};
pub use labels::Labels;
pub use node::{Image, Node};
pub use pod::{Controller, Pod};
pub use ports::HostPort;
pub use requests::{limits, requests};
pub use resources::Resources;
pub use selector::{NodeSelector, NodeTerm, Operator, Requirement, Selector};
pub use spec::Spec;
pub use spread::{Policy, SpreadConstraint, WhenUnsatisfiable};
pub use taints::{Effect, Taint, Toleration, TolerationOperator};
pub use volumes::Volume;

use api::{Str, Tree};

/// A list of texts.
fn texts(list: &[Tree]) -> Vec<Str> {
    list.iter().filter_map(Tree::as_str).map(Str::new).collect()
}

/// One field of each of a list.
fn texts_of_field(list: &[Tree], field: &str) -> Vec<Str> {
    list.iter().map(|one| Str::new(one.str(field))).collect()
}
