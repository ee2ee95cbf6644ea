//! The CRI mounts of a container, from its pod's volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use api::Tree;
use cri::MountPropagation;

use super::subpath::Subpath;
use super::{MountedVolumes, Volume, blocking};
use crate::Config;
use crate::model::env::{self, Variable};
use crate::model::expand::expand;
use crate::model::pod;

/// Inputs of the mounts of a container.
#[derive(Default)]
pub struct MountInputs<'a> {
    /// Its environment: names and values.
    pub env: &'a [Variable],
    /// The images of image volumes as they were pulled, by volume.
    pub images: &'a [(String, cri::ImageSpec)],
    /// The users and groups of the pod's own user namespace, where it has one.
    pub users: Option<&'a cri::UserNamespace>,
    /// The runtime supports recursive read-only mounts.
    pub recursive_read_only: bool,
}

/// Mounts that a container cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume { volume: String, container: String },
    #[error("cannot find volume {volume:?} to pass into container {container:?}")]
    NoDevice { volume: String, container: String },
    #[error("the image of volume {0:?} is not pulled")]
    NoImage(String),
    #[error("invalid MountPropagation mode: {0:?}")]
    Propagation(String),
    #[error("volume {volume:?} requested recursive read-only mode, but it is {source}")]
    RecursiveReadOnly { volume: String, source: RecursiveReadOnlyError },
    #[error("unknown recursive read-only mode {0:?}")]
    RecursiveReadOnlyMode(String),
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    SubPathAbove(String),
    #[error("missing value for {}", .0.join(", "))]
    MissingVariables(Vec<String>),
    /// Without the cause, which could reveal files of the node.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    SubPath { volume: String, container: String },
}

/// Why a mount cannot be recursively read-only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecursiveReadOnlyError {
    #[error("not read-only")]
    Writable,
    #[error("not compatible with propagation {0:?}")]
    Propagation(String),
    #[error("not supported by the runtime")]
    Unsupported,
}

/// The mounts of a container, in its order. A missing `subPath` is created.
pub async fn mounts(
    config: &Config,
    pod: &Tree,
    container: &Tree,
    mounted: &MountedVolumes,
    given: &MountInputs<'_>,
) -> Result<Vec<cri::Mount>, MountError> {
    let mut made = Vec::new();
    let mut labelled = BTreeSet::new();
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let name = mount.str("name");
        let volume = mounted.volumes.get(name).filter(|volume| !volume.made.is_device);
        let volume = volume.ok_or_else(|| MountError::NoVolume {
            volume: name.to_string(),
            container: container.str("name").to_string(),
        })?;
        let mut plain = plain(mount, volume, given)?;
        let path = sub_path(mount, given.env)?;
        if volume.made.image.is_some() {
            plain.image_sub_path = path;
        } else if !path.is_empty() {
            let at = SubpathContext { config, pod, container, volume, index };
            plain.host_path = at.bound(&path).await?;
        }
        // One container is enough to set the labels of a volume.
        plain.selinux_relabel = volume.made.relabel && labelled.insert(name);
        made.push(plain);
    }
    Ok(made)
}

/// Block devices of a container.
pub(crate) fn devices(container: &Tree, mounted: &MountedVolumes) -> Result<Vec<cri::Device>, MountError> {
    let device = |wanted: &Tree| {
        let name = wanted.str("name");
        let volume = mounted.volumes.get(name).filter(|volume| volume.made.is_device);
        let volume = volume.ok_or_else(|| MountError::NoDevice {
            volume: name.to_string(),
            container: container.str("name").to_string(),
        })?;
        Ok(cri::Device {
            container_path: wanted.str("devicePath").to_string(),
            host_path: text(&volume.made.path),
            permissions: if volume.made.read_only { "r" } else { "mrw" }.to_string(),
        })
    };
    container.list("volumeDevices").iter().map(device).collect()
}

/// A mount without its `subPath`.
fn plain(mount: &Tree, volume: &Volume, given: &MountInputs<'_>) -> Result<cri::Mount, MountError> {
    let inside = mount.str("mountPath");
    let container_path = if inside.starts_with('/') { inside.to_string() } else { format!("/{inside}") };
    let propagation = propagation(mount.str("mountPropagation"))?;
    let users = given.users.cloned().unwrap_or_default();
    let image = volume.made.image.is_some().then(|| image(mount.str("name"), given)).transpose()?;
    Ok(cri::Mount {
        container_path,
        host_path: text(&volume.made.path),
        readonly: mount.bool("readOnly") || volume.made.read_only,
        propagation: propagation.into(),
        uid_mappings: users.uids,
        gid_mappings: users.gids,
        recursive_read_only: recursive_read_only(mount, propagation, given.recursive_read_only)?,
        image,
        ..cri::Mount::default()
    })
}

