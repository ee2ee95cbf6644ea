//! Encryption at rest, configured by upstream's EncryptionConfiguration and in upstream's formats: both servers can
//! read each other's values. The first provider of a resource encrypts, all of them decrypt; a value of an older
//! provider is rewritten at its next update, even if nothing changes.

mod config;
mod key;
pub(crate) mod kms;
mod store;
mod watch;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ::store::{Entry, Sink, Store};
use arc_swap::ArcSwap;
use bytes::Bytes;
use prometheus::Registry;
use stdx::sync::{Mutex, RwLock};

use crate::common::reload::{self, Reloads};
use key::{Cipher, CipherError};
use kms::Kms;
use stdx::clock::SharedClock;

/// The prefix of every encrypted value.
const SEALED: &[u8] = b"k8s:enc:";

/// Whether a stored value is encrypted.
pub fn is_sealed(value: &[u8]) -> bool {
    value.starts_with(SEALED)
}

/// A value that could not be encrypted or decrypted; `key` is its key in the store.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("{key} cannot be encrypted: {source}")]
    Seal { key: String, source: CipherError },
    #[error("{key} cannot be decrypted: {source}")]
    Open { key: String, source: CipherError },
    #[error("{0} is encrypted, and no provider is configured for its resource")]
    NoProvider(String),
}

/// A provider at work.
enum Provider {
    Identity,
    Key { prefix: String, cipher: Cipher, secret: Vec<u8> },
    Kms { prefix: String, kms: Arc<Kms> },
}

/// The providers in their order, by storage path such as `secrets`.
type Rules = HashMap<&'static str, Arc<Vec<Provider>>>;

/// The encryption of stored values by a configuration file, which is read again when it changes.
pub struct Encryption {
    path: PathBuf,
    rules: ArcSwap<Rules>,
    /// The prefix of keys in the engine's own store, if it is longer than the server's.
    outer_prefix: OnceLock<String>,
    storage_prefix: OnceLock<String>,
    /// The provider that encrypted each stored value, for the resources with rules.
    writers: RwLock<HashMap<Box<str>, Arc<str>>>,
    /// The hash of the last read file: the file contains keys, and is not kept itself.
    seen: Mutex<String>,
    followed: AtomicBool,
    reloads: OnceLock<(Reloads, SharedClock)>,
}

