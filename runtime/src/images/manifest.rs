//! Manifests, indexes and configurations of images, of Docker's schema 2 and of OCI. Nothing here does I/O.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::digest::{Digest, chain};
use super::error::{Error, Result};

pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(super) const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
pub(super) const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// The size limit of a manifest.
pub(super) const MAX_BYTES: u64 = 4 << 20;
/// The number of lower directories that overlayfs supports, minus the empty one for images without layers.
pub(super) const MAX_LAYERS: usize = 499;

/// A reference to content by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, digest: Digest, size: u64) -> Descriptor {
        Descriptor { media_type: media_type.to_owned(), digest, size, platform: None, annotations: None }
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }
}

/// The operating system and architecture of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

impl Platform {
    /// The platform of this machine.
    pub fn host() -> Platform {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "x86" => ("386", ""),
            "powerpc64" => ("ppc64le", ""),
            other => (other, ""),
        };
        Platform { os: "linux".to_owned(), architecture: architecture.to_owned(), variant: variant.to_owned() }
    }

    fn describe(&self) -> String {
        let parts = [&self.os, &self.architecture, &self.variant];
        parts.into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("/")
    }

    /// How well an image for `self` runs on `host`: 0 is best, None means that it cannot run.
    fn distance(&self, host: &Platform) -> Option<u8> {
        if self.os != host.os || self.architecture != host.architecture {
            return None;
        }
        let number = |variant: &str| variant.trim_start_matches('v').parse::<u8>().ok();
        match (number(&self.variant), number(&host.variant)) {
            (Some(image), Some(host)) => host.checked_sub(image),
            // For arm64, v8 and no variant mean the same.
            (None, _) if self.variant.is_empty() => Some(if self.architecture == "arm" { 16 } else { 0 }),
            (None, _) => None,
            // amd64/v2 and above need instructions that the host may not have.
            (Some(image), None) => (image <= 1).then_some(1),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub manifests: Vec<Descriptor>,
}

impl Index {
    /// The image of an index that fits the host best.
    pub(super) fn choose(&self, what: &str, host: &Platform) -> Result<&Descriptor> {
        let runs = |descriptor: &&Descriptor| match &descriptor.platform {
            Some(platform) => platform.distance(host),
            // An entry without a platform is for all platforms.
            None => Some(u8::MAX),
        };
        let best = self.manifests.iter().filter(|one| runs(one).is_some()).min_by_key(|one| runs(one));
        best.ok_or_else(|| platform_error(what, host, self.manifests.iter().filter_map(|one| one.platform.as_ref())))
    }
}

fn platform_error<'a>(what: &str, host: &Platform, offered: impl Iterator<Item = &'a Platform>) -> Error {
    let mut names: Vec<String> = offered.filter(|one| one.os != "unknown").map(Platform::describe).collect();
    names.sort();
    names.dedup();
    Error::Platform { what: what.to_owned(), wanted: host.describe(), offered: names.join(", ") }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub schema_version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_type: String,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

impl Manifest {
    fn check(self, what: &str) -> Result<Manifest> {
        let wrong = |why: String| Error::Manifest { what: what.to_owned(), why };
        if self.schema_version != 2 {
            return Err(wrong(format!("schema version {} is not supported", self.schema_version)));
        }
        if !matches!(self.config.media_type.as_str(), OCI_CONFIG | DOCKER_CONFIG | "") {
            return Err(wrong(format!("unsupported configuration type {}", self.config.media_type)));
        }
        if self.layers.len() > MAX_LAYERS {
            return Err(wrong(format!("{} layers exceed the limit of {MAX_LAYERS}", self.layers.len())));
        }
        if let Some(layer) = self.layers.iter().find(|layer| !is_layer(&layer.media_type)) {
            return Err(wrong(format!("layer {} has the unsupported type {:?}", layer.digest, layer.media_type)));
        }
        Ok(self)
    }

    /// The bytes to transfer: the configuration and the layers.
    pub(super) fn size(&self) -> u64 {
        self.layers.iter().fold(self.config.size, |sum, layer| sum.saturating_add(layer.size))
    }
}

/// The compression is detected from the first bytes, so the media type only has to be that of a layer.
fn is_layer(media_type: &str) -> bool {
    let plain = media_type.strip_suffix("+gzip").or_else(|| media_type.strip_suffix("+zstd")).unwrap_or(media_type);
    let plain = plain.strip_suffix(".gzip").or_else(|| plain.strip_suffix(".zstd")).unwrap_or(plain);
    matches!(plain, "" | OCI_LAYER | DOCKER_LAYER)
        || matches!(
            plain,
            "application/vnd.oci.image.layer.nondistributable.v1.tar"
                | "application/vnd.docker.image.rootfs.foreign.diff.tar"
        )
}

pub(super) enum Document {
    Index(Index),
    Manifest(Manifest),
}

/// Parses a document by its contents; the media type of the response is not trusted.
pub(super) fn read(what: &str, bytes: &[u8]) -> Result<Document> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DocumentKind {
        #[serde(default)]
        schema_version: u32,
        manifests: Option<serde::de::IgnoredAny>,
        layers: Option<serde::de::IgnoredAny>,
        fs_layers: Option<serde::de::IgnoredAny>,
    }
    let wrong = |why: String| Error::Manifest { what: what.to_owned(), why };
    let json = |error: serde_json::Error| wrong(format!("invalid manifest: {error}"));
    let shape: DocumentKind = serde_json::from_slice(bytes).map_err(json)?;
    match (shape.manifests.is_some(), shape.layers.is_some()) {
        // A scanner might interpret such a document differently.
        (true, true) => Err(wrong("the manifest is both an index and an image".to_owned())),
        (true, false) => Ok(Document::Index(serde_json::from_slice(bytes).map_err(json)?)),
        (false, true) => serde_json::from_slice::<Manifest>(bytes).map_err(json)?.check(what).map(Document::Manifest),
        (false, false) if shape.schema_version == 1 || shape.fs_layers.is_some() => {
            Err(wrong("Docker's schema 1 is not supported: push the image again".to_owned()))
        }
        (false, false) => Err(wrong("the manifest has neither layers nor manifests".to_owned())),
    }
}

