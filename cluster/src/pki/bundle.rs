//! What a server that joins a control plane gets from it: the CAs with their keys, the key of service account tokens,
//! how the store is reached, and the ranges of the cluster. It leaves a server only sealed with a key that the cluster
//! does not store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::{Tree, base64, tree};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::Pki;
use super::subjects::CAS;
use crate::error::{Error, Result};
use crate::machine::files::{write_durable, write_private};

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
/// Authenticated with the sealed bytes: they are nothing else.
const PURPOSE: &[u8] = b"tiphys server bundle v1";
/// The files of the etcd client below the directory of certificates, with kubeadm's names.
const ETCD_CA: &str = "etcd/ca.crt";
const ETCD_CERT: &str = "apiserver-etcd-client.crt";
const ETCD_KEY: &str = "apiserver-etcd-client.key";
const SETTINGS_FILE: &str = "server.json";

/// Why sealed data cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("a certificate key has {KEY_BYTES} bytes in hexadecimal digits")]
    Key,
    #[error("the certificate key does not fit: it belongs to another token")]
    OtherKey,
    #[error("it is no bundle of a server: {0}")]
    Content(String),
    #[error("the kernel has no random bytes")]
    Random,
}

/// How the store is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// The URLs of etcd; empty for the embedded store.
    pub etcd_servers: Vec<String>,
    pub etcd_prefix: String,
    pub etcd_ca_file: Option<PathBuf>,
    pub etcd_cert_file: Option<PathBuf>,
    pub etcd_key_file: Option<PathBuf>,
}

/// What all servers of a control plane agree about, besides their certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSettings {
    pub store: StoreSettings,
    pub pod_cidrs: Vec<String>,
    pub service_cidrs: Vec<String>,
}

/// The key with which a bundle is sealed. It is shown once, in the command for the joining server.
pub struct CertificateKey([u8; KEY_BYTES]);

impl CertificateKey {
    /// A random key.
    pub fn generate() -> Result<CertificateKey, BundleError> {
        let mut key = [0; KEY_BYTES];
        fill(&mut key)?;
        Ok(CertificateKey(key))
    }

    /// Reads hexadecimal digits.
    pub fn parse(text: &str) -> Result<CertificateKey, BundleError> {
        let digits = text.trim().as_bytes();
        let mut key = [0; KEY_BYTES];
        if digits.len() != 2 * KEY_BYTES {
            return Err(BundleError::Key);
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| BundleError::Key)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| BundleError::Key)?;
        }
        Ok(CertificateKey(key))
    }

    /// Its hexadecimal digits.
    pub fn to_text(&self) -> String {
        stdx::hex::encode(&self.0)
    }

    fn cipher(&self) -> Result<LessSafeKey, BundleError> {
        UnboundKey::new(&AES_256_GCM, &self.0).map(LessSafeKey::new).map_err(|_| BundleError::Key)
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), BundleError> {
    match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(()),
        _ => Err(BundleError::Random),
    }
}

/// The contents of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerBundle {
    /// Files below the directory of certificates.
    files: BTreeMap<String, String>,
    settings: ServerSettings,
}

/// The files that all servers of a control plane share.
fn shared_files() -> Vec<String> {
    let pair = |name: &str| [format!("{name}.crt"), format!("{name}.key")];
    let cas = CAS.iter().flat_map(|(name, _)| pair(name));
    cas.chain(["sa.key", "sa.pub"].map(str::to_string)).collect()
}

impl ServerBundle {
    /// Reads the bundle of a server's data directory.
    pub fn read(data_dir: &Path) -> Result<ServerBundle> {
        let settings = ServerSettings::read(data_dir)?.ok_or_else(|| {
            let why = format!("--data-dir: {} is not the data directory of `tiphys server`", data_dir.display());
            Error::Flags(vec![why])
        })?;
        if settings.store.etcd_servers.is_empty() {
            let why = "this control plane keeps its objects in the embedded store of its own machine, which other servers \
                       cannot reach: start `tiphys server` with --etcd-servers; `tiphys store copy` moves the objects";
            return Err(Error::Flags(vec![why.to_string()]));
        }
        let dir = data_dir.join("pki");
        let read = |path: &Path| std::fs::read_to_string(path).map_err(Error::file(path));
        let mut files = BTreeMap::new();
        for name in shared_files() {
            files.insert(name.clone(), read(&dir.join(&name))?);
        }
        let store = &settings.store;
        let of_etcd =
            [(ETCD_CA, &store.etcd_ca_file), (ETCD_CERT, &store.etcd_cert_file), (ETCD_KEY, &store.etcd_key_file)];
        for (name, path) in of_etcd {
            if let Some(path) = path {
                files.insert(name.to_string(), read(path)?);
            }
        }
        Ok(ServerBundle { files, settings })
    }

