//! DeviceClass.

use crate::kind::Kind;

pub static KIND: Kind =
    Kind { ..Kind::cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "deviceclass") };
