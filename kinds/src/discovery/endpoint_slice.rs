//! EndpointSlice.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("AddressType", "string", "", 0),
        column("Ports", "string", "", 0),
        column("Endpoints", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice")
};
