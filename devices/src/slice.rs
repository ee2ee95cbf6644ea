//! Resource slices: the devices of a pool, and the nodes on which they are available.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use api::{Str, Tree};
use podmodel::{Node, NodeSelector};

use crate::taints::DeviceTaint;
use crate::{DeviceId, PoolId, quantities, quantity, texts};

/// The nodes on which devices are available.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeScope {
    All,
    Node(Str),
    /// With the selector as it is written, of which allocations get a copy.
    Selector(NodeSelector, Tree),
    /// Each device has a scope of its own.
    PerDevice,
    /// A scope that a newer version may know: no node.
    Unknown,
}

impl NodeScope {
    fn read(tree: &Tree) -> NodeScope {
        if let Some(name) = tree.at("nodeName").as_str().filter(|name| !name.is_empty()) {
            NodeScope::Node(Str::new(name))
        } else if tree.bool("allNodes") {
            NodeScope::All
        } else if tree.has("nodeSelector") {
            let selector = tree.at("nodeSelector");
            NodeScope::Selector(NodeSelector::read(selector), selector.clone())
        } else {
            NodeScope::Unknown
        }
    }

    /// Whether a node is in the scope.
    pub fn contains(&self, node: &Node) -> bool {
        match self {
            NodeScope::All => true,
            NodeScope::Node(name) => *name == node.name,
            NodeScope::Selector(selector, _) => selector.matches(&node.name, &node.labels),
            NodeScope::PerDevice | NodeScope::Unknown => false,
        }
    }
}

/// An attribute of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    Int(i64),
    Bool(bool),
    Text(Str),
    Version(Str),
    List(Vec<Attribute>),
}

impl Attribute {
    fn read(attribute: &Tree) -> Option<Attribute> {
        for (field, read) in LISTS {
            if attribute.has(field) {
                return Some(Attribute::List(attribute.list(field).iter().filter_map(read).collect()));
            }
        }
        SCALARS.iter().find_map(|(field, read)| read(attribute.at(field)))
    }
}

type ReadAttribute = fn(&Tree) -> Option<Attribute>;
const INT: ReadAttribute = |value| value.as_int().map(Attribute::Int);
const BOOL: ReadAttribute = |value| value.as_bool().map(Attribute::Bool);
const TEXT: ReadAttribute = |value| value.as_str().map(|text| Attribute::Text(Str::new(text)));
const VERSION: ReadAttribute = |value| value.as_str().map(|text| Attribute::Version(Str::new(text)));
const SCALARS: [(&str, ReadAttribute); 4] = [("int", INT), ("bool", BOOL), ("string", TEXT), ("version", VERSION)];
const LISTS: [(&str, ReadAttribute); 4] = [("ints", INT), ("bools", BOOL), ("strings", TEXT), ("versions", VERSION)];

/// A capacity of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    pub value: Quantity,
    pub policy: Option<RequestPolicy>,
}

/// How much of a capacity claims can consume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestPolicy {
    pub default: Option<Quantity>,
    /// Sorted.
    pub valid_values: Option<Vec<Quantity>>,
    pub valid_range: Option<CapacityRange>,
}

/// A range of amounts: from `min` in steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapacityRange {
    pub min: Option<Quantity>,
    pub max: Option<Quantity>,
    pub step: Option<Quantity>,
}

impl Capacity {
    fn read(capacity: &Tree) -> Option<Capacity> {
        let policy = capacity.get("requestPolicy").map(|policy| {
            let range = |range: &Tree| CapacityRange {
                min: quantity(range.at("min")),
                max: quantity(range.at("max")),
                step: quantity(range.at("step")),
            };
            let values = || policy.list("validValues").iter().filter_map(quantity).collect();
            RequestPolicy {
                default: quantity(policy.at("default")),
                valid_values: policy.has("validValues").then(values),
                valid_range: policy.get("validRange").map(range),
            }
        });
        Some(Capacity { value: quantity(capacity.at("value"))?, policy })
    }
}

/// The counters of a set that a device consumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CounterConsumption {
    pub(crate) set: Str,
    pub(crate) counters: BTreeMap<Str, Quantity>,
}

/// A device that a driver has published.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    pub name: Str,
    /// By name, which has the driver's domain unless it has one of its own.
    pub attributes: BTreeMap<Str, Attribute>,
    pub capacity: BTreeMap<Str, Capacity>,
    /// Whether several claims can share it.
    pub allows_multiple: bool,
    pub(crate) consumes: Vec<CounterConsumption>,
    /// Only if the slice's scope is per device.
    pub(crate) nodes: NodeScope,
    pub taints: Vec<DeviceTaint>,
    /// Whether an allocation holds for one node only.
    pub(crate) binds_to_node: bool,
    pub(crate) binding_conditions: Vec<Str>,
    pub(crate) binding_failure_conditions: Vec<Str>,
}