/// How an image's containers are run. The field names on disk are those of the image configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Config {
    #[serde(deserialize_with = "nullable")]
    pub user: String,
    #[serde(deserialize_with = "nullable")]
    pub env: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub entrypoint: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub cmd: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub working_dir: String,
    #[serde(deserialize_with = "nullable")]
    pub stop_signal: String,
    #[serde(deserialize_with = "keys", serialize_with = "as_keys")]
    pub volumes: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "keys", serialize_with = "as_keys", rename = "ExposedPorts")]
    pub exposed: Vec<String>,
}

fn nullable<'de, D: serde::Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

fn keys<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let map = Option::<BTreeMap<String, serde::de::IgnoredAny>>::deserialize(from)?;
    Ok(map.unwrap_or_default().into_keys().collect())
}

fn as_keys<S: serde::Serializer>(keys: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(keys.iter().map(|key| (key, BTreeMap::<(), ()>::new())))
}

/// The configuration document. Its digest is the image's ID.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ImageConfig {
    #[serde(flatten)]
    pub platform: Platform,
    #[serde(default, deserialize_with = "nullable")]
    pub config: Config,
    pub rootfs: RootFs,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RootFs {
    #[serde(default, deserialize_with = "nullable")]
    pub diff_ids: Vec<Digest>,
}

impl ImageConfig {
    pub(super) fn read(what: &str, bytes: &[u8], layers: usize, host: &Platform) -> Result<ImageConfig> {
        let wrong = |why: String| Error::Manifest { what: what.to_owned(), why };
        let image: ImageConfig =
            serde_json::from_slice(bytes).map_err(|error| wrong(format!("invalid configuration: {error}")))?;
        if image.rootfs.diff_ids.len() != layers {
            let named = image.rootfs.diff_ids.len();
            return Err(wrong(format!("the configuration has {named} layers, the manifest {layers}")));
        }
        let silent = image.platform.os.is_empty() && image.platform.architecture.is_empty();
        if !silent && image.platform.distance(host).is_none() {
            return Err(platform_error(what, host, [&image.platform].into_iter()));
        }
        Ok(image)
    }

