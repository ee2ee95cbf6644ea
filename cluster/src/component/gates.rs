//! Feature gates of components. None can be turned here: one is taken where it says what is so, and refused by
//! its name where it does not.

use crate::apiserver::values::boolean;

/// The gates that a component looks at, sorted, each with the state that it is in here.
pub type Gates = &'static [(&'static str, bool)];

/// Checks `Name=true,Other=false`, and each entry by itself.
pub fn check(gates: Gates, text: &str) -> Result<(), String> {
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, value) = entry.split_once('=').ok_or_else(|| format!("missing bool value for {entry}"))?;
        let (name, value) = (name.trim(), value.trim());
        let asked = boolean(value).map_err(|_| format!("invalid value of {name}={value}, it is true or false"))?;
        if name == "AllBeta" {
            return Err("AllBeta cannot be turned: each feature is on or off by itself".to_string());
        }
        match gates.iter().find(|(known, _)| *known == name) {
            None => return Err(format!("unrecognized feature gate: {name}")),
            Some((_, state)) if *state != asked => {
                let state = if *state { "on" } else { "off" };
                return Err(format!("{name} is {state} here and cannot be turned"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATES: Gates = &[("AllAlpha", false), ("JobManagedBy", true), ("ServiceTrafficDistribution", true)];

    fn check(text: &str) -> Result<(), String> {
        super::check(GATES, text)
    }

    #[test]
    fn gates_may_say_what_is_so() {
        for text in ["", "JobManagedBy=true", "AllAlpha=false, ServiceTrafficDistribution=true,"] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        let refused = |text: &str, want: &str| assert_eq!(check(text), Err(want.to_string()), "{text}");
        refused("JobManagedBy=false", "JobManagedBy is on here and cannot be turned");
        refused("AllAlpha=true", "AllAlpha is off here and cannot be turned");
        refused("JobManagedBy", "missing bool value for JobManagedBy");
        refused("JobManagedBy=x", "invalid value of JobManagedBy=x, it is true or false");
        refused("AllBeta=false", "AllBeta cannot be turned: each feature is on or off by itself");
        refused("Nonsense=true", "unrecognized feature gate: Nonsense");
    }
}
