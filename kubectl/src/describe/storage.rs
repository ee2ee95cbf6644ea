//! Volumes, claims and classes of storage.

use api::Tree;

use super::values::{age, bool_or_unset, format_labels, int, is_set, long_time, text, text_or, texts};
use super::volumes;
use super::workloads::go_list;
use super::writer::{Writer, put};

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn annotation<'t>(object: &'t Tree, key: &str) -> Option<&'t str> {
    object.at("metadata.annotations").get(key).and_then(Tree::as_str)
}

/// The class of a volume or a claim.
fn class(object: &Tree) -> String {
    annotation(object, CLASS).map_or_else(|| text(object, "spec.storageClassName"), str::to_string)
}

fn access_modes(object: &Tree, path: &str) -> String {
    let modes = texts(object, path);
    let names =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let found = names.iter().filter(|(mode, _)| modes.iter().any(|known| known == mode));
    found.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

fn status(w: &mut Writer, object: &Tree, now: i64) {
    match object.str("metadata.deletionTimestamp") {
        "" => w.field("Status", object.str("status.phase")),
        time => w.field("Status", format!("Terminating (lasts {})", age(time, now))),
    }
}

pub(super) fn volume(w: &mut Writer, object: &Tree, now: i64) {
    w.field("Name", object.str("metadata.name"));
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    w.field("Finalizers", go_list(object, "metadata.finalizers"));
    w.field("StorageClass", class(object));
    status(w, object, now);
    let spec = object.at("spec");
    let claim = match spec.at("claimRef") {
        Tree::Null => String::new(),
        claim => format!("{}/{}", claim.str("namespace"), claim.str("name")),
    };
    w.field("Claim", claim);
    w.field("Reclaim Policy", spec.str("persistentVolumeReclaimPolicy"));
    w.field("Access Modes", access_modes(spec, "accessModes"));
    super::pod::optional(w, spec, &[("VolumeMode", "volumeMode")]);
    w.field("Capacity", text_or(spec, "capacity.storage", "0"));
    affinity(w, spec.at("nodeAffinity.required"));
    w.field("Message", text(object, "status.message"));
    w.write(0, "Source:\n");
    volumes::source(w, spec);
}

fn affinity(w: &mut Writer, required: &Tree) {
    w.write(0, "Node Affinity:\t");
    if required.is_null() {
        return w.write(0, "<none>\n");
    }
    w.write(0, "\n");
    w.write(1, "Required Terms:\t");
    let terms = required.list("nodeSelectorTerms");
    w.write(0, if terms.is_empty() { "<none>\n" } else { "\n" });
    for (at, term) in terms.iter().enumerate() {
        requirements(w, 2, &format!("Term {at}"), term.list("matchExpressions"), |requirement| {
            requirement.str("operator").to_lowercase()
        });
    }
}

fn requirements(w: &mut Writer, level: usize, title: &str, list: &[Tree], operator: impl Fn(&Tree) -> String) {
    put!(w, level, "{title}:\t");
    if list.is_empty() {
        return w.write(0, "<none>\n");
    }
    for (at, requirement) in list.iter().enumerate() {
        if at > 0 {
            w.write(level, "\t");
        }
        let values = texts(requirement, "values");
        let values = if values.is_empty() { String::new() } else { format!(" [{}]", values.join(", ")) };
        put!(w, 0, "{} {}{values}\n", requirement.str("key"), operator(requirement));
    }
}

/// A claim, or the template of an ephemeral volume.
pub(super) fn claim(w: &mut Writer, object: &Tree, is_full: bool, now: i64) {
    if is_full {
        w.field("Name", object.str("metadata.name"));
        w.field("Namespace", object.str("metadata.namespace"));
    }
    w.field("StorageClass", class(object));
    if is_full {
        status(w, object, now);
    }
    let volume = object.str("spec.volumeName");
    w.field("Volume", volume);
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    if is_full {
        w.field("Finalizers", go_list(object, "metadata.finalizers"));
    }
    let is_bound = !volume.is_empty();
    let capacity = if is_bound { text_or(object, "status.capacity.storage", "0") } else { String::new() };
    w.field("Capacity", capacity);
    w.field("Access Modes", if is_bound { access_modes(object, "status.accessModes") } else { String::new() });
    super::pod::optional(w, object, &[("VolumeMode", "spec.volumeMode")]);
    let source = object.at("spec.dataSource");
    if source.is_null() {
        return;
    }
    w.write(0, "DataSource:\n");
    for (title, field) in [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")] {
        if title != "APIGroup" || is_set(source, field) {
            put!(w, 1, "{title}:\t{}\n", text(source, field));
        }
    }
}

/// What follows a claim: who uses it, and its conditions.
pub(super) fn claim_use(w: &mut Writer, object: &Tree, pods: &[Tree]) {
    let name = object.str("metadata.name");
    let owners = object.list("metadata.ownerReferences");
    let uses = |pod: &&Tree| {
        let mut volumes = pod.list("spec.volumes").iter();
        let is_owner = |owner: &Tree| owner.str("kind") == "Pod" && owner.str("uid") == pod.str("metadata.uid");
        volumes.any(|volume| volume.str("persistentVolumeClaim.claimName") == name) || owners.iter().any(is_owner)
    };
    let mut names: Vec<String> = pods.iter().filter(uses).map(|pod| pod.str("metadata.name").to_string()).collect();
    names.sort();
    w.multiline("", "Used By", names);
    let conditions = object.list("status.conditions");
    if !conditions.is_empty() {
        w.write(0, "Conditions:\n");
        w.write(1, "Type\tStatus\tLastProbeTime\tLastTransitionTime\tReason\tMessage\n");
        w.write(1, "----\t------\t-----------------\t------------------\t------\t-------\n");
    }
    for condition in conditions {
        let (probed, changed) = (condition.str("lastProbeTime"), condition.str("lastTransitionTime"));
        let (kind, status) = (condition.str("type"), condition.str("status"));
        let (reason, message) = (condition.str("reason"), condition.str("message"));
        put!(w, 1, "{kind} \t{status} \t{} \t{} \t{reason} \t{message}\n", long_time(probed), long_time(changed));
    }
}

pub(super) fn claim_templates(w: &mut Writer, templates: &[Tree]) {
    w.write(0, if templates.is_empty() { "Volume Claims:\t<none>\n" } else { "Volume Claims:\n" });
    for template in templates {
        put!(w, 1, "Name:\t{}\n", template.str("metadata.name"));
        put!(w, 1, "StorageClass:\t{}\n", class(template));
        w.labels_with("  ", "Labels", template.map("metadata.labels"));
        w.labels_with("  ", "Annotations", template.map("metadata.annotations"));
        put!(w, 1, "Capacity:\t{}\n", text_or(template, "spec.resources.requests.storage", "<default>"));
        put!(w, 1, "Access Modes:\t{}\n", go_list(template, "spec.accessModes"));
    }
}

pub(super) fn storage_class(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    let keys = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let is_default = keys.iter().any(|key| annotation(object, key) == Some("true"));
    w.field("IsDefaultClass", if is_default { "Yes" } else { "No" });
    w.field("Annotations", format_labels(object.map("metadata.annotations")));
    w.field("Provisioner", object.str("provisioner"));
    w.field("Parameters", format_labels(object.map("parameters")));
    w.field("AllowVolumeExpansion", bool_or_unset(object, "allowVolumeExpansion"));
    let options = texts(object, "mountOptions");
    w.write(0, if options.is_empty() { "MountOptions:\t<none>\n" } else { "MountOptions:\n" });
    for option in options {
        put!(w, 1, "{option}\n");
    }
    super::pod::optional(w, object, &[("ReclaimPolicy", "reclaimPolicy"), ("VolumeBindingMode", "volumeBindingMode")]);
    if !is_set(object, "allowedTopologies") {
        return;
    }
    w.write(0, "AllowedTopologies:\t");
    let terms = object.list("allowedTopologies");
    w.write(0, if terms.is_empty() { "<none>\n" } else { "\n" });
    for (at, term) in terms.iter().enumerate() {
        requirements(w, 1, &format!("Term {at}"), term.list("matchLabelExpressions"), |_| "in".to_string());
    }
}

pub(super) fn attributes_class(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Annotations", format_labels(object.map("metadata.annotations")));
    w.field("DriverName", object.str("driverName"));
    w.field("Parameters", format_labels(object.map("parameters")));
}

pub(super) fn csi_node(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    w.field("CreationTimestamp", long_time(object.str("metadata.creationTimestamp")));
    w.write(0, "Spec:\n");
    if is_set(object, "spec.drivers") {
        w.write(1, "Drivers:\n");
    }
    for driver in object.list("spec.drivers") {
        put!(w, 2, "{}:\n", driver.str("name"));
        put!(w, 3, "Node ID:\t{}\n", driver.str("nodeID"));
        if is_set(driver, "allocatable.count") {
            w.write(3, "Allocatables:\n");
            put!(w, 4, "Count:\t{}\n", int(driver, "allocatable.count"));
        }
        if is_set(driver, "topologyKeys") {
            put!(w, 3, "Topology Keys:\t{}\n", go_list(driver, "topologyKeys"));
        }
    }
}

/// The data of a secret: the sizes, but for the token of a service account.
pub(super) fn secret(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    put!(w, 0, "\nType:\t{}\n", object.str("type"));
    w.write(0, "\nData\n====\n");
    for (key, value) in object.map("data").iter() {
        let bytes = api::base64::decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        if key == "token" && object.str("type") == "kubernetes.io/service-account-token" {
            put!(w, 0, "{key}:\t{}\n", String::from_utf8_lossy(&bytes));
        } else {
            put!(w, 0, "{key}:\t{} bytes\n", bytes.len());
        }
    }
}

pub(super) fn config_map(w: &mut Writer, object: &Tree) {
    w.field("Name", object.str("metadata.name"));
    w.field("Namespace", object.str("metadata.namespace"));
    w.labels("Labels", object.map("metadata.labels"));
    w.annotations("Annotations", object.map("metadata.annotations"));
    w.write(0, "\nData\n====\n");
    for (key, value) in object.map("data").iter() {
        put!(w, 0, "{key}:\n----\n{}\n\n", value.as_str().unwrap_or_default());
    }
    w.write(0, "\nBinaryData\n====\n");
    for (key, value) in object.map("binaryData").iter() {
        let bytes = api::base64::decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        put!(w, 0, "{key}: {} bytes\n", bytes.len());
    }
    w.write(0, "\n");
}
