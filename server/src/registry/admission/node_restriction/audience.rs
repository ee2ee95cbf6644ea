//! The audiences of a token that a kubelet requests: one that the bound pod mounts, directly or through a CSI driver,
//! or one that the kubelet has been granted.

use std::borrow::Cow;

use api::Tree;
use api::status::Status;

use super::super::{Attributes, Operation, PluginFuture, join_errors};
use crate::authorization;
use crate::authorization::node::node_name;
use crate::registry::Registry;

const VERB: &str = "request-serviceaccounts-token-audience";

/// In-tree volumes and the CSI drivers that serve them.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

pub(crate) fn mutate<'a>(
    attributes: &'a Attributes<'_>,
    request: Option<&'a mut Tree>,
    _: Option<&'a Tree>,
    _: &'a mut Vec<String>,
) -> PluginFuture<'a> {
    let is_token = attributes.resource.kind.plural() == "serviceaccounts" && attributes.subresource == "token";
    let request = request.filter(|_| is_token && attributes.operation == Operation::Create)?;
    node_name(attributes.user)?;
    Some(Box::pin(check(attributes, request)))
}

async fn check(attributes: &Attributes<'_>, request: &Tree) -> Result<(), Status> {
    let audience = requested(request).map_err(|why| attributes.forbidden(why))?;
    // The mutating half of the plugin has found the pod and checked it.
    let key = format!("{}/{}", attributes.namespace, request.str("spec.boundObjectRef.name"));
    let pod = attributes.registry.storage.object("pods", &key).unwrap_or_default();
    let drivers = |volume: &Tree| driver(attributes.registry, attributes.namespace, &pod, volume);
    let has = |driver: &str| driver_requests(attributes.registry, driver, audience);
    let referenced = references(&pod, audience, drivers, has)
        .map_err(|why| attributes.forbidden(format!("error validating audience {audience:?}: {why}")))?;
    if referenced { Ok(()) } else { authorize(attributes, audience).await }
}

/// Why the requested audiences are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum AudienceError {
    #[error("node may only request 0 or 1 audiences")]
    TooMany,
}

/// "" is the API server's own audience.
fn requested(request: &Tree) -> Result<&str, AudienceError> {
    match request.list("spec.audiences") {
        [] => Ok(""),
        [one] => Ok(one.as_str().unwrap_or("")),
        _ => Err(AudienceError::TooMany),
    }
}

/// An object that a volume refers to, and that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} {name:?} not found")]
struct NotFound {
    resource: &'static str,
    name: String,
}

/// The lookups that failed, each once.
#[derive(Debug, PartialEq, Eq)]
struct FailedLookups(Vec<NotFound>);

impl std::fmt::Display for FailedLookups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&join_errors(self.0.iter().map(ToString::to_string).collect()))
    }
}

impl std::error::Error for FailedLookups {}

/// Whether a volume of the pod needs a token for the audience; if none does, the failed lookups.
fn references(
    pod: &Tree,
    audience: &str,
    driver: impl Fn(&Tree) -> Result<Option<String>, NotFound>,
    requests: impl Fn(&str) -> Result<bool, NotFound>,
) -> Result<bool, FailedLookups> {
    let mut errors = Vec::new();
    for volume in pod.list("spec.volumes") {
        let token =
            |source: &Tree| source.has("serviceAccountToken") && source.str("serviceAccountToken.audience") == audience;
        if volume.list("projected.sources").iter().any(token) {
            return Ok(true);
        }
        match driver(volume).and_then(|driver| driver.map_or(Ok(false), |driver| requests(&driver))) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(false) } else { Err(FailedLookups(errors)) }
}

/// The CSI driver behind a volume of a pod.
fn driver(registry: &Registry, namespace: &str, pod: &Tree, volume: &Tree) -> Result<Option<String>, NotFound> {
    if volume.at("ephemeral").has("volumeClaimTemplate") {
        let claim = format!("{}-{}", pod.str("metadata.name"), volume.str("name"));
        return driver_of_claim(registry, namespace, &claim);
    }
    if volume.has("persistentVolumeClaim") {
        return driver_of_claim(registry, namespace, volume.str("persistentVolumeClaim.claimName"));
    }
    Ok(driver_of_source(volume))
}

