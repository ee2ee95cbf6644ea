//! VolumeAttributesClass.

use crate::kind::{Kind, column};

pub static KIND: Kind = Kind {
    short_names: &["vac"],
    columns: &[
        column("Name", "string", "name", 0),
        column("DriverName", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    ..Kind::cluster("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
};