impl Device {
    fn read(device: &Tree) -> Device {
        let attribute = |(name, one): (&str, &Tree)| Some((Str::new(name), Attribute::read(one)?));
        let capacity = |(name, one): (&str, &Tree)| Some((Str::new(name), Capacity::read(one)?));
        let consumption =
            |one: &Tree| CounterConsumption { set: Str::new(one.str("counterSet")), counters: read_counters(one) };
        Device {
            name: Str::new(device.str("name")),
            attributes: device.map("attributes").iter().filter_map(attribute).collect(),
            capacity: device.map("capacity").iter().filter_map(capacity).collect(),
            allows_multiple: device.bool("allowMultipleAllocations"),
            consumes: device.list("consumesCounters").iter().map(consumption).collect(),
            nodes: NodeScope::read(device),
            taints: device.list("taints").iter().map(DeviceTaint::read).collect(),
            binds_to_node: device.bool("bindsToNode"),
            binding_conditions: texts(device.list("bindingConditions")),
            binding_failure_conditions: texts(device.list("bindingFailureConditions")),
        }
    }

    /// An attribute by its full name: that of a driver's own domain may be written without it.
    pub fn attribute(&self, driver: &str, name: &str) -> Option<&Attribute> {
        self.attributes.get(name).or_else(|| {
            let (domain, id) = name.split_once('/')?;
            if domain == driver { self.attributes.get(id) } else { None }
        })
    }
}

/// A slice of the devices of a pool, or of its counters.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceSlice {
    pub name: Str,
    pub driver: Str,
    pub pool: Str,
    pub generation: i64,
    /// The number of slices of the pool in this generation.
    pub slice_count: i64,
    pub nodes: NodeScope,
    pub devices: Vec<Device>,
    /// Counters by set.
    pub(crate) counters: Vec<(Str, BTreeMap<Str, Quantity>)>,
}

impl ResourceSlice {
    /// Reads a ResourceSlice.
    pub fn read(slice: &Tree) -> ResourceSlice {
        let spec = slice.at("spec");
        let per_device = spec.bool("perDeviceNodeSelection");
        ResourceSlice {
            name: Str::new(slice.str("metadata.name")),
            driver: Str::new(spec.str("driver")),
            pool: Str::new(spec.str("pool.name")),
            generation: spec.int("pool.generation").unwrap_or(0),
            slice_count: spec.int("pool.resourceSliceCount").unwrap_or(0),
            nodes: if per_device { NodeScope::PerDevice } else { NodeScope::read(spec) },
            devices: spec.list("devices").iter().map(Device::read).collect(),
            counters: spec
                .list("sharedCounters")
                .iter()
                .map(|set| (Str::new(set.str("name")), read_counters(set)))
                .collect(),
        }
    }

    /// The pool of the slice.
    pub fn pool_id(&self) -> PoolId {
        PoolId { driver: self.driver.clone(), pool: self.pool.clone() }
    }

    /// The name of a device of the slice.
    pub fn id_of(&self, device: &Device) -> DeviceId {
        DeviceId { driver: self.driver.clone(), pool: self.pool.clone(), device: device.name.clone() }
    }

    /// Whether the slice has a device that is available on a node.
    pub(crate) fn is_relevant(&self, node: &Node) -> bool {
        match &self.nodes {
            NodeScope::PerDevice => self.devices.iter().any(|device| device.nodes.contains(node)),
            nodes => nodes.contains(node),
        }
    }

    /// The scope of one device.
    pub(crate) fn scope_of<'a>(&'a self, device: &'a Device) -> &'a NodeScope {
        if self.nodes == NodeScope::PerDevice { &device.nodes } else { &self.nodes }
    }
}

/// The `counters` of a set, each with a `value`.
fn read_counters(set: &Tree) -> BTreeMap<Str, Quantity> {
    let values =
        set.map("counters").iter().filter_map(|(name, one)| Some((Str::new(name), quantity(one.at("value"))?)));
    values.collect()
}

/// Amounts by capacity.
pub(crate) fn read_amounts(tree: &Tree, field: &str) -> BTreeMap<Str, Quantity> {
    quantities(tree.map(field))
}
