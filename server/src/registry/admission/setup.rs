//! The enabled plugins and their configuration from the admission configuration file. Unsupported names are rejected
//! with the reason; every error of the file names the file and the field.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::Tree;

use super::{
    PLUGINS, Plugin, event_rate_limit, image_policy_webhook, initial_resources, pod_node_selector, pod_security,
    pod_toleration_restriction,
};
use crate::outbound::callout::Logins;

/// The configuration of the configurable plugins.
#[derive(Default)]
pub struct Settings {
    pub(crate) estimates: initial_resources::Estimates,
    pub(crate) event_limits: Vec<event_rate_limit::Limit>,
    pub(crate) image_policy: Option<image_policy_webhook::ImagePolicy>,
    pub(crate) node_selectors: pod_node_selector::Selectors,
    pub pod_security: pod_security::Config,
    pub(crate) tolerations: pod_toleration_restriction::Restriction,
    /// The credentials for webhooks of each phase.
    pub(crate) mutating_logins: Logins,
    pub(crate) validating_logins: Logins,
}

/// The plugins that are on, in their order.
pub struct Setup {
    on: Vec<&'static Plugin>,
    pub settings: Settings,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { on: chosen(&[], &[]), settings: Settings::default() }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.on.iter().map(|plugin| plugin.name)).finish()
    }
}

/// Upstream's plugins that are not implemented, and why.
const MISSING: &[(&str, &str)] = &[
    ("NodeDeclaredFeatureValidator", "nodes do not declare their features yet"),
    ("PodGroupProtection", "groups of pods are not served"),
];

impl Setup {
    /// The admission flags. All errors are reported at once.
    pub fn new(enable: &[String], disable: &[String], file: Option<&Path>) -> Result<Setup, Vec<String>> {
        let mut errors = Vec::new();
        errors.extend(enable.iter().filter_map(|name| unusable(name, "enable-admission-plugins")));
        errors.extend(disable.iter().filter_map(|name| unknown(name, "disable-admission-plugins")));
        let both: Vec<&str> = enable.iter().filter(|name| disable.contains(name)).map(String::as_str).collect();
        if !both.is_empty() {
            errors.push(format!(
                "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
                both.join(" ")
            ));
        }
        // The field and the kind exist only with the plugin, and must be added before the first use of the schema.
        if named(enable, "Initializers") && !api::schema::initializers::add() {
            errors.push("Initializers can be turned on only before anything is served".to_string());
        }
        let mut settings = Settings::default();
        if let Some(file) = file
            && let Err(error) = read(file, &mut settings)
        {
            errors.push(format!("--admission-control-config-file: {error}"));
        }
        let on = |name: &str| named(enable, name) && errors.is_empty();
        // Without a configuration these plugins would admit everything.
        let untold = [
            ("EventRateLimit", settings.event_limits.is_empty()),
            ("ImagePolicyWebhook", settings.image_policy.is_none()),
        ];
        let untold: Vec<String> = untold
            .into_iter()
            .filter(|(name, missing)| *missing && on(name))
            .map(|(name, _)| {
                format!(
                    "enable-admission-plugins plugin {name:?} needs a configuration by --admission-control-config-file"
                )
            })
            .collect();
        errors.extend(untold);
        if errors.is_empty() { Ok(Setup { on: chosen(enable, disable), settings }) } else { Err(errors) }
    }

    /// Sets the source of container usage for InitialResources.
    pub fn with_usage(mut self, usage: Arc<dyn initial_resources::Usage>) -> Setup {
        self.settings.estimates.usage = usage;
        self
    }

    /// The enabled plugins in their order.
    pub fn plugins(&self) -> impl Iterator<Item = &'static Plugin> {
        self.on.iter().copied()
    }

    /// Whether a plugin is enabled.
    pub fn is_on(&self, name: &str) -> bool {
        self.on.iter().any(|plugin| plugin.name == name)
    }
}

fn chosen(enable: &[String], disable: &[String]) -> Vec<&'static Plugin> {
    let on = |plugin: &&Plugin| (plugin.by_default || named(enable, plugin.name)) && !named(disable, plugin.name);
    PLUGINS.iter().filter(on).collect()
}

fn named(list: &[String], name: &str) -> bool {
    list.iter().any(|other| other == name)
}

fn is_here(name: &str) -> bool {
    PLUGINS.iter().any(|plugin| plugin.name == name)
}

