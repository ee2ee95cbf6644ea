//! Feature gates of components. None can be changed: a gate is accepted with its actual value and rejected otherwise.

use thiserror::Error;

/// The gates of a component, sorted, each with its state.
pub type Gates = &'static [(&'static str, bool)];

/// Why a gate cannot be set as requested.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GateError {
    /// Gates cannot be set by their stage.
    #[error("AllBeta cannot be set: set each feature gate by its own name")]
    AllBeta,
    /// The component has no such gate.
    #[error("unrecognized feature gate: {0}")]
    Unrecognized(String),
    /// The gate has another state.
    #[error("feature gate {name} is {} and cannot be changed", if *.is_on { "on" } else { "off" })]
    Fixed {
        /// The name of the gate.
        name: String,
        /// Its actual state.
        is_on: bool,
    },
}

/// Checks the requested value of a gate.
pub fn check(gates: Gates, name: &str, asked: bool) -> Result<(), GateError> {
    if name == "AllBeta" {
        return Err(GateError::AllBeta);
    }
    match gates.iter().find(|(known, _)| *known == name) {
        None => Err(GateError::Unrecognized(name.to_string())),
        Some((_, is_on)) if *is_on != asked => Err(GateError::Fixed { name: name.to_string(), is_on: *is_on }),
        Some(_) => Ok(()),
    }
}
