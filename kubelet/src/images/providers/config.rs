//! The CredentialProviderConfig: which plugins provide credentials for which images. Errors name the file and the
//! field.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{Tree, time, yaml};

const VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
const KIND: &str = "CredentialProviderConfig";
/// How plugins are spoken to.
pub(crate) const PROTOCOL: &str = "credentialprovider.kubelet.k8s.io/v1";
/// The fields of a provider.
const FIELDS: [&str; 7] =
    ["name", "matchImages", "defaultCacheDuration", "apiVersion", "args", "env", "tokenAttributes"];
const TOKEN_FIELDS: [&str; 5] = [
    "serviceAccountTokenAudience",
    "cacheType",
    "requireServiceAccount",
    "requiredServiceAccountAnnotationKeys",
    "optionalServiceAccountAnnotationKeys",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) images: Vec<String>,
    /// How long a response without a duration is cached.
    pub(crate) cache: Duration,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) token: Option<TokenRules>,
}

/// A plugin that gets a token of the pod's service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenRules {
    pub(crate) audience: String,
    /// A response is cached for the token, not for the service account.
    pub(crate) cached_by_token: bool,
    /// The plugin is not called for pods without a service account.
    pub(crate) is_required: bool,
    pub(crate) required_annotations: Vec<String>,
    pub(crate) optional_annotations: Vec<String>,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("plugin binary directory {} did not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", .path.display())]
    Yaml { path: PathBuf, source: yaml::Error },
    #[error("{}: {source}", .path.display())]
    Invalid { path: PathBuf, source: InvalidField },
    #[error("{}: the configuration file of credential providers does not exist", .0.display())]
    NoFile(PathBuf),
    #[error("providers.name: duplicate name {0:?}")]
    Duplicate(String),
}

/// An invalid field, as `FIELD: why`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidField(String);

impl InvalidField {
    fn new(message: impl Into<String>) -> InvalidField {
        InvalidField(message.into())
    }

    fn below(self, parent: &str) -> InvalidField {
        InvalidField(format!("{parent}.{self}"))
    }
}

/// Reads a file, or the files of a directory in the order of their names.
pub(crate) fn read(place: &Path, programs: &Path) -> Result<Vec<Provider>, ConfigError> {
    if !programs.is_dir() {
        return Err(ConfigError::NoDirectory(programs.to_path_buf()));
    }
    let mut providers: Vec<Provider> = Vec::new();
    for path in files(place)? {
        let bytes = std::fs::read(&path).map_err(|source| ConfigError::Io { path: path.clone(), source })?;
        let tree = yaml::decode(&bytes).map_err(|source| ConfigError::Yaml { path: path.clone(), source })?;
        providers.extend(of(&tree, programs).map_err(|source| ConfigError::Invalid { path, source })?);
    }
    let mut names = BTreeSet::new();
    match providers.iter().find(|provider| !names.insert(provider.name.as_str())) {
        Some(twice) => Err(ConfigError::Duplicate(twice.name.clone())),
        None => Ok(providers),
    }
}

