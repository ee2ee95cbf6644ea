//! The names of pools and devices.

use std::fmt;

use api::{Str, Tree};

/// The name of a pool: pools of different drivers are different.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    pub driver: Str,
    pub pool: Str,
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

/// The name of a device in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    pub driver: Str,
    pub pool: Str,
    pub device: Str,
}

impl DeviceId {
    /// A device of a pool.
    pub fn new(driver: &str, pool: &str, device: &str) -> DeviceId {
        DeviceId { driver: Str::new(driver), pool: Str::new(pool), device: Str::new(device) }
    }

    /// Reads the fields `driver`, `pool` and `device`.
    pub fn read(tree: &Tree) -> DeviceId {
        DeviceId::new(tree.str("driver"), tree.str("pool"), tree.str("device"))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}
