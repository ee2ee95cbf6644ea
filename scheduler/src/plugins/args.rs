//! The arguments of plugins, which a configuration sets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::{Str, Tree};
use stdx::sync::Mutex;

use super::default_preemption::DefaultPreemption;
use super::dynamic_resources::{BINDING_TIMEOUT, DeviceState};
use super::node_resources_balanced_allocation::NodeResourcesBalancedAllocation;
use super::node_resources_fit::NodeResourcesFit;
use super::volume_binding::AssumeCache;

/// The arguments of plugins.
pub(crate) struct Args {
    pub preemption: DefaultPreemption,
    pub hard_pod_affinity_weight: i64,
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// A NodeAffinity.
    pub added_affinity: Tree,
    pub balanced_allocation: NodeResourcesBalancedAllocation,
    pub fit: NodeResourcesFit,
    /// None for the system defaults.
    pub default_constraints: Option<Vec<Tree>>,
    pub bind_timeout: Duration,
    /// How long a pod waits for its devices to be attached.
    pub device_binding_timeout: Duration,
    pub shared: Shared,
}

/// Shared by the plugins of all profiles.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) devices: Arc<DeviceState>,
    pub(crate) volumes: Arc<Mutex<AssumeCache>>,
    /// Resources that extenders manage and the scheduler ignores.
    pub(crate) left_to_extenders: BTreeSet<Str>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { devices: Arc::new(DeviceState::new()), volumes: Arc::default(), left_to_extenders: BTreeSet::new() }
    }
}

impl Default for Args {
    fn default() -> Args {
        Args::with(Shared::default())
    }
}

impl Args {
    pub(crate) fn with(shared: Shared) -> Args {
        Args {
            preemption: DefaultPreemption::default(),
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
            added_affinity: Tree::Null,
            balanced_allocation: NodeResourcesBalancedAllocation::default(),
            fit: NodeResourcesFit { ignored: shared.left_to_extenders.clone(), ..NodeResourcesFit::default() },
            default_constraints: None,
            bind_timeout: Duration::from_secs(600),
            device_binding_timeout: BINDING_TIMEOUT,
            shared,
        }
    }
}
