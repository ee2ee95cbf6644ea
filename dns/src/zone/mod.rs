//! The names of a cluster by the Kubernetes DNS specification 1.1: an index of Services, EndpointSlices, Pods and
//! Namespaces, and the records of a question. Pure: the module is independent of the API client and sockets.

mod answer;
mod index;
mod objects;
mod request;
mod reverse;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Zone, answer};
pub use index::{Index, Writer};
pub use objects::{Endpoint, Pod, Port, Service, ServiceKind, Slice};
pub use reverse::{address_of, name_of};

/// Which pod addresses are answered below `pod.ZONE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PodMode {
    /// None.
    #[default]
    Disabled,
    /// Every address in the name, whether or not a pod has it.
    Insecure,
    /// The addresses of existing pods.
    Verified,
}
