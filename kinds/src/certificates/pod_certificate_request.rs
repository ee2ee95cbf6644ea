//! PodCertificateRequest.

use crate::kind::{Kind, Subresource, Verb, column, selectable};

pub static KIND: Kind = Kind {
    subresources: &[Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] }],
    columns: &[
        column("Name", "string", "name", 0),
        column("PodName", "string", "", 0),
        column("ServiceAccountName", "string", "", 0),
        column("NodeName", "string", "", 0),
        column("SignerName", "string", "", 0),
        column("State", "string", "", 0),
        column("UnverifiedUserAnnotations", "string", "", 0),
    ],
    selectable: &[selectable("spec.signerName"), selectable("spec.podName"), selectable("spec.nodeName")],
    ..Kind::namespaced(
        "certificates.k8s.io",
        "v1",
        "PodCertificateRequest",
        "podcertificaterequests",
        "podcertificaterequest",
    )
};
