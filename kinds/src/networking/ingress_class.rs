//! IngressClass.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Controller", "string", "", 0),
        column("Parameters", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "ingressclass")
};