fn files(place: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let wrong = |source| ConfigError::Io { path: place.to_path_buf(), source };
    if !place.is_dir() {
        return Ok(vec![place.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(place).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let ending = path.extension().map(|ending| ending.to_string_lossy().into_owned()).unwrap_or_default();
        if matches!(ending.as_str(), "json" | "yaml" | "yml") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() { Err(ConfigError::NoFile(place.to_path_buf())) } else { Ok(files) }
}

fn of(tree: &Tree, programs: &Path) -> Result<Vec<Provider>, InvalidField> {
    let (version, kind) = (tree.str("apiVersion"), tree.str("kind"));
    if kind != KIND || !VERSIONS.contains(&version) {
        return Err(InvalidField::new(format!(
            "it must be a {KIND} of {}, not a {kind:?} of {version:?}",
            VERSIONS[0]
        )));
    }
    let providers = tree.list("providers");
    if providers.is_empty() {
        return Err(InvalidField::new("providers: at least 1 item in plugins is required"));
    }
    let one =
        |(at, tree): (usize, &Tree)| provider(tree, programs).map_err(|error| error.below(&format!("providers[{at}]")));
    providers.iter().enumerate().map(one).collect()
}

fn provider(tree: &Tree, programs: &Path) -> Result<Provider, InvalidField> {
    only(tree, &FIELDS)?;
    let name = tree.str("name").to_string();
    if name.is_empty() || name == "." || name.contains(['/', ' ']) || name.contains("..") {
        return Err(InvalidField::new(format!(
            "name: {name:?} must be the name of a file, without a slash, a space or \"..\""
        )));
    }
    if tree.str("apiVersion") != PROTOCOL {
        return Err(InvalidField::new(format!(
            "apiVersion: {:?}: plugins are spoken to by {PROTOCOL}",
            tree.str("apiVersion")
        )));
    }
    let program = programs.join(&name);
    if !program.is_file() {
        return Err(InvalidField::new(format!("name: plugin binary executable {} did not exist", program.display())));
    }
    let images = texts(tree, "matchImages");
    if images.is_empty() {
        return Err(InvalidField::new("matchImages: at least 1 item in matchImages is required"));
    }
    let cache = time::parse_duration(tree.str("defaultCacheDuration")).ok().and_then(|nanos| u64::try_from(nanos).ok());
    let cache = cache.ok_or_else(|| InvalidField::new("defaultCacheDuration: it is required, and not negative"))?;
    let pair = |pair: &Tree| (pair.str("name").to_string(), pair.str("value").to_string());
    let token = tree.get("tokenAttributes").map(token).transpose();
    Ok(Provider {
        name,
        program,
        images,
        cache: Duration::from_nanos(cache),
        args: texts(tree, "args"),
        env: tree.list("env").iter().map(pair).collect(),
        token: token.map_err(|error| error.below("tokenAttributes"))?,
    })
}

fn token(tree: &Tree) -> Result<TokenRules, InvalidField> {
    only(tree, &TOKEN_FIELDS)?;
    let audience = tree.str("serviceAccountTokenAudience").to_string();
    if audience.is_empty() {
        return Err(InvalidField::new("serviceAccountTokenAudience: it is required"));
    }
    let is_required = tree.get("requireServiceAccount").and_then(Tree::as_bool);
    let is_required = is_required.ok_or_else(|| InvalidField::new("requireServiceAccount: it is required"))?;
    let required_annotations = texts(tree, "requiredServiceAccountAnnotationKeys");
    if !is_required && !required_annotations.is_empty() {
        return Err(InvalidField::new(
            "requiredServiceAccountAnnotationKeys: it needs requireServiceAccount to be true",
        ));
    }
    let cached_by_token = match tree.str("cacheType") {
        "ServiceAccount" => false,
        "Token" => true,
        other => {
            return Err(InvalidField::new(format!(
                "cacheType: {other:?}: supported values: \"ServiceAccount\", \"Token\""
            )));
        }
    };
    let optional_annotations = texts(tree, "optionalServiceAccountAnnotationKeys");
    Ok(TokenRules { audience, cached_by_token, is_required, required_annotations, optional_annotations })
}

fn only(tree: &Tree, fields: &[&str]) -> Result<(), InvalidField> {
    let unknown = tree.as_map().into_iter().flat_map(|map| map.iter()).find(|(key, _)| !fields.contains(key));
    unknown.map_or(Ok(()), |(key, _)| Err(InvalidField::new(format!("{key}: unknown field"))))
}

fn texts(tree: &Tree, key: &str) -> Vec<String> {
    tree.list(key).iter().filter_map(Tree::as_str).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "{name: plugin, matchImages: ['*.example'], defaultCacheDuration: 10m, \
        apiVersion: credentialprovider.kubelet.k8s.io/v1, args: [a], env: [{name: K, value: V}]}";

    #[test]
    fn reads_providers_and_names_invalid_fields() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("plugin"), "").expect("a program");
        let file = dir.path().join("config.yaml");
        let check = |providers: &str| {
            let text = format!("{{apiVersion: {}, kind: {KIND}, providers: [{providers}]}}", VERSIONS[0]);
            std::fs::write(&file, text).expect("a file");
            read(&file, dir.path())
        };
        let good = check(GOOD).expect("providers");
        assert_eq!((good[0].cache, good[0].args.len()), (Duration::from_secs(600), 1));
        let tokens = "tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}";
        let with_tokens = check(&GOOD.replace("args: [a]", tokens)).expect("providers");
        assert!(with_tokens[0].token.as_ref().is_some_and(|rules| rules.cached_by_token && rules.is_required));
        let cases = [
            (String::new(), "providers: at least 1 item"),
            (format!("{GOOD}, {GOOD}"), "duplicate name"),
            (GOOD.replace("name: plugin", "name: ../plugin"), "providers[0].name"),
            (GOOD.replace("name: plugin", "name: other"), "plugin binary executable"),
            (GOOD.replace("kubelet.k8s.io/v1,", "kubelet.k8s.io/v2,"), "providers[0].apiVersion"),
            (GOOD.replace("['*.example']", "[]"), "providers[0].matchImages"),
            (GOOD.replace("10m", "x"), "providers[0].defaultCacheDuration"),
            (GOOD.replace("args:", "arguments:"), "providers[0].arguments: unknown field"),
            (GOOD.replace("args: [a]", "tokenAttributes: {}"), "tokenAttributes.serviceAccountTokenAudience"),
        ];
        for (text, expected) in cases {
            let why = check(&text).expect_err(&text);
            assert!(why.to_string().contains(expected), "{why}");
        }
        std::fs::remove_file(&file).expect("gone");
        assert!(read(&file, dir.path()).expect_err("no file").to_string().contains("config.yaml"));
        assert!(
            read(&file, Path::new("/nonexistent")).expect_err("no directory").to_string().contains("did not exist")
        );
    }
}
