//! The dependencies of a container before it can be created: its image and pull secrets, its user, its environment.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Tree, tree};
use client::Resource;

use super::start::{Failure, Inputs, unless_ended};
use crate::images::{self, ImageError, ImageRequest};
use crate::model::env;
use crate::model::pod;
use crate::objects::ObjectError;
use crate::pod::context::PodContext;
use crate::pod::cri_config::env::{self as container_env, FileError};
use crate::volumes::MountedVolumes;

/// The pod's image pull secrets; missing ones are skipped with an event.
pub(crate) async fn pull_secrets(context: &PodContext, pod: &Tree) -> Vec<Arc<Tree>> {
    let mut secrets = Vec::new();
    for reference in pod.list("spec.imagePullSecrets") {
        let name = reference.str("name");
        match context.objects.get(Resource::core("secrets"), pod::namespace(pod), name).await {
            Ok(Some(secret)) => secrets.push(Arc::new(secret)),
            Ok(None) | Err(_) => {
                let text = format!(
                    "Unable to retrieve some image pull secrets ({name}); attempting to pull the image may not succeed."
                );
                context.recorder.warning(pod, "FailedToRetrieveImagePullSecret", text);
            }
        }
    }
    secrets
}

/// The images of volumes by volume: pulled, or the error.
#[derive(Default)]
pub(crate) struct VolumeImages(Vec<(String, Result<cri::ImageSpec, ImageError>)>);

impl VolumeImages {
    /// The images that a container mounts; a missing image fails only the containers that mount it.
    pub(crate) fn of(&self, spec: &Tree) -> Result<Vec<(String, cri::ImageSpec)>, ImageError> {
        let mounted = |name: &str| spec.list("volumeMounts").iter().any(|mount| mount.str("name") == name);
        let own = self.0.iter().filter(|(name, _)| mounted(name));
        own.map(|(name, image)| Ok((name.clone(), image.clone()?))).collect()
    }
}

/// The images of volumes, pulled like those of containers.
pub(crate) async fn volume_images(
    context: &Arc<PodContext>,
    pod: &Tree,
    given: &Inputs<'_>,
    config: &cri::PodSandboxConfig,
) -> Result<VolumeImages, Failure> {
    let mut made = VolumeImages::default();
    for (name, volume) in &given.mounted.volumes {
        let Some((reference, policy)) = volume.image() else { continue };
        // The image belongs to the pod, so that events name no container.
        let container = tree! { "name" => "", "image" => reference, "imagePullPolicy" => policy };
        let secrets = pull_secrets(context, pod).await;
        let wanted = ImageRequest { pod, container: &container, secrets: &secrets, sandbox: Some(config) };
        let ensured = unless_ended(given.updates, context.images.ensure(&wanted)).await.ok_or(Failure::Ends)?;
        let image = ensured.map(|image| cri::ImageSpec { image: image.id, ..images::spec(reference) });
        made.0.push((name.clone(), image));
    }
    Ok(made)
}

/// A container that must not run as its user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UserError {
    #[error("container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})")]
    RunAsRoot { pod: String, container: String },
    #[error("container has runAsNonRoot and image will run as root (pod: \"{pod}\", container: {container})")]
    ImageRoot { pod: String, container: String },
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user is non-root (pod: \
         \"{pod}\", container: {container})"
    )]
    NotNumeric { user: String, pod: String, container: String },
    #[error("{field} {id} is not an id: ids are 0 to {}", pod::IDS.end())]
    Id { field: &'static str, id: i64 },
}

/// An environment that cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VariablesError {
    #[error("services have not yet been read at least once, cannot construct envvars")]
    NoServices,
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    Env(#[from] container_env::EnvError),
}

/// Checks that a container does not run as root against its policy, and that IDs are valid.
pub(crate) fn check_user(pod: &Tree, spec: &Tree, image: &images::LocalImage) -> Result<(), UserError> {
    let (of_pod, own) = (pod.at("spec.securityContext"), spec.at("securityContext"));
    check_ids(of_pod, own, image)?;
    let either = |key: &str| if own.has(key) { own.at(key) } else { of_pod.at(key) };
    if either("runAsNonRoot").as_bool() != Some(true) {
        return Ok(());
    }
    let (pod, container) = (pod::named(pod), spec.str("name").to_string());
    match (either("runAsUser").as_int(), image.uid) {
        (Some(0), _) => Err(UserError::RunAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, Some(0)) => Err(UserError::ImageRoot { pod, container }),
        (None, Some(_)) => Ok(()),
        (None, None) if image.username.is_empty() => Err(UserError::ImageRoot { pod, container }),
        (None, None) => Err(UserError::NotNumeric { user: image.username.clone(), pod, container }),
    }
}

/// An ID above 2³¹−1 could be truncated to another one, or mean "unchanged" to the kernel. The API server rejects such
/// IDs; static pods and images are checked here.
fn check_ids(of_pod: &Tree, own: &Tree, image: &images::LocalImage) -> Result<(), UserError> {
    let fields = ["runAsUser", "runAsGroup", "fsGroup"];
    let of = |context: &Tree| fields.map(|field| (field, context.int(field)));
    let groups = of_pod.list("supplementalGroups").iter().map(|group| ("supplementalGroups", group.as_int()));
    let is_given = own.has("runAsUser") || of_pod.has("runAsUser");
    let of_image = ("the image's user", image.uid.filter(|_| !is_given));
    let given = of(of_pod).into_iter().chain(of(own)).chain(groups).chain([of_image]);
    let wrong = given.filter_map(|(field, id)| Some((field, id?))).find(|(_, id)| !pod::IDS.contains(id));
    match wrong {
        Some((field, id)) => Err(UserError::Id { field, id }),
        None => Ok(()),
    }
}

