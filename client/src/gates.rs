//! Feature gates of components. None can be turned here: one is taken where it says what is so, and refused by its name
//! where it does not.

/// The gates that a component looks at, sorted, each with the state that it is in here.
pub type Gates = &'static [(&'static str, bool)];

/// Judges one gate by its name and what is asked of it.
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
