//! Eviction thresholds: when pods are evicted because the node runs out of a resource.

use std::time::Duration;

use api::quantity::Quantity;

use super::error::InvalidValue;

/// All that can run out, by upstream's names.
pub(crate) const SIGNALS: [&str; 9] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// An amount of a signal: a quantity, or a share of the capacity.
#[derive(Debug, Clone)]
pub(crate) enum Amount {
    Quantity(Quantity),
    /// From 0 to 1.
    Part(f64),
}

impl Amount {
    /// Parses an amount as upstream does: `100Mi` or `5%`. Zero, or 100% of the capacity, switches the signal off.
    pub(crate) fn parse(text: &str) -> Result<Amount, InvalidValue> {
        if let Some(number) = text.strip_suffix('%') {
            // Upstream's precision keeps messages the same to the byte.
            let number: f32 =
                number.trim().parse().map_err(|_| InvalidValue::new(format!("{text:?} is not a percentage")))?;
            if !(0.0..=100.0).contains(&number) {
                return Err(InvalidValue::new(format!("{text:?} must be from 0% to 100%")));
            }
            return Ok(Amount::Part(f64::from(number / 100.0)));
        }
        let quantity = Quantity::parse(text).map_err(|_| InvalidValue::new(format!("{text:?} is not a quantity")))?;
        if quantity.is_negative() {
            return Err(InvalidValue::new(format!("{text:?} must be positive")));
        }
        Ok(Amount::Quantity(quantity))
    }

    /// The amount for this capacity, in the resource's own unit.
    pub(crate) fn of(&self, whole: i64) -> i64 {
        match self {
            Amount::Quantity(quantity) => quantity.value(),
            Amount::Part(part) => (whole as f64 * part) as i64,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Threshold {
    pub(crate) signal: String,
    /// The amount that must be available.
    pub(crate) least: Amount,
    /// How long less may be available; None for a hard threshold.
    pub(crate) grace_period: Option<Duration>,
    /// How much more than the threshold is to be reclaimed.
    pub(crate) minimum_reclaim: Option<Amount>,
}

#[derive(Debug, Clone)]
pub struct Eviction {
    /// Hard thresholds before soft ones, sorted by signal.
    pub thresholds: Vec<Threshold>,
    pub(crate) pressure_transition_period: Duration,
    /// The longest grace period of a pod that is evicted for a soft threshold.
    pub(crate) max_pod_grace_period: Duration,
}

impl Eviction {
    /// The hard thresholds.
    pub(crate) fn hard(&self) -> impl Iterator<Item = &Threshold> {
        self.thresholds.iter().filter(|threshold| threshold.grace_period.is_none())
    }
}

/// Upstream's hard thresholds.
pub(crate) const DEFAULT_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

impl Default for Eviction {
    fn default() -> Eviction {
        let threshold = |(signal, least): &(&str, &str)| {
            let least = Amount::parse(least).unwrap_or(Amount::Part(0.0));
            Threshold { signal: signal.to_string(), least, grace_period: None, minimum_reclaim: None }
        };
        Eviction {
            thresholds: DEFAULT_HARD.iter().map(threshold).collect(),
            pressure_transition_period: Duration::from_secs(300),
            max_pod_grace_period: Duration::ZERO,
        }
    }
}
