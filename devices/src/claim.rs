//! Resource claims: what they request, what they were allocated, and who may use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::quantity::Quantity;
use api::time::{self, Timestamp};
use api::{Str, Tree};
use podmodel::NodeSelector;

use crate::class::read_selectors;
use crate::slice::read_amounts;
use crate::taints::DeviceToleration;
use crate::{DeviceId, texts};

/// The finalizer of allocated claims.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of claims that the scheduler creates for extended resources.
pub const EXTENDED_RESOURCE_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// How many devices a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    ExactCount,
    All,
    /// A mode that a newer version may know.
    Unknown,
}

/// A request for devices of a class, or one of several alternatives.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceRequest {
    /// The name of an alternative; that of the request otherwise.
    pub name: Str,
    pub class: Str,
    pub mode: Mode,
    pub count: i64,
    pub admin_access: bool,
    pub selectors: Vec<Arc<str>>,
    pub tolerations: Vec<DeviceToleration>,
    /// The tolerations as they are written, of which allocations get a copy.
    pub written_tolerations: Vec<Tree>,
    pub capacity: BTreeMap<Str, Quantity>,
}

impl DeviceRequest {
    fn read(name: &str, request: &Tree) -> DeviceRequest {
        let mode = match request.str("allocationMode") {
            "ExactCount" | "" => Mode::ExactCount,
            "All" => Mode::All,
            _ => Mode::Unknown,
        };
        DeviceRequest {
            name: Str::new(name),
            class: Str::new(request.str("deviceClassName")),
            mode,
            count: request.int("count").unwrap_or(1),
            admin_access: request.bool("adminAccess"),
            selectors: read_selectors(request.list("selectors")),
            tolerations: request.list("tolerations").iter().map(DeviceToleration::read).collect(),
            written_tolerations: request.list("tolerations").to_vec(),
            capacity: read_amounts(request, "capacity.requests"),
        }
    }
}

/// A request of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub name: Str,
    /// Whether the first alternative that can be allocated is used (`firstAvailable`).
    pub is_list: bool,
    /// One, if it is not a list.
    pub alternatives: Vec<DeviceRequest>,
}

impl Request {
    fn read(request: &Tree) -> Request {
        let name = request.str("name");
        let list = request.list("firstAvailable");
        let alternatives = if list.is_empty() {
            request.get("exactly").map(|exactly| DeviceRequest::read(name, exactly)).into_iter().collect()
        } else {
            list.iter().map(|one| DeviceRequest::read(one.str("name"), one)).collect()
        };
        Request { name: Str::new(name), is_list: !list.is_empty(), alternatives }
    }

    /// The name of an alternative in allocations.
    pub fn name_of(&self, alternative: usize) -> Str {
        match self.alternatives.get(alternative).filter(|_| self.is_list) {
            Some(one) => Str::from(format!("{}/{}", self.name, one.name)),
            None => self.name.clone(),
        }
    }
}

/// A constraint between the devices of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConstraintSpec {
    /// The requests that it is for; all, if it is empty.
    pub(crate) requests: Vec<Str>,
    pub(crate) attribute: Str,
    /// Whether values must differ rather than be equal.
    pub(crate) is_distinct: bool,
}

/// A configuration of a claim.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConfigSpec {
    pub(crate) requests: Vec<Str>,
    pub(crate) written: Tree,
}

/// A device of an allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocatedDevice {
    pub request: Str,
    pub id: DeviceId,
    /// Devices with admin access are not taken from others.
    pub admin_access: bool,
    /// Of a device that several claims share.
    pub share: Option<Str>,
    pub consumed: BTreeMap<Str, Quantity>,
    pub tolerations: Vec<DeviceToleration>,
    pub(crate) binding_conditions: Vec<Str>,
    pub(crate) binding_failure_conditions: Vec<Str>,
}

/// The devices of a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    pub devices: Vec<AllocatedDevice>,
    /// The nodes on which they are available; None for all.
    pub nodes: Option<NodeSelector>,
    pub at: Option<Timestamp>,
}

