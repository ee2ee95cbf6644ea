//! Feature gates as flags name them.

use thiserror::Error;

use crate::flags::values::boolean;

use client::gates::GateError;
pub(crate) use client::gates::Gates;

/// Why the feature gates of a flag are refused.
#[derive(Debug, PartialEq, Error)]
pub(crate) enum GateFlagError {
    #[error("missing bool value for {0}")]
    MissingValue(String),
    #[error("invalid value of {name}={value}, expected true or false")]
    InvalidValue { name: String, value: String },
    #[error(transparent)]
    Gate(#[from] GateError),
}

/// Checks `Name=true,Other=false`, each entry separately.
pub(crate) fn check(gates: Gates, text: &str) -> Result<(), GateFlagError> {
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('=').ok_or_else(|| GateFlagError::MissingValue(entry.to_string()))?;
        let (name, value) = (name.trim(), value.trim());
        let invalid = |_| GateFlagError::InvalidValue { name: name.to_string(), value: value.to_string() };
        let requested = boolean(value).map_err(invalid)?;
        client::gates::check(gates, name, requested)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATES: Gates = &[("AllAlpha", false), ("JobManagedBy", true), ("ServiceTrafficDistribution", true)];

    fn check(text: &str) -> Result<(), String> {
        super::check(GATES, text).map_err(|error| error.to_string())
    }

    #[test]
    fn accepts_only_the_built_in_gates() {
        for text in ["", "JobManagedBy=true", "AllAlpha=false, ServiceTrafficDistribution=true,"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let refused = |text: &str, want: &str| assert_eq!(check(text), Err(want.to_string()), "{text}");
        refused("JobManagedBy=false", "feature gate JobManagedBy is on and cannot be changed");
        refused("AllAlpha=true", "feature gate AllAlpha is off and cannot be changed");
        refused("JobManagedBy", "missing bool value for JobManagedBy");
        refused("JobManagedBy=x", "invalid value of JobManagedBy=x, expected true or false");
        refused("AllBeta=false", "AllBeta cannot be set: set each feature gate by its own name");
        refused("Nonsense=true", "unrecognized feature gate: Nonsense");
    }
}
