//! Taints of nodes and what pods tolerate.

use api::{Str, Tree};

/// The effect of a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    fn read(text: &str) -> Option<Effect> {
        Some(match text {
            "NoSchedule" => Effect::NoSchedule,
            "PreferNoSchedule" => Effect::PreferNoSchedule,
            "NoExecute" => Effect::NoExecute,
            _ => return None,
        })
    }
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taint {
    pub key: Str,
    pub value: Str,
    pub effect: Effect,
}

impl Taint {
    /// Reads a taint; None if its effect is unknown.
    pub fn read(taint: &Tree) -> Option<Taint> {
        let effect = Effect::read(taint.str("effect"))?;
        Some(Taint { key: Str::new(taint.str("key")), value: Str::new(taint.str("value")), effect })
    }

    /// Whether it keeps pods away that do not tolerate it.
    pub fn is_hard(&self) -> bool {
        matches!(self.effect, Effect::NoSchedule | Effect::NoExecute)
    }
}

/// How a toleration compares values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TolerationOperator {
    Equal,
    Exists,
    Lt,
    Gt,
    /// An unknown operator tolerates nothing.
    Unknown,
}

/// A toleration of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    pub key: Str,
    pub operator: TolerationOperator,
    pub value: Str,
    /// None for all effects.
    pub effect: Option<Effect>,
}

impl Toleration {
    /// Reads a toleration.
    pub fn read(toleration: &Tree) -> Toleration {
        let operator = match toleration.str("operator") {
            "" | "Equal" => TolerationOperator::Equal,
            "Exists" => TolerationOperator::Exists,
            "Lt" => TolerationOperator::Lt,
            "Gt" => TolerationOperator::Gt,
            _ => TolerationOperator::Unknown,
        };
        Toleration {
            key: Str::new(toleration.str("key")),
            operator,
            value: Str::new(toleration.str("value")),
            effect: Effect::read(toleration.str("effect")),
        }
    }

    /// Whether a taint is tolerated.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let compare = |holds: fn(&i64, &i64) -> bool| {
            number(&taint.value).zip(number(&self.value)).is_some_and(|(taint, own)| holds(&taint, &own))
        };
        self.effect.is_none_or(|effect| effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                TolerationOperator::Equal => self.value == taint.value,
                TolerationOperator::Exists => true,
                TolerationOperator::Lt => compare(i64::lt),
                TolerationOperator::Gt => compare(i64::gt),
                TolerationOperator::Unknown => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn tolerations_match_as_upstreams() {
        let taint = Taint { key: "a".into(), value: "1".into(), effect: Effect::NoSchedule };
        let cases = [
            (tree! { "key" => "a", "value" => "1" }, true),
            (tree! { "key" => "a", "value" => "2" }, false),
            (tree! { "key" => "b", "value" => "1" }, false),
            (tree! { "key" => "a", "operator" => "Exists" }, true),
            (tree! { "operator" => "Exists" }, true),
            (tree! { "operator" => "Exists", "effect" => "NoExecute" }, false),
            (tree! { "operator" => "Exists", "effect" => "NoSchedule" }, true),
            (tree! { "key" => "a", "operator" => "Lt", "value" => "2" }, true),
            (tree! { "key" => "a", "operator" => "Gt", "value" => "2" }, false),
            (tree! { "key" => "a", "operator" => "Gt", "value" => "0" }, true),
            (tree! { "key" => "a", "operator" => "Never", "value" => "1" }, false),
        ];
        for (toleration, want) in cases {
            assert_eq!(Toleration::read(&toleration).tolerates(&taint), want, "{toleration:?}");
        }
    }
}
