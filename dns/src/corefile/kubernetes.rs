//! The plugin `kubernetes`.

use super::plugins::{Context, ReadResult};
use super::syntax::Line;
use super::values::ValueError;
use super::{Fallthrough, ServerBlock, values};
use crate::zone::{PodMode, Zone};

/// The names of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kubernetes {
    /// The zones of the cluster and their options.
    pub zone: Zone,
    /// The zones whose unknown names are passed to the next plugin.
    pub fallthrough: Option<Fallthrough>,
    /// Label selectors of Services and EndpointSlices, and of namespaces.
    pub labels: Option<String>,
    /// The label selector of namespaces.
    pub namespace_labels: Option<String>,
}

pub(super) fn read(context: &Context, server: &mut ServerBlock) -> ReadResult {
    let mut kubernetes = Kubernetes::default();
    kubernetes.zone.origins = context.value(values::zones_or(context.arguments(), &server.zones))?;
    if kubernetes.zone.primary().is_none() {
        return Err(context.error("a zone that is no reverse zone is expected"));
    }
    for line in &context.directive.lines {
        read_option(context, line, &mut kubernetes)?;
    }
    if !kubernetes.zone.namespaces.is_empty() && kubernetes.namespace_labels.is_some() {
        return Err(context.error("namespaces and namespace_labels cannot both be set"));
    }
    server.kubernetes = Some(kubernetes);
    Ok(())
}

fn read_option(context: &Context, line: &Line, kubernetes: &mut Kubernetes) -> ReadResult {
    let zone = &mut kubernetes.zone;
    match line.name.as_str() {
        "pods" => {
            zone.pods = match context.single(line)? {
                "disabled" => PodMode::Disabled,
                "insecure" => PodMode::Insecure,
                "verified" => PodMode::Verified,
                _ => return Err(context.option_error(line, "disabled, insecure or verified is expected")),
            }
        }
        "ttl" => {
            zone.ttl = context.option(line, values::number(context.single(line)?))?;
            if zone.ttl > 3600 {
                return Err(context.option_error(line, "ttl must be in range [0, 3600]"));
            }
        }
        "namespaces" if line.arguments.is_empty() => {
            return Err(context.option_error(line, "a namespace is expected"));
        }
        "namespaces" => zone.namespaces.extend(line.arguments.iter().map(|name| name.as_str().into())),
        "endpoint_pod_names" => {
            context.no_arguments(line)?;
            zone.with_pod_names = true;
        }
        "noendpoints" => {
            context.no_arguments(line)?;
            zone.with_endpoints = false;
        }
        "ignore" => match context.single(line)? {
            "empty_service" => zone.ignores_empty_services = true,
            _ => return Err(context.option_error(line, "empty_service is expected")),
        },
        "labels" => kubernetes.labels = Some(selector(context, line)?),
        "namespace_labels" => kubernetes.namespace_labels = Some(selector(context, line)?),
        "fallthrough" => kubernetes.fallthrough = Some(context.fallthrough(line)?),
        // The server waits in `ready` only, so that there is nothing to wait for at the start.
        "startup_timeout" => drop(context.option(line, values::duration(context.single(line)?))?),
        "endpoint" | "tls" | "kubeconfig" => {
            return Err(context.option_error(line, "set the API server by --kubeconfig"));
        }
        _ => return Err(context.unknown(line)),
    }
    Ok(())
}

fn selector(context: &Context, line: &Line) -> Result<String, super::CorefileError> {
    let text = line.arguments.join(" ");
    let parsed = api::selector::Selector::parse(&text).map_err(ValueError::Selector);
    context.option(line, parsed.map(|selector| selector.to_string()))
}
