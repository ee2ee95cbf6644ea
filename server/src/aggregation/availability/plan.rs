//! The Available condition of an APIService. Pure.

use api::{Tree, time, tree};

use crate::aggregation::services::ServiceReference;

/// The result of a check, with upstream's reasons and messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    pub is_available: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    fn unavailable(reason: &'static str, message: String) -> Condition {
        Condition { is_available: false, reason, message }
    }

    pub(super) fn passed() -> Condition {
        Condition { is_available: true, reason: "Passed", message: "all checks passed".to_string() }
    }

    pub(super) fn discovery_failed(message: String) -> Condition {
        Condition::unavailable("FailedDiscoveryCheck", message)
    }

    /// Sets the condition of an APIService. Its time changes with its status only.
    pub(super) fn set(&self, object: &mut Tree, now: i64) {
        let status = if self.is_available { "True" } else { "False" };
        let conditions = object.child("status").list_entry("conditions");
        let own = conditions.iter().position(|condition| condition.str("type") == "Available");
        let index = own.unwrap_or_else(|| {
            conditions.push(tree! { "type" => "Available" });
            conditions.len() - 1
        });
        let condition = &mut conditions[index];
        if condition.str("status") != status {
            condition.set("status", status);
            condition.set("lastTransitionTime", time::format_seconds(now));
        }
        condition.set("reason", self.reason);
        condition.set("message", self.message.as_str());
    }
}

/// The condition that follows from the Service and its EndpointSlices. None: the extension API server must be called.
pub(super) fn judge_service(
    reference: &ServiceReference,
    service: Option<&Tree>,
    slices: &[Tree],
) -> Option<Condition> {
    let ServiceReference { namespace, name, port } = reference;
    let Some(service) = service else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return Some(Condition::unavailable("ServiceNotFound", message));
    };
    if service.str("spec.type") != "ClusterIP" {
        return None;
    }
    let Some(own) = service.list("spec.ports").iter().find(|own| own.int("port") == Some(*port)) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Some(Condition::unavailable("ServicePortError", message));
    };
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Some(Condition::unavailable("EndpointsNotFound", message));
    }
    let port_name = own.str("name");
    if !slices.iter().any(|slice| has_ready_endpoint(slice, port_name)) {
        let message = format!(
            "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
        );
        return Some(Condition::unavailable("MissingEndpoints", message));
    }
    None
}

fn has_ready_endpoint(slice: &Tree, port_name: &str) -> bool {
    let is_ready = |endpoint: &Tree| endpoint.at("conditions.ready").as_bool() != Some(false);
    let is_port = |port: &Tree| port.str("name") == port_name && port.int("port").is_some();
    slice.list("endpoints").iter().any(is_ready) && slice.list("ports").iter().any(is_port)
}

#[cfg(test)]
mod tests {
    use api::list;

    use super::*;

    #[test]
    fn services_and_endpoints_are_checked_first() {
        let reference = ServiceReference { namespace: "agg".to_string(), name: "a".to_string(), port: 443 };
        let service = |kind: &str, port: i64| {
            let ports = list![tree! { "name" => "web", "port" => port }];
            tree! { "spec" => tree! { "type" => kind, "ports" => ports } }
        };
        let slice = |ready: bool, name: &str| {
            let endpoint = tree! { "addresses" => list!["10.0.0.1"], "conditions" => tree! { "ready" => ready } };
            tree! { "endpoints" => list![endpoint], "ports" => list![tree! { "name" => name, "port" => 8443 }] }
        };
        let check = |service: Option<Tree>, slices: &[Tree], want: Option<(&str, &str)>| {
            let got = judge_service(&reference, service.as_ref(), slices);
            assert_eq!(got.as_ref().map(|one| (one.reason, one.message.as_str())), want);
        };
        check(None, &[], Some(("ServiceNotFound", "service/a in \"agg\" is not present")));
        let wrong_port = Some(("ServicePortError", "service/a in \"agg\" is not listening on port 443"));
        check(Some(service("ClusterIP", 444)), &[], wrong_port);
        let no_slices = Some(("EndpointsNotFound", "cannot find endpointslices for service/a in \"agg\""));
        check(Some(service("ClusterIP", 443)), &[], no_slices);
        let missing = "endpointslices for service/a in \"agg\" have no addresses with port name \"web\"";
        check(Some(service("ClusterIP", 443)), &[slice(false, "web")], Some(("MissingEndpoints", missing)));
        check(Some(service("ClusterIP", 443)), &[slice(true, "x")], Some(("MissingEndpoints", missing)));
        check(Some(service("ClusterIP", 443)), &[slice(false, "web"), slice(true, "web")], None);
        check(Some(service("ExternalName", 1)), &[], None);
    }

    #[test]
    fn the_time_of_a_condition_changes_with_its_status() {
        let mut object = tree! {};
        let times = |object: &Tree| {
            let condition = &object.list("status.conditions")[0];
            (condition.str("status").to_string(), condition.str("lastTransitionTime").to_string())
        };
        Condition::discovery_failed("a".to_string()).set(&mut object, 0);
        let first = times(&object);
        Condition::discovery_failed("b".to_string()).set(&mut object, 60);
        assert_eq!(times(&object), first);
        assert_eq!(object.list("status.conditions")[0].str("message"), "b");
        Condition::passed().set(&mut object, 60);
        assert_eq!(times(&object), ("True".to_string(), "1970-01-01T00:01:00Z".to_string()));
        assert_eq!(object.list("status.conditions").len(), 1);
    }
}
