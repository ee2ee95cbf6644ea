//! ClusterTrustBundle.

use crate::kind::{Kind, column, selectable};

pub static KIND: Kind = Kind {
    columns: &[column("Name", "string", "name", 0), column("SignerName", "string", "", 0)],
    selectable: &[selectable("spec.signerName")],
    ..Kind::cluster("certificates.k8s.io", "v1", "ClusterTrustBundle", "clustertrustbundles", "clustertrustbundle")
};
