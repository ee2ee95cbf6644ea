//! LimitRanges: the defaults of containers without requests, and the bounds of containers, pods and claims.

use api::quantity::Quantity;
use api::status::Status;
use api::{Map, Tree};
use kinds::podspec::total::pod_total;
use kinds::resources::read;

use super::{Attributes, Operation, join_errors};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    object: &mut Tree,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    if is_pod(attributes) && !is_deleted(old) {
        for range in ranges(attributes) {
            set_pod_defaults(object, &range);
        }
    }
    Ok(())
}

pub(super) fn validate(
    attributes: &Attributes<'_>,
    object: Option<&Tree>,
    old: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let Some(object) = object.filter(|_| !is_deleted(old)) else { return Ok(()) };
    let check: fn(&Tree, &Tree) -> Vec<String> = match () {
        () if is_pod(attributes) => check_pod,
        () if is_claim(attributes) => check_claim,
        () => return Ok(()),
    };
    for range in ranges(attributes) {
        let errors = check(object, &range);
        if !errors.is_empty() {
            return Err(attributes.forbidden(join_errors(errors)));
        }
    }
    Ok(())
}

/// A pod's resources change at its creation and by a resize alone.
fn is_pod(attributes: &Attributes<'_>) -> bool {
    let resize = attributes.operation == Operation::Update && attributes.subresource == "resize";
    attributes.is("", "Pod", Operation::Create) || resize && attributes.is_kind("", "Pod")
}

fn is_claim(attributes: &Attributes<'_>) -> bool {
    let kind = "PersistentVolumeClaim";
    attributes.is("", kind, Operation::Create) || attributes.is("", kind, Operation::Update)
}

fn is_deleted(old: Option<&Tree>) -> bool {
    old.is_some_and(|old| old.at("metadata").has("deletionTimestamp"))
}

fn ranges(attributes: &Attributes<'_>) -> Vec<Tree> {
    attributes.registry.storage.objects("limitranges", attributes.namespace)
}

fn limits<'a>(range: &'a Tree, ty: &'a str) -> impl Iterator<Item = &'a Tree> {
    range.list("spec.limits").iter().filter(move |limit| limit.str("type") == ty)
}

