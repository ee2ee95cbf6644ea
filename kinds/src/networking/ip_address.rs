//! IPAddress.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["ip"],
    columns: &[column("Name", "string", "name", 0), column("ParentRef", "string", "", 0)],
    ..Kind::cluster("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ipaddress")
};
