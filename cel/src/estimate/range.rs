//! Ranges of sizes and costs, which stop at the largest number instead of overflowing.

/// The least and the greatest size of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeEstimate {
    pub min: u64,
    pub max: u64,
}

/// The least and the greatest cost of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostEstimate {
    pub min: u64,
    pub max: u64,
}

impl SizeEstimate {
    pub(super) const UNKNOWN: SizeEstimate = SizeEstimate { min: 0, max: u64::MAX };

    pub(super) fn fixed(size: u64) -> SizeEstimate {
        SizeEstimate { min: size, max: size }
    }

    pub(super) fn add(self, other: SizeEstimate) -> SizeEstimate {
        SizeEstimate { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn multiply(self, other: SizeEstimate) -> SizeEstimate {
        SizeEstimate { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn multiply_factor(self, factor: f64) -> CostEstimate {
        CostEstimate { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(super) fn multiply_cost(self, cost: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.saturating_mul(cost.min), max: self.max.saturating_mul(cost.max) }
    }

    pub(super) fn union(self, other: SizeEstimate) -> SizeEstimate {
        SizeEstimate { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

impl CostEstimate {
    pub(super) fn fixed(cost: u64) -> CostEstimate {
        CostEstimate { min: cost, max: cost }
    }

    pub(super) fn add(self, other: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn multiply(self, other: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn multiply_factor(self, factor: f64) -> CostEstimate {
        CostEstimate { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(super) fn union(self, other: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// A number times a factor, rounded up.
fn scale(number: u64, factor: f64) -> u64 {
    // The conversion to an integer stops at the largest one.
    (number as f64 * factor).ceil() as u64
}