/// Keys are never shown.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Encryption {
    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Arc<Encryption>, crate::common::files::Error> {
        let rules = compile(config::read(path)?, &HashMap::new());
        Ok(Arc::new(Encryption {
            path: path.to_path_buf(),
            rules: ArcSwap::from_pointee(rules),
            outer_prefix: OnceLock::new(),
            storage_prefix: OnceLock::new(),
            writers: RwLock::default(),
            seen: Mutex::new(std::fs::read(path).map(|data| reload::hash(&data)).unwrap_or_default()),
            followed: AtomicBool::new(false),
            reloads: OnceLock::new(),
        }))
    }

    /// Reloads the file whenever it changes. An invalid file changes nothing.
    pub fn reload_on_change(self: &Arc<Encryption>) -> std::io::Result<()> {
        self.followed.store(true, Ordering::Relaxed);
        let weak = Arc::downgrade(self);
        watch::on_change(&self.path, move || {
            let Some(encryption) = weak.upgrade() else { return false };
            encryption.reload_if_changed();
            true
        })
    }

    /// Counts changes of the file from now on, if it is watched.
    pub(crate) fn measure(&self, registry: &Registry, clock: &SharedClock) {
        if !self.followed.load(Ordering::Relaxed) {
            return;
        }
        let data = std::fs::read(&self.path).unwrap_or_default();
        match Reloads::new(registry, "encryption", &data) {
            Ok(reloads) => drop(self.reloads.set((reloads, clock.clone()))),
            Err(error) => tracing::error!(%error, "failed to register metrics of encryption configuration reloads"),
        }
    }

    /// Something has changed in the file's directory: perhaps the file.
    fn reload_if_changed(&self) {
        let data = std::fs::read(&self.path).unwrap_or_default();
        let hash = reload::hash(&data);
        let before = std::mem::replace(&mut *self.seen.lock(), hash.clone());
        if before == hash {
            return;
        }
        let (path, result, reloads) = (self.path.display(), self.reload(), self.reloads.get());
        match &result {
            Ok(()) => tracing::info!(%path, "reloaded encryption configuration"),
            Err(error) => tracing::error!(%error, "failed to reload encryption configuration, keeping the current one"),
        }
        match (result, reloads) {
            (Ok(()), Some((reloads, clock))) => reloads.succeeded(clock.now().seconds, &data),
            (Err(_), Some((reloads, clock))) => reloads.failed(clock.now().seconds),
            (_, None) => {}
        }
    }

    fn reload(&self) -> Result<(), crate::common::files::Error> {
        let rules = config::read(&self.path)?;
        let known = self.plugins();
        self.rules.store(Arc::new(compile(rules, &known)));
        Ok(())
    }

    /// Plugins that remain configured keep their caches.
    fn plugins(&self) -> HashMap<String, Arc<Kms>> {
        let rules = self.rules.load();
        let all = rules.values().flat_map(|providers| providers.iter());
        all.filter_map(|provider| match provider {
            Provider::Kms { prefix, kms } => Some((prefix.clone(), kms.clone())),
            _ => None,
        })
        .collect()
    }

    /// A store whose values are encrypted in `store`.
    pub fn wrap(self: &Arc<Encryption>, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(store::EncryptedStore { inner: store, encryption: self.clone() })
    }

    /// `outer` is the engine's own prefix of every key; the whole key is authenticated.
    pub fn sink(self: &Arc<Encryption>, inner: Arc<dyn Sink>, outer: &str, storage: &str) -> Arc<dyn Sink> {
        let _ = self.outer_prefix.set(outer.trim_end_matches('/').to_string());
        let _ = self.storage_prefix.set(format!("{}/", storage.trim_end_matches('/')));
        Arc::new(store::DecryptingSink { inner, encryption: self.clone() })
    }

    fn providers(&self, key: &str) -> Option<Arc<Vec<Provider>>> {
        let rules = self.rules.load();
        let rest = key.strip_prefix(self.storage_prefix.get().map_or("/", String::as_str))?;
        // A path has at most two steps: `secrets`, `services/specs`.
        let first = rest.find('/')?;
        let second = rest[first + 1..].find('/').map_or(first, |more| first + 1 + more);
        rules.get(&rest[..first]).or_else(|| rules.get(&rest[..second])).cloned()
    }

    fn covers(&self, key: &str) -> bool {
        self.providers(key).is_some()
    }

    fn authenticated(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.outer_prefix.get().map_or("", String::as_str)).into_bytes()
    }

    /// None if the value is stored unencrypted.
    async fn seal(&self, key: &str, plain: &[u8]) -> Result<Option<Vec<u8>>, ValueError> {
        let Some(providers) = self.providers(key) else { return Ok(None) };
        let authenticated = self.authenticated(key);
        let (prefix, sealed) = match providers.first() {
            None | Some(Provider::Identity) => return Ok(None),
            Some(Provider::Key { prefix, cipher, secret }) => {
                (prefix, key::seal(*cipher, secret, plain, &authenticated))
            }
            Some(Provider::Kms { prefix, kms }) => (prefix, kms.seal(plain, &authenticated).await),
        };
        let sealed = sealed.map_err(|source| ValueError::Seal { key: key.to_string(), source })?;
        Ok(Some([prefix.as_bytes(), &sealed].concat()))
    }

    /// The newest entry of a key with its plain value, and the revision in it.
    fn open(&self, entry: Arc<Entry>) -> Result<Arc<Entry>, ValueError> {
        let (entry, writer) = self.open_past(entry)?;
        if let Some(writer) = writer {
            self.record_writer(&entry.key, writer);
        }
        Ok(entry)
    }

    /// Decrypts any entry; also returns the provider that wrote it, if its resource has rules.
    fn open_past(&self, entry: Arc<Entry>) -> Result<(Arc<Entry>, Option<Arc<str>>), ValueError> {
        let Some(providers) = self.providers(&entry.key) else {
            let problem = || ValueError::NoProvider(entry.key.to_string());
            return if is_sealed(&entry.value) { Err(problem()) } else { Ok((entry, None)) };
        };
        let opened = open(&providers, &entry.value, || self.authenticated(&entry.key));
        let (plain, writer) = opened.map_err(|source| ValueError::Open { key: entry.key.to_string(), source })?;
        let entry = match plain {
            None => entry,
            Some(plain) => Arc::new(Entry { value: with_revision(plain, entry.revision), ..(*entry).clone() }),
        };
        Ok((entry, Some(writer)))
    }

    fn record_writer(&self, key: &str, writer: Arc<str>) {
        self.writers.write().insert(key.into(), writer);
    }

    fn remove_writer(&self, key: &str) {
        self.writers.write().remove(key);
    }

    /// True if what is stored was not written by the provider that writes now.
    pub(crate) fn is_stale(&self, key: &str) -> bool {
        let Some(providers) = self.providers(key) else { return false };
        let writers = self.writers.read();
        let wrote = writers.get(key).map_or("", |writer| writer);
        providers.first().is_some_and(|provider| provider.mark() != wrote)
    }
}

