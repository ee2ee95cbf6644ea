//! Exec credential plugins, v1 and v1beta1.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Stdio;

use api::{Tree, json, tree};
use tokio::process::Command;

use super::policy::PluginPolicy;
use crate::clock;
use crate::error::{Error, Result, message};
use crate::kubeconfig::{Connection, Exec};

const GROUP: &str = "client.authentication.k8s.io";
/// The longest response of a plugin.
const MAX_OUTPUT: usize = 4 * 1024 * 1024;

/// What a plugin responded.
#[derive(Clone, Default, PartialEq)]
pub(super) struct PluginCredential {
    pub(super) token: String,
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Seconds since 1970; None without an end.
    expires: Option<i64>,
}

impl PluginCredential {
    pub(super) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= clock::now())
    }
}

/// A program that returns credentials.
pub(super) struct Plugin {
    spec: Tree,
    command: PathBuf,
    version: String,
    is_interactive: bool,
    info: String,
}

impl Plugin {
    pub(super) fn new(exec: &Exec, connection: &Connection, policy: &PluginPolicy) -> Result<Plugin> {
        let spec = exec.spec.clone();
        let api_version = spec.str("apiVersion").to_string();
        let version = match api_version.strip_prefix(&format!("{GROUP}/")) {
            Some(version @ ("v1" | "v1beta1")) => version.to_string(),
            _ => return message(format!("exec plugin: invalid apiVersion \"{api_version}\"")),
        };
        let mode = match (spec.str("interactiveMode"), version.as_str()) {
            ("", "v1") => {
                return message(format!(
                    "interactiveMode must be specified for {} to use exec authentication plugin",
                    connection.user
                ));
            }
            ("", _) => "IfAvailable",
            (mode @ ("Never" | "IfAvailable" | "Always"), _) => mode,
            (mode, _) => {
                return message(format!("invalid interactiveMode for {}: \"{mode}\"", connection.user));
            }
        };
        let has_terminal = std::io::stdin().is_terminal();
        if mode == "Always" && !has_terminal {
            return message("exec plugin cannot support interactive mode: standard input is not a terminal");
        }
        let name = spec.str("command");
        if name.is_empty() {
            return message(format!(
                "command must be specified for {} to use exec authentication plugin",
                connection.user
            ));
        }
        // A name without a slash is looked up in PATH; a path is relative to the kubeconfig.
        let command = if name.contains('/') { exec.directory.join(name) } else { PathBuf::from(name) };
        if let Some(refusal) = policy.refusal(&command) {
            return failure(&refusal);
        }
        let is_interactive = mode != "Never" && has_terminal;
        let info = info(&spec, &api_version, connection, is_interactive);
        Ok(Plugin { spec, command, version, is_interactive, info })
    }

    /// Runs the program and reads its response.
    pub(super) async fn run(&self) -> Result<PluginCredential> {
        let mut command = Command::new(&self.command);
        command.args(self.spec.list("args").iter().filter_map(Tree::as_str));
        for variable in self.spec.list("env") {
            command.env(variable.str("name"), variable.str("value"));
        }
        command.env("KUBERNETES_EXEC_INFO", &self.info);
        command.stdin(if self.is_interactive { Stdio::inherit() } else { Stdio::null() });
        command.stderr(Stdio::inherit()).stdout(Stdio::piped()).kill_on_drop(true);
        let output = match command.spawn() {
            Ok(child) => child.wait_with_output().await?,
            Err(error) => return self.start_failure(&error),
        };
        if !output.status.success() {
            let code = output.status.code().unwrap_or(-1);
            return failure(&format!("executable {} failed with exit code {code}", self.command.display()));
        }
        if output.stdout.len() > MAX_OUTPUT {
            return failure("the response is too long");
        }
        self.parse(&output.stdout)
    }

    fn start_failure<T>(&self, error: &std::io::Error) -> Result<T> {
        let mut text = format!("executable {} not found", self.command.display());
        if error.kind() != std::io::ErrorKind::NotFound {
            text = error.to_string();
        }
        let hint = self.spec.str("installHint");
        if !hint.is_empty() {
            text.push_str(&format!(
                "\n\nIt looks like you are trying to use a client-go credential plugin that is not installed.\n\n{hint}"
            ));
        }
        failure(&text)
    }

    fn parse(&self, bytes: &[u8]) -> Result<PluginCredential> {
        let response = match json::decode(bytes) {
            Ok(response) => response,
            Err(error) => return failure(&format!("decoding stdout: {error}")),
        };
        let (api_version, kind) = (response.str("apiVersion"), response.str("kind"));
        if kind != "ExecCredential" || api_version != format!("{GROUP}/{}", self.version) {
            return failure(&format!(
                "exec plugin is configured to use API version {GROUP}/{}, plugin returned version {api_version}",
                self.version
            ));
        }
        let status = response.at("status");
        if status.is_null() {
            return failure("exec plugin didn't return a status field");
        }
        let (certificate, key) = (status.str("clientCertificateData"), status.str("clientKeyData"));
        if certificate.is_empty() != key.is_empty() {
            return failure("exec plugin returned only certificate or key, not both");
        }
        if status.str("token").is_empty() && certificate.is_empty() {
            return failure("exec plugin didn't return a token or cert/key pair");
        }
        let identity = (!key.is_empty()).then(|| (certificate.as_bytes().to_vec(), key.as_bytes().to_vec()));
        let expires = api::time::parse(status.str("expirationTimestamp")).ok().map(|time| time.seconds);
        Ok(PluginCredential { token: status.str("token").to_string(), identity, expires })
    }
}

fn failure<T>(text: &str) -> Result<T> {
    let reason = format!("getting credentials: exec: {text}");
    Err(Error::Connect { host: String::new(), reason, is_refused: false })
}

/// What the plugin may know: whether it can ask the user, and the cluster if it wants it.
fn info(spec: &Tree, api_version: &str, connection: &Connection, is_interactive: bool) -> String {
    let mut about = tree! { "interactive" => is_interactive };
    if spec.bool("provideClusterInfo") {
        let mut cluster = tree! { "server" => connection.server.url() };
        for field in ["tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression"] {
            if let Some(value) = connection.cluster.get(field) {
                cluster.set(field, value.clone());
            }
        }
        if let Some(pem) = &connection.certificate_authority {
            cluster.set("certificate-authority-data", api::base64::encode(pem));
        }
        let extensions = connection.cluster.list("extensions");
        let config = extensions.iter().find(|one| one.str("name") == format!("{GROUP}/exec"));
        cluster.set("config", config.map_or(Tree::Null, |one| one.at("extension").clone()));
        about.set("cluster", cluster);
    }
    let info = tree! { "kind" => "ExecCredential", "apiVersion" => api_version, "spec" => about };
    String::from_utf8_lossy(&json::encode(&info, None)).into_owned()
}
