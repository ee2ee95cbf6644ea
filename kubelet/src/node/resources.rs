//! The capacity and the allocatable resources of the node.

use api::quantity::{Format, Quantity};
use api::{Map, Tree};

use super::status_input::{Devices, Machine};
use crate::config::{Config, Resources};
use crate::model::resources::{is_extended, is_huge_pages};

/// The capacity of the machine. Resources that other components have added are kept.
pub(crate) fn capacity(config: &Config, machine: &Machine, devices: &Devices, previous: &Map) -> Resources {
    let mut capacity: Resources = kept(previous).collect();
    let binary = |bytes: i64| Quantity::new(bytes, Format::BinarySI);
    let plain = |number: i64| Quantity::new(number, Format::DecimalSI);
    let mut set = |name: &str, quantity: Quantity| drop(capacity.insert(name.to_string(), quantity));
    set("cpu", Quantity::milli(machine.cores * 1000, Format::DecimalSI));
    set("memory", binary(machine.memory_bytes));
    for (size, count) in &machine.huge_pages {
        set(&huge_pages(*size), binary(size * count));
    }
    let most = i64::from(config.max_pods);
    let by_core = config.pods_per_core.map(|each| machine.cores * i64::from(each));
    set("pods", plain(by_core.map_or(most, |by_core| by_core.min(most))));
    if let Some(bytes) = machine.storage_bytes.filter(|_| config.local_storage_capacity_isolation) {
        set("ephemeral-storage", binary(bytes));
    }
    devices.removed.iter().for_each(|name| set(name, plain(0)));
    devices.capacity.iter().for_each(|(name, quantity)| set(name, quantity.clone()));
    capacity
}

/// Previous resources that this machine does not report itself; huge page sizes may have disappeared.
fn kept(previous: &Map) -> impl Iterator<Item = (String, Quantity)> {
    let foreign = previous.iter().filter(|(name, _)| is_extended(name));
    foreign.filter_map(|(name, value)| Some((name.to_string(), Quantity::parse(value.as_str()?).ok()?)))
}

fn huge_pages(size: i64) -> String {
    format!("hugepages-{}", Quantity::new(size, Format::BinarySI))
}

/// Allocatable resources: capacity without reserved resources and hard eviction thresholds.
pub(crate) fn allocatable(config: &Config, capacity: &Resources, devices: &Devices) -> Resources {
    let mut allocatable = Resources::new();
    for (name, whole) in capacity {
        allocatable.insert(name.clone(), less(whole, &reserved(config, name, whole)));
    }
    for (name, quantity) in &devices.allocatable {
        allocatable.insert(name.clone(), quantity.clone());
    }
    // Pages that are set aside are no memory any more.
    for (_, pages) in capacity.iter().filter(|(name, _)| is_huge_pages(name)) {
        if let Some(memory) = allocatable.get_mut("memory") {
            *memory = less(memory, pages);
        }
    }
    allocatable
}

/// Capacity without reserved resources: the limit of all pods together.
pub(crate) fn unreserved(config: &Config, capacity: &Resources) -> Resources {
    let left = capacity.iter().map(|(name, whole)| (name.clone(), less(whole, &reserved_amount(config, name, whole))));
    left.collect()
}

fn reserved_amount(config: &Config, name: &str, whole: &Quantity) -> Quantity {
    let reservation = &config.allocatable;
    let mut sum = Quantity::new(0, whole.format());
    match (name, &reservation.reserved_cpus) {
        ("cpu", Some(cores)) => sum += &Quantity::new(cores.len() as i64, Format::DecimalSI),
        _ => {
            for part in [&reservation.system_reserved, &reservation.kube_reserved] {
                part.get(name).into_iter().for_each(|quantity| sum += quantity);
            }
        }
    }
    sum
}

