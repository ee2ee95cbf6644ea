//! Values of fields: each function reads one type. Its error is a text that follows the field's name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::Tree;
use api::quantity::Quantity;

use super::error::InvalidValue;
use super::{CgroupDriver, Resources, Taint};
use crate::model::cpuset::CpuSet;
use crate::model::resources::is_huge_pages;

/// Amounts of a NUMA node by resource: `memory`, `hugepages-2Mi`.
type Amounts = BTreeMap<String, u64>;

type ValueResult<T> = Result<T, InvalidValue>;

pub(crate) fn text(value: &Tree) -> ValueResult<String> {
    value.as_str().map(str::to_string).ok_or_else(|| InvalidValue::new("must be a string"))
}

pub(crate) fn path(value: &Tree) -> ValueResult<PathBuf> {
    Ok(text(value)?.into())
}

/// None if it is empty.
pub(crate) fn optional_path(value: &Tree) -> ValueResult<Option<PathBuf>> {
    Ok(optional_text(value)?.map(Into::into))
}

pub(crate) fn optional_text(value: &Tree) -> ValueResult<Option<String>> {
    Ok(Some(text(value)?).filter(|text| !text.is_empty()))
}

pub(crate) fn boolean(value: &Tree) -> ValueResult<bool> {
    value.as_bool().ok_or_else(|| InvalidValue::new("must be true or false"))
}

/// A whole number of the type that the field has.
pub(crate) fn int<T: TryFrom<i64>>(value: &Tree) -> ValueResult<T> {
    let number = value.as_int().ok_or_else(|| InvalidValue::new("must be an integer"))?;
    T::try_from(number).map_err(|_| InvalidValue::new(format!("{number} is out of range")))
}

pub(crate) fn optional_boolean(value: &Tree) -> ValueResult<Option<bool>> {
    boolean(value).map(Some)
}

pub(crate) fn number(value: &Tree) -> ValueResult<f64> {
    match value {
        Tree::Float(number) => Ok(*number),
        other => Ok(int::<i64>(other).map_err(|_| InvalidValue::new("must be a number"))? as f64),
    }
}

/// As Go writes them: `1m30s`.
pub(crate) fn duration(value: &Tree) -> ValueResult<Duration> {
    let wrong = || InvalidValue::new("must be a duration such as 15s");
    let nanos = api::time::parse_duration(value.as_str().ok_or_else(wrong)?).map_err(|_| wrong())?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| InvalidValue::new("must not be negative"))
}

/// None if it is zero.
pub(crate) fn optional_duration(value: &Tree) -> ValueResult<Option<Duration>> {
    Ok(Some(duration(value)?).filter(|duration| !duration.is_zero()))
}

/// None if it is negative.
pub(crate) fn duration_or_none(value: &Tree) -> ValueResult<Option<Duration>> {
    let is_negative =
        value.as_str().and_then(|text| api::time::parse_duration(text).ok()).is_some_and(|nanos| nanos < 0);
    if is_negative { Ok(None) } else { duration(value).map(Some) }
}

pub(crate) fn seconds(value: &Tree) -> ValueResult<Duration> {
    Ok(Duration::from_secs(int::<u64>(value)?))
}

pub(crate) fn address(value: &Tree) -> ValueResult<IpAddr> {
    let text = text(value)?;
    text.parse().map_err(|_| InvalidValue::new(format!("{text:?} is not an IP address")))
}

pub(crate) fn list<T>(value: &Tree, read: impl Fn(&Tree) -> ValueResult<T>) -> ValueResult<Vec<T>> {
    let items = value.as_list().ok_or_else(|| InvalidValue::new("must be a list"))?;
    let read = |(at, item)| read(item).map_err(|error| error.within(&format!("[{at}]")));
    items.iter().enumerate().map(read).collect()
}

pub(crate) fn texts(value: &Tree) -> ValueResult<Vec<String>> {
    list(value, text)
}

pub(crate) fn addresses(value: &Tree) -> ValueResult<Vec<IpAddr>> {
    list(value, address)
}

pub(crate) fn map<T>(value: &Tree, read: impl Fn(&Tree) -> ValueResult<T>) -> ValueResult<BTreeMap<String, T>> {
    let map = value.as_map().ok_or_else(|| InvalidValue::new("must be an object"))?;
    let read = |(key, value): (&str, &Tree)| {
        read(value).map(|value| (key.to_string(), value)).map_err(|error| error.within(&format!("[{key:?}]")))
    };
    map.iter().map(read).collect()
}

pub(crate) fn quantity(value: &Tree) -> ValueResult<Quantity> {
    let text = text(value)?;
    Quantity::parse(&text).map_err(|error| InvalidValue::new(format!("{text:?}: {error}")))
}

