//! Decides which pods may use an image that is present: those that could pull it. The credential of each pull is
//! recorded; an image without a record was preloaded for all pods, unless the policy forbids that. An intent is
//! recorded before the pull: an image does not count as preloaded because the kubelet was stopped in between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::{Tree, json, tree};
use aws_lc_rs::digest;
use stdx::fs::ReplaceOptions;
use stdx::sync::{Mutex, MutexGuard};

use crate::config::ImageVerification;
use crate::volumes;

/// The origin of a credential.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Source {
    Secret {
        uid: String,
        namespace: String,
        name: String,
    },
    Account {
        uid: String,
        namespace: String,
        name: String,
    },
    /// The credential is valid for all pods of the node, or none is needed.
    #[default]
    Node,
}

/// A credential for a pull.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Credential {
    pub(crate) auth: cri::AuthConfig,
    pub(crate) source: Source,
}

impl Credential {
    fn hash(&self) -> String {
        let auth = &self.auth;
        let parts = [&auth.username, &auth.password, &auth.auth, &auth.identity_token, &auth.registry_token];
        hash(&parts.map(String::as_str).join("\n"))
    }

    /// The list of the record that it belongs to, and its entry.
    fn entry(&self) -> Option<(&'static str, Tree)> {
        let named = |uid: &str, namespace: &str, name: &str| {
            tree! { "uid" => uid, "namespace" => namespace, "name" => name }
        };
        match &self.source {
            Source::Node => None,
            Source::Account { uid, namespace, name } => {
                Some(("kubernetesServiceAccounts", named(uid, namespace, name)))
            }
            Source::Secret { uid, namespace, name } => {
                let mut entry = named(uid, namespace, name);
                entry.set("credentialHash", self.hash());
                Some(("kubernetesSecrets", entry))
            }
        }
    }
}

pub(crate) struct Records {
    dir: PathBuf,
    policy: ImageVerification,
    /// By the image's own name in the runtime.
    pulled: Mutex<BTreeMap<String, Tree>>,
}

/// A record that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .file.display())]
pub(crate) struct RecordError {
    file: PathBuf,
    source: std::io::Error,
}

const PULLED: &str = "pulled";
const PULLING: &str = "pulling";

impl Records {
    pub(crate) fn open(root_dir: &Path, policy: ImageVerification) -> Records {
        let dir = root_dir.join("image_manager");
        let entries = std::fs::read_dir(dir.join(PULLED)).into_iter().flatten().filter_map(Result::ok);
        let read = |path: PathBuf| json::decode(&std::fs::read(path).ok()?).ok();
        let records = entries.filter_map(|entry| read(entry.path()));
        let pulled = records.map(|record: Tree| (record.str("imageRef").to_string(), record)).collect();
        Records { dir, policy, pulled: Mutex::new(pulled) }
    }

    /// Whether a pod with these credentials may use an image that is present.
    pub(crate) fn may_use(&self, image: &str, reference: &str, credentials: &[Credential]) -> bool {
        if self.policy == ImageVerification::NeverVerify {
            return true;
        }
        match self.pulled().get(reference) {
            Some(record) => is_allowed(record, image, credentials),
            None if self.file(PULLING, image).exists() => false,
            None => is_free(&self.policy, image),
        }
    }

    /// Records the intent of a pull.
    pub(crate) fn record_intent(&self, image: &str) -> Result<(), RecordError> {
        let intent = tree! { "kind" => "ImagePullIntent", "apiVersion" => VERSION, "image" => image };
        self.write(PULLING, image, &intent)
    }

    /// Records a successful pull, with a credential or without one.
    pub(crate) fn ends(&self, image: &str, reference: &str, by: Option<&Credential>) -> Result<(), RecordError> {
        let mut pulled = self.pulled();
        let record = pulled.entry(reference.to_string()).or_insert_with(|| {
            tree! { "kind" => "ImagePulledRecord", "apiVersion" => VERSION, "imageRef" => reference }
        });
        update_record(record, image, by);
        let record = record.clone();
        drop(pulled);
        self.write(PULLED, reference, &record)?;
        self.record_failure(image);
        Ok(())
    }

    /// A pull has failed: an image that is present was there before.
    pub(crate) fn record_failure(&self, image: &str) {
        let _ = std::fs::remove_file(self.file(PULLING, image));
    }

    /// Removes the records of images that do not exist any more.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut pulled = self.pulled();
        let gone: Vec<String> = pulled.keys().filter(|reference| !is_there(reference)).cloned().collect();
        for reference in gone {
            pulled.remove(&reference);
            let _ = std::fs::remove_file(self.file(PULLED, &reference));
        }
    }

    fn file(&self, directory: &str, name: &str) -> PathBuf {
        self.dir.join(directory).join(format!("sha256-{}", hash(name)))
    }

    /// Whole or not at all.
    fn write(&self, directory: &str, name: &str, record: &Tree) -> Result<(), RecordError> {
        let file = self.file(directory, name);
        let write = || {
            volumes::create_dirs(&self.dir.join(directory))?;
            ReplaceOptions::PRIVATE.write(&file, &json::encode(record, None))
        };
        write().map_err(|source| RecordError { file: file.clone(), source })
    }

    fn pulled(&self) -> MutexGuard<'_, BTreeMap<String, Tree>> {
        self.pulled.lock()
    }
}

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";

