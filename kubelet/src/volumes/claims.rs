//! Resolves a pod's claim to the persistent volume that it is bound to.

use api::Tree;
use client::{Client, Resource};

use super::plan::{Failure, Step};
use crate::model::pod;

const CLAIMS: Resource = Resource::core("persistentvolumeclaims");
const VOLUMES: Resource = Resource::core("persistentvolumes");

/// The source of a pod's volume.
pub(crate) enum VolumeSource {
    /// A volume that the pod itself defines.
    Own,
    Persistent(Box<Tree>),
}

impl VolumeSource {
    /// The object that has the field of the volume's kind.
    pub(crate) fn spec<'a>(&'a self, volume: &'a Tree) -> &'a Tree {
        self.persistent().map_or(volume, |persistent| persistent.at("spec"))
    }

    pub(crate) fn persistent(&self) -> Option<&Tree> {
        if let VolumeSource::Persistent(volume) = self { Some(volume) } else { None }
    }

    pub(crate) fn name<'a>(&'a self, volume: &'a Tree) -> &'a str {
        self.persistent().map_or(volume.str("name"), |persistent| persistent.str("metadata.name"))
    }

    pub(crate) fn read_only(&self, volume: &Tree) -> bool {
        volume.bool("persistentVolumeClaim.readOnly")
    }
}

/// The group that a persistent volume's users have to be in.
pub(crate) fn group(volume: &Tree) -> Option<i64> {
    volume
        .map("metadata.annotations")
        .str("pv.beta.kubernetes.io/gid")
        .parse()
        .ok()
        .filter(|gid| pod::IDS.contains(gid))
}

/// A claim that has no usable volume.
#[derive(Debug, thiserror::Error)]
#[error("error processing PVC {namespace}/{name}: {source}")]
pub(crate) struct ProcessError {
    namespace: String,
    name: String,
    source: ClaimError,
}

/// Why a claim has no usable volume.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("failed to fetch PVC from API server: {}", .0.message())]
    Claim(#[source] client::Error),
    #[error("failed to fetch PV {name} from API server: {}", .source.message())]
    Volume { name: String, source: client::Error },
    #[error("PVC {namespace}/{name} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwner { namespace: String, name: String, pod: String },
    #[error("PVC is being deleted")]
    Deleted,
    #[error("PVC is not bound")]
    NotBound,
    #[error("PVC {uid} is not bound to PV {name}: PV.Spec.ClaimRef.UID ({bound}) does not match PVC.UID ({uid})")]
    BoundToOther { uid: String, name: String, bound: String },
}

/// Gets a claim and its volume; the node authorizer allows a node to get them one by one, and only while its pods use
/// them.
pub(crate) async fn resolve(client: &Client, pod: &Tree, volume: &Tree) -> Result<VolumeSource, Failure> {
    let Some(name) = claim_name(pod, volume) else { return Ok(VolumeSource::Own) };
    let namespace = pod::namespace(pod);
    let found = find(client, pod, volume, &name).await;
    found.map(|found| VolumeSource::Persistent(Box::new(found))).map_err(|source| {
        let (namespace, name) = (namespace.to_string(), name.clone());
        Failure::at(Step::Process, ProcessError { namespace, name, source })
    })
}

/// The volume of a claim.
async fn find(client: &Client, pod: &Tree, volume: &Tree, name: &str) -> Result<Tree, ClaimError> {
    let claim = client.get(CLAIMS, pod::namespace(pod), name).await.map_err(ClaimError::Claim)?;
    check(pod, volume, &claim)?;
    let bound = claim.str("spec.volumeName");
    let found = client.get(VOLUMES, "", bound).await;
    let found = found.map_err(|source| ClaimError::Volume { name: bound.to_string(), source })?;
    check_bound(&claim, &found)?;
    Ok(found)
}

/// The claim of a volume: a named one, or one that was created for the pod.
fn claim_name(pod: &Tree, volume: &Tree) -> Option<String> {
    if volume.has("persistentVolumeClaim") {
        return Some(volume.str("persistentVolumeClaim.claimName").to_string());
    }
    volume.has("ephemeral").then(|| format!("{}-{}", pod::name(pod), volume.str("name")))
}

fn check(pod: &Tree, volume: &Tree, claim: &Tree) -> Result<(), ClaimError> {
    if volume.has("ephemeral") && !is_owned(claim, pod::uid(pod)) {
        return Err(ClaimError::NotOwner {
            namespace: pod::namespace(pod).to_string(),
            name: claim.str("metadata.name").to_string(),
            pod: pod::name(pod).to_string(),
        });
    }
    if claim.at("metadata").has("deletionTimestamp") {
        return Err(ClaimError::Deleted);
    }
    if claim.str("status.phase") != "Bound" || claim.str("spec.volumeName").is_empty() {
        return Err(ClaimError::NotBound);
    }
    Ok(())
}

fn is_owned(claim: &Tree, uid: &str) -> bool {
    claim.list("metadata.ownerReferences").iter().any(|owner| owner.bool("controller") && owner.str("uid") == uid)
}

fn check_bound(claim: &Tree, volume: &Tree) -> Result<(), ClaimError> {
    let (bound, uid) = (volume.str("spec.claimRef.uid"), claim.str("metadata.uid"));
    if bound == uid {
        return Ok(());
    }
    let name = volume.str("metadata.name").to_string();
    Err(ClaimError::BoundToOther { uid: uid.to_string(), name, bound: bound.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_must_be_bound_and_owned() {
        let read = |text: &str| api::yaml::decode(text.as_bytes()).unwrap();
        let pod = read("metadata: {name: p, namespace: ns, uid: u}");
        let (named, own) = (read("{name: v, persistentVolumeClaim: {claimName: c}}"), read("{name: v, ephemeral: {}}"));
        assert_eq!(claim_name(&pod, &named).as_deref(), Some("c"));
        assert_eq!(claim_name(&pod, &own).as_deref(), Some("p-v"));
        assert_eq!(claim_name(&pod, &read("{name: v, emptyDir: {}}")), None);
        let bound = "spec: {volumeName: x}, status: {phase: Bound}";
        let owned = format!("{{metadata: {{name: p-v, ownerReferences: [{{controller: true, uid: u}}]}}, {bound}}}");
        let cases = [
            (&named, format!("{{{bound}}}"), None),
            (&named, "{status: {phase: Pending}}".to_string(), Some("PVC is not bound")),
            (&named, format!("{{metadata: {{deletionTimestamp: x}}, {bound}}}"), Some("PVC is being deleted")),
            (&own, owned, None),
            (
                &own,
                format!("{{metadata: {{name: p-v}}, {bound}}}"),
                Some("PVC ns/p-v was not created for pod ns/p (pod is not owner)"),
            ),
        ];
        for (volume, claim, wanted) in cases {
            assert_eq!(
                check(&pod, volume, &read(&claim)).err().map(|error| error.to_string()).as_deref(),
                wanted,
                "{claim}"
            );
        }
        let (claim, right) = (read("metadata: {uid: 1}"), read("spec: {claimRef: {uid: 1}}"));
        assert!(check_bound(&claim, &right).is_ok() == (claim.str("metadata.uid") == right.str("spec.claimRef.uid")));
        assert!(check_bound(&read("metadata: {uid: a}"), &read("spec: {claimRef: {uid: b}}")).is_err());
    }
}