fn driver_of_claim(registry: &Registry, namespace: &str, name: &str) -> Result<Option<String>, NotFound> {
    let claim = registry
        .storage
        .object("persistentvolumeclaims", &format!("{namespace}/{name}"))
        .ok_or_else(|| NotFound { resource: "persistentvolumeclaim", name: name.to_string() })?;
    let name = claim.str("spec.volumeName");
    let volume = registry
        .storage
        .object("persistentvolumes", name)
        .ok_or_else(|| NotFound { resource: "persistentvolume", name: name.to_string() })?;
    Ok(driver_of_source(volume.at("spec")))
}

fn driver_of_source(source: &Tree) -> Option<String> {
    if source.has("csi") {
        return Some(source.str("csi.driver").to_string()).filter(|driver| !driver.is_empty());
    }
    MIGRATED.iter().find(|(field, _)| source.has(field)).map(|(_, driver)| driver.to_string())
}

fn driver_requests(registry: &Registry, driver: &str, audience: &str) -> Result<bool, NotFound> {
    let object = registry
        .storage
        .object("csidrivers", driver)
        .ok_or_else(|| NotFound { resource: "csidriver.storage.k8s.io", name: driver.to_string() })?;
    Ok(object.list("spec.tokenRequests").iter().any(|request| request.str("audience") == audience))
}

async fn authorize(attributes: &Attributes<'_>, audience: &str) -> Result<(), Status> {
    let user = &attributes.user.name;
    let requested = authorization::Attributes {
        namespace: attributes.namespace,
        version: attributes.resource.kind.version(),
        name: Cow::Borrowed(attributes.name),
        ..authorization::Attributes::resource(attributes.user, VERB, attributes.resource.kind.group(), audience)
    };
    let verdict = attributes.registry.authorizer.wait(&requested).await;
    match verdict.error {
        _ if verdict.is_allowed() => Ok(()),
        Some(error) => Err(attributes
            .forbidden(format!("error authorizing {user} to request tokens for audience {audience:?}: {error}"))),
        None => {
            Err(attributes.forbidden(format!("{user} is not authorized to request tokens for audience {audience:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::admission::tests::json;

    #[test]
    fn an_audience_is_mounted_by_the_pod_or_requested_by_its_driver() {
        let projected = r#"{"projected":{"sources":[{"serviceAccountToken":{"audience":"vault"}}]}}"#;
        let own = r#"{"projected":{"sources":[{"serviceAccountToken":{}}]}}"#;
        let (csi, disk) = (r#"{"csi":{"driver":"d"}}"#, r#"{"gcePersistentDisk":{"pdName":"x"}}"#);
        let check = |volumes: &str, audience: &str, want: Result<bool, &str>| {
            let pod = json(&format!(r#"{{"spec":{{"volumes":[{volumes}]}}}}"#));
            let requests = |driver: &str| match driver {
                "d" => Ok(audience == "store"),
                "pd.csi.storage.gke.io" => Ok(audience == "disk"),
                other => Err(NotFound { resource: "csidriver", name: other.to_string() }),
            };
            let got = references(&pod, audience, |volume| Ok(driver_of_source(volume)), requests);
            assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_string), "{volumes} {audience}");
        };
        check("", "", Ok(false));
        check(own, "", Ok(true));
        check(own, "vault", Ok(false));
        check(projected, "vault", Ok(true));
        check(projected, "", Ok(false));
        check(csi, "store", Ok(true));
        check(csi, "other", Ok(false));
        check(disk, "disk", Ok(true));
        check(r#"{"csi":{"driver":"gone"}}"#, "x", Err("csidriver \"gone\" not found"));
        check(&format!(r#"{{"csi":{{"driver":"gone"}}}},{projected}"#), "vault", Ok(true));
        check(r#"{"emptyDir":{}}"#, "x", Ok(false));
    }

    #[test]
    fn a_node_requests_one_audience_at_most() {
        let check = |audiences: &str, want: Result<&str, AudienceError>| {
            assert_eq!(requested(&json(&format!(r#"{{"spec":{{"audiences":{audiences}}}}}"#))), want, "{audiences}");
        };
        check("[]", Ok(""));
        check(r#"["a"]"#, Ok("a"));
        check(r#"["a","b"]"#, Err(AudienceError::TooMany));
    }
}
