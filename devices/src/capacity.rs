//! Consumable capacity: how much of a device's capacities a request consumes, and whether there is enough left.

use std::collections::BTreeMap;

use api::Str;
use api::quantity::{Format, Quantity};

use crate::slice::{Capacity, CapacityRange, RequestPolicy};
use crate::{Device, DeviceRequest};

/// A request that cannot be counted. It fails the allocation, since other devices would not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    #[error("capacity {0:?}: capacity request cannot be represented in the device's range arithmetic")]
    NotRepresentable(String),
    #[error("capacity {0:?}: capacity value is negative")]
    Negative(String),
}

/// What a request would consume of a device; None if the device cannot satisfy it, whatever is left.
pub(crate) fn consumption(
    request: &DeviceRequest,
    device: &Device,
) -> Result<Option<BTreeMap<Str, Quantity>>, CapacityError> {
    if request.capacity.keys().any(|name| !device.capacity.contains_key(name)) {
        return Ok(None);
    }
    let mut consumed = BTreeMap::new();
    for (name, capacity) in &device.capacity {
        let amount = amount_of(request.capacity.get(name), capacity)
            .ok_or_else(|| CapacityError::NotRepresentable(name.to_string()))?;
        if amount.is_negative() {
            return Err(CapacityError::Negative(name.to_string()));
        }
        consumed.insert(name.clone(), amount);
    }
    let violates = |(name, amount): (&Str, &Quantity)| {
        let policy = device.capacity.get(name).and_then(|capacity| capacity.policy.as_ref());
        policy.is_some_and(|policy| violates_policy(amount, policy))
    };
    Ok(if consumed.iter().any(violates) { None } else { Some(consumed) })
}

/// The consumed amount, rounded up as the policy says; None if it cannot be represented.
fn amount_of(request: Option<&Quantity>, capacity: &Capacity) -> Option<Quantity> {
    let policy = capacity.policy.as_ref();
    let Some(request) = request else {
        return Some(policy.and_then(|policy| policy.default.as_ref()).unwrap_or(&capacity.value).clone());
    };
    match policy {
        Some(RequestPolicy { valid_range: Some(range), .. }) if range.min.is_some() => {
            round_up_in_range(request, range)
        }
        Some(RequestPolicy { valid_values: Some(values), .. }) => {
            Some(values.iter().find(|value| request <= value).unwrap_or(request).clone())
        }
        _ => Some(request.clone()),
    }
}

/// The next step of a range.
fn round_up_in_range(request: &Quantity, range: &CapacityRange) -> Option<Quantity> {
    let min = range.min.as_ref()?;
    if request < min {
        return Some(min.clone());
    }
    let Some(step) = &range.step else { return Some(request.clone()) };
    let is_milli = uses_milli(range);
    let (request, min, step_size) = (units(request, is_milli)?, units(min, is_milli)?, units(step, is_milli)?);
    if step_size <= 0 {
        return None;
    }
    let above = request.checked_sub(min)?;
    let steps = above / step_size + i64::from(above % step_size != 0);
    let value = steps.checked_mul(step_size)?.checked_add(min)?;
    Some(from_units(value, is_milli, step.format()))
}

fn from_units(value: i64, is_milli: bool, format: Format) -> Quantity {
    match (is_milli, value % 1000) {
        (true, 0) => Quantity::new(value / 1000, format),
        (true, _) => Quantity::milli(value, format),
        (false, _) => Quantity::new(value, format),
    }
}

/// Whether all bounds can be counted in thousandths.
fn uses_milli(range: &CapacityRange) -> bool {
    let exact = |bound: &Option<Quantity>| bound.as_ref().is_none_or(|bound| exact_milli(bound).is_some());
    let step = range.step.as_ref().and_then(exact_milli);
    exact(&range.min) && exact(&range.max) && step.is_none_or(|step| step >= 1)
}

fn exact_milli(quantity: &Quantity) -> Option<i64> {
    let milli = quantity.milli_value();
    (Quantity::milli(milli, quantity.format()) == *quantity).then_some(milli)
}

