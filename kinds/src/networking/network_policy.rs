//! NetworkPolicy.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["netpol"],
    columns: &[
        column("Name", "string", "name", 0),
        column("Pod-Selector", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "networkpolicy")
};
