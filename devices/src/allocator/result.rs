//! Allocations as they are written into the status of claims.

use std::collections::{BTreeMap, BTreeSet};

use api::quantity::Quantity;
use api::{Map, Str, Tree, tree};

use super::AllocationError;
use super::plan::RequestPlan;
use super::search::Taken;
use crate::pools::Pool;
use crate::slice::NodeScope;
use crate::{AllocatedDevice, Allocation, Claim, DeviceId};

/// A device of an allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceAllocation {
    pub request: Str,
    pub id: DeviceId,
    admin_access: bool,
    /// What is consumed of a device that several claims share.
    share: Option<BTreeMap<Str, Quantity>>,
    tolerations: Vec<Tree>,
    binding_conditions: Vec<Str>,
    binding_failure_conditions: Vec<Str>,
}

/// The devices of a claim, their configuration, and the nodes on which they are available.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimAllocation {
    pub devices: Vec<DeviceAllocation>,
    config: Vec<Tree>,
    /// Null if the devices are available on all nodes.
    node_selector: Tree,
    /// By request with alternatives: the one that was chosen.
    pub alternatives: Vec<usize>,
}

impl ClaimAllocation {
    /// The `allocation` of a claim's status. Each share of a device gets an identifier.
    pub fn to_tree(&self, mut share_id: impl FnMut() -> Str) -> Tree {
        let results: Vec<Tree> = self.devices.iter().map(|device| device.to_tree(&mut share_id)).collect();
        let mut devices = tree! { "results" => results };
        if !self.config.is_empty() {
            devices.set("config", self.config.clone());
        }
        let mut allocation = tree! { "devices" => devices };
        if !self.node_selector.is_null() {
            allocation.set("nodeSelector", self.node_selector.clone());
        }
        allocation
    }

    /// What is allocated, with placeholders for the identifiers of shares.
    pub fn to_allocation(&self) -> Allocation {
        let device = |one: &DeviceAllocation| AllocatedDevice {
            request: one.request.clone(),
            id: one.id.clone(),
            admin_access: one.admin_access,
            share: one.share.as_ref().map(|_| Str::default()),
            consumed: one.share.clone().unwrap_or_default(),
            tolerations: Vec::new(),
            binding_conditions: one.binding_conditions.clone(),
            binding_failure_conditions: one.binding_failure_conditions.clone(),
        };
        Allocation { devices: self.devices.iter().map(device).collect(), nodes: None, at: None }
    }
}

impl DeviceAllocation {
    fn to_tree(&self, share_id: &mut impl FnMut() -> Str) -> Tree {
        let mut result = tree! {
            "request" => self.request.clone(),
            "driver" => self.id.driver.clone(),
            "pool" => self.id.pool.clone(),
            "device" => self.id.device.clone(),
        };
        if self.admin_access {
            result.set("adminAccess", true);
        }
        let texts = |list: &[Str]| list.iter().map(|text| Tree::from(text.clone())).collect::<Vec<_>>();
        let lists = [
            ("tolerations", self.tolerations.clone()),
            ("bindingConditions", texts(&self.binding_conditions)),
            ("bindingFailureConditions", texts(&self.binding_failure_conditions)),
        ];
        for (field, list) in lists {
            if !list.is_empty() {
                result.set(field, list);
            }
        }
        if let Some(consumed) = &self.share {
            result.set("shareID", share_id());
            if !consumed.is_empty() {
                let mut amounts = Tree::Map(Map::default());
                consumed.iter().for_each(|(name, amount)| amounts.set(name, amount.to_string()));
                result.set("consumedCapacity", amounts);
            }
        }
        result
    }
}

/// The result of a search for one claim. The plans come with the alternative that was chosen for each request.
pub(super) fn allocation(
    claim: &Claim,
    (plans, chosen): (&[Vec<RequestPlan>], &[usize]),
    taken: &[Taken],
    pools: &[Pool],
    node: &str,
) -> Result<ClaimAllocation, AllocationError> {
    let device = |one: &Taken| {
        let (slice, device) = one.location.in_pools(pools);
        let request = &claim.requests[one.at.request];
        let alternative = &request.alternatives[one.at.alternative];
        DeviceAllocation {
            request: request.name_of(one.at.alternative),
            id: slice.id_of(device),
            admin_access: alternative.admin_access,
            share: one.share.clone(),
            tolerations: alternative.written_tolerations.clone(),
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
        }
    };
    Ok(ClaimAllocation {
        devices: taken.iter().map(device).collect(),
        config: config(claim, plans, chosen),
        node_selector: node_selector(claim, taken, pools, node)?,
        alternatives: chosen.to_vec(),
    })
}

