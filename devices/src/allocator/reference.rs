//! A second, plain implementation of the search, compared with the allocator in random clusters. It builds every
//! combination of devices and checks the whole claim at its end.

use std::sync::Arc;

use api::{Tree, json};
use podmodel::Node;

use crate::{
    Allocated, AllocatedState, Allocation, Allocator, Claim, DeviceClass, Inventory, ResourceSlice, Selectors,
    TaintEffect,
};

/// A generator of small numbers, so that a failing seed can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

fn read(text: &str) -> Tree {
    json::decode(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A device as the reference sees it.
#[derive(Clone)]
struct PlainDevice {
    name: String,
    model: String,
    numa: u64,
    is_tainted: bool,
    is_taken: bool,
    /// What it consumes of the one counter of its pool.
    cost: u64,
}

/// A request or an alternative as the reference sees it: its number of devices, 0 for all, and the model of the devices.
#[derive(Clone, Debug)]
struct PlainRequest {
    count: usize,
    model: Option<String>,
    tolerates: bool,
}

struct Case {
    devices: Vec<PlainDevice>,
    budget: u64,
    /// By request: the alternatives.
    requests: Vec<Vec<PlainRequest>>,
    /// `match` or `distinct`, and the attribute.
    constraint: Option<(bool, &'static str)>,
}

impl Case {
    fn generate(random: &mut Random) -> Case {
        let device = |at: u64, random: &mut Random| PlainDevice {
            name: format!("d{at}"),
            model: random.one(&["a", "b"]).to_string(),
            numa: random.below(2),
            is_tainted: random.chance(15),
            is_taken: random.chance(15),
            cost: if random.chance(30) { 1 + random.below(3) } else { 0 },
        };
        let count = 1 + random.below(6);
        let devices: Vec<PlainDevice> = (0..count).map(|at| device(at, random)).collect();
        let constraint = match random.below(4) {
            0 => Some((false, "numa")),
            1 => Some((true, "model")),
            _ => None,
        };
        // Claims for all devices that violate a constraint are errors.
        let may_be_all = constraint.is_none();
        let request = |random: &mut Random| PlainRequest {
            count: if may_be_all && random.chance(15) { 0 } else { 1 + random.below(2) as usize },
            model: random.chance(50).then(|| random.one(&["a", "b"]).to_string()),
            tolerates: random.chance(30),
        };
        let mut requests = Vec::new();
        for _ in 0..1 + random.below(3) {
            let alternatives = if random.chance(30) { 2 } else { 1 };
            requests.push((0..alternatives).map(|_| request(random)).collect());
        }
        Case { devices, budget: 3 + random.below(4), requests, constraint }
    }

    /// The devices of each request with the alternative, or none.
    fn solve(&self) -> Option<Vec<(usize, Vec<usize>)>> {
        self.extend(&mut Vec::new())
    }

    fn extend(&self, chosen: &mut Vec<(usize, Vec<usize>)>) -> Option<Vec<(usize, Vec<usize>)>> {
        let Some(alternatives) = self.requests.get(chosen.len()) else {
            return self.is_valid(chosen).then(|| chosen.clone());
        };
        for (index, request) in alternatives.iter().enumerate() {
            for devices in self.combinations(request) {
                chosen.push((index, devices));
                if let Some(found) = self.extend(chosen) {
                    return Some(found);
                }
                chosen.pop();
            }
        }
        None
    }

    /// All sets of devices that a request selects, in order.
    fn combinations(&self, request: &PlainRequest) -> Vec<Vec<usize>> {
        let selects = |at: &usize| request.model.as_ref().is_none_or(|model| *model == self.devices[*at].model);
        let selected: Vec<usize> = (0..self.devices.len()).filter(selects).collect();
        if request.count == 0 {
            return if selected.is_empty() { Vec::new() } else { vec![selected] };
        }
        let mut all = vec![Vec::new()];
        for _ in 0..request.count {
            let longer = |set: &Vec<usize>| {
                let next = selected.iter().filter(|at| set.last().is_none_or(|last| *at > last));
                next.map(|at| [set.clone(), vec![*at]].concat()).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    fn is_valid(&self, chosen: &[(usize, Vec<usize>)]) -> bool {
        let mut used = vec![false; self.devices.len()];
        let mut cost = 0;
        for (request, (alternative, devices)) in chosen.iter().enumerate() {
            for at in devices {
                let device = &self.devices[*at];
                let is_tolerated = self.requests[request][*alternative].tolerates || !device.is_tainted;
                if used[*at] || device.is_taken || !is_tolerated {
                    return false;
                }
                used[*at] = true;
                cost += device.cost;
            }
        }
        let taken: u64 = self.devices.iter().filter(|device| device.is_taken).map(|device| device.cost).sum();
        // Like upstream, a counter that is overcommitted blocks devices that consume some of it.
        let is_paid = cost == 0 || taken + cost <= self.budget;
        is_paid && self.satisfies_constraint(chosen)
    }

    fn satisfies_constraint(&self, chosen: &[(usize, Vec<usize>)]) -> bool {
        let Some((is_distinct, attribute)) = self.constraint else { return true };
        let value = |at: &usize| match attribute {
            "numa" => self.devices[*at].numa.to_string(),
            _ => self.devices[*at].model.clone(),
        };
        let mut values: Vec<String> = chosen.iter().flat_map(|(_, devices)| devices.iter().map(value)).collect();
        let count = values.len();
        values.sort();
        values.dedup();
        if is_distinct { values.len() == count } else { values.len() <= 1 }
    }

    fn slice(&self) -> String {
        let device = |one: &PlainDevice| {
            let taints = if one.is_tainted { r#","taints":[{"key":"bad","effect":"NoSchedule"}]"# } else { "" };
            let counters = match one.cost {
                0 => String::new(),
                cost => {
                    format!(r#","consumesCounters":[{{"counterSet":"s","counters":{{"c":{{"value":"{cost}"}}}}}}]"#)
                }
            };
            format!(
                r#"{{"name":"{}","attributes":{{"model":{{"string":"{}"}},"numa":{{"int":{}}}}}{taints}{counters}}}"#,
                one.name, one.model, one.numa
            )
        };
        let devices: Vec<String> = self.devices.iter().map(device).collect();
        slice("devices", &format!(r#""devices":[{}]"#, devices.join(",")))
    }

    fn claim(&self) -> String {
        let fields = |one: &PlainRequest| {
            let mode = match one.count {
                0 => r#""allocationMode":"All""#.to_string(),
                count => format!(r#""count":{count}"#),
            };
            let model =
                |model: &String| format!(r#"{{"cel":{{"expression":"device.attributes['x'].model == '{model}'"}}}}"#);
            let selectors = one.model.as_ref().map(model).unwrap_or_default();
            let tolerations = if one.tolerates { r#"{"key":"bad","operator":"Exists"}"# } else { "" };
            format!(r#""deviceClassName":"x",{mode},"selectors":[{selectors}],"tolerations":[{tolerations}]"#)
        };
        let request = |(at, alternatives): (usize, &Vec<PlainRequest>)| match alternatives.as_slice() {
            [one] => format!(r#"{{"name":"r{at}","exactly":{{{}}}}}"#, fields(one)),
            more => {
                let list =
                    more.iter().enumerate().map(|(index, one)| format!(r#"{{"name":"s{index}",{}}}"#, fields(one)));
                format!(r#"{{"name":"r{at}","firstAvailable":[{}]}}"#, list.collect::<Vec<_>>().join(","))
            }
        };
        let requests: Vec<String> = self.requests.iter().enumerate().map(request).collect();
        let constraint = self.constraint.map(|(is_distinct, attribute)| {
            let kind = if is_distinct { "distinctAttribute" } else { "matchAttribute" };
            format!(r#"{{"{kind}":"x/{attribute}"}}"#)
        });
        format!(
            r#"{{"metadata":{{"name":"c"}},"spec":{{"devices":{{"requests":[{}],"constraints":[{}]}}}}}}"#,
            requests.join(","),
            constraint.unwrap_or_default()
        )
    }

    fn show(&self, found: &[(usize, Vec<usize>)]) -> Vec<(String, String)> {
        let of = |(request, (alternative, devices)): (usize, &(usize, Vec<usize>))| {
            let name = match self.requests[request].len() {
                1 => format!("r{request}"),
                _ => format!("r{request}/s{alternative}"),
            };
            devices.iter().map(|at| (name.clone(), self.devices[*at].name.clone())).collect::<Vec<_>>()
        };
        found.iter().enumerate().flat_map(of).collect()
    }
}

fn slice(name: &str, content: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"driver":"x","nodeName":"n","pool":{{"name":"p","generation":1,
            "resourceSliceCount":2}},{content}}}}}"#
    )
}

fn allocate(case: &Case) -> Option<Vec<(String, String)>> {
    let mut inventory = Inventory::default();
    inventory.put_slice(ResourceSlice::read(&read(&case.slice())));
    let counters = format!(r#""sharedCounters":[{{"name":"s","counters":{{"c":{{"value":"{}"}}}}}}]"#, case.budget);
    inventory.put_slice(ResourceSlice::read(&read(&slice("counters", &counters))));
    inventory.put_class(DeviceClass::read(&read(r#"{"metadata":{"name":"x"}}"#)));
    let taken = case.devices.iter().filter(|device| device.is_taken);
    let taken: Vec<String> =
        taken.map(|one| format!(r#"{{"driver":"x","pool":"p","device":"{}"}}"#, one.name)).collect();
    let taken = Allocation::read(&read(&format!(r#"{{"devices":{{"results":[{}]}}}}"#, taken.join(","))));
    let (mut claims, pending, selectors) = (AllocatedState::default(), AllocatedState::default(), Selectors::default());
    claims.add(&taken);
    let allocated = Allocated { claims: &claims, pending: &pending };
    let allocator = Allocator { inventory: &inventory, allocated, selectors: &selectors };
    let node = Node::read(&read(r#"{"metadata":{"name":"n"}}"#));
    let claim = Arc::new(Claim::read(&read(&case.claim())));
    let found = allocator.allocate(&node, &[claim]).expect("no case is an error")?;
    let devices = found[0].devices.iter();
    Some(devices.map(|one| (one.request.to_string(), one.id.device.to_string())).collect())
}

#[test]
fn random_claims_get_the_devices_of_a_plain_search() {
    let (mut solved, mut unsolved) = (0, 0);
    for seed in 0..600 {
        let mut random = Random(seed);
        random.below(2);
        let case = Case::generate(&mut random);
        let want = case.solve().map(|found| case.show(&found));
        assert_eq!(allocate(&case), want, "seed {seed}: {} {}", case.slice(), case.claim());
        *(if want.is_some() { &mut solved } else { &mut unsolved }) += 1;
    }
    assert!(solved > 100 && unsolved > 100, "{solved} solved, {unsolved} not");
}

#[test]
fn effects_that_are_not_known_do_nothing() {
    let taint = crate::DeviceTaint::read(&read(r#"{"key":"k","effect":"Later"}"#));
    assert_eq!(taint.effect(), TaintEffect::None);
}
