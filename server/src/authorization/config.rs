//! The authorizers and their order: from the names of modes, or from an AuthorizationConfiguration file. All errors of
//! a file are reported at once, by field.

use std::path::Path as File;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::field::{Errors, Path};

use super::Decision;
use super::abac::Policies;
use super::conditions::Conditions;
use super::webhook::{self, Version};
use crate::outbound::callout::kubeconfig::Remote;

/// The configuration of one authorizer.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Stands before its reasons; upstream's default is the mode in lower case.
    pub name: String,
    pub mode: Mode,
}

/// An authorization mode with its configuration.
#[derive(Debug, Clone)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Abac(Arc<Policies>),
    Node,
    Rbac,
    Webhook(webhook::Settings),
}

impl Mode {
    /// The name of the mode.
    pub fn name(&self) -> &'static str {
        match self {
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
            Mode::Abac(_) => "ABAC",
            Mode::Node => "Node",
            Mode::Rbac => "RBAC",
            Mode::Webhook(_) => "Webhook",
        }
    }

    /// A mode that needs no configuration.
    pub fn plain(name: &str) -> Option<Mode> {
        [Mode::AlwaysAllow, Mode::AlwaysDeny, Mode::Node, Mode::Rbac].into_iter().find(|mode| mode.name() == name)
    }
}

impl From<Mode> for Setting {
    fn from(mode: Mode) -> Setting {
        let name = match &mode {
            Mode::Webhook(_) => "default".to_string(),
            mode => mode.name().to_lowercase(),
        };
        Setting { name, mode }
    }
}

/// The default authorizers of a cluster.
pub(crate) fn node_and_rbac() -> Vec<Setting> {
    vec![Mode::Node.into(), Mode::Rbac.into()]
}

const GROUP: &str = "apiserver.config.k8s.io";
const TYPES: &[&str] = &["AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the kubeconfig that a webhook names.
pub type Open<'a> = &'a dyn Fn(&File) -> Result<Remote, Box<dyn std::error::Error>>;

/// Reads an AuthorizationConfiguration; the errors are texts that begin with a field's path.
pub fn parse(bytes: &[u8], open: Open<'_>) -> Result<Vec<Setting>, Vec<String>> {
    let tree = api::yaml::decode(bytes).map_err(|error| vec![error.to_string()])?;
    let version = tree.str("apiVersion").strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if tree.str("kind") != "AuthorizationConfiguration" || !matches!(version, Some("v1" | "v1beta1")) {
        return Err(vec![format!("it must be an AuthorizationConfiguration of {GROUP}/v1")]);
    }
    let mut reader = Reader { errors: Errors::new(), open };
    let settings = reader.authorizers(&tree);
    if reader.errors.is_empty() {
        return Ok(settings);
    }
    Err(reader.errors.iter().map(ToString::to_string).collect())
}

struct Reader<'a> {
    errors: Errors,
    open: Open<'a>,
}