/// In thousandths or in whole numbers; None where that is not possible.
fn units(quantity: &Quantity, is_milli: bool) -> Option<i64> {
    if is_milli {
        return exact_milli(quantity);
    }
    (*quantity <= Quantity::new(i64::MAX, quantity.format())).then(|| quantity.value())
}

fn violates_policy(amount: &Quantity, policy: &RequestPolicy) -> bool {
    if policy.default.as_ref() == Some(amount) {
        return false;
    }
    match (&policy.valid_range, &policy.valid_values) {
        (Some(range), _) => violates_range(amount, range),
        (None, Some(values)) if !values.is_empty() => !values.contains(amount),
        _ => false,
    }
}

fn violates_range(amount: &Quantity, range: &CapacityRange) -> bool {
    if range.max.as_ref().is_some_and(|max| amount > max) {
        return true;
    }
    let (Some(step), Some(min)) = (&range.step, &range.min) else { return false };
    let is_milli = uses_milli(range);
    let parts = units(amount, is_milli).zip(units(min, is_milli)).zip(units(step, is_milli));
    parts.is_none_or(|((amount, min), step)| step <= 0 || amount.saturating_sub(min) % step != 0)
}

#[cfg(test)]
mod tests {
    use api::{Tree, json};

    use super::*;
    use crate::{Claim, ResourceSlice};

    fn read(text: &str) -> Tree {
        json::decode(text.as_bytes()).expect("JSON")
    }

    fn consumed(capacity: &str, request: &str) -> Result<Option<String>, CapacityError> {
        let slice = format!(r#"{{"spec":{{"devices":[{{"name":"d","capacity":{{"mem":{capacity}}}}}]}}}}"#);
        let claim = format!(
            r#"{{"spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"capacity":{{"requests":{request}}}}}}}]}}}}}}"#
        );
        let (slice, claim) = (ResourceSlice::read(&read(&slice)), Claim::read(&read(&claim)));
        let found = consumption(&claim.requests[0].alternatives[0], &slice.devices[0])?;
        Ok(found.map(|amounts| amounts["mem"].to_string()))
    }

    #[test]
    fn requests_are_rounded_up_to_what_the_policy_allows() {
        let check = |capacity: &str, request: &str, want: Option<&str>| {
            let want = want.map(str::to_string);
            assert_eq!(consumed(capacity, request), Ok(want), "{capacity} {request}");
        };
        let range =
            r#"{"value":"10G","requestPolicy":{"default":"1G","validRange":{"min":"1G","step":"1G","max":"8G"}}}"#;
        check(range, "{}", Some("1G"));
        check(range, r#"{"mem":"2500M"}"#, Some("3G"));
        check(range, r#"{"mem":"10M"}"#, Some("1G"));
        check(range, r#"{"mem":"9G"}"#, None);
        check(range, r#"{"other":"1"}"#, None);
        let values = r#"{"value":"10G","requestPolicy":{"default":"4G","validValues":["2G","4G"]}}"#;
        check(values, r#"{"mem":"1G"}"#, Some("2G"));
        check(values, r#"{"mem":"3G"}"#, Some("4G"));
        check(values, r#"{"mem":"5G"}"#, None);
        check(r#"{"value":"10G"}"#, "{}", Some("10G"));
        check(r#"{"value":"10G"}"#, r#"{"mem":"3"}"#, Some("3"));
        let milli = r#"{"value":"2","requestPolicy":{"default":"1","validRange":{"min":"100m","step":"100m"}}}"#;
        check(milli, r#"{"mem":"250m"}"#, Some("300m"));
        check(milli, r#"{"mem":"950m"}"#, Some("1"));
    }

    #[test]
    fn amounts_that_cannot_be_counted_fail() {
        let range = r#"{"value":"10G","requestPolicy":{"default":"1G","validRange":{"min":"1G","step":"1G"}}}"#;
        let huge = consumed(range, r#"{"mem":"10E"}"#);
        assert_eq!(huge, Err(CapacityError::NotRepresentable("mem".into())));
        assert_eq!(consumed(r#"{"value":"1"}"#, r#"{"mem":"-1"}"#), Err(CapacityError::Negative("mem".into())));
    }
}
