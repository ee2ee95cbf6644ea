//! The kubelet's settings from flags and files together.

use kubelet::config::{self, Settings};

use super::flags::Flags;
use crate::error::{Error, Result};

/// A flag overrides the files; upstream's defaults apply otherwise.
pub(super) fn read(flags: &Flags) -> Result<Settings> {
    let mut settings = config::read_file(flags.config.as_deref(), flags.config_dir.as_deref(), &flags.overlay)
        .map_err(|errors| Error::Flags(errors.into_iter().map(|why| format!("--config: {why}")).collect()))?;
    let config = &mut settings.config;
    config.node_name = name(&flags.hostname_override)?;
    config.hostname = config.node_name.clone();
    config.node_ips = flags.node_ips.clone();
    config.node_labels = flags.node_labels.clone();
    config.register_schedulable = !flags.is_unschedulable;
    config.external_cloud_provider = flags.external_cloud_provider;
    config.drain_by_proxies = !flags.ignores_proxies;
    config.pod_infra_image = flags.pod_infra_image.clone();
    config.container_gc = flags.container_gc;
    config.credential_provider_config = flags.credential_provider_config.clone();
    config.credential_provider_bin_dir = flags.credential_provider_bin_dir.clone();
    if let Some(root) = &flags.root_dir {
        config.root_dir = std::path::absolute(root).map_err(Error::file(root))?;
    }
    let certificates = flags.cert_dir.clone().unwrap_or_else(|| config.root_dir.join("pki"));
    config.certificates.dir = Some(certificates);
    Ok(settings)
}

/// The requested name, or the host name, in lower case like all object names.
pub(super) fn name(requested: &str) -> Result<String> {
    let name = match requested {
        "" => server::hostname().to_lowercase(),
        requested => requested.to_lowercase(),
    };
    match api::validation::dns1123_subdomain(&name).first() {
        Some(problem) => Err(Error::Flags(vec![format!("--hostname-override: {name:?}: {problem}")])),
        None => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags;

    #[test]
    fn merges_flags_and_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.yaml");
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\nport: 1001\n";
        std::fs::write(&path, text).expect("a file");
        let read = |extra: &[&str]| {
            let mut all = vec![format!("--config={}", path.display()), "--hostname-override=Node-1".to_string()];
            all.extend(extra.iter().map(ToString::to_string));
            flags::parse(&all).and_then(|flags| super::read(&flags)).map_err(|error| error.describe())
        };
        let config = read(&["--port=1002", "--root-dir=/r", "--register-schedulable=false"]).expect("settings").config;
        assert!(config.drain_by_proxies);
        assert!(!read(&["--drain-by-proxies=false"]).expect("settings").config.drain_by_proxies);
        assert_eq!((config.node_name.as_str(), config.max_pods, config.port), ("node-1", 7, 1002));
        assert_eq!(config.certificates.dir, Some("/r/pki".into()));
        assert!(!config.register_schedulable);
        let bad = read(&["--cpu-manager-policy=dynamic"]).expect_err("refused");
        assert!(bad.contains("--config: cpuManagerPolicy: unknown policy"), "{bad}");
        let bad = read(&["--hostname-override=a_b"]).expect_err("refused");
        assert!(bad.contains("--hostname-override: \"a_b\""), "{bad}");
    }
}