impl Reader<'_> {
    fn known(&mut self, tree: &Tree, path: &Path<'_>, known: &[&str]) {
        for key in tree.as_map().into_iter().flat_map(|map| map.keys()).filter(|key| !known.contains(key)) {
            self.errors.forbidden(&path.field(key), "unknown field");
        }
    }

    fn authorizers(&mut self, tree: &Tree) -> Vec<Setting> {
        for key in tree.as_map().into_iter().flat_map(|map| map.keys()) {
            if !matches!(key, "apiVersion" | "kind" | "authorizers") {
                self.errors.forbidden(&Path::root(key), "unknown field");
            }
        }
        let path = Path::root("authorizers");
        let list = tree.list("authorizers");
        if list.is_empty() {
            self.errors.required(&path, "at least one authorization mode must be defined");
        }
        let mut settings: Vec<Setting> = Vec::new();
        for (index, authorizer) in list.iter().enumerate() {
            let path = path.index(index);
            self.check_twice(authorizer, &settings, &path);
            settings.extend(self.authorizer(authorizer, &path));
        }
        settings
    }

    fn check_twice(&mut self, authorizer: &Tree, before: &[Setting], path: &Path<'_>) {
        let (kind, name) = (authorizer.str("type"), authorizer.str("name"));
        if kind != "Webhook" && before.iter().any(|setting| setting.mode.name() == kind) {
            self.errors.duplicate(&path.field("type"), kind);
        }
        if before.iter().any(|setting| setting.name == name) {
            self.errors.duplicate(&path.field("name"), name);
        }
    }

    fn authorizer(&mut self, authorizer: &Tree, path: &Path<'_>) -> Option<Setting> {
        self.known(authorizer, path, &["type", "name", "webhook"]);
        let name = authorizer.str("name");
        match name {
            "" => self.errors.required(&path.field("name"), ""),
            name => self.errors.invalid_all(&path.field("name"), name, api::validation::dns1123_subdomain(name)),
        }
        let (kind, webhook) = (authorizer.str("type"), authorizer.at("webhook"));
        if kind != "Webhook" && !webhook.is_null() {
            self.errors.invalid(&path.field("webhook"), "non-null", "may only be specified when type=Webhook");
        }
        let mode = match kind {
            "" => {
                self.errors.required(&path.field("type"), "");
                None
            }
            "Webhook" if webhook.is_null() => {
                self.errors.required(&path.field("webhook"), "required when type=Webhook");
                None
            }
            "Webhook" => self.webhook(name, webhook, &path.field("webhook")).map(Mode::Webhook),
            kind if TYPES.contains(&kind) => Mode::plain(kind),
            kind => {
                self.errors.not_supported(&path.field("type"), kind, TYPES);
                None
            }
        };
        mode.map(|mode| Setting { name: name.to_string(), mode })
    }

    fn webhook(&mut self, name: &str, webhook: &Tree, path: &Path<'_>) -> Option<webhook::Settings> {
        self.known(webhook, path, WEBHOOK_FIELDS);
        let authorized_ttl = self.ttl(webhook, "authorizedTTL", 300, "cacheAuthorizedRequests", path);
        let unauthorized_ttl = self.ttl(webhook, "unauthorizedTTL", 30, "cacheUnauthorizedRequests", path);
        let timeout = self.timeout(webhook, path);
        let versions = &["v1", "v1beta1"];
        let version = match self.choice(webhook, "subjectAccessReviewVersion", versions, path).unwrap_or("v1") {
            "v1beta1" => Version::V1beta1,
            _ => Version::V1,
        };
        let conditions = webhook.list("matchConditions");
        let key = "matchConditionSubjectAccessReviewVersion";
        if webhook.has(key) {
            self.choice(webhook, key, &["v1"], path);
        } else if !conditions.is_empty() {
            self.errors.required(&path.field(key), "required if match conditions are specified");
        }
        let conditions = Conditions::read(name, conditions, &path.field("matchConditions"), &mut self.errors);
        let on_failure = match self.choice(webhook, "failurePolicy", &["NoOpinion", "Deny"], path) {
            Some("NoOpinion") => Decision::NoOpinion,
            _ => Decision::Deny,
        };
        let remote = self.connection(webhook.at("connectionInfo"), &path.field("connectionInfo"))?;
        Some(webhook::Settings {
            remote: Arc::new(remote),
            authorized_ttl,
            unauthorized_ttl,
            timeout,
            on_failure,
            version,
            conditions,
        })
    }

    fn duration(&mut self, tree: &Tree, key: &str, path: &Path<'_>) -> Option<Duration> {
        let text = tree.str(key);
        if text.is_empty() {
            return None;
        }
        let found = api::time::parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
        if found.is_none_or(|nanos| nanos == 0) {
            self.errors.invalid(&path.field(key), text, "must be greater than 0s");
        }
        found.map(Duration::from_nanos)
    }

    /// Zero if responses are not cached.
    fn ttl(&mut self, webhook: &Tree, key: &str, seconds: u64, switch: &str, path: &Path<'_>) -> Duration {
        let ttl = self.duration(webhook, key, path).unwrap_or(Duration::from_secs(seconds));
        if webhook.at(switch).as_bool() == Some(false) { Duration::ZERO } else { ttl }
    }

    fn timeout(&mut self, webhook: &Tree, path: &Path<'_>) -> Duration {
        if webhook.str("timeout").is_empty() {
            self.errors.required(&path.field("timeout"), "");
        }
        let timeout = self.duration(webhook, "timeout", path).unwrap_or(MAX_TIMEOUT);
        if timeout > MAX_TIMEOUT {
            self.errors.invalid(&path.field("timeout"), webhook.str("timeout"), "must be less than or equal to 30s");
        }
        timeout
    }

    fn choice<'t>(&mut self, tree: &'t Tree, key: &str, choices: &[&str], path: &Path<'_>) -> Option<&'t str> {
        match tree.str(key) {
            "" => self.errors.required(&path.field(key), ""),
            value if choices.contains(&value) => return Some(value),
            value => self.errors.not_supported(&path.field(key), value, choices),
        }
        None
    }

    fn connection(&mut self, connection: &Tree, path: &Path<'_>) -> Option<Remote> {
        self.known(connection, path, &["type", "kubeConfigFile"]);
        // There is no cluster around this server whose account it could use.
        self.choice(connection, "type", &["KubeConfigFile"], path)?;
        let file = connection.str("kubeConfigFile");
        let path = path.field("kubeConfigFile");
        if file.is_empty() {
            self.errors.required(&path, "");
            return None;
        }
        if !File::new(file).is_absolute() {
            self.errors.invalid(&path, file, "must be an absolute path");
            return None;
        }
        match (self.open)(File::new(file)) {
            Ok(remote) => Some(remote),
            Err(why) => {
                self.errors.invalid(&path, file, &why.to_string());
                None
            }
        }
    }
}

