//! cgroups of systemd: slices, which systemd creates and limits on request.

use std::path::Path;
use std::process::Command;

use cgroup::Resources;

/// This directory exists if systemd runs the machine.
const RUNS: &str = "/run/systemd/system";

pub(crate) fn runs() -> bool {
    Path::new(RUNS).is_dir()
}

/// A failed call of systemctl.
#[derive(Debug, thiserror::Error)]
pub enum SystemctlError {
    #[error("systemctl {args}: {source}")]
    Spawn { args: String, source: std::io::Error },
    #[error("systemctl {args}: {stderr}")]
    Failed { args: String, stderr: String },
}

/// Starts a slice and limits it until the machine is started again.
pub(crate) fn set(slice: &str, resources: &Resources, unified: bool) -> Result<(), SystemctlError> {
    run_systemctl(&["start", slice])?;
    let properties = properties(resources, unified);
    if properties.is_empty() {
        return Ok(());
    }
    let properties: Vec<&str> = properties.iter().map(String::as_str).collect();
    run_systemctl(&[&["set-property", "--runtime", slice], properties.as_slice()].concat())
}

/// Stops a slice and reverts its limits.
pub(crate) fn remove(slice: &str) -> Result<(), SystemctlError> {
    run_systemctl(&["stop", slice])?;
    run_systemctl(&["revert", slice])
}

fn run_systemctl(args: &[&str]) -> Result<(), SystemctlError> {
    let output = Command::new("systemctl").args(args).output();
    let args = args.join(" ");
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_string();
            Err(SystemctlError::Failed { args, stderr })
        }
        Err(source) => Err(SystemctlError::Spawn { args, source }),
    }
}

/// Properties of systemd, which has none for huge pages.
fn properties(resources: &Resources, unified: bool) -> Vec<String> {
    let limited = |value: i64| if value > 0 { value.to_string() } else { "infinity".to_string() };
    let mut properties = Vec::new();
    if let Some(shares) = resources.cpu_shares {
        properties.push(match unified {
            true => format!("CPUWeight={}", cgroup::limits::weight(shares)),
            false => format!("CPUShares={shares}"),
        });
    }
    if let (Some(quota), Some(period)) = (resources.cpu_quota, resources.cpu_period.filter(|period| *period > 0)) {
        properties.push(match u64::try_from(quota) {
            Ok(quota) => {
                let hundredths = quota * 10_000 / period;
                format!("CPUQuota={}.{:02}%", hundredths / 100, hundredths % 100)
            }
            Err(_) => "CPUQuota=".to_string(),
        });
        properties.push(format!("CPUQuotaPeriodSec={period}us"));
    }
    let memory = if unified { "MemoryMax" } else { "MemoryLimit" };
    properties.extend(resources.memory.map(|bytes| format!("{memory}={}", limited(bytes))));
    properties.extend(resources.pids.map(|most| format!("TasksMax={}", limited(most))));
    for (file, property) in [("memory.min", "MemoryMin"), ("memory.low", "MemoryLow")] {
        properties.extend(resources.unified.get(file).map(|bytes| format!("{property}={bytes}")));
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translates_limits_to_properties() {
        let resources = Resources {
            cpu_shares: Some(1024),
            cpu_quota: Some(12_345),
            cpu_period: Some(100_000),
            memory: Some(1 << 20),
            pids: Some(-1),
            unified: [("memory.low".to_string(), "7".to_string())].into(),
            ..Resources::default()
        };
        let shown = |unified| properties(&resources, unified).join(" ");
        let rest = "CPUQuota=12.34% CPUQuotaPeriodSec=100000us";
        assert_eq!(shown(true), format!("CPUWeight=39 {rest} MemoryMax=1048576 TasksMax=infinity MemoryLow=7"));
        assert_eq!(shown(false), format!("CPUShares=1024 {rest} MemoryLimit=1048576 TasksMax=infinity MemoryLow=7"));
        assert_eq!(properties(&Resources::default(), true), Vec::<String>::new());
    }
}
