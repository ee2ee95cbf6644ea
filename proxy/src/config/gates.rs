//! The feature gates of the proxy, with their state here.

use client::gates::Gates;

/// Sorted by name. None can be changed.
pub static GATES: Gates = &[
    ("AllAlpha", false),
    ("AllowServiceExternalIPs", true),
    ("ContextualLogging", true),
    ("KubeProxyIPVS", false),
    ("KubeProxyNFTablesLocalhostNodePorts", false),
    ("LoadBalancerIPMode", true),
    ("MultiCIDRServiceAllocator", true),
    ("NFTablesProxyMode", true),
    ("PreferSameTrafficDistribution", true),
    ("ServiceTrafficDistribution", true),
    ("TopologyAwareHints", true),
    ("WatchListClient", false),
];
