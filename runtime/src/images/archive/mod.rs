//! Images in files: Docker's archives and OCI's layouts, as directories and as tar streams.

mod export;
mod import;
mod source;

use serde::{Deserialize, Serialize};

pub use export::Output;

/// What containerd calls an image in a layout's index, completely.
const FULL_NAME: &str = "io.containerd.image.name";
/// What OCI calls it, which may be no more than a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// An image in the `manifest.json` of Docker's archives.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}
