//! `/metrics/resource`, for autoscalers.

use cri::{CpuUsage, MemoryUsage};

use super::{PodUsage, Usage, container_name, value};
use stdx::exposition::{Kind, Page, Sample};

pub(crate) fn page(usage: &Usage) -> String {
    let mut page = Page::default();
    add_containers(&mut page, usage);
    add_node(&mut page, usage);
    add_pods(&mut page, usage);
    page.family(
        "resource_scrape_error",
        Kind::Gauge,
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        std::iter::once(Sample { labels: Vec::new(), value: f64::from(u8::from(usage.failed)), at: None }),
    );
    page.into_text()
}

fn add_containers(page: &mut Page, usage: &Usage) {
    let containers = || usage.pods.iter().flat_map(|pod| pod.containers().iter().map(move |stats| (pod, stats)));
    page.family(
        "container_cpu_usage_seconds_total",
        Kind::Counter,
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        containers().filter_map(|(pod, stats)| seconds(stats.cpu.as_ref(), labels(pod, container_name(stats)))),
    );
    page.family(
        "container_memory_working_set_bytes",
        Kind::Gauge,
        "[STABLE] Current working set of the container in bytes",
        containers().filter_map(|(pod, stats)| working_set(stats.memory.as_ref(), labels(pod, container_name(stats)))),
    );
    page.family(
        "container_start_time_seconds",
        Kind::Gauge,
        "[STABLE] Start time of the container since unix epoch in seconds",
        containers().filter_map(|(pod, stats)| {
            let name = container_name(stats);
            let started = pod.container_started(name)?;
            Some(Sample { labels: labels(pod, name), value: started.seconds as f64, at: None })
        }),
    );
    page.family(
        "container_swap_usage_bytes",
        Kind::Gauge,
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        containers().filter_map(|(pod, stats)| {
            let swap = stats.swap.as_ref()?;
            let value = value(&swap.swap_usage_bytes)? as f64;
            Some(Sample { labels: labels(pod, container_name(stats)), value, at: milliseconds(swap.timestamp) })
        }),
    );
}

fn add_node(page: &mut Page, usage: &Usage) {
    let at = usage.at.seconds * 1000 + i64::from(usage.at.nanos / 1_000_000);
    let sample = |value: f64| std::iter::once(Sample { labels: Vec::new(), value, at: Some(at) });
    page.family(
        "node_cpu_usage_seconds_total",
        Kind::Counter,
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        sample(usage.machine.cpu_nanoseconds as f64 / 1e9),
    );
    page.family(
        "node_memory_working_set_bytes",
        Kind::Gauge,
        "[STABLE] Current working set of the node in bytes",
        sample(usage.machine.memory.working_set as f64),
    );
    page.family(
        "node_swap_usage_bytes",
        Kind::Gauge,
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        sample(usage.machine.memory.swap_usage as f64),
    );
}

fn add_pods(page: &mut Page, usage: &Usage) {
    let linux = |pod: &'_ PodUsage| pod.stats.linux.clone().unwrap_or_default();
    page.family(
        "pod_cpu_usage_seconds_total",
        Kind::Counter,
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        usage.pods.iter().filter_map(|pod| seconds(linux(pod).cpu.as_ref(), labels(pod, ""))),
    );
    page.family(
        "pod_memory_working_set_bytes",
        Kind::Gauge,
        "[STABLE] Current working set of the pod in bytes",
        usage.pods.iter().filter_map(|pod| working_set(linux(pod).memory.as_ref(), labels(pod, ""))),
    );
}

/// The labels of a container, or of a pod if the name of the container is "".
fn labels(pod: &PodUsage, container: &str) -> Vec<(&'static str, String)> {
    let mut labels = vec![("namespace", pod.namespace.clone()), ("pod", pod.name.clone())];
    if !container.is_empty() {
        labels.insert(0, ("container", container.to_string()));
    }
    labels
}

fn milliseconds(nanoseconds: i64) -> Option<i64> {
    (nanoseconds > 0).then_some(nanoseconds / 1_000_000)
}

fn seconds(cpu: Option<&CpuUsage>, labels: Vec<(&'static str, String)>) -> Option<Sample> {
    let cpu = cpu?;
    let value = value(&cpu.usage_core_nano_seconds)? as f64 / 1e9;
    Some(Sample { labels, value, at: milliseconds(cpu.timestamp) })
}

fn working_set(memory: Option<&MemoryUsage>, labels: Vec<(&'static str, String)>) -> Option<Sample> {
    let memory = memory?;
    let value = value(&memory.working_set_bytes)? as f64;
    Some(Sample { labels, value, at: milliseconds(memory.timestamp) })
}
