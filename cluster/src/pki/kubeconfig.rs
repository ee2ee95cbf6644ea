//! The file with which kubectl finds the cluster and its user.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use api::{Tree, base64, list, tree};

use super::CertificateAndKey;
use crate::error::{Error, Result};
use crate::machine::address::reachable;
use crate::machine::files::write_private;

/// A kubeconfig with one cluster, one user and one context.
pub fn write(server: &str, ca: &str, user: &str, client: &CertificateAndKey) -> Vec<u8> {
    let cluster = tree! { "server" => server, "certificate-authority-data" => base64::encode(ca.as_bytes()) };
    let credentials = tree! {
        "client-certificate-data" => base64::encode(client.certificate.as_bytes()),
        "client-key-data" => base64::encode(client.key.as_bytes()),
    };
    let config: Tree = tree! {
        "apiVersion" => "v1",
        "kind" => "Config",
        "current-context" => "tiphys",
        "clusters" => list![tree! { "name" => "tiphys", "cluster" => cluster }],
        "users" => list![tree! { "name" => user, "user" => credentials }],
        "contexts" => list![tree! { "name" => "tiphys", "context" => tree! { "cluster" => "tiphys", "user" => user } }],
    };
    api::yaml::encode(&config)
}

/// The kubeconfig of the administrator, for clients of this machine.
pub(crate) fn write_kubeconfig(
    path: &Path,
    address: SocketAddr,
    ca: &CertificateAndKey,
    admin: &CertificateAndKey,
) -> Result<()> {
    let url = format!("https://{}", SocketAddr::new(reachable(address.ip()), address.port()));
    let text = write(&url, &ca.certificate, "kubernetes-admin", admin);
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
    }
    write_private(path, &String::from_utf8_lossy(&text))
}

/// The kubeconfigs of the administrator that a cluster keeps up to date.
#[derive(Debug, Clone)]
pub struct Kubeconfigs {
    /// The cluster's own file.
    pub own: PathBuf,
    /// The user's file, which may have other clusters too.
    pub merged: Option<MergedKubeconfig>,
}

/// A context in the user's kubeconfig.
#[derive(Debug, Clone)]
pub struct MergedKubeconfig {
    pub path: PathBuf,
    pub context: String,
}

impl Kubeconfigs {
    /// Only the cluster's own file.
    pub fn own(path: PathBuf) -> Kubeconfigs {
        Kubeconfigs { own: path, merged: None }
    }

    /// Writes all of them.
    pub(crate) fn write(
        &self,
        address: SocketAddr,
        ca: &CertificateAndKey,
        admin: &CertificateAndKey,
        selects: bool,
    ) -> Result<()> {
        write_kubeconfig(&self.own, address, ca, admin)?;
        match &self.merged {
            Some(merged) => merged.update(|config| merge(config, &merged.context, address, ca, admin, selects)),
            None => Ok(()),
        }
    }
}

impl MergedKubeconfig {
    /// The user's file as kubectl finds it.
    pub(crate) fn of_user(context: String) -> Result<MergedKubeconfig> {
        let first = std::env::var_os("KUBECONFIG").and_then(|paths| std::env::split_paths(&paths).next());
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
        let path = first.filter(|path| !path.as_os_str().is_empty()).or_else(home);
        let why = || Error::Flags(vec!["--merge-kubeconfig: neither $KUBECONFIG nor $HOME is set".to_string()]);
        Ok(MergedKubeconfig { path: path.ok_or_else(why)?, context })
    }

