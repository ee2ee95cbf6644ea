//! Images in files: Docker archives and OCI layouts, as directories and as tar streams.

mod export;
mod import;
mod source;

use serde::{Deserialize, Serialize};

pub use export::Output;

/// containerd's annotation for the fully qualified name of an image in an index.
const FULL_NAME: &str = "io.containerd.image.name";
/// OCI's annotation for the name, which may be only a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// An image in the `manifest.json` of a Docker archive.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}
