//! Which credentials are for an image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Tree, base64, json};

use super::records::{Credential, Source};

/// The hub has several names, and its own path for credentials.
const HUB: [&str; 4] = ["docker.io", "index.docker.io", "registry-1.docker.io", "index.docker.io/v1"];

/// Credentials of a pod's secrets for an image, the most specific first.
pub(crate) fn find(secrets: &[Arc<Tree>], image: &str) -> Vec<Credential> {
    let of = |secret: &Arc<Tree>| {
        let text = |path: &str| secret.str(path).to_string();
        let (uid, namespace, name) = (text("metadata.uid"), text("metadata.namespace"), text("metadata.name"));
        let source = Source::Secret { uid, namespace, name };
        entries(secret).into_iter().map(move |(server, entry)| (server, entry, source.clone()))
    };
    fitting(secrets.iter().flat_map(of), image)
}

/// The same, from a map of servers.
pub(crate) fn credentials_from_auths(auths: &Tree, image: &str, source: &Source) -> Vec<Credential> {
    let known = auths.as_map().into_iter().flat_map(|map| map.iter());
    fitting(known.map(|(server, entry)| (server.to_string(), entry.clone(), source.clone())), image)
}

/// The node's own credentials, from upstream's legacy files.
pub(crate) fn node_credentials(root_dir: &Path, image: &str) -> Vec<Credential> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker/config.json"));
    let files = std::iter::once(root_dir.join("config.json")).chain(home);
    let read = |file: PathBuf| json::decode(&std::fs::read(file).ok()?).ok();
    files
        .filter_map(read)
        .flat_map(|config: Tree| credentials_from_auths(config.at("auths"), image, &Source::Node))
        .collect()
}

fn fitting(known: impl Iterator<Item = (String, Tree, Source)>, image: &str) -> Vec<Credential> {
    let fitting = known.filter(|(server, _, _)| fits(server, image));
    let made = |(server, entry, source): (String, Tree, Source)| {
        (plain(&server).len(), Credential { auth: auth(&entry), source })
    };
    let mut fitting: Vec<(usize, Credential)> = fitting.map(made).collect();
    fitting.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    fitting.into_iter().map(|(_, credential)| credential).collect()
}

/// Servers and their credentials, in either of the two formats of secrets.
fn entries(secret: &Tree) -> Vec<(String, Tree)> {
    let data = secret.map("data");
    let decoded = |key: &str| base64::decode(data.str(key)).ok().and_then(|bytes| json::decode(&bytes).ok());
    let servers = match secret.str("type") {
        "kubernetes.io/dockerconfigjson" => decoded(".dockerconfigjson").map(|tree| tree.at("auths").clone()),
        "kubernetes.io/dockercfg" => decoded(".dockercfg"),
        _ => None,
    };
    let servers = servers.unwrap_or_default();
    let Some(map) = servers.as_map() else { return Vec::new() };
    map.iter().map(|(server, entry)| (server.to_string(), entry.clone())).collect()
}

/// No server address, as upstream: it was chosen already, and containerd rejects an address without a scheme.
fn auth(entry: &Tree) -> cri::AuthConfig {
    let both = base64::decode(entry.str("auth")).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let (user, password) = both.as_deref().and_then(|both| both.split_once(':')).unwrap_or_default();
    let or = |text: &str, otherwise: &str| if text.is_empty() { otherwise.to_string() } else { text.to_string() };
    cri::AuthConfig {
        username: or(entry.str("username"), user),
        password: or(entry.str("password"), password),
        identity_token: entry.str("identitytoken").to_string(),
        registry_token: entry.str("registrytoken").to_string(),
        ..Default::default()
    }
}

/// Without scheme, the paths of old APIs, and a slash at the end.
fn plain(server: &str) -> String {
    let text = server.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let text = text.strip_suffix("/v1").or_else(|| text.strip_suffix("/v2")).unwrap_or(text);
    text.to_string()
}

/// The server and path of an image, without tag and digest.
pub(crate) fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or(image);
    let (head, last) = name.rsplit_once('/').unwrap_or(("", name));
    let last = last.split(':').next().unwrap_or(last);
    let name = if head.is_empty() { last.to_string() } else { format!("{head}/{last}") };
    let first = name.split('/').next().unwrap_or_default();
    let has_server = name.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    if has_server { name } else { format!("docker.io/{name}") }
}

/// Whether a server, which may be a pattern and have a path, is an image's.
pub(crate) fn fits(server: &str, image: &str) -> bool {
    let server = plain(server);
    let image = repository(image);
    let (image_host, image_path) = image.split_once('/').unwrap_or((&image, ""));
    let (host, path) = server.split_once('/').unwrap_or((&server, ""));
    let same_host = if HUB.contains(&host) { HUB.contains(&image_host) } else { matches(host, image_host) };
    same_host
        && (path.is_empty()
            || HUB.contains(&server.as_str())
            || image_path == path
            || image_path.starts_with(&format!("{path}/")))
}

/// `*` matches a label of a host name.
fn matches(pattern: &str, host: &str) -> bool {
    let (pattern, host): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern.len() == host.len() && pattern.iter().zip(&host).all(|(pattern, part)| glob(pattern, part))
}

fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail),
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn matches_servers_by_host_and_path() {
        let cases = [
            ("https://index.docker.io/v1/", "nginx", true),
            ("docker.io", "library/nginx:1", true),
            ("registry.example", "registry.example/a/b:2", true),
            ("registry.example:5000", "registry.example:5000/a", true),
            ("registry.example", "registry.example:5000/a", false),
            ("registry.example/a", "registry.example/a/b", true),
            ("registry.example/a", "registry.example/ab", false),
            ("*.example", "registry.example/a", true),
            ("*.example", "a.registry.example/a", false),
            ("registry.example", "docker.io/registry.example", false),
            ("registry.example", "nginx", false),
        ];
        for (server, image, expected) in cases {
            assert_eq!(fits(server, image), expected, "{server} {image}");
        }
    }

    #[test]
    fn the_most_specific_credential_comes_first() {
        let config = r#"{"auths":{"r.example":{"username":"a","password":"1"},"r.example/x":{"auth":"Yjoy"}}}"#;
        let data = tree! { ".dockerconfigjson" => base64::encode(config.as_bytes()) };
        let secret = Arc::new(tree! { "type" => "kubernetes.io/dockerconfigjson", "data" => data });
        let found = find(&[secret], "r.example/x/y:1");
        let users: Vec<_> =
            found.iter().map(|found| (found.auth.username.as_str(), found.auth.password.as_str())).collect();
        assert_eq!(users, [("b", "2"), ("a", "1")]);
    }
}
