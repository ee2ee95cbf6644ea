//! The total resources of a pod, as quotas and limit ranges count them.

use api::{Map, Tree};

use crate::resources::read;

/// The total of a pod: pod-level values, or the sum of its containers and at least each init container.
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
    fn totals_include_init_containers() {
        let pod = decode(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}],"initContainers":[
            {"restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}},{"resources":{"requests":{"cpu":"3"}}}]}}"#.as_bytes(),
        ).expect("a pod");
        assert_eq!(pod_total(&pod, "requests").str("cpu"), "3500m");
    }
}
