//! `/metrics/cadvisor`: cAdvisor's metric names, from the runtime's statistics.

use cri::{ContainerStats, MemoryUsage, NetworkInterfaceUsage, UInt64Value};

use super::{PodUsage, Usage, container_name, value};
use stdx::exposition::{Kind, Page, Sample};

pub(crate) fn page(usage: &Usage) -> String {
    let mut page = Page::default();
    let containers = || usage.pods.iter().flat_map(|pod| pod.containers().iter().map(move |stats| (pod, stats)));
    let cpu = |stats: &ContainerStats| Some(value(&stats.cpu.as_ref()?.usage_core_nano_seconds)? as f64 / 1e9);
    page.family(
        "container_cpu_usage_seconds_total",
        Kind::Counter,
        "Cumulative cpu time consumed in seconds.",
        containers().filter_map(|(pod, stats)| {
            let mut labels = labels(pod, stats);
            labels.insert(1, ("cpu", "total".to_string()));
            Some(Sample { labels, value: cpu(stats)?, at: None })
        }),
    );
    type FieldFn = fn(&MemoryUsage) -> &Option<UInt64Value>;
    let memory: [(&str, &str, FieldFn); 3] = [
        ("container_memory_rss", "Size of RSS in bytes.", |of| &of.rss_bytes),
        (
            "container_memory_usage_bytes",
            "Current memory usage in bytes, including all memory regardless of when it was accessed",
            |of| &of.usage_bytes,
        ),
        ("container_memory_working_set_bytes", "Current working set in bytes.", |of| &of.working_set_bytes),
    ];
    for (name, help, of) in memory {
        let samples = containers().filter_map(|(pod, stats)| {
            let value = value(of(stats.memory.as_ref()?))? as f64;
            Some(Sample { labels: labels(pod, stats), value, at: None })
        });
        page.family(name, Kind::Gauge, help, samples);
    }
    page.family(
        "container_fs_usage_bytes",
        Kind::Gauge,
        "Number of bytes that are consumed by the container on this filesystem.",
        containers().filter_map(|(pod, stats)| {
            let value = value(&stats.writable_layer.as_ref()?.used_bytes)? as f64;
            Some(Sample { labels: labels(pod, stats), value, at: None })
        }),
    );
    page.family(
        "container_start_time_seconds",
        Kind::Gauge,
        "Start time of the container since unix epoch in seconds.",
        containers().filter_map(|(pod, stats)| {
            let value = pod.container_started(container_name(stats))?.seconds as f64;
            Some(Sample { labels: labels(pod, stats), value, at: None })
        }),
    );
    network(&mut page, usage);
    let of_machine = |value: f64| std::iter::once(Sample { labels: Vec::new(), value, at: None });
    let machine = &usage.machine;
    page.family("machine_cpu_cores", Kind::Gauge, "Number of logical CPU cores.", of_machine(machine.cores as f64));
    let memory = machine.memory.capacity as f64;
    page.family("machine_memory_bytes", Kind::Gauge, "Amount of memory installed on the machine.", of_machine(memory));
    page.into_text()
}

fn network(page: &mut Page, usage: &Usage) {
    type FieldFn = fn(&NetworkInterfaceUsage) -> &Option<UInt64Value>;
    let families: [(&str, &str, FieldFn); 4] = [
        ("container_network_receive_bytes_total", "Cumulative count of bytes received", |of| &of.rx_bytes),
        ("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving", |of| {
            &of.rx_errors
        }),
        ("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |of| &of.tx_bytes),
        (
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
            |of| &of.tx_errors,
        ),
    ];
    for (name, help, of) in families {
        let samples = usage.pods.iter().flat_map(|pod| {
            interfaces(pod).filter_map(move |interface| {
                let labels = vec![
                    ("interface", interface.name.clone()),
                    ("namespace", pod.namespace.clone()),
                    ("pod", pod.name.clone()),
                ];
                Some(Sample { labels, value: value(of(interface))? as f64, at: None })
            })
        });
        page.family(name, Kind::Counter, help, samples);
    }
}

fn interfaces(pod: &PodUsage) -> impl Iterator<Item = &NetworkInterfaceUsage> {
    let network = pod.stats.linux.iter().filter_map(|linux| linux.network.as_ref());
    network.flat_map(|network| network.default_interface.iter().chain(&network.interfaces))
}

fn labels(pod: &PodUsage, stats: &ContainerStats) -> Vec<(&'static str, String)> {
    let attributes = stats.attributes.as_ref();
    vec![
        ("container", container_name(stats).to_string()),
        ("id", format!("/kubepods/pod{}/{}", pod.uid, attributes.map_or("", |attributes| &attributes.id))),
        ("name", attributes.map_or_else(String::new, |attributes| attributes.id.clone())),
        ("namespace", pod.namespace.clone()),
        ("pod", pod.name.clone()),
    ]
}