    /// Writes the files and the settings of a server that joins. Its CAs must not exist yet.
    pub fn write(&self, data_dir: &Path) -> Result<()> {
        let dir = Pki::open(data_dir.join("pki"))?.dir().to_path_buf();
        if dir.join("ca.crt").exists() {
            let why =
                format!("{} belongs to a cluster already: use another --data-dir, or reset it", data_dir.display());
            return Err(Error::Flags(vec![why]));
        }
        std::fs::create_dir_all(dir.join("etcd")).map_err(Error::file(&dir))?;
        let known = shared_files();
        let is_known =
            |name: &str| known.iter().any(|file| file == name) || [ETCD_CA, ETCD_CERT, ETCD_KEY].contains(&name);
        // The CA last: it completes the directory.
        let (last, first): (Vec<_>, Vec<_>) = self.files.iter().partition(|(name, _)| *name == "ca.crt");
        for (name, text) in first.into_iter().chain(last).filter(|(name, _)| is_known(name)) {
            write_durable(&dir.join(name), text)?;
        }
        let has = |name: &str| self.files.contains_key(name).then(|| dir.join(name));
        let mut settings = self.settings.clone();
        settings.store.etcd_ca_file = has(ETCD_CA);
        settings.store.etcd_cert_file = has(ETCD_CERT);
        settings.store.etcd_key_file = has(ETCD_KEY);
        settings.write(data_dir)
    }

    /// Encrypts the bundle.
    pub fn seal(&self, key: &CertificateKey) -> Result<Vec<u8>, BundleError> {
        let mut files = tree! {};
        self.files.iter().for_each(|(name, text)| files.set(name.as_str(), text.as_str()));
        let object = tree! { "files" => files, "settings" => self.settings.to_tree() };
        let mut bytes = api::json::encode(&object, None).to_vec();
        let mut nonce = [0; NONCE_BYTES];
        fill(&mut nonce)?;
        let sealed = Nonce::assume_unique_for_key(nonce);
        key.cipher()?.seal_in_place_append_tag(sealed, Aad::from(PURPOSE), &mut bytes).map_err(|_| BundleError::Key)?;
        Ok([&nonce[..], &bytes].concat())
    }

    /// Decrypts a bundle.
    pub fn open(key: &CertificateKey, sealed: &[u8]) -> Result<ServerBundle, BundleError> {
        let short = || BundleError::Content("it is too short".to_string());
        let (nonce, bytes) = sealed.split_at_checked(NONCE_BYTES).ok_or_else(short)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| short())?;
        let mut bytes = bytes.to_vec();
        let opened = key.cipher()?.open_in_place(nonce, Aad::from(PURPOSE), &mut bytes);
        let opened = opened.map_err(|_| BundleError::OtherKey)?;
        let object: Tree = api::json::decode(opened).map_err(|error| BundleError::Content(error.to_string()))?;
        let files = object.map("files").iter();
        let files = files.filter_map(|(name, text)| Some((name.to_string(), text.as_str()?.to_string())));
        Ok(ServerBundle { files: files.collect(), settings: ServerSettings::of_tree(object.at("settings")) })
    }

    /// The CA certificates of the cluster.
    pub fn ca(&self) -> &str {
        self.files.get("ca.crt").map_or("", String::as_str)
    }
}

