//! The proxy's settings from flags or a file.

use std::path::PathBuf;

use proxy::config::{self, Configuration, Document};

use super::flags::{self, Flags};
use crate::component::flags::NO_KUBECONFIG;
use crate::component::remote::service_address;
use crate::error::{Error, Result};

/// Everything that a proxy needs to start.
pub(super) struct Settings {
    pub configuration: Configuration,
    pub kubeconfig: Option<PathBuf>,
    /// Requests per second, and at once.
    pub limit: Option<(f64, u32)>,
}

/// As upstream's default.
const BURST: u32 = 10;

/// With a file, the flags that upstream ignores then are refused.
pub(super) fn read(flags: Flags) -> Result<Settings> {
    let configuration = read_without_server(&flags)?;
    let document = read_file(&flags)?;
    let connection = document.map(|document| document.client_connection).unwrap_or_default();
    let from_file = Some(PathBuf::from(&connection.kubeconfig)).filter(|_| !connection.kubeconfig.is_empty());
    let kubeconfig = flags.kubeconfig.or(from_file);
    if kubeconfig.is_none() && service_address().is_none() {
        return Err(Error::Flags(vec![NO_KUBECONFIG.to_string()]));
    }
    let burst = flags.kube_api_burst.or(connection.burst).filter(|burst| *burst > 0).unwrap_or(BURST);
    let limit = flags.kube_api_qps.or(connection.qps).map(|qps| (qps, burst));
    Ok(Settings { configuration, kubeconfig, limit })
}

/// The configuration alone, for a cleanup.
pub(super) fn read_without_server(flags: &Flags) -> Result<Configuration> {
    let mut configuration = match read_file(flags)? {
        Some(document) => {
            let beside = |name: &&&str| !flags::BESIDE_CONFIG.contains(*name);
            let ignored: Vec<String> = flags.given.iter().filter(beside).map(ignored).collect();
            if !ignored.is_empty() {
                return Err(Error::Flags(ignored));
            }
            Configuration {
                table: flags.configuration.table.clone(),
                confirm_endpoints: flags.configuration.confirm_endpoints,
                ..document.configuration
            }
        }
        None => {
            let local_mode = flags::local_mode(flags).map_err(|error| Error::Flags(vec![error.to_string()]))?;
            Configuration { local_mode, ..flags.configuration.clone() }
        }
    };
    if !flags.hostname_override.is_empty() {
        configuration.node_name = flags.hostname_override.trim().to_lowercase();
    }
    if configuration.node_name.is_empty() {
        configuration.node_name = server::hostname().to_lowercase();
    }
    Ok(configuration)
}

fn ignored(name: &&'static str) -> String {
    format!("--{name} has no effect together with --config: set it in the file")
}

/// Each error names the flag, the file and the field.
fn read_file(flags: &Flags) -> Result<Option<Document>> {
    let Some(path) = &flags.config else { return Ok(None) };
    let text = std::fs::read(path).map_err(Error::file(path))?;
    let named = |why: String| format!("--config: {}: {why}", path.display());
    let document = config::read(&text).map_err(|errors| Error::Flags(errors.into_iter().map(named).collect()))?;
    Ok(Some(document))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

    fn read(text: &str, arguments: &[&str]) -> Result<Settings, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, text).expect("a file");
        let mut all = vec![format!("--config={}", path.display())];
        all.extend(arguments.iter().map(ToString::to_string));
        flags::parse(&all).and_then(super::read).map_err(|error| error.describe())
    }

    #[test]
    fn file_and_flags_are_combined() {
        let file = format!("{HEAD}clientConnection: {{kubeconfig: /a, qps: 7}}\nhostnameOverride: other\n");
        let settings = read(&file, &["--hostname-override=Node-1", "--table=mine"]).expect("settings");
        assert_eq!((settings.kubeconfig, settings.limit), (Some("/a".into()), Some((7.0, 10))));
        assert_eq!(
            (settings.configuration.node_name.as_str(), settings.configuration.table.as_str()),
            ("node-1", "mine")
        );
    }

    #[test]
    fn errors_name_the_flag() {
        let error = read(HEAD, &["--kubeconfig=/a", "--proxy-mode=iptables"]).err().expect("refused");
        assert!(error.contains("--proxy-mode has no effect together with --config"), "{error}");
        let error = read(&format!("{HEAD}mode: ipvs\n"), &["--kubeconfig=/a"]).err().expect("refused");
        assert!(error.contains("config.yaml: mode: Invalid value"), "{error}");
        assert!(read(HEAD, &[]).err().expect("refused").contains("--kubeconfig FILE is required"));
    }
}
