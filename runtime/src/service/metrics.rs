//! Metrics of pods and containers, with the names of cAdvisor. CRI transports values as integers, so that times are in
//! whole seconds.

use cri::{
    ContainerMetrics, Metric, MetricDescriptor, MetricType, NetworkInterfaceUsage, PodSandboxMetrics, UInt64Value,
};

use super::Service;
use super::state::{Container, Sandbox};
use crate::plan;
use crate::shim::log::Timestamp;
use cgroup::stats::{Pressure, Usage};

/// The labels of all metrics, in the order of their values.
const LABELS: [&str; 6] = ["id", "name", "image", "namespace", "pod", "container"];

/// The measurements of a container.
struct Measurements {
    usage: Usage,
    layer_bytes: u64,
    started_at: i64,
    now: i64,
}

/// Values, each with the values of the metric's additional labels.
type Values<'a> = Vec<(Vec<&'a str>, u64)>;

/// A metric: its additional labels, and its values.
struct Row<T> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    labels: &'static [&'static str],
    values: fn(&T) -> Values<'_>,
}

use MetricType::{Counter, Gauge};

const CONTAINER: &[Row<Measurements>] = &[
    row("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", Counter, |m| {
        one(m.usage.cpu_nanos / NANOS)
    }),
    row("container_memory_usage_bytes", "Current memory usage in bytes.", Gauge, |m| one(m.usage.memory_bytes)),
    row("container_memory_working_set_bytes", "Current working set in bytes.", Gauge, |m| {
        one(m.usage.working_set_bytes)
    }),
    row("container_memory_rss", "Size of RSS in bytes.", Gauge, |m| one(m.usage.rss_bytes)),
    row("container_memory_swap", "Container swap usage in bytes.", Gauge, |m| some(m.usage.swap_bytes)),
    Row {
        labels: &["failure_type", "scope"],
        ..row("container_memory_failures_total", "Cumulative count of memory allocation failures.", Counter, |m| {
            vec![
                (vec!["pgfault", "hierarchy"], m.usage.page_faults),
                (vec!["pgmajfault", "hierarchy"], m.usage.major_page_faults),
            ]
        })
    },
    row("container_oom_events_total", "Count of out of memory events observed for the container", Counter, |m| {
        one(m.usage.oom_kills)
    }),
    row("container_fs_usage_bytes", "Number of bytes that are consumed by the container.", Gauge, |m| {
        one(m.layer_bytes)
    }),
    row("container_processes", "Number of processes running inside the container.", Gauge, |m| one(m.usage.processes)),
    row("container_start_time_seconds", "Start time of the container since unix epoch in seconds.", Gauge, |m| {
        some((m.started_at > 0).then_some(m.started_at as u64 / NANOS))
    }),
    row("container_last_seen", "Last time a container was seen by the exporter", Gauge, |m| one(m.now as u64 / NANOS)),
    row(
        "container_pressure_cpu_waiting_seconds_total",
        "Time tasks have waited due to CPU congestion.",
        Counter,
        |m| waited(&m.usage.cpu_pressure),
    ),
    row(
        "container_pressure_cpu_stalled_seconds_total",
        "Time no tasks could make progress due to CPU congestion.",
        Counter,
        |m| stalled(&m.usage.cpu_pressure),
    ),
    row(
        "container_pressure_memory_waiting_seconds_total",
        "Time tasks have waited due to memory congestion.",
        Counter,
        |m| waited(&m.usage.memory_pressure),
    ),
    row(
        "container_pressure_memory_stalled_seconds_total",
        "Time no tasks could make progress due to memory congestion.",
        Counter,
        |m| stalled(&m.usage.memory_pressure),
    ),
    row("container_pressure_io_waiting_seconds_total", "Time tasks have waited due to IO congestion.", Counter, |m| {
        waited(&m.usage.io_pressure)
    }),
    row(
        "container_pressure_io_stalled_seconds_total",
        "Time no tasks could make progress due to IO congestion.",
        Counter,
        |m| stalled(&m.usage.io_pressure),
    ),
];

const POD: &[Row<Vec<NetworkInterfaceUsage>>] = &[
    interface("container_network_receive_bytes_total", "Cumulative count of bytes received", |list| {
        each(list, |i| &i.rx_bytes)
    }),
    interface(
        "container_network_receive_errors_total",
        "Cumulative count of errors encountered while receiving",
        |list| each(list, |i| &i.rx_errors),
    ),
    interface("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", |list| {
        each(list, |i| &i.tx_bytes)
    }),
    interface(
        "container_network_transmit_errors_total",
        "Cumulative count of errors encountered while transmitting",
        |list| each(list, |i| &i.tx_errors),
    ),
];

const NANOS: u64 = 1_000_000_000;
const MICROS: u64 = 1_000_000;

const fn row<T>(name: &'static str, help: &'static str, kind: MetricType, values: fn(&T) -> Values<'_>) -> Row<T> {
    Row { name, help, kind, labels: &[], values }
}

type Interfaces = Vec<NetworkInterfaceUsage>;