/// A plugin that is missing here may be disabled, since it has no effect.
fn unknown(name: &str, flag: &str) -> Option<String> {
    let known = is_here(name) || MISSING.iter().any(|(missing, _)| *missing == name);
    (!known).then(|| format!("{flag} plugin {name:?} is unknown"))
}

fn unusable(name: &str, flag: &str) -> Option<String> {
    match MISSING.iter().find(|(missing, _)| *missing == name) {
        Some((_, why)) => Some(format!("{flag} plugin {name:?} cannot be turned on: {why}")),
        None => unknown(name, flag),
    }
}

/// A field of a plugin's configuration that cannot be used, and why.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub(crate) struct FieldError {
    field: String,
    problem: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, problem: impl fmt::Display) -> FieldError {
        FieldError { field: field.into(), problem: problem.to_string() }
    }

    /// Prefixes the field of an error with its parent.
    pub(crate) fn below(self, parent: &str) -> FieldError {
        FieldError { field: format!("{parent}.{}", self.field), ..self }
    }
}

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
struct FileError {
    path: PathBuf,
    source: FileProblem,
}

#[derive(Debug, thiserror::Error)]
enum FileProblem {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Yaml(#[from] api::yaml::Error),
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// A plugin's configuration, and the base of its relative paths.
pub(crate) struct Source<'a> {
    pub tree: &'a Tree,
    pub dir: &'a Path,
}

impl Source<'_> {
    pub(crate) fn beside(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// The configuration must be of this kind.
    pub(crate) fn expect(&self, api_versions: &[&str], kind: &str) -> Result<(), FieldError> {
        let (version, given) = (self.tree.str("apiVersion"), self.tree.str("kind"));
        if given != kind {
            return Err(FieldError::new("kind", format_args!("{given:?} is not {kind}")));
        }
        if !api_versions.contains(&version) {
            let problem = format!("{version:?} is not {}", api_versions.join(" or "));
            return Err(FieldError::new("apiVersion", problem));
        }
        Ok(())
    }

    /// Rejects all fields except these at a path.
    pub(crate) fn only(&self, at: &str, tree: &Tree, fields: &[&str]) -> Result<(), FieldError> {
        let keys = tree.as_map().into_iter().flat_map(|map| map.keys());
        match keys.into_iter().find(|key| !fields.contains(key)) {
            Some(key) if at.is_empty() => Err(FieldError::new(key, "unknown field")),
            Some(key) => Err(FieldError::new(key, "unknown field").below(at)),
            None => Ok(()),
        }
    }
}

/// An AdmissionConfiguration.
fn read(file: &Path, settings: &mut Settings) -> Result<(), FileError> {
    let tree = read_yaml(file)?;
    let dir = file.parent().unwrap_or(Path::new(""));
    read_plugins(&Source { tree: &tree, dir }, settings)
        .map_err(|error| FileError { path: file.to_path_buf(), source: error.into() })
}

fn read_plugins(source: &Source<'_>, settings: &mut Settings) -> Result<(), FieldError> {
    source.expect(&["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1"], "AdmissionConfiguration")?;
    source.only("", source.tree, &["apiVersion", "kind", "plugins"])?;
    for (index, entry) in source.tree.list("plugins").iter().enumerate() {
        let at = format!("plugins[{index}]");
        source.only(&at, entry, &["name", "path", "configuration"])?;
        read_plugin(entry, source, settings).map_err(|error| error.below(&at))?;
    }
    Ok(())
}

/// Reads the configuration of one plugin: inline, or from its own file.
fn read_plugin(entry: &Tree, source: &Source<'_>, settings: &mut Settings) -> Result<(), FieldError> {
    let name = entry.str("name");
    let plugin = PLUGINS.iter().find(|plugin| plugin.name == name);
    let plugin = plugin.ok_or_else(|| FieldError::new("name", format_args!("unknown plugin {name:?}")))?;
    let fixed = || FieldError::new("name", format_args!("{name} has nothing to be configured"));
    let configure = plugin.configure.ok_or_else(fixed)?;
    match (entry.has("configuration"), entry.str("path")) {
        (true, "") => {
            let inner = Source { tree: entry.at("configuration"), dir: source.dir };
            configure(settings, &inner).map_err(|error| error.below("configuration"))
        }
        (false, path) if !path.is_empty() => {
            let path = source.beside(path);
            let tree = read_yaml(&path).map_err(|error| FieldError::new("path", error))?;
            let inner = Source { tree: &tree, dir: path.parent().unwrap_or(Path::new("")) };
            let named = |error| FieldError::new("path", format_args!("{}: {error}", path.display()));
            configure(settings, &inner).map_err(named)
        }
        _ => Err(FieldError::new("configuration", "exactly one of configuration and path is required")),
    }
}

fn read_yaml(file: &Path) -> Result<Tree, FileError> {
    let failed = |source| FileError { path: file.to_path_buf(), source };
    let bytes = std::fs::read(file).map_err(|error| failed(error.into()))?;
    api::yaml::decode(&bytes).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn flags_turn_plugins_on_and_off_in_their_order() {
        let default = Setup::default();
        assert!(default.is_on("LimitRanger") && !default.is_on("AlwaysDeny"));
        let setup = Setup::new(&names(&["AlwaysDeny", "AlwaysAdmit"]), &names(&["LimitRanger"]), None).expect("right");
        let on: Vec<&str> = setup.plugins().map(|plugin| plugin.name).collect();
        assert_eq!((on.first(), on.last()), (Some(&"AlwaysAdmit"), Some(&"AlwaysDeny")));
        assert!(!on.contains(&"LimitRanger"));
    }

    #[test]
    fn errors_of_the_file_name_file_and_field() {
        let dir = tempfile();
        let file = dir.join("admission.yaml");
        let check = |plugins: &str, want: &str| {
            let text =
                format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: {plugins}\n");
            std::fs::write(&file, text).expect("a file");
            let errors = Setup::new(&[], &[], Some(&file)).err().unwrap_or_default().join("; ");
            assert!(errors.contains(want) && errors.is_empty() == want.is_empty(), "{errors}");
            assert!(errors.is_empty() || errors.contains("admission.yaml: "), "{errors}");
        };
        let limit = "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1, burst: 0}]}";
        check("[]", "");
        check(
            "[{name: EventRateLimit, configuration: {kind: X}}]",
            "plugins[0].configuration.kind: \"X\" is not Configuration",
        );
        check(
            &format!("[{{name: EventRateLimit, configuration: {limit}}}]"),
            "plugins[0].configuration.limits[0].burst: must be positive",
        );
        check("[{name: Foo, configuration: {}}]", "plugins[0].name: unknown plugin \"Foo\"");
        check("[{name: LimitRanger, configuration: {}}]", "plugins[0].name: LimitRanger has nothing to be configured");
        check("[{name: PodSecurity}]", "plugins[0].configuration: exactly one of");
        check("[{name: PodSecurity, path: none.yaml}]", "plugins[0].path: ");
        let webhooks = |fields: &str| {
            format!(
                "[{{name: MutatingAdmissionWebhook, configuration: {{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration{fields}}}}}]"
            )
        };
        check(&webhooks(", kubeConfigFile: a.yaml"), "configuration.kubeConfigFile: must be an absolute path");
        check(&webhooks(", kubeConfigFile: /no/such"), "configuration.kubeConfigFile: /no/such: No such file");
        check(&webhooks(", other: 1"), "configuration.other: unknown field");
        check(&webhooks(""), "configuration.kubeConfigFile: must be an absolute path");
        check("[{name: PodSecurity, other: 1}]", "plugins[0].other: unknown field");
        check("[", "admission.yaml: ");
        std::fs::remove_dir_all(&dir).expect("the directory goes");
    }

    fn tempfile() -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("tiphys-setup-{}-{}", std::process::id(), crate::common::ids::suffix()));
        std::fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    #[test]
    fn unsupported_settings_are_named() {
        let check = |enable: &[&str], disable: &[&str], want: &str| {
            let errors = Setup::new(&names(enable), &names(disable), None).expect_err("wrong").join("; ");
            assert!(errors.contains(want), "{errors}");
        };
        check(&["Foo"], &[], "enable-admission-plugins plugin \"Foo\" is unknown");
        check(&[], &["Foo"], "disable-admission-plugins plugin \"Foo\" is unknown");
        check(&["PodGroupProtection"], &[], "cannot be turned on: groups of pods are not served");
        check(&["EventRateLimit"], &[], "\"EventRateLimit\" needs a configuration");
        check(&["AlwaysDeny"], &["AlwaysDeny"], "[AlwaysDeny] in enable-admission-plugins and disable");
        assert!(Setup::new(&[], &names(&["PodGroupProtection"]), None).is_ok());
    }
}
