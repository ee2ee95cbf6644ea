//! CertificateSigningRequest.

use crate::kind::{Kind, Subresource, Verb, column, selectable};

pub static KIND: Kind = Kind {
    short_names: &["csr"],
    subresources: &[
        Subresource { name: "approval", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
        Subresource { name: "status", gvk: None, verbs: &[Verb::Get, Verb::Patch, Verb::Update] },
    ],
    columns: &[
        column("Name", "string", "name", 0),
        column("Age", "string", "", 0),
        column("SignerName", "string", "", 0),
        column("Requestor", "string", "", 0),
        column("RequestedDuration", "string", "", 0),
        column("Condition", "string", "", 0),
    ],
    selectable: &[selectable("spec.signerName")],
    ..Kind::cluster(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "certificatesigningrequest",
    )
};
