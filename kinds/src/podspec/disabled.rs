//! Fields of disabled features are dropped unless the stored object has them.

use api::Tree;

/// Drops disabled fields of a PodTemplateSpec; `old` is null on create.
pub(crate) fn drop_disabled_template(template: &mut Tree, old: &Tree) {
    if let Some(spec) = template.get_mut("spec") {
        drop_disabled(spec, old.at("spec"));
    }
}

/// Drops disabled fields of a spec.
pub(crate) fn drop_disabled(spec: &mut Tree, old: &Tree) {
    for key in ["schedulingGroup", "evictionResponders"] {
        if !old.has(key) {
            spec.remove(key);
        }
    }
    if !old.is_null() && uses_disabled(old) {
        return;
    }
    for volume in spec.list_mut("volumes") {
        drop_from_volume(volume);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.list_mut(list) {
            drop_from_container(container);
        }
    }
}

/// Fields of disabled features in volumes, projected sources and containers.
const OF_VOLUME: &[&str] = &[
    "emptyDir.mode",
    "secret.defaultUser",
    "configMap.defaultUser",
    "downwardAPI.defaultUser",
    "projected.defaultUser",
];
const OF_SOURCE: &[&str] = &["serviceAccountToken.user", "clusterTrustBundle.user", "podCertificate.user"];
const OF_ITEM: &[&str] = &["user"];
const ITEMS: &[&str] = &["secret.items", "configMap.items", "downwardAPI.items"];
const OF_HANDLER: &[&str] = &["httpGet.protocol", "grpc.mode"];
const HANDLERS: &[&str] =
    &["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"];

/// An object with such a field keeps all of them: the feature was enabled elsewhere.
fn uses_disabled(spec: &Tree) -> bool {
    let has = |tree: &Tree, paths: &[&str]| paths.iter().any(|path| !tree.at(path).is_null());
    let items = |tree: &Tree| ITEMS.iter().any(|list| tree.list(list).iter().any(|item| has(item, OF_ITEM)));
    let volumes = spec.list("volumes").iter().any(|volume| {
        has(volume, OF_VOLUME)
            || items(volume)
            || volume.list("projected.sources").iter().any(|source| has(source, OF_SOURCE) || items(source))
    });
    let containers = ["initContainers", "containers", "ephemeralContainers"].iter().flat_map(|list| spec.list(list));
    volumes
        || containers.into_iter().any(|container| {
            HANDLERS.iter().any(|handler| has(container.at(handler), OF_HANDLER))
                || container.list("volumeMounts").iter().any(|mount| mount.has("bindMountOptions"))
        })
}

fn drop_from_volume(volume: &mut Tree) {
    for path in OF_VOLUME {
        volume.remove_at(path);
    }
    drop_from_items(volume);
    for source in volume.list_mut("projected.sources") {
        for path in OF_SOURCE {
            source.remove_at(path);
        }
        drop_from_items(source);
    }
}

fn drop_from_items(source: &mut Tree) {
    for list in ITEMS {
        for item in source.list_mut(list) {
            item.remove("user");
        }
    }
}

fn drop_from_container(container: &mut Tree) {
    for handler in HANDLERS {
        if let Some(handler) = container.at_mut(handler) {
            for path in OF_HANDLER {
                handler.remove_at(path);
            }
        }
    }
    for mount in container.list_mut("volumeMounts") {
        mount.remove("bindMountOptions");
    }
}