impl ServerSettings {
    /// The settings of a data directory; None if no server has used it.
    pub fn read(data_dir: &Path) -> Result<Option<ServerSettings>> {
        let path = data_dir.join(SETTINGS_FILE);
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(&path)(error)),
            Ok(bytes) => {
                let wrong = |error: api::json::Error| Error::Flags(vec![format!("{}: {error}", path.display())]);
                api::json::decode(&bytes).map(|object| Some(ServerSettings::of_tree(&object))).map_err(wrong)
            }
        }
    }

    /// Keeps the settings for later starts.
    pub fn write(&self, data_dir: &Path) -> Result<()> {
        let text = api::json::encode(&self.to_tree(), None);
        write_private(&data_dir.join(SETTINGS_FILE), &String::from_utf8_lossy(&text))
    }

    fn to_tree(&self) -> Tree {
        let list = |texts: &[String]| texts.iter().map(|text| Tree::from(text.as_str())).collect::<Vec<Tree>>();
        let path =
            |path: &Option<PathBuf>| path.as_ref().map_or(String::new(), |path| path.to_string_lossy().into_owned());
        let store = &self.store;
        tree! {
            "etcdServers" => list(&store.etcd_servers),
            "etcdPrefix" => store.etcd_prefix.as_str(),
            "etcdCAFile" => path(&store.etcd_ca_file),
            "etcdCertFile" => path(&store.etcd_cert_file),
            "etcdKeyFile" => path(&store.etcd_key_file),
            "podCIDRs" => list(&self.pod_cidrs),
            "serviceCIDRs" => list(&self.service_cidrs),
        }
    }

    fn of_tree(object: &Tree) -> ServerSettings {
        let list = |field: &str| {
            object.list(field).iter().filter_map(|text| text.as_str().map(str::to_string)).collect::<Vec<String>>()
        };
        let path = |field: &str| Some(object.str(field)).filter(|path| !path.is_empty()).map(PathBuf::from);
        ServerSettings {
            store: StoreSettings {
                etcd_servers: list("etcdServers"),
                etcd_prefix: object.str("etcdPrefix").to_string(),
                etcd_ca_file: path("etcdCAFile"),
                etcd_cert_file: path("etcdCertFile"),
                etcd_key_file: path("etcdKeyFile"),
            },
            pod_cidrs: list("podCIDRs"),
            service_cidrs: list("serviceCIDRs"),
        }
    }
}

/// A bundle in the text of a Secret.
pub(crate) fn encode(sealed: &[u8]) -> String {
    base64::encode(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::subjects;

    fn first_server(dir: &Path) -> ServerBundle {
        let pki = Pki::open(dir.join("pki")).expect("a directory");
        subjects::ensure(&pki, &[]).expect("certificates");
        std::fs::write(dir.join("client.key"), "the key").expect("a file");
        let store = StoreSettings {
            etcd_servers: vec!["https://10.0.0.1:2379".to_string()],
            etcd_prefix: "/registry".to_string(),
            etcd_key_file: Some(dir.join("client.key")),
            ..StoreSettings::default()
        };
        let settings = ServerSettings { store, service_cidrs: vec!["10.96.0.0/16".to_string()], ..Default::default() };
        settings.write(dir).expect("settings");
        ServerBundle::read(dir).expect("a bundle")
    }

    #[test]
    fn a_second_server_gets_the_files_of_the_first() {
        let (first, second) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("one"));
        let bundle = first_server(first.path());
        let key = CertificateKey::generate().expect("a key");
        let sealed = bundle.seal(&CertificateKey::parse(&key.to_text()).expect("a key")).expect("sealed");
        assert!(!String::from_utf8_lossy(&sealed).contains("PRIVATE"), "nothing is readable");
        let opened = ServerBundle::open(&key, &sealed).expect("opened");
        assert!(opened == bundle);
        opened.write(second.path()).expect("written");
        for name in shared_files() {
            let read = |dir: &Path| std::fs::read(dir.join("pki").join(&name)).expect("a file");
            assert_eq!(read(first.path()), read(second.path()), "{name}");
        }
        let kept = ServerSettings::read(second.path()).expect("settings").expect("settings");
        let key_file = kept.store.etcd_key_file.expect("a file");
        assert_eq!(std::fs::read_to_string(key_file).expect("a file"), "the key");
        let why = opened.write(second.path()).expect_err("refused").describe();
        assert!(why.contains("belongs to a cluster already"), "{why}");
    }

    #[test]
    fn only_its_key_opens_a_bundle() {
        let dir = tempfile::tempdir().expect("a directory");
        let bundle = first_server(dir.path());
        let key = CertificateKey::generate().expect("a key");
        let sealed = bundle.seal(&key).expect("sealed");
        let other = CertificateKey::generate().expect("a key");
        assert!(matches!(ServerBundle::open(&other, &sealed), Err(BundleError::OtherKey)));
        let mut changed = sealed.clone();
        changed[20] ^= 1;
        assert!(matches!(ServerBundle::open(&key, &changed), Err(BundleError::OtherKey)));
        assert!(matches!(ServerBundle::open(&key, b"short"), Err(BundleError::Content(_))));
        for text in ["", "zz", &"g".repeat(64), &"é".repeat(32)] {
            assert!(CertificateKey::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_embedded_store_cannot_be_shared() {
        let dir = tempfile::tempdir().expect("a directory");
        let why = |result: Result<ServerBundle>| result.err().map(|error| error.describe()).unwrap_or_default();
        assert!(why(ServerBundle::read(dir.path())).contains("is not the data directory of `tiphys server`"));
        ServerSettings::default().write(dir.path()).expect("settings");
        assert!(why(ServerBundle::read(dir.path())).contains("--etcd-servers"));
    }
}