/// A pod from the API waits until the services are listed. A static pod does not: it may be the API server itself.
fn check_services(pod: &Tree, are_known: bool) -> Result<(), VariablesError> {
    if are_known || pod::is_static(pod) {
        return Ok(());
    }
    Err(VariablesError::NoServices)
}

/// The environment of a container, from all objects that it refers to.
pub(crate) async fn variables(
    context: &PodContext,
    pod: &Tree,
    spec: &Tree,
    addresses: &[String],
    mounted: &MountedVolumes,
) -> Result<Vec<env::Variable>, VariablesError> {
    check_services(pod, *context.cache.services_known.borrow())?;
    let services = context.cache.services.in_namespace(pod::namespace(pod)).into_iter();
    let services: Vec<Arc<Tree>> = services.chain(context.cache.services.get("default/kubernetes")).collect();
    let host_ips: Vec<String> = context.node.host_ips().iter().map(ToString::to_string).collect();
    let mut objects = Vec::new();
    for (resource, name) in container_env::references(spec) {
        let found = context.objects.get(Resource::core(resource), pod::namespace(pod), &name).await?;
        objects.extend(found.map(|object| (resource, name, object)));
    }
    let object = |resource: &str, name: &str| {
        let found = objects.iter().find(|(of, known, _)| *of == resource && known == name);
        found.map(|(_, _, object)| object)
    };
    let mut files = BTreeMap::new();
    for (volume, path) in env::files(spec) {
        let file = match mounted.volumes.get(volume) {
            Some(found) => found.read(path).await.map_err(FileError::from),
            None => Err(FileError::NoVolume(volume.to_string())),
        };
        files.insert((volume, path), file);
    }
    let allocatable = context.node.allocatable();
    let known = container_env::EnvSources {
        object: &object,
        files: &files,
        services: &services,
        pod_ips: addresses,
        host_ips: &host_ips,
        node_name: &context.node.name,
        allocatable: &allocatable,
    };
    Ok(container_env::build_env(pod, spec, &known)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::problem::Problem;

    #[test]
    fn waits_for_services_except_in_static_pods() {
        let own = tree! { "metadata" => tree! { "annotations" => tree! { "kubernetes.io/config.source" => "file" } } };
        assert!(check_services(&own, false).is_ok() && check_services(&Tree::Null, true).is_ok());
        let why = "services have not yet been read at least once, cannot construct envvars";
        assert_eq!(check_services(&Tree::Null, false).map_err(|error| error.to_string()), Err(why.to_string()));
    }

    #[test]
    fn checks_user_ids_and_non_root() {
        let image = |uid: Option<i64>| images::LocalImage { id: String::new(), uid, username: String::new() };
        let check = |of_pod: &str, own: &str, uid: Option<i64>, expected: &str| {
            let read = |text: &str| api::yaml::decode(text.as_bytes()).unwrap();
            let pod = tree! { "spec" => tree! { "securityContext" => read(of_pod) } };
            let spec = tree! { "name" => "c", "securityContext" => read(own) };
            let error_text =
                check_user(&pod, &spec, &image(uid)).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                error_text.starts_with(expected) && error_text.is_empty() == expected.is_empty(),
                "{of_pod} {own}: {error_text}"
            );
        };
        let (root, non_root) = ("container has runAsNonRoot and image will run as root", "{runAsNonRoot: true}");
        check("{}", "{}", Some(0), "");
        check(non_root, "{}", Some(1000), "");
        check(non_root, "{}", Some(0), root);
        check(non_root, "{}", Some(1 << 32), "the image's user 4294967296 is not an id: ids are 0 to 2147483647");
        check("{}", "{}", Some(4_294_967_295), "the image's user 4294967295 is not an id");
        check("{}", "{runAsUser: 1000}", Some(4_294_967_295), "");
        check("{}", "{runAsUser: 4294967295}", None, "runAsUser 4294967295 is not an id");
        check("{runAsGroup: -1}", "{}", None, "runAsGroup -1 is not an id");
        check("{fsGroup: 2147483648}", "{}", None, "fsGroup 2147483648 is not an id");
        check("{supplementalGroups: [1, 4294967296]}", "{}", None, "supplementalGroups 4294967296 is not an id");
        check("{supplementalGroups: [2147483647]}", "{runAsUser: 2147483647}", None, "");
    }

    #[test]
    fn missing_volume_image_fails_only_its_containers() {
        let problem = Problem { reason: "ErrImagePull".into(), message: "no such image".to_string() };
        let problem = ImageError { problem, is_scheduled: true };
        let images =
            VolumeImages(vec![("good".to_string(), Ok(images::spec("a"))), ("bad".to_string(), Err(problem.clone()))]);
        let of = |text: &str| images.of(&api::yaml::decode(text.as_bytes()).unwrap());
        assert_eq!(of("{name: a}"), Ok(Vec::new()));
        let good = of("{name: b, volumeMounts: [{name: other}, {name: good}]}").unwrap();
        assert_eq!(good, [("good".to_string(), images::spec("a"))]);
        assert_eq!(of("{name: c, volumeMounts: [{name: good}, {name: bad}]}"), Err(problem));
    }
}