impl Provider {
    /// Identifies writers: provider and key, and the plugin's key.
    fn mark(&self) -> String {
        match self {
            Provider::Identity => String::new(),
            Provider::Key { prefix, .. } => prefix.clone(),
            Provider::Kms { prefix, kms } => format!("{prefix}{}", kms.key_id()),
        }
    }
}

/// The plain value, None if it is the stored one, and the provider that wrote it.
fn open(
    providers: &[Provider],
    value: &[u8],
    authenticated: impl Fn() -> Vec<u8>,
) -> Result<(Option<Vec<u8>>, Arc<str>), CipherError> {
    for provider in providers {
        match provider {
            Provider::Identity if !is_sealed(value) => return Ok((None, Arc::from(""))),
            Provider::Key { prefix, cipher, secret } if value.starts_with(prefix.as_bytes()) => {
                let plain = key::open(*cipher, secret, &value[prefix.len()..], &authenticated())?;
                return Ok((Some(plain), Arc::from(prefix.as_str())));
            }
            Provider::Kms { prefix, kms } if value.starts_with(prefix.as_bytes()) => {
                let (plain, key_id) = kms.open(&value[prefix.len()..], &authenticated())?;
                return Ok((Some(plain), Arc::from(format!("{prefix}{key_id}"))));
            }
            _ => {}
        }
    }
    Err(CipherError("no provider of its resource knows what it begins with".to_string()))
}

/// Our own values have a gap for the revision, which is unknown at encryption.
fn with_revision(plain: Vec<u8>, revision: u64) -> Bytes {
    const HOLE: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";
    let start = &plain[..plain.len().min(1024)];
    match memchr::memmem::find(start, HOLE).map(|at| at + HOLE.len()) {
        Some(at) if plain.get(at) == Some(&b'"') => crate::storage::resource::fill_hole(&plain, at, revision),
        _ => Bytes::from(plain),
    }
}

fn compile(rules: Vec<config::Rule>, known: &HashMap<String, Arc<Kms>>) -> Rules {
    let mut all = Rules::new();
    for rule in rules {
        let providers = Arc::new(rule.providers.into_iter().map(|provider| start(provider, known)).collect::<Vec<_>>());
        for path in rule.resources.iter().flat_map(|pattern| paths(pattern)) {
            // The first rule that names a resource counts.
            all.entry(path).or_insert_with(|| providers.clone());
        }
    }
    all
}

fn start(provider: config::Provider, known: &HashMap<String, Arc<Kms>>) -> Provider {
    match provider {
        config::Provider::Identity => Provider::Identity,
        config::Provider::Key { cipher, name, secret } => {
            Provider::Key { prefix: format!("k8s:enc:{}:v1:{name}:", cipher.name()), cipher, secret }
        }
        config::Provider::Kms { name, socket, timeout } => {
            let prefix = format!("k8s:enc:kms:v2:{name}:");
            let kms = known.get(&prefix).cloned().unwrap_or_else(|| Arc::new(Kms::new(&socket, timeout)));
            Provider::Kms { prefix, kms }
        }
    }
}

/// The storage paths that a pattern means: `secrets`, `deployments.apps`, `*.apps`, `*.` for the core
/// group, `*.*`.
fn paths(pattern: &str) -> impl Iterator<Item = &'static str> + use<> {
    let (resource, group) = pattern.split_once('.').unwrap_or((pattern, ""));
    let (resource, group) = (resource.to_string(), group.to_string());
    let meant = move |kind: &&&kinds::Kind| {
        !kind.storage.is_empty()
            && (resource == "*" || resource == kind.plural)
            && ((resource == "*" && group == "*") || group == kind.group)
    };
    kinds::served().iter().filter(meant).map(|kind| kind.storage)
}

fn matches_resources(pattern: &str) -> bool {
    pattern != "*" && paths(pattern).next().is_some()
}

#[cfg(test)]
mod tests;