/// Gives containers the range's defaults, and records them in an annotation.
fn set_pod_defaults(pod: &mut Tree, range: &Tree) {
    let mut requests = Map::new();
    let mut maxima = Map::new();
    for limit in limits(range, "Container") {
        limit.map("defaultRequest").iter().for_each(|(key, value)| drop(requests.insert(key, value.clone())));
        limit.map("default").iter().for_each(|(key, value)| drop(maxima.insert(key, value.clone())));
    }
    let mut changes = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod.child("spec").list_mut(list) {
            let name = container.str("name").to_string();
            for (key, verb, defaults) in [("requests", "request", &requests), ("limits", "limit", &maxima)] {
                let set = set_missing(container, key, defaults);
                if !set.is_empty() {
                    changes.push(format!("{} {verb} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !changes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", changes.join("; "));
        pod.child("metadata.annotations").set(ANNOTATION, text);
    }
}

fn set_missing(container: &mut Tree, key: &str, defaults: &Map) -> Vec<String> {
    let mut set = Vec::new();
    for (name, value) in defaults.iter() {
        if !container.at("resources").at(key).has(name) {
            container.child("resources").child(key).set(name, value.clone());
            set.push(name.to_string());
        }
    }
    set
}

fn check_claim(claim: &Tree, range: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    let requests = claim.map("spec.resources.requests");
    for limit in limits(range, "PersistentVolumeClaim") {
        let judge = LimitChecker { ty: "PersistentVolumeClaim", requests, limits: &Map::new() };
        limit.map("min").iter().for_each(|(name, value)| errors.extend(judge.minimum(name, value)));
        limit.map("max").iter().for_each(|(name, value)| errors.extend(judge.maximum_request(name, value)));
    }
    errors
}

fn check_pod(pod: &Tree, range: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in range.list("spec.limits") {
        match limit.str("type") {
            "Container" => check_containers(pod, limit, &mut errors),
            "Pod" => {
                let (requests, limits) = (pod_total(pod, "requests"), pod_total(pod, "limits"));
                LimitChecker { ty: "Pod", requests: &requests, limits: &limits }.all(limit, &mut errors);
            }
            _ => {}
        }
    }
    errors
}

fn check_containers(pod: &Tree, limit: &Tree, errors: &mut Vec<String>) {
    for list in ["containers", "initContainers"] {
        for container in pod.at("spec").list(list) {
            let requests = container.map("resources.requests");
            LimitChecker { ty: "Container", requests, limits: container.map("resources.limits") }.all(limit, errors);
        }
    }
}

/// Checks one set of requests and limits.
struct LimitChecker<'a> {
    ty: &'a str,
    requests: &'a Map,
    limits: &'a Map,
}

impl LimitChecker<'_> {
    fn all(&self, limit: &Tree, errors: &mut Vec<String>) {
        limit.map("min").iter().for_each(|(name, value)| errors.extend(self.minimum(name, value)));
        limit.map("max").iter().for_each(|(name, value)| errors.extend(self.maximum(name, value)));
        let ratios = limit.map("maxLimitRequestRatio");
        ratios.iter().for_each(|(name, value)| errors.extend(self.ratio(name, value)));
    }

    fn minimum(&self, name: &str, bound: &Tree) -> Option<String> {
        let bound = read(bound);
        let head = format!("minimum {name} usage per {} is {bound}", self.ty);
        let Some(request) = self.requests.get(name).map(read) else {
            return Some(format!("{head}.  No request is specified"));
        };
        if request < bound {
            return Some(format!("{head}, but request is {request}"));
        }
        let limit = self.limits.get(name).map(read).filter(|limit| *limit < bound)?;
        Some(format!("{head}, but limit is {limit}"))
    }

    fn maximum(&self, name: &str, bound: &Tree) -> Option<String> {
        let bound = read(bound);
        let head = format!("maximum {name} usage per {} is {bound}", self.ty);
        let Some(limit) = self.limits.get(name).map(read) else {
            return Some(format!("{head}.  No limit is specified"));
        };
        if limit > bound {
            return Some(format!("{head}, but limit is {limit}"));
        }
        let request = self.requests.get(name).map(read).filter(|request| *request > bound)?;
        Some(format!("{head}, but request is {request}"))
    }

    /// The maximum for objects that have only requests.
    fn maximum_request(&self, name: &str, bound: &Tree) -> Option<String> {
        let bound = read(bound);
        let head = format!("maximum {name} usage per {} is {bound}", self.ty);
        match self.requests.get(name).map(read) {
            None => Some(format!("{head}.  No request is specified")),
            Some(request) if request > bound => Some(format!("{head}, but request is {request}")),
            Some(_) => None,
        }
    }

    fn ratio(&self, name: &str, bound: &Tree) -> Option<String> {
        let bound = read(bound);
        let head = format!("{name} max limit to request ratio per {} is {bound}", self.ty);
        let set = |amounts: &Map| amounts.get(name).map(read).filter(|amount: &Quantity| !amount.is_zero());
        let Some(request) = set(self.requests) else {
            return Some(format!("{head}, but no request is specified or request is 0"));
        };
        let Some(limit) = set(self.limits) else {
            return Some(format!("{head}, but no limit is specified or limit is 0"));
        };
        let ratio = limit.as_f64() / request.as_f64();
        (ratio > bound.as_f64()).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    fn range() -> Tree {
        json(
            r#"{"spec":{"limits":[{"type":"Container","default":{"cpu":"500m","memory":"128Mi"},"defaultRequest":{"cpu":"100m"},
            "min":{"cpu":"50m"},"max":{"cpu":"1","memory":"1Gi"},"maxLimitRequestRatio":{"cpu":"5"}},
            {"type":"Pod","max":{"cpu":"2"}},
            {"type":"PersistentVolumeClaim","min":{"storage":"1Gi"},"max":{"storage":"5Gi"}}]}}"#,
        )
    }

    #[test]
    fn defaults_are_set_and_named() {
        let mut pod = json(
            r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"300m"},"requests":{"cpu":"300m"}}}],"initContainers":[{"name":"i"}]}}"#,
        );
        set_pod_defaults(&mut pod, &range());
        assert_eq!(
            pod.map("metadata.annotations").str(ANNOTATION),
            "LimitRanger plugin set: memory limit for container c; cpu request for init container i; cpu, memory limit for init container i"
        );
        assert_eq!(pod.list("spec.containers")[0].str("resources.limits.cpu"), "300m");
    }

    #[test]
    fn containers_and_pods_are_judged() {
        let check = |containers: &str, want: &[&str]| {
            let pod = json(&format!(r#"{{"spec":{{"containers":[{containers}]}}}}"#));
            assert_eq!(check_pod(&pod, &range()), want);
        };
        let container = |request: &str, limit: &str, memory: &str| {
            format!(
                r#"{{"resources":{{"requests":{{"cpu":"{request}"}},"limits":{{"cpu":"{limit}","memory":"{memory}"}}}}}}"#
            )
        };
        check(&container("200m", "500m", "1Gi"), &[]);
        check(
            &container("10m", "3", "3Gi"),
            &[
                "minimum cpu usage per Container is 50m, but request is 10m",
                "maximum cpu usage per Container is 1, but limit is 3",
                "maximum memory usage per Container is 1Gi, but limit is 3Gi",
                "cpu max limit to request ratio per Container is 5, but provided ratio is 300.000000",
                "maximum cpu usage per Pod is 2, but limit is 3",
            ],
        );
        let three =
            [container("800m", "900m", "1Gi"), container("800m", "900m", "1Gi"), container("800m", "900m", "1Gi")];
        check(&three.join(","), &["maximum cpu usage per Pod is 2, but limit is 2700m"]);
    }

    #[test]
    fn claims_are_judged() {
        let check = |storage: &str, want: &[&str]| {
            let claim = json(&format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{storage}"}}}}}}}}"#));
            assert_eq!(check_claim(&claim, &range()), want);
        };
        check("2Gi", &[]);
        check("500Mi", &["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi"]);
        check("10Gi", &["maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi"]);
    }
}
