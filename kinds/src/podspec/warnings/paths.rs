//! Overlapping files of a volume.

use api::Tree;
use api::field::go_quote;

/// Paths are compared pairwise; a volume with more paths than this is skipped.
const MAX_COMPARED_PATHS: usize = 256;

/// A file of a volume, and its source.
struct File<'a> {
    path: &'a str,
    source: String,
}

impl File<'_> {
    fn shown(&self) -> String {
        match self.source.as_str() {
            "" => go_quote(self.path),
            source => format!("{} ({source})", go_quote(self.path)),
        }
    }

    /// The same path, or one is a parent directory of the other.
    fn overlaps(&self, other: &File<'_>) -> bool {
        let above = |upper: &str, lower: &str| {
            lower.strip_prefix(upper).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !self.path.is_empty()
            && !other.path.is_empty()
            && (above(self.path, other.path) || above(other.path, self.path))
    }
}

/// Warnings for all volumes of a pod spec.
pub(super) fn overlapping(spec: &Tree, out: &mut Vec<String>) {
    for volume in spec.list("volumes") {
        let name = volume.str("name");
        let config_map = volume.at("configMap");
        compare(name, &named("ConfigMap", config_map.str("name")), items(config_map, ""), out);
        let secret = volume.at("secret");
        compare(name, &named("Secret", secret.str("secretName")), items(secret, ""), out);
        compare(name, "DownwardAPI", items(volume.at("downwardAPI"), ""), out);
        if volume.has("projected") {
            projected(name, volume.list("projected.sources"), out);
        }
    }
}

fn named(kind: &str, name: &str) -> String {
    format!("{kind} {}", go_quote(name))
}

fn file(path: &str, source: impl Into<String>) -> File<'_> {
    File { path: path.trim_end_matches('/'), source: source.into() }
}

fn items<'a>(source: &'a Tree, description: &str) -> Vec<File<'a>> {
    source.list("items").iter().map(|item| file(item.str("path"), description)).collect()
}

fn projected(name: &str, sources: &[Tree], out: &mut Vec<String>) {
    let mut files = Vec::new();
    for source in sources {
        if source.as_map().is_none_or(api::Map::is_empty) {
            out.push(format!("volume {} (Projected) has no sources provided", go_quote(name)));
        }
        files.extend(projected_files(source));
    }
    compare(name, "Projected", files, out);
}

fn projected_files(source: &Tree) -> Vec<File<'_>> {
    let (config_map, secret) = (source.at("configMap"), source.at("secret"));
    let bundle = source.at("clusterTrustBundle");
    if config_map.has("items") {
        items(config_map, &named("ConfigMap", config_map.str("name")))
    } else if secret.has("items") {
        items(secret, &named("Secret", secret.str("name")))
    } else if source.at("downwardAPI").has("items") {
        items(source.at("downwardAPI"), "DownwardAPI")
    } else if source.has("serviceAccountToken") {
        vec![file(source.str("serviceAccountToken.path"), "ServiceAccountToken")]
    } else if !bundle.is_null() {
        let name = bundle.at("name").as_str().unwrap_or(bundle.str("signerName"));
        vec![file(bundle.str("path"), named("ClusterTrustBundle", name))]
    } else {
        certificate_files(source.at("podCertificate"))
    }
}

fn certificate_files(certificate: &Tree) -> Vec<File<'_>> {
    let parts = [
        ("certificateChainPath", "PodCertificate chain"),
        ("keyPath", "PodCertificate key"),
        ("credentialBundlePath", "PodCertificate credential bundle"),
    ];
    parts.into_iter().map(|(key, source)| file(certificate.str(key), source)).collect()
}

fn compare(volume: &str, description: &str, files: Vec<File<'_>>, out: &mut Vec<String>) {
    if files.len() > MAX_COMPARED_PATHS {
        return;
    }
    for (index, file) in files.iter().enumerate() {
        for other in files[..index].iter().filter(|other| file.overlaps(other)) {
            let volume = go_quote(volume);
            let (file, other) = (file.shown(), other.shown());
            out.push(format!("volume {volume} ({description}): overlapping paths: {file} with {other}"));
        }
    }
}