const fn interface(name: &'static str, help: &'static str, values: fn(&Interfaces) -> Values<'_>) -> Row<Interfaces> {
    Row { name, help, kind: Counter, labels: &["interface"], values }
}

fn one<'a>(value: u64) -> Values<'a> {
    vec![(vec![], value)]
}

fn some<'a>(value: Option<u64>) -> Values<'a> {
    value.map(|value| (vec![], value)).into_iter().collect()
}

fn waited<'a>(pressure: &Option<Pressure>) -> Values<'a> {
    some(pressure.as_ref().map(|p| p.some.total / MICROS))
}

fn stalled<'a>(pressure: &Option<Pressure>) -> Values<'a> {
    some(pressure.as_ref().map(|p| p.full.total / MICROS))
}

fn each(list: &Interfaces, of: fn(&NetworkInterfaceUsage) -> &Option<UInt64Value>) -> Values<'_> {
    list.iter().filter_map(|i| Some((vec![i.name.as_str()], of(i).as_ref()?.value))).collect()
}

fn descriptor<T>(row: &Row<T>) -> MetricDescriptor {
    let label_keys = LABELS.iter().chain(row.labels).map(ToString::to_string).collect();
    MetricDescriptor { name: row.name.into(), help: row.help.into(), label_keys }
}

pub(super) fn descriptors() -> Vec<MetricDescriptor> {
    CONTAINER.iter().map(descriptor).chain(POD.iter().map(descriptor)).collect()
}

fn metrics_of<T>(rows: &[Row<T>], from: &T, labels: &[String; LABELS.len()], now: i64) -> Vec<Metric> {
    let metrics = rows.iter().flat_map(|row| {
        (row.values)(from).into_iter().map(|(own, value)| Metric {
            name: row.name.into(),
            timestamp: now,
            metric_type: row.kind as i32,
            label_values: labels.iter().cloned().chain(own.iter().map(ToString::to_string)).collect(),
            value: Some(UInt64Value { value }),
        })
    });
    metrics.collect()
}

impl Service {
    pub(super) fn pod_metrics(&self, sandbox: &Sandbox) -> PodSandboxMetrics {
        let (record, now) = (sandbox.record(), Timestamp::now().0);
        let pod = record.config().metadata.unwrap_or_default();
        let group = plan::sandbox_cgroup(&record.config());
        let labels = [group, record.id.clone(), String::new(), pod.namespace, pod.name, String::new()];
        let interfaces = super::stats::interfaces_of(record.pause);
        let running = self.containers_of(&sandbox.id).into_iter().filter(|c| c.is_running());
        PodSandboxMetrics {
            pod_sandbox_id: record.id,
            metrics: metrics_of(POD, &interfaces, &labels, now),
            container_metrics: running.map(|c| self.container_metrics(&c, &labels)).collect(),
        }
    }

    fn container_metrics(&self, container: &Container, pod: &[String; LABELS.len()]) -> ContainerMetrics {
        let (record, now) = (container.record(), Timestamp::now().0);
        let from = Measurements {
            usage: self.0.cgroups.usage(&record.cgroup),
            layer_bytes: self.0.images.usage(&container.id).bytes,
            started_at: container.status().started_at,
            now,
        };
        let name = record.config.unwrap_or_default().metadata.unwrap_or_default().name;
        let [_, _, _, namespace, pod, _] = pod.clone();
        let labels = [record.cgroup, container.id.clone(), record.image_ref, namespace, pod, name];
        ContainerMetrics { container_id: container.id.clone(), metrics: metrics_of(CONTAINER, &from, &labels, now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_as_many_label_values_as_keys() {
        let usage =
            Usage { cpu_nanos: 3 * NANOS, page_faults: 7, cpu_pressure: Some(Default::default()), ..Usage::default() };
        let from = Measurements { usage, layer_bytes: 5, started_at: 0, now: 9 };
        let labels = ["i", "n", "m", "s", "p", "c"].map(String::from);
        let interfaces = vec![NetworkInterfaceUsage {
            name: "eth0".into(),
            rx_bytes: Some(UInt64Value { value: 4 }),
            ..Default::default()
        }];
        let found = [metrics_of(CONTAINER, &from, &labels, 1), metrics_of(POD, &interfaces, &labels, 1)].concat();
        let described = descriptors();
        for metric in &found {
            let descriptor = described.iter().find(|d| d.name == metric.name).unwrap();
            assert_eq!(descriptor.label_keys.len(), metric.label_values.len(), "{}", metric.name);
        }
        let value = |name: &str| found.iter().find(|m| m.name == name).map(|m| m.value.as_ref().unwrap().value);
        assert_eq!(value("container_cpu_usage_seconds_total"), Some(3));
        assert_eq!(value("container_memory_failures_total"), Some(7));
        assert_eq!(value("container_network_receive_bytes_total"), Some(4));
        assert_eq!(value("container_pressure_cpu_waiting_seconds_total"), Some(0));
        assert_eq!(value("container_pressure_io_waiting_seconds_total"), None, "not reported by the kernel");
        assert_eq!(value("container_start_time_seconds"), None, "it has not started");
    }
}
