//! Taints of devices, the tolerations of requests, and rules that add taints.

use api::time::{self, Timestamp};
use api::{Str, Tree};

use crate::DeviceId;

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaintEffect {
    NoSchedule,
    NoExecute,
    /// Nothing, or an effect that a newer version knows.
    None,
}

/// A taint of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTaint {
    pub key: Str,
    pub value: Str,
    /// As written.
    pub effect: Str,
    pub added: Option<Timestamp>,
}

impl DeviceTaint {
    /// Reads a taint.
    pub fn read(taint: &Tree) -> DeviceTaint {
        DeviceTaint {
            key: Str::new(taint.str("key")),
            value: Str::new(taint.str("value")),
            effect: Str::new(taint.str("effect")),
            added: time::parse(taint.str("timeAdded")).ok(),
        }
    }

    /// What it does.
    pub fn effect(&self) -> TaintEffect {
        match self.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => TaintEffect::None,
        }
    }
}

/// A toleration of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceToleration {
    pub key: Str,
    pub operator: Str,
    pub value: Str,
    pub effect: Str,
    /// How long a taint with the effect NoExecute is tolerated; None for ever.
    pub seconds: Option<i64>,
}

impl DeviceToleration {
    /// Reads a toleration.
    pub fn read(toleration: &Tree) -> DeviceToleration {
        let text = |field: &str| Str::new(toleration.str(field));
        DeviceToleration {
            key: text("key"),
            operator: text("operator"),
            value: text("value"),
            effect: text("effect"),
            seconds: toleration.int("tolerationSeconds"),
        }
    }

    /// Whether a taint is tolerated.
    pub fn tolerates(&self, taint: &DeviceTaint) -> bool {
        let same_effect = self.effect.is_empty() || self.effect == taint.effect;
        let same_key = self.key.is_empty() || self.key == taint.key;
        let same_value = match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        same_effect && same_key && same_value
    }
}

/// A DeviceTaintRule: a taint of all devices that it selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaintRule {
    pub name: Str,
    /// A rule without a selector selects nothing.
    has_selector: bool,
    driver: Option<Str>,
    pool: Option<Str>,
    device: Option<Str>,
    pub taint: DeviceTaint,
}

impl TaintRule {
    /// Reads a DeviceTaintRule.
    pub fn read(rule: &Tree) -> TaintRule {
        let selector = rule.at("spec.deviceSelector");
        let text = |field: &str| selector.at(field).as_str().map(Str::new);
        TaintRule {
            name: Str::new(rule.str("metadata.name")),
            has_selector: rule.get("spec").is_some_and(|spec| spec.has("deviceSelector")),
            driver: text("driver"),
            pool: text("pool"),
            device: text("device"),
            taint: DeviceTaint::read(rule.at("spec.taint")),
        }
    }

    /// Whether a device is selected.
    pub fn selects(&self, id: &DeviceId) -> bool {
        let same = |wanted: &Option<Str>, value: &Str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        self.has_selector
            && same(&self.driver, &id.driver)
            && same(&self.pool, &id.pool)
            && same(&self.device, &id.device)
    }
}

#[cfg(test)]
mod tests {
    use api::tree;

    use super::*;

    #[test]
    fn tolerations_match_taints() {
        let check = |toleration: Tree, taint: Tree, want: bool| {
            let (one, other) = (DeviceToleration::read(&toleration), DeviceTaint::read(&taint));
            assert_eq!(one.tolerates(&other), want, "{toleration:?} {taint:?}");
        };
        let taint = || tree! { "key" => "bad", "value" => "x", "effect" => "NoExecute" };
        check(tree! { "operator" => "Exists" }, taint(), true);
        check(tree! { "key" => "bad", "operator" => "Exists", "effect" => "NoSchedule" }, taint(), false);
        check(tree! { "key" => "bad", "operator" => "Equal", "value" => "x" }, taint(), true);
        check(tree! { "key" => "bad", "value" => "y" }, taint(), false);
        check(tree! { "key" => "other", "operator" => "Exists" }, taint(), false);
        check(tree! { "key" => "bad", "operator" => "New" }, taint(), false);
    }

    #[test]
    fn rules_select_devices_by_the_fields_they_have() {
        let rule = |selector: Tree| TaintRule::read(&tree! { "spec" => tree! { "deviceSelector" => selector } });
        let id = DeviceId::new("a.b", "p", "d");
        assert!(rule(tree! {}).selects(&id) && !TaintRule::read(&tree! {}).selects(&id));
        assert!(rule(tree! { "driver" => "a.b", "device" => "d" }).selects(&id));
        assert!(!rule(tree! { "driver" => "a.b", "pool" => "q" }).selects(&id));
    }
}