    /// Changes the file while no other program does.
    fn update(&self, change: impl FnOnce(Tree) -> Tree) -> Result<()> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).map_err(Error::file(parent))?;
        let _lock = FileLock::take(&self.path)?;
        let config = match std::fs::read(&self.path) {
            Ok(text) => parse(&self.path, &text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => tree! { "apiVersion" => "v1", "kind" => "Config" },
            Err(error) => return Err(Error::file(&self.path)(error)),
        };
        let text = api::yaml::encode(&change(config));
        write_private(&self.path, &String::from_utf8_lossy(&text))?;
        give_to_owner_of(parent, &self.path)
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<Tree> {
    let bad = |why: String| Error::Flags(vec![format!("--merge-kubeconfig: {}: {why}", path.display())]);
    let config = api::yaml::decode(text).map_err(|error| bad(error.to_string()))?;
    match (config.is_null(), config.as_map().is_some()) {
        (true, _) => Ok(tree! { "apiVersion" => "v1", "kind" => "Config" }),
        (false, true) => Ok(config),
        (false, false) => Err(bad("it is not a kubeconfig".to_string())),
    }
}

/// With sudo, the file is in the directory of another user, who has to be able to read it.
fn give_to_owner_of(directory: &Path, file: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(directory).map_err(Error::file(directory))?;
    if rustix::process::geteuid().is_root() && owner.uid() != 0 {
        std::os::unix::fs::lchown(file, Some(owner.uid()), Some(owner.gid())).map_err(Error::file(file))?;
    }
    Ok(())
}

/// The lock file that kubectl uses for the same kubeconfig.
struct FileLock(PathBuf);

impl FileLock {
    fn take(path: &Path) -> Result<FileLock> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        std::fs::OpenOptions::new().write(true).create_new(true).open(&lock).map_err(Error::file(&lock))?;
        Ok(FileLock(lock))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Replaces the cluster, the user and the context of one name. `selects` makes the context the current one.
fn merge(
    mut config: Tree,
    context: &str,
    address: SocketAddr,
    ca: &CertificateAndKey,
    admin: &CertificateAndKey,
    selects: bool,
) -> Tree {
    let server = format!("https://{}", SocketAddr::new(reachable(address.ip()), address.port()));
    let own = api::yaml::decode(&write(&server, &ca.certificate, "kubernetes-admin", admin)).unwrap_or_default();
    let first =
        |list: &str, field: &str| own.list(list).first().map(|entry| entry.at(field).clone()).unwrap_or_default();
    let entries = [
        ("clusters", tree! { "name" => context, "cluster" => first("clusters", "cluster") }),
        ("users", tree! { "name" => context, "user" => first("users", "user") }),
        ("contexts", tree! { "name" => context, "context" => tree! { "cluster" => context, "user" => context } }),
    ];
    for (list, entry) in entries {
        let mut others: Vec<Tree> =
            config.list(list).iter().filter(|other| other.str("name") != context).cloned().collect();
        others.push(entry);
        config.set(list, others);
    }
    if selects || config.str("current-context").is_empty() {
        config.set("current-context", context);
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> CertificateAndKey {
        CertificateAndKey {
            certificate: format!("{name} certificate"),
            key: format!("{name} key"),
            path: "/pki/test.crt".into(),
        }
    }

    #[test]
    fn merges_into_the_users_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kube/config");
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        let files = |context: &str| Kubeconfigs {
            own: dir.path().join("own"),
            merged: Some(MergedKubeconfig { path: path.clone(), context: context.to_string() }),
        };
        let read = || api::yaml::decode(&std::fs::read(&path).expect("a file")).expect("YAML");
        let names =
            |list: &str| read().list(list).iter().map(|entry| entry.str("name").to_string()).collect::<Vec<_>>();
        files("tiphys").write(address, &pair("ca"), &pair("admin"), true).expect("a file");
        files("tiphys-dev").write(address, &pair("ca"), &pair("dev"), false).expect("a file");
        for list in ["clusters", "users", "contexts"] {
            assert_eq!(names(list), ["tiphys", "tiphys-dev"], "{list}");
        }
        assert_eq!(read().str("current-context"), "tiphys");
        files("tiphys-dev").write(address, &pair("ca"), &pair("new"), true).expect("a file");
        assert_eq!(names("users"), ["tiphys", "tiphys-dev"], "it is replaced");
        assert_eq!(read().str("current-context"), "tiphys-dev");
        let key = read().list("users")[1].at("user").str("client-key-data").to_string();
        assert_eq!(key, base64::encode(b"new key"));
        assert!(!dir.path().join("kube/config.lock").exists());
    }

    #[test]
    fn keeps_a_file_that_is_no_kubeconfig() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let merged = MergedKubeconfig { path: path.clone(), context: "tiphys".to_string() };
        for (text, want) in [("- a\n", "not a kubeconfig"), ("{", "config")] {
            std::fs::write(&path, text).expect("a file");
            let error = merged.update(|config| config).expect_err("refused").describe();
            assert!(error.contains(want), "{error}");
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), text);
        }
        std::fs::write(dir.path().join("config.lock"), "").expect("a file");
        let error = merged.update(|config| config).expect_err("locked").describe();
        assert!(error.contains("config.lock"), "{error}");
    }
}
