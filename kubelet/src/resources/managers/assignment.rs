//! Resources that are assigned to a container.

use super::devices::wire::ContainerAllocateResponse;

/// Resources of a container in addition to its pod's spec.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignment {
    pub(crate) cpus: String,
    pub(crate) memory_nodes: String,
    /// Its CPUs are exclusive, so that it has no quota.
    pub(crate) has_cpus: bool,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) mounts: Vec<cri::Mount>,
    pub(crate) devices: Vec<cri::Device>,
    pub(crate) annotations: Vec<(String, String)>,
    pub(crate) cdi_devices: Vec<cri::CDIDevice>,
}

impl Assignment {
    /// Adds a plugin's response.
    pub(crate) fn add(&mut self, answer: ContainerAllocateResponse) {
        self.env.extend(answer.envs);
        self.annotations.extend(answer.annotations);
        self.mounts.extend(answer.mounts.into_iter().map(|mount| cri::Mount {
            container_path: mount.container_path,
            host_path: mount.host_path,
            readonly: mount.read_only,
            ..Default::default()
        }));
        self.devices.extend(answer.devices.into_iter().map(|device| cri::Device {
            container_path: device.container_path,
            host_path: device.host_path,
            permissions: device.permissions,
        }));
        // Two resources may name the same one.
        for device in answer.cdi_devices {
            if !self.cdi_devices.iter().any(|known| known.name == device.name) {
                self.cdi_devices.push(cri::CDIDevice { name: device.name });
            }
        }
    }
}