fn reserved(config: &Config, name: &str, whole: &Quantity) -> Quantity {
    let mut sum = reserved_amount(config, name, whole);
    let signal = match name {
        "memory" => "memory.available",
        "ephemeral-storage" => "nodefs.available",
        _ => return sum,
    };
    if let Some(threshold) = config.eviction.hard().find(|threshold| threshold.signal == signal) {
        sum += &Quantity::new(threshold.least.of(whole.value()), Format::BinarySI);
    }
    sum
}

/// Never below zero.
fn less(whole: &Quantity, part: &Quantity) -> Quantity {
    let mut rest = whole.clone();
    rest -= part;
    if rest.is_negative() { Quantity::new(0, whole.format()) } else { rest }
}

pub(crate) fn shown(resources: &Resources) -> Tree {
    let mut map = Map::new();
    resources.iter().for_each(|(name, quantity)| drop(map.insert(name.as_str(), quantity.to_string())));
    map.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &Config, machine: &Machine, want: &[(&str, &str, &str)]) {
        let capacity = capacity(config, machine, &Devices::default(), &Map::new());
        let allocatable = allocatable(config, &capacity, &Devices::default());
        let found = capacity.iter().map(|(name, all)| (name.as_str(), all.to_string(), allocatable[name].to_string()));
        let want = want.iter().map(|(name, all, left)| (*name, all.to_string(), left.to_string()));
        assert_eq!(found.collect::<Vec<_>>(), want.collect::<Vec<_>>());
    }

    #[test]
    fn reserved_resources_are_not_allocatable() {
        let machine = Machine {
            cores: 2,
            memory_bytes: 4 << 30,
            storage_bytes: Some(129_900_528 << 10),
            huge_pages: vec![(2 << 20, 10), (1 << 30, 0)],
            ..Machine::default()
        };
        let mut config = Config::default();
        let mut want = vec![
            ("cpu", "2", "2"),
            ("ephemeral-storage", "129900528Ki", "119716326407"),
            ("hugepages-1Gi", "0", "0"),
            ("hugepages-2Mi", "20Mi", "20Mi"),
            ("memory", "4Gi", "3976Mi"),
            ("pods", "110", "110"),
        ];
        check(&config, &machine, &want);
        let quantity = |text: &str| Quantity::parse(text).expect("a quantity");
        config.allocatable.kube_reserved = [("cpu".to_string(), quantity("100m"))].into();
        config.allocatable.system_reserved =
            [("cpu".to_string(), quantity("150m")), ("memory".to_string(), quantity("5Gi"))].into();
        config.pods_per_core = Some(10);
        want[0].2 = "1750m";
        want[4].2 = "0";
        want[5] = ("pods", "20", "20");
        check(&config, &machine, &want);
        config.allocatable.reserved_cpus = Some([0].into_iter().collect());
        want[0].2 = "1";
        check(&config, &machine, &want);
    }

    #[test]
    fn devices_appear_and_disappear() {
        let quantity = |text: &str| Quantity::parse(text).expect("a quantity");
        let devices = Devices {
            capacity: [("example.com/gpu".to_string(), quantity("4"))].into(),
            allocatable: [("example.com/gpu".to_string(), quantity("3"))].into(),
            removed: vec!["example.com/fpga".to_string()],
        };
        let mut previous = Map::new();
        for (name, amount) in [("example.com/fpga", "2"), ("example.com/dongle", "5"), ("hugepages-64Ki", "64Ki")] {
            previous.insert(name, amount);
        }
        let capacity = capacity(&Config::default(), &Machine::default(), &devices, &previous);
        let of = |resources: &Resources, name: &str| resources.get(name).map(ToString::to_string);
        assert_eq!(of(&capacity, "example.com/fpga").as_deref(), Some("0"), "its plugin is gone");
        assert_eq!(of(&capacity, "example.com/dongle").as_deref(), Some("5"), "an administrator's");
        assert_eq!(of(&capacity, "hugepages-64Ki"), None, "the kernel has none any more");
        let allocatable = allocatable(&Config::default(), &capacity, &devices);
        assert_eq!(of(&allocatable, "example.com/gpu").as_deref(), Some("3"));
    }
}