fn image(name: &str, given: &MountInputs<'_>) -> Result<cri::ImageSpec, MountError> {
    let pulled = given.images.iter().find(|(volume, _)| volume == name);
    pulled.map(|(_, image)| image.clone()).ok_or_else(|| MountError::NoImage(name.to_string()))
}

fn propagation(text: &str) -> Result<MountPropagation, MountError> {
    match text {
        "" | "None" => Ok(MountPropagation::Private),
        "HostToContainer" => Ok(MountPropagation::HostToContainer),
        "Bidirectional" => Ok(MountPropagation::Bidirectional),
        other => Err(MountError::Propagation(other.to_string())),
    }
}

fn recursive_read_only(mount: &Tree, propagation: MountPropagation, supported: bool) -> Result<bool, MountError> {
    let mode = mount.str("recursiveReadOnly");
    if matches!(mode, "" | "Disabled") {
        return Ok(false);
    }
    let refused = |source: RecursiveReadOnlyError| {
        Err(MountError::RecursiveReadOnly { volume: mount.str("name").to_string(), source })
    };
    if !mount.bool("readOnly") {
        return refused(RecursiveReadOnlyError::Writable);
    }
    if propagation != MountPropagation::Private {
        return refused(RecursiveReadOnlyError::Propagation(mount.str("mountPropagation").to_string()));
    }
    match mode {
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => refused(RecursiveReadOnlyError::Unsupported),
        other => Err(MountError::RecursiveReadOnlyMode(other.to_string())),
    }
}