/// The configuration of the classes, each once, and then that of the claim.
fn config(claim: &Claim, plans: &[Vec<RequestPlan>], chosen: &[usize]) -> Vec<Tree> {
    let names: Vec<Str> = claim.requests.iter().zip(chosen).map(|(request, one)| request.name_of(*one)).collect();
    let mut configs: Vec<(&str, Vec<Str>, &Tree)> = Vec::new();
    let mut classes: BTreeMap<&Str, std::ops::Range<usize>> = BTreeMap::new();
    for ((plans, chosen), name) in plans.iter().zip(chosen).zip(&names) {
        let Some(class) = plans.get(*chosen).map(|plan| &plan.class) else { continue };
        if let Some(range) = classes.get(&class.name) {
            configs[range.clone()].iter_mut().for_each(|(_, requests, _)| requests.push(name.clone()));
            continue;
        }
        let start = configs.len();
        configs.extend(class.config.iter().map(|config| ("FromClass", vec![name.clone()], config)));
        classes.insert(&class.name, start..configs.len());
    }
    let is_used = |requests: &[Str]| {
        let mut all = claim.requests.iter().zip(&names);
        requests.is_empty() || all.any(|(request, name)| requests.contains(&request.name) || requests.contains(name))
    };
    let own = claim.config.iter().filter(|config| is_used(&config.requests));
    configs.extend(own.map(|config| ("FromClaim", config.requests.clone(), &config.written)));
    let shown = |(source, requests, written): (&str, Vec<Str>, &Tree)| {
        let mut all = claim.requests.iter().zip(&names);
        let is_for_all = all.all(|(request, name)| requests.contains(&request.name) || requests.contains(name));
        let requests = if is_for_all { Vec::new() } else { requests };
        show(source, requests, written)
    };
    configs.into_iter().map(shown).collect()
}

fn show(source: &str, requests: Vec<Str>, written: &Tree) -> Tree {
    let mut config = tree! { "source" => source };
    if !requests.is_empty() {
        config.set("requests", requests.into_iter().map(Tree::from).collect::<Vec<_>>());
    }
    for (field, value) in written.as_map().into_iter().flat_map(Map::iter).filter(|(field, _)| *field != "requests") {
        config.set(field, value.clone());
    }
    config
}

/// Where the devices are available: on the node if one of them is local to it, else where all selectors of their
/// slices match.
fn node_selector(claim: &Claim, taken: &[Taken], pools: &[Pool], node: &str) -> Result<Tree, AllocationError> {
    let (mut fields, mut labels) = (Vec::new(), Vec::new());
    for one in taken {
        let (slice, device) = one.location.in_pools(pools);
        let scope = slice.scope_of(device);
        if device.binds_to_node || matches!(scope, NodeScope::Node(_)) {
            return Ok(only(node));
        }
        let NodeScope::Selector(_, written) = scope else { continue };
        match written.list("nodeSelectorTerms") {
            [] => {}
            [term] => {
                add_new(&mut fields, term.list("matchFields"));
                add_new(&mut labels, term.list("matchExpressions"));
            }
            terms => {
                return Err(AllocationError::NodeSelector { claim: claim.name.to_string(), terms: terms.len() });
            }
        }
    }
    let mut term = Tree::Map(Map::default());
    for (field, requirements) in [("matchExpressions", labels), ("matchFields", fields)] {
        if !requirements.is_empty() {
            term.set(field, requirements);
        }
    }
    let is_empty = term.as_map().is_none_or(Map::is_empty);
    Ok(if is_empty {
        Tree::Null
    } else {
        tree! { "nodeSelectorTerms" => vec![term] }
    })
}

fn only(node: &str) -> Tree {
    let name = tree! { "key" => "metadata.name", "operator" => "In", "values" => vec![Tree::from(node)] };
    tree! { "nodeSelectorTerms" => vec![tree! { "matchFields" => vec![name] }] }
}

/// Adds requirements that are not there yet.
fn add_new(all: &mut Vec<Tree>, requirements: &[Tree]) {
    let values = |one: &Tree| one.list("values").iter().filter_map(Tree::as_str).map(Str::new).collect::<BTreeSet<_>>();
    for one in requirements {
        let is_known = all.iter().any(|known: &Tree| {
            known.str("key") == one.str("key")
                && known.str("operator") == one.str("operator")
                && values(known) == values(one)
        });
        if !is_known {
            all.push(one.clone());
        }
    }
}