const WEBHOOK_FIELDS: &[&str] = &[
    "authorizedTTL",
    "cacheAuthorizedRequests",
    "unauthorizedTTL",
    "cacheUnauthorizedRequests",
    "timeout",
    "subjectAccessReviewVersion",
    "matchConditionSubjectAccessReviewVersion",
    "failurePolicy",
    "connectionInfo",
    "matchConditions",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(authorizers: &str) -> Result<Vec<String>, Vec<String>> {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: {authorizers}\n"
        );
        let settings = parse(text.as_bytes(), &|_| Err("cannot be read".into()))?;
        Ok(settings.iter().map(|setting| format!("{} {}", setting.mode.name(), setting.name)).collect())
    }

    #[test]
    fn the_order_is_that_of_the_file() {
        let file = "[{type: Node, name: first}, {type: RBAC, name: r}, {type: AlwaysDeny, name: d}]";
        assert_eq!(read(file), Ok(vec!["Node first".to_string(), "RBAC r".to_string(), "AlwaysDeny d".to_string()]));
    }

    #[test]
    fn errors_name_their_field() {
        let cases = [
            ("[]", "authorizers: Required value"),
            ("[{type: RBAC}]", "authorizers[0].name: Required value"),
            ("[{name: a}]", "authorizers[0].type: Required value"),
            ("[{type: X, name: a}]", "authorizers[0].type: Unsupported value"),
            ("[{type: RBAC, name: a}, {type: RBAC, name: b}]", "authorizers[1].type: Duplicate value"),
            ("[{type: RBAC, name: a}, {type: Node, name: a}]", "authorizers[1].name: Duplicate value"),
            ("[{type: RBAC, name: a, mode: x}]", "authorizers[0].mode: Forbidden: unknown field"),
            ("[{type: Webhook, name: a}]", "authorizers[0].webhook: Required value"),
            ("[{type: Webhook, name: a, webhook: {timeout: 40s}}]", "authorizers[0].webhook.timeout: Invalid value"),
            (
                "[{type: Webhook, name: a, webhook: {matchConditions: [{expression: x}]}}]",
                "authorizers[0].webhook.matchConditions[0].expression: Invalid value: \"x\": compilation failed",
            ),
            (
                "[{type: Webhook, name: a, webhook: {connectionInfo: {type: KubeConfigFile, kubeConfigFile: /x}}}]",
                "authorizers[0].webhook.connectionInfo.kubeConfigFile: Invalid value: \"/x\": cannot be read",
            ),
            ("[{type: Webhook, name: a, webhook: {failurePolicy: Open}}]", "failurePolicy: Unsupported value"),
        ];
        for (file, want) in cases {
            let errors = read(file).expect_err("a bad file");
            assert!(errors.iter().any(|error| error.contains(want)), "{want} in {errors:?}");
        }
        assert!(parse(b"kind: Config", &|_| Err("".into())).is_err());
    }
}