    pub(super) fn chain(&self) -> Vec<Digest> {
        chain(&self.rootfs.diff_ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Platform { os: next(), architecture: next(), variant: next() }
    }

    #[test]
    fn chooses_the_best_platform() {
        let cases: &[(&str, &[&str], Option<usize>)] = &[
            ("linux/amd64", &["linux/arm64", "linux/amd64"], Some(1)),
            ("linux/amd64", &["windows/amd64", "linux/arm64"], None),
            ("linux/amd64", &["unknown/unknown", "linux/amd64"], Some(1)),
            ("linux/amd64", &["linux/amd64/v3", "linux/amd64"], Some(1)),
            ("linux/amd64", &["linux/amd64/v3"], None),
            ("linux/arm64/v8", &["linux/arm64"], Some(0)),
            ("linux/arm64/v8", &["linux/arm/v7", "linux/arm64/v8"], Some(1)),
            ("linux/arm/v7", &["linux/arm/v5", "linux/arm/v6"], Some(1)),
            ("linux/arm/v6", &["linux/arm/v7"], None),
            ("linux/riscv64", &["linux/riscv64"], Some(0)),
        ];
        for (host, offered, expected) in cases {
            let manifests = offered.iter().map(|text| Descriptor {
                platform: Some(platform(text)),
                ..Descriptor::new(OCI_MANIFEST, Digest::of(text.as_bytes()), 1)
            });
            let index = Index { schema_version: 2, media_type: String::new(), manifests: manifests.collect() };
            let chosen = index.choose("x", &platform(host)).ok();
            let expected = expected.map(|at| Digest::of(offered[at].as_bytes()));
            assert_eq!(chosen.map(|one| one.digest.clone()), expected, "{host} of {offered:?}");
        }
    }

    #[test]
    fn distinguishes_documents() {
        let digest = Digest::of(b"");
        let config = format!(r#"{{"mediaType":"{OCI_CONFIG}","digest":"{digest}","size":1}}"#);
        let layer = |media: &str| format!(r#"{{"mediaType":"{media}","digest":"{digest}","size":1}}"#);
        let manifest = |layers: &str| format!(r#"{{"schemaVersion":2,"config":{config},"layers":[{layers}]}}"#);
        let cases: &[(String, Result<(), &str>)] = &[
            (manifest(""), Ok(())),
            (manifest(&layer(&format!("{OCI_LAYER}+gzip"))), Ok(())),
            (manifest(&layer(&format!("{DOCKER_LAYER}.gzip"))), Ok(())),
            (manifest(&layer("application/x-sh")), Err("unsupported type")),
            (r#"{"schemaVersion":2,"manifests":[]}"#.to_owned(), Ok(())),
            (r#"{"schemaVersion":1,"fsLayers":[]}"#.to_owned(), Err("schema 1")),
            (r#"{"schemaVersion":2,"manifests":[],"layers":[]}"#.to_owned(), Err("both an index and an image")),
            (r#"{"schemaVersion":2}"#.to_owned(), Err("neither")),
            ("<html>".to_owned(), Err("invalid manifest")),
            (manifest(&vec![layer(""); 500].join(",")), Err("500 layers")),
            (
                manifest("").replace(OCI_CONFIG, "application/vnd.cncf.helm.config.v1+json"),
                Err("unsupported configuration type"),
            ),
            (manifest("").replace(digest.as_str(), "sha256:../../x"), Err("not a digest")),
        ];
        for (text, expected) in cases {
            match (read("x", text.as_bytes()), expected) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{text}: {error}"),
                (found, _) => panic!("{text}: {:?}", found.err().map(|error| error.to_string())),
            }
        }
    }

    #[test]
    fn parses_configurations() {
        let digest = Digest::of(b"");
        let text = format!(
            r#"{{"os":"linux","architecture":"amd64","rootfs":{{"type":"layers","diff_ids":["{digest}"]}},
            "config":{{"User":"app","Env":null,"Cmd":["sh"],"Volumes":{{"/data":{{}}}},"ExposedPorts":{{"80/tcp":{{}}}},
            "Labels":{{"a":"b"}},"StopSignal":"SIGQUIT"}}}}"#
        );
        let host = platform("linux/amd64");
        let image = ImageConfig::read("x", text.as_bytes(), 1, &host).unwrap();
        assert_eq!((image.config.user.as_str(), image.config.stop_signal.as_str()), ("app", "SIGQUIT"));
        assert_eq!((image.config.volumes, image.config.exposed), (vec!["/data".to_owned()], vec!["80/tcp".to_owned()]));
        assert!(ImageConfig::read("x", text.as_bytes(), 2, &host).is_err());
        let error = ImageConfig::read("x", text.as_bytes(), 1, &platform("linux/arm64/v8")).unwrap_err();
        assert_eq!(error.to_string(), "x has no image for linux/arm64/v8, only for linux/amd64");
    }
}