fn hash(text: &str) -> String {
    let sum = digest::digest(&digest::SHA256, text.as_bytes());
    stdx::hex::encode(sum.as_ref())
}

/// Whether an image that was not pulled by this kubelet can be used by all pods.
fn is_free(policy: &ImageVerification, image: &str) -> bool {
    let name = super::keyring::repository(image);
    let fits = |entry: &String| match entry.strip_suffix("/*") {
        Some(parent) => {
            name.strip_prefix(&super::keyring::repository(parent)).is_some_and(|rest| rest.starts_with('/'))
        }
        None => name == super::keyring::repository(entry),
    };
    match policy {
        ImageVerification::NeverVerify | ImageVerification::NeverVerifyPreloaded => true,
        ImageVerification::NeverVerifyListed(entries) => entries.iter().any(fits),
        ImageVerification::AlwaysVerify => false,
    }
}

/// A secret that was changed may still hold the same credential, and the same one may be in another secret.
fn is_allowed(record: &Tree, image: &str, credentials: &[Credential]) -> bool {
    let name = super::keyring::repository(image);
    let known = record.map("credentialMapping").get(&name).cloned().unwrap_or_default();
    let holds = |credential: &Credential| {
        let Some((list, own)) = credential.entry() else { return false };
        let same_place =
            |other: &Tree| ["uid", "namespace", "name"].iter().all(|field| other.str(field) == own.str(field));
        let same = |other: &Tree| match own.str("credentialHash") {
            "" => same_place(other),
            hash => other.str("credentialHash") == hash,
        };
        known.list(list).iter().any(same)
    };
    known.bool("nodePodsAccessible") || credentials.iter().any(holds)
}

fn update_record(record: &mut Tree, image: &str, by: Option<&Credential>) {
    let name = super::keyring::repository(image);
    let mapping = record.child("credentialMapping");
    let mut known = mapping.get(&name).cloned().unwrap_or_else(|| tree! {});
    match by.and_then(Credential::entry) {
        None => known = tree! { "nodePodsAccessible" => true },
        Some(_) if known.bool("nodePodsAccessible") => {}
        Some((list, entry)) => {
            let same = |other: &Tree| ["uid", "namespace", "name"].iter().all(|key| other.str(key) == entry.str(key));
            let mut entries = known.list(list).to_vec();
            entries.retain(|other| !same(other));
            entries.push(entry);
            known.set(list, entries);
        }
    }
    mapping.set(&name, known);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, password: &str) -> Credential {
        let auth = cri::AuthConfig { password: password.to_string(), ..Default::default() };
        let of = |text: &str| text.to_string();
        Credential { auth, source: Source::Secret { uid: of(name), namespace: of("a"), name: of(name) } }
    }

    fn account(name: &str) -> Credential {
        let of = |text: &str| text.to_string();
        let source = Source::Account { uid: of(name), namespace: of("a"), name: of(name) };
        Credential { auth: cri::AuthConfig::default(), source }
    }

    #[test]
    fn images_are_for_pods_that_could_pull_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let records = Records::open(dir.path(), ImageVerification::default());
        let image = "r.example/i:1";
        assert!(records.may_use(image, "ref", &[]), "it was there before");
        records.record_intent(image).expect("written");
        assert!(!records.may_use(image, "ref", &[]), "its credential is unknown");
        records.ends(image, "ref", Some(&secret("s", "1"))).expect("written");
        let check = |records: &Records| {
            assert!(!records.may_use(image, "ref", &[]));
            assert!(records.may_use(image, "ref", &[secret("s", "1")]));
            assert!(records.may_use("r.example/i:2", "ref", &[secret("other", "1")]), "the same credential");
            assert!(!records.may_use(image, "ref", &[secret("other", "2"), account("s")]));
            assert!(!records.may_use("r.example/j:1", "ref", &[secret("s", "1")]), "another image");
        };
        check(&records);
        let again = Records::open(dir.path(), ImageVerification::default());
        check(&again);
        again.ends(image, "ref", Some(&account("x"))).expect("written");
        assert!(again.may_use(image, "ref", &[account("x")]));
        again.ends(image, "ref", None).expect("written");
        assert!(again.may_use(image, "ref", &[]), "it was pulled without any");
        again.retain(|_| false);
        assert_eq!(std::fs::read_dir(dir.path().join("image_manager/pulled")).expect("a directory").count(), 0);
        assert_eq!(std::fs::read_dir(dir.path().join("image_manager/pulling")).expect("a directory").count(), 0);
    }

    #[test]
    fn policies_decide_which_images_are_verified() {
        let listed =
            |entries: &[&str]| ImageVerification::NeverVerifyListed(entries.iter().map(ToString::to_string).collect());
        let cases = [
            (ImageVerification::NeverVerify, true),
            (ImageVerification::NeverVerifyPreloaded, true),
            (ImageVerification::AlwaysVerify, false),
            (listed(&["r.example/x"]), false),
            (listed(&["r.example/a/i"]), true),
            (listed(&["r.example/a/*"]), true),
            (listed(&["r.example/b/*"]), false),
        ];
        for (policy, expected) in cases {
            assert_eq!(is_free(&policy, "r.example/a/i:1"), expected, "{policy:?}");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let records = Records::open(dir.path(), ImageVerification::NeverVerify);
        records.ends("i", "ref", Some(&secret("s", "1"))).expect("written");
        assert!(records.may_use("i", "ref", &[]), "no image is verified");
    }
}