/// The path below the volume, checked, or "".
fn sub_path(mount: &Tree, env: &[Variable]) -> Result<String, MountError> {
    let path = match mount.str("subPathExpr") {
        "" => mount.str("subPath").to_string(),
        expression => expanded(expression, env)?,
    };
    if path.starts_with('/') {
        return Err(MountError::AbsoluteSubPath(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(MountError::SubPathAbove(path));
    }
    Ok(path)
}

fn expanded(expression: &str, env: &[Variable]) -> Result<String, MountError> {
    let values: BTreeMap<&str, String> = env.iter().map(|one| (one.0.as_str(), env::text(one))).collect();
    let mut missing = BTreeSet::new();
    let path = expand(expression, |name| {
        let value = values.get(name).filter(|value| !value.is_empty());
        if value.is_none() {
            missing.insert(name.to_string());
        }
        value.map(|value| value.to_string())
    });
    if missing.is_empty() {
        return Ok(path);
    }
    Err(MountError::MissingVariables(missing.into_iter().collect()))
}

/// The mount and the container of a path below a volume.
struct SubpathContext<'a> {
    config: &'a Config,
    pod: &'a Tree,
    container: &'a Tree,
    volume: &'a Volume,
    index: usize,
}

impl SubpathContext<'_> {
    /// The path after a bind mount. The error has no details, because they could reveal files of the node.
    async fn bound(&self, path: &str) -> Result<String, MountError> {
        let target = self.config.pod_dir(pod::uid(self.pod)).join("volume-subpaths").join(&self.volume.name);
        let target = target.join(self.container.str("name")).join(self.index.to_string());
        let wanted =
            Subpath { volume: self.volume.made.path.clone(), path: PathBuf::from(path), target: target.clone() };
        let bound = blocking(move || Ok(wanted.bind()?)).await;
        bound.map(|()| text(&target)).map_err(|failure| {
            let (pod, volume, container) = (pod::name(self.pod), &self.volume.name, self.container.str("name"));
            tracing::warn!(pod, volume, container, path, error = %failure.source, "no subPath");
            MountError::SubPath { volume: volume.clone(), container: container.to_string() }
        })
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::execute::PreparedVolume;

    fn read(text: &str) -> Tree {
        api::yaml::decode(text.as_bytes()).unwrap()
    }

    fn mounted(list: &[(&str, PreparedVolume)]) -> MountedVolumes {
        let volume =
            |name: &str, made: &PreparedVolume| Volume { name: name.to_string(), group: None, made: made.clone() };
        let volumes = list.iter().map(|(name, made)| (name.to_string(), volume(name, made))).collect();
        MountedVolumes { volumes, ..MountedVolumes::default() }
    }

    #[tokio::test]
    async fn builds_cri_mounts() {
        let directory = PreparedVolume { path: "/v/e".into(), relabel: true, ..PreparedVolume::default() };
        let files = PreparedVolume { path: "/v/c".into(), read_only: true, ..PreparedVolume::default() };
        let image =
            PreparedVolume { read_only: true, image: Some(("img".into(), String::new())), ..PreparedVolume::default() };
        let device = PreparedVolume { path: "/dev/x".into(), is_device: true, ..PreparedVolume::default() };
        let mounted = mounted(&[("e", directory), ("c", files), ("i", image), ("d", device)]);
        let pulled = cri::ImageSpec { image: "sha256:1".into(), ..cri::ImageSpec::default() };
        let images = [("i".to_string(), pulled.clone())];
        let given = MountInputs { images: &images, recursive_read_only: true, ..MountInputs::default() };
        let container = read(
            r#"
name: m
volumeMounts:
- {name: e, mountPath: /e, mountPropagation: HostToContainer}
- {name: e, mountPath: again, readOnly: true, recursiveReadOnly: IfPossible}
- {name: c, mountPath: /c}
- {name: i, mountPath: /i, subPath: a/b}
volumeDevices: [{name: d, devicePath: /dev/in}]
"#,
        );
        let got = mounts(&Config::default(), &Tree::Null, &container, &mounted, &given).await.unwrap();
        let seen: Vec<_> = got
            .iter()
            .map(|m| (m.container_path.as_str(), m.host_path.as_str(), m.readonly, m.selinux_relabel))
            .collect();
        let wanted = [
            ("/e", "/v/e", false, true),
            ("/again", "/v/e", true, false),
            ("/c", "/v/c", true, false),
            ("/i", "", true, false),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(got[0].propagation, i32::from(MountPropagation::HostToContainer));
        assert_eq!([got[0].recursive_read_only, got[1].recursive_read_only], [false, true]);
        assert_eq!((got[3].image.as_ref(), got[3].image_sub_path.as_str()), (Some(&pulled), "a/b"));
        let devices = devices(&container, &mounted).unwrap();
        assert_eq!((devices[0].host_path.as_str(), devices[0].permissions.as_str()), ("/dev/x", "mrw"));
        let missing = read("{name: m, volumeMounts: [{name: d, mountPath: /d}]}");
        let error = mounts(&Config::default(), &Tree::Null, &missing, &mounted, &given).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot find volume \"d\" to mount into container \"m\"");
    }

    #[test]
    fn rejects_impossible_mounts() {
        let check = |mount: &str, supported: bool, wanted: Result<bool, &str>| {
            let mount = read(mount);
            let got =
                propagation(mount.str("mountPropagation")).and_then(|how| recursive_read_only(&mount, how, supported));
            let got = got.map_err(|error| error.to_string());
            assert_eq!(got.as_ref().map_err(String::as_str), wanted.as_ref().map_err(|text| *text));
        };
        check("{name: v, recursiveReadOnly: IfPossible, readOnly: true}", false, Ok(false));
        check("{name: v, recursiveReadOnly: Enabled, readOnly: true}", true, Ok(true));
        let none = "volume \"v\" requested recursive read-only mode, but it is not supported by the runtime";
        check("{name: v, recursiveReadOnly: Enabled, readOnly: true}", false, Err(none));
        let writable = "volume \"v\" requested recursive read-only mode, but it is not read-only";
        check("{name: v, recursiveReadOnly: Enabled}", true, Err(writable));
        let both = "volume \"v\" requested recursive read-only mode, but it is not compatible with propagation \"Bidirectional\"";
        check(
            "{name: v, recursiveReadOnly: Enabled, readOnly: true, mountPropagation: Bidirectional}",
            true,
            Err(both),
        );
        check("{mountPropagation: Sideways}", true, Err("invalid MountPropagation mode: \"Sideways\""));
    }

    #[test]
    fn expands_and_checks_sub_paths() {
        let env = [("A".to_string(), b"x".to_vec()), ("E".to_string(), Vec::new())];
        let cases = [
            ("{subPath: a/b}", Ok("a/b")),
            ("{}", Ok("")),
            ("{subPathExpr: $(A)/b}", Ok("x/b")),
            ("{subPathExpr: $(Z)/$(E)}", Err("missing value for E, Z")),
            ("{subPath: /a}", Err("error SubPath `/a` must not be an absolute path")),
            ("{subPath: a/../b}", Err("unable to provision SubPath `a/../b`: must not contain '..'")),
            ("{subPath: a..b}", Ok("a..b")),
        ];
        for (mount, wanted) in cases {
            let got = sub_path(&read(mount), &env).map_err(|error| error.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), wanted, "{mount}");
        }
    }
}