impl Allocation {
    /// Reads `status.allocation`.
    pub fn read(allocation: &Tree) -> Allocation {
        let device = |one: &Tree| AllocatedDevice {
            request: Str::new(one.str("request")),
            id: DeviceId::read(one),
            admin_access: one.bool("adminAccess"),
            share: one.at("shareID").as_str().map(Str::new),
            consumed: read_amounts(one, "consumedCapacity"),
            tolerations: one.list("tolerations").iter().map(DeviceToleration::read).collect(),
            binding_conditions: texts(one.list("bindingConditions")),
            binding_failure_conditions: texts(one.list("bindingFailureConditions")),
        };
        Allocation {
            devices: allocation.list("devices.results").iter().map(device).collect(),
            nodes: allocation.get("nodeSelector").map(NodeSelector::read),
            at: time::parse(allocation.str("allocationTimestamp")).ok(),
        }
    }

    /// Whether devices have to be attached before the pod is bound.
    pub fn has_binding_conditions(&self) -> bool {
        self.devices.iter().any(|device| !device.binding_conditions.is_empty())
    }
}

/// Who uses a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    pub group: Str,
    pub resource: Str,
    pub name: Str,
    pub uid: Str,
}

/// What a driver says of an allocated device: its conditions, with their status, reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    pub(crate) id: DeviceId,
    pub(crate) conditions: Vec<(Str, bool, Str, Str)>,
}

/// A resource claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// `namespace/name`
    pub key: Str,
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub version: Str,
    pub is_terminating: bool,
    /// The uid of the controlling owner.
    pub controller: Option<Str>,
    /// Whether the scheduler created it for extended resources.
    pub is_for_extended_resources: bool,
    pub requests: Vec<Request>,
    pub(crate) constraints: Vec<ConstraintSpec>,
    pub(crate) config: Vec<ConfigSpec>,
    pub allocation: Option<Arc<Allocation>>,
    pub reserved_for: Vec<Reservation>,
    pub device_statuses: Vec<DeviceStatus>,
}

impl Claim {
    /// Reads a ResourceClaim.
    pub fn read(claim: &Tree) -> Claim {
        let meta = claim.at("metadata");
        let spec = claim.at("spec.devices");
        let text = |field: &str| Str::new(meta.str(field));
        let owner = meta.list("ownerReferences").iter().find(|owner| owner.bool("controller"));
        let annotation = meta.map("annotations").get(EXTENDED_RESOURCE_CLAIM);
        Claim {
            key: Str::from(format!("{}/{}", meta.str("namespace"), meta.str("name"))),
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            version: text("resourceVersion"),
            is_terminating: meta.has("deletionTimestamp"),
            controller: owner.map(|owner| Str::new(owner.str("uid"))),
            is_for_extended_resources: annotation.and_then(Tree::as_str) == Some("true"),
            requests: spec.list("requests").iter().map(Request::read).collect(),
            constraints: spec.list("constraints").iter().map(read_constraint).collect(),
            config: spec.list("config").iter().map(read_config).collect(),
            allocation: claim
                .get("status")
                .and_then(|status| status.get("allocation"))
                .map(Allocation::read)
                .map(Arc::new),
            reserved_for: claim.list("status.reservedFor").iter().map(read_reservation).collect(),
            device_statuses: claim.list("status.devices").iter().map(read_status).collect(),
        }
    }

    /// Whether a pod of this uid may use the claim.
    pub fn is_reserved_for(&self, uid: &str) -> bool {
        self.reserved_for.iter().any(|consumer| consumer.uid == uid)
    }
}

fn read_constraint(constraint: &Tree) -> ConstraintSpec {
    let distinct = constraint.at("distinctAttribute").as_str();
    ConstraintSpec {
        requests: texts(constraint.list("requests")),
        attribute: Str::new(distinct.unwrap_or_else(|| constraint.str("matchAttribute"))),
        is_distinct: distinct.is_some(),
    }
}

fn read_config(config: &Tree) -> ConfigSpec {
    ConfigSpec { requests: texts(config.list("requests")), written: config.clone() }
}

fn read_reservation(consumer: &Tree) -> Reservation {
    let text = |field: &str| Str::new(consumer.str(field));
    Reservation { group: text("apiGroup"), resource: text("resource"), name: text("name"), uid: text("uid") }
}

fn read_status(status: &Tree) -> DeviceStatus {
    let condition = |one: &Tree| {
        let text = |field: &str| Str::new(one.str(field));
        (text("type"), one.str("status") == "True", text("reason"), text("message"))
    };
    DeviceStatus { id: DeviceId::read(status), conditions: status.list("conditions").iter().map(condition).collect() }
}
