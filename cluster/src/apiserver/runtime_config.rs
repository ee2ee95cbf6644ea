//! `--runtime-config`: which API versions are served. None can be changed: an entry is accepted only with the built-in
//! state.

use thiserror::Error;

use crate::flags::values::{ValueError, boolean};

/// Why an entry of `--runtime-config` is refused.
#[derive(Debug, PartialEq, Error)]
pub(crate) enum RuntimeConfigError {
    #[error("api/all cannot be changed: name the versions instead")]
    All,
    #[error("{key} is {} here and cannot be changed", if *.is_served { "served" } else { "not served" })]
    Fixed { key: String, is_served: bool },
    #[error("{0:?} is not of the form GROUP/VERSION or GROUP/VERSION/RESOURCE")]
    Form(String),
    #[error("unknown api groups {0}")]
    UnknownGroup(String),
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Checks `GROUP/VERSION=true,GROUP/VERSION/RESOURCE=false,api/alpha=false`; an entry without a value is true.
pub(super) fn check(text: &str) -> Result<(), RuntimeConfigError> {
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (key, value) = entry.split_once('=').unwrap_or((entry, "true"));
        let requested = if value.is_empty() { true } else { boolean(value)? };
        let is_served = match key {
            "api/all" => return Err(RuntimeConfigError::All),
            "api/ga" => true,
            "api/beta" => is_stage_served("beta"),
            "api/alpha" => is_stage_served("alpha"),
            _ => is_version_served(key)?,
        };
        if requested != is_served {
            return Err(RuntimeConfigError::Fixed { key: key.to_string(), is_served });
        }
    }
    Ok(())
}

fn is_stage_served(stage: &str) -> bool {
    kinds::served().iter().any(|kind| kind.version.contains(stage))
}

/// `v1`, `api/v1` or `GROUP/VERSION`, and a resource of it where one is named.
fn is_version_served(key: &str) -> Result<bool, RuntimeConfigError> {
    let parts: Vec<&str> = key.split('/').collect();
    let (group, version, resource) = match parts[..] {
        ["v1"] | ["api", "v1"] => ("", "v1", ""),
        [group, version] => (group, version, ""),
        ["api", "v1", resource] => ("", "v1", resource),
        [group, version, resource] => (group, version, resource),
        _ => return Err(RuntimeConfigError::Form(key.to_string())),
    };
    let of_group = || kinds::served().iter().filter(|kind| kind.group == group);
    if of_group().next().is_none() {
        return Err(RuntimeConfigError::UnknownGroup(group.to_string()));
    }
    Ok(of_group().any(|kind| kind.version == version && (resource.is_empty() || kind.plural == resource)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_the_built_in_state() {
        for text in ["", "api/ga=true", "v1", "api/v1=true", "apps/v1=,batch/v1/jobs=true", "batch/v2alpha1=false"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let refused = |text: &str, want: &str| {
            assert_eq!(check(text).map_err(|error| error.to_string()), Err(want.to_string()), "{text}")
        };
        refused("api/all=true", "api/all cannot be changed: name the versions instead");
        refused("apps/v1=false", "apps/v1 is served here and cannot be changed");
        refused("batch/v2alpha1=true", "batch/v2alpha1 is not served here and cannot be changed");
        refused("nonsense/v1=true", "unknown api groups nonsense");
        refused("api/ga=false", "api/ga is served here and cannot be changed");
        assert!(check("apps/v1=perhaps").is_err());
    }
}
