//! What a pod asks for as a whole, by quotas' and limit ranges' way of counting.

use api::{Map, Tree};

use crate::resources::read;

/// What a pod asks for as a whole: its own word, or its containers together and at least each step of its
/// start.
pub fn pod_total(pod: &Tree, key: &str) -> Map {
    let spec = pod.at("spec");
    let mut total = Map::new();
    spec.list("containers").iter().for_each(|container| add(&mut total, container.at("resources").map(key)));
    let mut sidecars = Map::new();
    let mut start = Map::new();
    for container in spec.list("initContainers") {
        let amounts = container.at("resources").map(key);
        let mut step = sidecars.clone();
        add(&mut step, amounts);
        if container.str("restartPolicy") == "Always" {
            add(&mut total, amounts);
            sidecars = step.clone();
        }
        raise(&mut start, &step);
    }
    raise(&mut total, &start);
    for (name, value) in spec.at("resources").map(key).iter() {
        total.insert(name, value.clone());
    }
    total
}

fn add(total: &mut Map, amounts: &Map) {
    for (name, value) in amounts.iter() {
        let sum = match total.get(name) {
            Some(there) => {
                let mut sum = read(there);
                sum += &read(value);
                Tree::from(sum.to_string())
            }
            None => value.clone(),
        };
        total.insert(name, sum);
    }
}

fn raise(total: &mut Map, amounts: &Map) {
    for (name, value) in amounts.iter() {
        if total.get(name).is_none_or(|there| read(there) < read(value)) {
            total.insert(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn a_pod_needs_what_its_start_needs() {
        let pod = decode(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}],"initContainers":[
            {"restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}},{"resources":{"requests":{"cpu":"3"}}}]}}"#.as_bytes(),
        ).expect("a pod");
        assert_eq!(pod_total(&pod, "requests").str("cpu"), "3500m");
    }
}
