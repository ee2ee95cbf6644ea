//! Feature gates of components. None can be changed: a gate is accepted with its actual value and rejected otherwise.

/// The gates of a component, sorted, each with its state.
pub type Gates = &'static [(&'static str, bool)];

/// Checks the requested value of a gate.
pub fn check(gates: Gates, name: &str, asked: bool) -> Result<(), String> {
    if name == "AllBeta" {
        return Err("AllBeta cannot be set: set each feature gate by its own name".to_string());
    }
    match gates.iter().find(|(known, _)| *known == name) {
        None => Err(format!("unrecognized feature gate: {name}")),
        Some((_, state)) if *state != asked => {
            let state = if *state { "on" } else { "off" };
            Err(format!("feature gate {name} is {state} and cannot be changed"))
        }
        Some(_) => Ok(()),
    }
}
