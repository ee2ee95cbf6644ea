//! A volume of a CSI driver: staged once for the node if the driver supports it, then published for the pod.

use std::collections::BTreeMap;
use std::path::Path;

use api::{Tree, base64, json};
use client::Resource;
use tokio::sync::OwnedMutexGuard;

use super::{Kind, PlanFuture, VolumeContext};
use crate::model::pod;
use crate::objects::SECRETS;
use crate::volumes::csi::wire::{
    self, AccessMode, Empty, MountVolume, NodePublishVolume, NodeStageVolume, VolumeCapability, access, capability,
};
use crate::volumes::csi::{self, Driver, Record, UnknownDriver, sha256, text};
use crate::volumes::execute::create_dirs;
use crate::volumes::plan::{Failure, Plan, RequestError, Step};
use crate::volumes::tokens::TokenError;

pub(crate) const KIND: Kind = Kind { field: "csi", directory: csi::KIND, refreshes: false, plan };

const DRIVERS: Resource = Resource::new("storage.k8s.io", "v1", "csidrivers");
const ATTACHMENTS: Resource = Resource::new("storage.k8s.io", "v1", "volumeattachments");

type StringMap = BTreeMap<String, String>;

/// A volume for which the driver is not called.
#[derive(Debug, thiserror::Error)]
enum CsiVolumeError {
    #[error("kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: {0}")]
    PersistentDriver(#[source] UnknownDriver),
    #[error("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {0}")]
    EphemeralDriver(#[source] UnknownDriver),
    #[error("volume mode {wanted:?} not supported by driver {driver} (only supports {modes:?})")]
    Mode { wanted: &'static str, driver: String, modes: Vec<String> },
    #[error("volume attachment is not there yet: {}", .0.message())]
    Attachment(#[source] client::Error),
    #[error("volume {0} is not attached yet")]
    NotAttached(String),
    /// In the attacher's own words.
    #[error("{0}")]
    Attacher(String),
    #[error("fetching {named} {namespace}/{name} failed: {}", .source.message())]
    Secret { named: &'static str, namespace: String, name: String, source: client::Error },
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    #[error(transparent)]
    Token(#[from] TokenError),
}

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(build_plan(context))
}

async fn build_plan(context: &VolumeContext<'_>) -> Result<Plan, Failure> {
    let object = driver_object(context).await?;
    let record = record(context, &object)?;
    // From here on the node reports the volume as in use.
    context.host.csi.note(&record, &context.host.node)?;
    let driver = context
        .host
        .csi
        .driver(&record.driver)
        .map_err(|error| Failure::at(first_step(&record), unknown(&record, error)))?;
    let publish_context = attachment(context, &record).await?;
    let capability = capability_of(context, &driver, &record);
    let is_staged = record.is_persistent && driver.can(capability::STAGE_UNSTAGE_VOLUME);
    let mut calls = Calls { stage: None, publish: NodePublishVolume::default() };
    if is_staged {
        let request = stage(context, &record, &publish_context, &capability).await;
        calls.stage = Some(request.map_err(|error| Failure::at(Step::MountDevice, error))?);
    }
    calls.publish = publish(context, &record, &object, is_staged, (publish_context, capability)).await?;
    let alone = context.host.csi.lock_volume(&record.driver, &record.handle).await;
    context.host.csi.begin(&record, &context.host.node)?;
    calls.stage_and_publish(driver.clone(), alone).await?;
    let path = context.host.csi.target(&record, pod::uid(context.pod));
    let read_only = is_read_only(context);
    if record.is_block {
        return Ok(Plan::Device { path, read_only });
    }
    let give = !driver.can(capability::VOLUME_MOUNT_GROUP)
        && !read_only
        && is_given(context.source, context.persistent, &object);
    Ok(Plan::Made { path, read_only, give, repeats: object.bool("spec.requiresRepublish") })
}

/// The calls to the driver.
struct Calls {
    stage: Option<NodeStageVolume>,
    publish: NodePublishVolume,
}

impl Calls {
    /// Both calls complete even if the caller is cancelled. Removal of the volume waits for them: nothing is mounted
    /// into a directory that is being removed.
    async fn stage_and_publish(self, driver: Driver, alone: OwnedMutexGuard<()>) -> Result<(), Failure> {
        let work = async move {
            let _alone = alone;
            if let Some(stage) = self.stage {
                let staged = wire::stage(&driver.channel, stage).await;
                staged.map_err(|error| Failure::at(Step::MountDevice, error))?;
            }
            wire::publish(&driver.channel, self.publish).await.map(|_| ()).map_err(Failure::from)
        };
        tokio::spawn(work).await.unwrap_or_else(|error| Err(Failure::from(error)))
    }
}

fn first_step(record: &Record) -> Step {
    if record.is_persistent { Step::MountDevice } else { Step::SetUp }
}

fn unknown(record: &Record, source: UnknownDriver) -> CsiVolumeError {
    match record.is_persistent {
        true => CsiVolumeError::PersistentDriver(source),
        false => CsiVolumeError::EphemeralDriver(source),
    }
}

/// The CSIDriver object; null if there is none.
async fn driver_object(context: &VolumeContext<'_>) -> Result<Tree, Failure> {
    match context.host.client.get(DRIVERS, "", context.source.str("driver")).await {
        Err(error) if error.is_not_found() => Ok(Tree::Null),
        Err(error) => Err(Failure::from(RequestError(error))),
        Ok(object) => Ok(object),
    }
}

fn record(context: &VolumeContext<'_>, object: &Tree) -> Result<Record, Failure> {
    let is_persistent = context.persistent.is_some();
    check_mode(context.source.str("driver"), object, is_persistent)?;
    let driver = context.source.str("driver").to_string();
    let handle = match is_persistent {
        true => context.source.str("volumeHandle").to_string(),
        false => format!("csi-{}", sha256(&format!("{}{}", pod::uid(context.pod), context.name))),
    };
    let is_attached = is_persistent && object.at("spec").get("attachRequired").and_then(Tree::as_bool) != Some(false);
    let attachment = format!("csi-{}", sha256(&format!("{handle}{driver}{}", context.host.node)));
    let is_block = context.persistent.is_some_and(|volume| volume.str("spec.volumeMode") == "Block");
    let pod_dir = context.host.config.pod_dir(pod::uid(context.pod));
    Ok(Record {
        dir: Record::dir(&pod_dir, context.name, is_block),
        name: context.name.to_string(),
        attachment: if is_attached { attachment } else { String::new() },
        driver,
        handle,
        is_persistent,
        is_block,
        is_begun: false,
    })
}

/// A driver is called only for the lifecycle modes that its CSIDriver lists.
fn check_mode(driver: &str, object: &Tree, is_persistent: bool) -> Result<(), Failure> {
    let modes: Vec<&str> = object.list("spec.volumeLifecycleModes").iter().filter_map(Tree::as_str).collect();
    let modes = if modes.is_empty() { vec!["Persistent"] } else { modes };
    let wanted = if is_persistent { "Persistent" } else { "Ephemeral" };
    if modes.contains(&wanted) || (is_persistent && object.is_null()) {
        return Ok(());
    }
    let modes = modes.into_iter().map(str::to_string).collect();
    Err(CsiVolumeError::Mode { wanted, driver: driver.to_string(), modes }.into())
}

/// The attachment metadata, once the volume is attached.
async fn attachment(context: &VolumeContext<'_>, record: &Record) -> Result<StringMap, Failure> {
    if record.attachment.is_empty() {
        return Ok(StringMap::new());
    }
    let waits = |error: CsiVolumeError| Failure::at(Step::WaitForAttach, error);
    let found = context.host.client.get(ATTACHMENTS, "", &record.attachment).await;
    let found = found.map_err(|error| waits(CsiVolumeError::Attachment(error)))?;
    if !found.bool("status.attached") {
        return Err(waits(match found.str("status.attachError.message") {
            "" => CsiVolumeError::NotAttached(record.handle.clone()),
            why => CsiVolumeError::Attacher(why.to_string()),
        }));
    }
    Ok(string_map(found.at("status.attachmentMetadata")))
}

fn string_map(tree: &Tree) -> StringMap {
    let entries = tree.as_map().into_iter().flat_map(api::Map::iter);
    entries.map(|(key, value)| (key.to_string(), value.as_str().unwrap_or_default().to_string())).collect()
}

fn is_read_only(context: &VolumeContext<'_>) -> bool {
    context.read_only || context.source.bool("readOnly")
}

fn capability_of(context: &VolumeContext<'_>, driver: &Driver, record: &Record) -> VolumeCapability {
    let modes = context.persistent.map(|volume| volume.list("spec.accessModes")).unwrap_or_default();
    let mode = access_mode(
        modes.first().and_then(Tree::as_str).unwrap_or("ReadWriteOnce"),
        driver.can(capability::SINGLE_NODE_MULTI_WRITER),
    );
    let access_mode = Some(AccessMode { mode });
    if record.is_block {
        return VolumeCapability { block: Some(Empty {}), mount: None, access_mode };
    }
    let options = context.persistent.map(|volume| volume.list("spec.mountOptions")).unwrap_or_default();
    let group = context.owner.fs_group.filter(|_| driver.can(capability::VOLUME_MOUNT_GROUP));
    let mount = MountVolume {
        fs_type: context.source.str("fsType").to_string(),
        mount_flags: options.iter().filter_map(Tree::as_str).map(str::to_string).collect(),
        volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
    };
    VolumeCapability { block: None, mount: Some(mount), access_mode }
}

fn access_mode(mode: &str, is_precise: bool) -> i32 {
    match (mode, is_precise) {
        ("ReadOnlyMany", _) => access::MULTI_NODE_READER_ONLY,
        ("ReadWriteMany", _) => access::MULTI_NODE_MULTI_WRITER,
        ("ReadWriteOncePod", true) => access::SINGLE_NODE_SINGLE_WRITER,
        ("ReadWriteOnce", true) => access::SINGLE_NODE_MULTI_WRITER,
        _ => access::SINGLE_NODE_WRITER,
    }
}

/// Whether the kubelet applies the pod's fsGroup to the volume.
fn is_given(source: &Tree, persistent: Option<&Tree>, object: &Tree) -> bool {
    match object.str("spec.fsGroupPolicy") {
        "None" => false,
        "File" => true,
        _ => !source.str("fsType").is_empty() && persistent.is_none_or(is_read_write_once),
    }
}

/// Whether one node writes to the volume. Inline volumes are always of this kind.
fn is_read_write_once(persistent: &Tree) -> bool {
    let modes = persistent.list("spec.accessModes").iter();
    modes.filter_map(Tree::as_str).any(|mode| matches!(mode, "ReadWriteOnce" | "ReadWriteOncePod"))
}

async fn stage(
    context: &VolumeContext<'_>,
    record: &Record,
    publish_context: &StringMap,
    capability: &VolumeCapability,
) -> Result<NodeStageVolume, CsiVolumeError> {
    let staging = context.host.csi.staging(record);
    create_dirs(&staging)?;
    Ok(NodeStageVolume {
        volume_id: record.handle.clone(),
        publish_context: publish_context.clone(),
        staging_target_path: text(&staging),
        volume_capability: Some(capability.clone()),
        secrets: secrets(context, "nodeStageSecretRef", "NodeStageSecretRef").await?,
        volume_context: string_map(context.source.at("volumeAttributes")),
    })
}

async fn publish(
    context: &VolumeContext<'_>,
    record: &Record,
    object: &Tree,
    is_staged: bool,
    (publish_context, capability): (StringMap, VolumeCapability),
) -> Result<NodePublishVolume, CsiVolumeError> {
    let target = context.host.csi.target(record, pod::uid(context.pod));
    let above = target.parent().unwrap_or(Path::new("/"));
    create_dirs(above)?;
    let mut secrets = secrets(context, "nodePublishSecretRef", "NodePublishSecretRef").await?;
    let mut volume_context = string_map(context.source.at("volumeAttributes"));
    volume_context.extend(pod_info(context.pod, object, record.is_persistent));
    let tokens = tokens(context, object).await?;
    match object.bool("spec.serviceAccountTokenInSecrets") {
        true => secrets.extend(tokens),
        false => volume_context.extend(tokens),
    }
    Ok(NodePublishVolume {
        volume_id: record.handle.clone(),
        publish_context,
        staging_target_path: if is_staged { text(&context.host.csi.staging(record)) } else { String::new() },
        target_path: text(&target),
        volume_capability: Some(capability),
        readonly: is_read_only(context),
        secrets,
        volume_context,
    })
}

/// Information about the pod, for drivers with `podInfoOnMount`.
fn pod_info(pod: &Tree, object: &Tree, is_persistent: bool) -> StringMap {
    if !object.bool("spec.podInfoOnMount") {
        return StringMap::new();
    }
    let info = [
        ("pod.name", pod::name(pod)),
        ("pod.namespace", pod::namespace(pod)),
        ("pod.uid", pod::uid(pod)),
        ("serviceAccount.name", pod.str("spec.serviceAccountName")),
        ("ephemeral", if is_persistent { "false" } else { "true" }),
    ];
    info.into_iter().map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_string())).collect()
}

/// Tokens of the pod's account, for the audiences that the driver names.
async fn tokens(context: &VolumeContext<'_>, object: &Tree) -> Result<StringMap, CsiVolumeError> {
    let wanted = object.list("spec.tokenRequests");
    let mut tokens = Tree::map_new();
    for request in wanted {
        let token = context.host.tokens.get(&context.host.client, &*context.host.clock, context.pod, request).await?;
        let shown = api::tree! { "token" => token.text, "expirationTimestamp" => token.expiration };
        tokens.set(request.str("audience"), shown);
    }
    if wanted.is_empty() {
        return Ok(StringMap::new());
    }
    let text = String::from_utf8_lossy(&json::encode(&tokens, None)).into_owned();
    Ok(StringMap::from([("csi.storage.k8s.io/serviceAccount.tokens".to_string(), text)]))
}

async fn secrets(context: &VolumeContext<'_>, field: &str, named: &'static str) -> Result<StringMap, CsiVolumeError> {
    let reference = context.source.at(field);
    let name = reference.str("name");
    if name.is_empty() {
        return Ok(StringMap::new());
    }
    let namespace = match context.persistent {
        Some(_) => reference.str("namespace"),
        None => pod::namespace(context.pod),
    };
    let secret = context.host.client.get(SECRETS, namespace, name).await;
    let secret = secret.map_err(|source| {
        let (namespace, name) = (namespace.to_string(), name.to_string());
        CsiVolumeError::Secret { named, namespace, name, source }
    })?;
    let read = |(key, value): (&str, &Tree)| {
        let bytes = base64::decode(value.as_str().unwrap_or_default())?;
        Ok((key.to_string(), String::from_utf8_lossy(&bytes).into_owned()))
    };
    secret.map("data").iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_access_modes_to_csi() {
        for (mode, plain, precise) in
            [("ReadWriteOnce", 1, 7), ("ReadOnlyMany", 3, 3), ("ReadWriteMany", 5, 5), ("ReadWriteOncePod", 1, 6)]
        {
            assert_eq!((access_mode(mode, false), access_mode(mode, true)), (plain, precise), "{mode}");
        }
    }

    #[test]
    fn fs_group_applies_to_volumes_of_one_writer() {
        let read = |text: &str| api::yaml::decode(text.as_bytes()).unwrap();
        let (once, many) = (read("spec: {accessModes: [ReadWriteOnce]}"), read("spec: {accessModes: [ReadWriteMany]}"));
        let (typed, plain) = (read("{fsType: ext4}"), read("{}"));
        let by = |policy: &str| read(&format!("spec: {{fsGroupPolicy: {policy}}}"));
        let default = by("ReadWriteOnceWithFSType");
        let cases = [
            (&typed, Some(&once), &default, true),
            (&typed, Some(&once), &Tree::Null, true),
            (&typed, Some(&many), &default, false),
            (&plain, Some(&once), &default, false),
            (&typed, None, &default, true),
            (&plain, None, &default, false),
            (&plain, None, &by("File"), true),
            (&typed, Some(&once), &by("None"), false),
        ];
        for (source, persistent, object, wanted) in cases {
            assert_eq!(is_given(source, persistent, object), wanted, "{source:?} {persistent:?} {object:?}");
        }
    }

    #[test]
    fn checks_lifecycle_modes() {
        let read = |text: &str| api::yaml::decode(text.as_bytes()).unwrap();
        let check = |object: &Tree, is_persistent: bool| check_mode("d", object, is_persistent).is_ok();
        assert!(check(&Tree::Null, true) && !check(&Tree::Null, false));
        let both = read("spec: {volumeLifecycleModes: [Persistent, Ephemeral]}");
        assert!(check(&both, true) && check(&both, false));
        let inline = read("spec: {volumeLifecycleModes: [Ephemeral]}");
        assert_eq!(
            check_mode("d", &inline, true).unwrap_err().source.to_string(),
            "volume mode \"Persistent\" not supported by driver d (only supports [\"Ephemeral\"])"
        );
    }

    #[test]
    fn passes_pod_info_if_requested() {
        let pod =
            api::yaml::decode(b"{metadata: {name: p, namespace: ns, uid: u}, spec: {serviceAccountName: a}}").unwrap();
        let asks = api::yaml::decode(b"spec: {podInfoOnMount: true}").unwrap();
        assert!(pod_info(&pod, &Tree::Null, true).is_empty());
        let attributes = pod_info(&pod, &asks, false);
        let value = |key: &str| attributes[&format!("csi.storage.k8s.io/{key}")].clone();
        assert_eq!([value("pod.name"), value("serviceAccount.name"), value("ephemeral")], ["p", "a", "true"]);
    }
}