/// A number of bytes.
pub(crate) fn bytes(value: &Tree) -> ValueResult<u64> {
    u64::try_from(quantity(value)?.value()).map_err(|_| InvalidValue::new("must not be negative"))
}

/// Reserved resources.
pub(crate) fn reserved(value: &Tree) -> ValueResult<Resources> {
    let resources = map(value, quantity)?;
    for (name, quantity) in &resources {
        if !matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage" | "pid") {
            return Err(InvalidValue::new(format!("cannot reserve {name:?} resource")));
        }
        if quantity.is_negative() {
            return Err(InvalidValue::new(format!("resource quantity for {name:?} cannot be negative: {quantity}")));
        }
    }
    Ok(resources)
}

pub(crate) fn driver(value: &Tree) -> ValueResult<CgroupDriver> {
    match text(value)?.as_str() {
        "cgroupfs" => Ok(CgroupDriver::Cgroupfs),
        "systemd" => Ok(CgroupDriver::Systemd),
        other => Err(InvalidValue::new(format!("unknown driver {other:?}; there are cgroupfs and systemd"))),
    }
}

pub(crate) fn percentage(value: &Tree) -> ValueResult<u8> {
    let number = int::<i64>(value)?;
    u8::try_from(number)
        .ok()
        .filter(|number| *number <= 100)
        .ok_or_else(|| InvalidValue::new(format!("{number} must be between 0 and 100, inclusive")))
}

/// CPUs by a list like `0-3,8`; None if it is empty.
pub(crate) fn cpus(value: &Tree) -> ValueResult<Option<CpuSet>> {
    let cpus = CpuSet::parse(&text(value)?)?;
    Ok(Some(cpus).filter(|cpus| !cpus.is_empty()))
}

/// Options of a policy: their values are texts, whatever they mean.
pub(crate) fn options<T>(value: &Tree, read: impl Fn(&BTreeMap<String, String>) -> ValueResult<T>) -> ValueResult<T> {
    read(&map(value, text)?)
}

/// Reserved memory by NUMA node.
pub(crate) fn reserved_memory(value: &Tree) -> ValueResult<BTreeMap<u32, Amounts>> {
    let mut nodes: BTreeMap<u32, Amounts> = BTreeMap::new();
    for (node, limits) in list(value, |item| Ok((int::<u32>(item.at("numaNode"))?, map(item.at("limits"), quantity)?)))?
    {
        for (kind, amount) in limits {
            if kind != "memory" && !is_huge_pages(&kind) {
                return Err(InvalidValue::new(format!(
                    "the limit type {kind:?} for NUMA node {node} is not supported, only [memory hugepages-<HugePageSize>] is accepted"
                )));
            }
            let bytes = u64::try_from(amount.value()).ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
                InvalidValue::new(format!("reserved memory may not be zero for NUMA node {node} and resource {kind:?}"))
            })?;
            if nodes.entry(node).or_default().insert(kind.clone(), bytes).is_some() {
                return Err(InvalidValue::new(format!(
                    "the reserved memory has a duplicate value for NUMA node {node} and resource {kind:?}"
                )));
            }
        }
    }
    Ok(nodes)
}

/// The socket of a runtime: `unix:///path`, or a path alone.
pub(crate) fn endpoint(value: &Tree) -> ValueResult<Option<PathBuf>> {
    let text = text(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    let path = text.strip_prefix("unix://").unwrap_or(&text);
    if !path.starts_with('/') {
        return Err(InvalidValue::new(format!(
            "{text:?}: only unix sockets, such as unix:///run/containerd/containerd.sock"
        )));
    }
    Ok(Some(path.into()))
}

pub(crate) fn taints(value: &Tree) -> ValueResult<Vec<Taint>> {
    list(value, |item| {
        if item.as_map().is_none() {
            return Err(InvalidValue::new("must be an object"));
        }
        let field = |name: &str| item.str(name).to_string();
        taint(Taint { key: field("key"), value: field("value"), effect: field("effect") })
    })
}

/// Rejects invalid taints.
pub(crate) fn taint(taint: Taint) -> ValueResult<Taint> {
    let problems = api::validation::qualified_name(&taint.key).into_iter();
    let problems: Vec<_> = problems.chain(api::validation::label_value(&taint.value)).collect();
    if let Some(problem) = problems.first() {
        return Err(InvalidValue::new(format!("invalid taint {:?}: {problem}", taint.key)));
    }
    match taint.effect.as_str() {
        "NoSchedule" | "PreferNoSchedule" | "NoExecute" => Ok(taint),
        other => Err(InvalidValue::new(format!("invalid taint effect: {other}, unsupported taint effect"))),
    }
}

/// The value of an option that is on or off.
pub(crate) fn policy_option(name: &str, value: &str) -> Result<bool, InvalidValue> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(InvalidValue::new(format!("bad value for option {name:?}: {value:?} is neither true nor false"))),
    }
}
