//! Containers: of pods with their status, and of templates.

use api::Tree;
use api::quote::go_quote;

use super::values::{host_port, int, is_set, long_time, or_none, text, texts};
use super::writer::{Writer, put, text_of};

/// The pod whose fields variables may name.
pub(super) fn describe(
    w: &mut Writer,
    title: &str,
    containers: &[Tree],
    statuses: &[Tree],
    pod: Option<&Tree>,
    before: &str,
) {
    put!(w, 0, "{before}{title}:{}\n", if containers.is_empty() { " <none>" } else { "" });
    for container in containers {
        let status = statuses.iter().find(|status| status.str("name") == container.str("name"));
        basics(w, container, status, before);
        command(w, container);
        if let Some(status) = status {
            state(w, status);
        }
        resources(w, container.at("resources"), 2);
        for (title, field) in
            [("Liveness", "livenessProbe"), ("Readiness", "readinessProbe"), ("Startup", "startupProbe")]
        {
            if container.has(field) {
                put!(w, 2, "{title}:\t{}\n", probe(container.at(field)));
            }
        }
        environment(w, container, pod);
        mounts(w, container);
    }
}

fn basics(w: &mut Writer, container: &Tree, status: Option<&Tree>, before: &str) {
    put!(w, 1, "{}{}:\n", if before.is_empty() { "" } else { " " }, container.str("name"));
    if let Some(status) = status {
        put!(w, 2, "Container ID:\t{}\n", text(status, "containerID"));
    }
    put!(w, 2, "Image:\t{}\n", container.str("image"));
    if let Some(status) = status {
        put!(w, 2, "Image ID:\t{}\n", text(status, "imageID"));
    }
    for (title, field) in [("Port", "containerPort"), ("Host Port", "hostPort")] {
        let ports = ports(container, field);
        let plural = if ports.contains(',') { "s" } else { "" };
        put!(w, 2, "{title}{plural}:\t{}\n", or_none(ports));
    }
    seccomp(w, 2, container.at("securityContext.seccompProfile"));
}

pub(super) fn seccomp(w: &mut Writer, level: usize, profile: &Tree) {
    if profile.is_null() {
        return;
    }
    put!(w, level, "SeccompProfile:\t{}\n", profile.str("type"));
    if profile.str("type") == "Localhost" {
        let level = if level > 0 { level + 1 } else { 0 };
        put!(w, level, "LocalhostProfile:\t{}\n", profile.str("localhostProfile"));
    }
}

fn ports(container: &Tree, field: &str) -> String {
    let port = |port: &Tree| format!("{}/{}", int(port, field), port.str("protocol"));
    container.list("ports").iter().map(port).collect::<Vec<_>>().join(", ")
}

fn command(w: &mut Writer, container: &Tree) {
    for (title, field) in [("Command", "command"), ("Args", "args")] {
        let words = texts(container, field);
        if !words.is_empty() {
            put!(w, 2, "{title}:\n");
        }
        for line in words.iter().flat_map(|word| word.split('\n')) {
            put!(w, 3, "{line}\n");
        }
    }
}

pub(super) fn resources(w: &mut Writer, resources: &Tree, level: usize) {
    for (title, field) in [("Limits", "limits"), ("Requests", "requests")] {
        let list = resources.map(field);
        if !list.is_empty() {
            put!(w, level, "{title}:\n");
        }
        for (name, quantity) in list.iter() {
            put!(w, level + 1, "{name}:\t{}\n", text_of(quantity));
        }
    }
}

fn state(w: &mut Writer, status: &Tree) {
    one_state(w, "State", status.at("state"));
    if status.at("lastState").has("terminated") {
        one_state(w, "Last State", status.at("lastState"));
    }
    put!(w, 2, "Ready:\t{}\n", if status.bool("ready") { "True" } else { "False" });
    put!(w, 2, "Restart Count:\t{}\n", int(status, "restartCount"));
}

fn one_state(w: &mut Writer, title: &str, state: &Tree) {
    if state.has("running") {
        put!(w, 2, "{title}:\tRunning\n");
        return put!(w, 3, "Started:\t{}\n", long_time(state.str("running.startedAt")));
    }
    if !state.has("terminated") {
        put!(w, 2, "{title}:\tWaiting\n");
        if !state.str("waiting.reason").is_empty() {
            put!(w, 3, "Reason:\t{}\n", state.str("waiting.reason"));
        }
        return;
    }
    let ended = state.at("terminated");
    put!(w, 2, "{title}:\tTerminated\n");
    for (title, field) in [("Reason", "reason"), ("Message", "message")] {
        if !ended.str(field).is_empty() {
            put!(w, 3, "{title}:\t{}\n", ended.str(field));
        }
    }
    put!(w, 3, "Exit Code:\t{}\n", int(ended, "exitCode"));
    if int(ended, "signal") > 0 {
        put!(w, 3, "Signal:\t{}\n", int(ended, "signal"));
    }
    put!(w, 3, "Started:\t{}\n", long_time(ended.str("startedAt")));
    put!(w, 3, "Finished:\t{}\n", long_time(ended.str("finishedAt")));
}

fn probe(probe: &Tree) -> String {
    let number = |field: &str| int(probe, field);
    let attributes = format!(
        "delay={}s timeout={}s period={}s #success={} #failure={}",
        number("initialDelaySeconds"),
        number("timeoutSeconds"),
        number("periodSeconds"),
        number("successThreshold"),
        number("failureThreshold")
    );
    if probe.has("exec") {
        return format!("exec [{}] {attributes}", texts(probe, "exec.command").join(" "));
    }
    if probe.has("httpGet") {
        let get = probe.at("httpGet");
        let (host, port) = (text(get, "host"), text(get, "port"));
        let host = if port.is_empty() { host } else { host_port(&host, &port) };
        let path = text(get, "path");
        let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
        return format!("http-get {}://{host}{slash}{path} {attributes}", text(get, "scheme").to_lowercase());
    }
    if probe.has("tcpSocket") {
        return format!("tcp-socket {}:{} {attributes}", text(probe, "tcpSocket.host"), text(probe, "tcpSocket.port"));
    }
    if probe.has("grpc") {
        return format!("grpc <pod>:{} {} {attributes}", int(probe, "grpc.port"), text(probe, "grpc.service"));
    }
    format!("unknown {attributes}")
}

fn environment(w: &mut Writer, container: &Tree, pod: Option<&Tree>) {
    let sources = container.list("envFrom");
    if !sources.is_empty() {
        w.write(2, "Environment Variables from:\n");
    }
    for source in sources {
        let (kind, field) =
            if source.has("configMapRef") { ("ConfigMap", "configMapRef") } else { ("Secret", "secretRef") };
        let reference = source.at(field);
        let prefix = match source.str("prefix") {
            "" => String::new(),
            prefix => format!(" with prefix '{prefix}'"),
        };
        put!(w, 3, "{}\t{kind}{prefix}\tOptional: {}\n", reference.str("name"), reference.bool("optional"));
    }
    let variables = container.list("env");
    put!(w, 2, "Environment:{}\n", if variables.is_empty() { "\t<none>" } else { "" });
    for variable in variables {
        let name = variable.str("name");
        if variable.has("valueFrom") {
            put!(w, 3, "{name}:\t{}\n", value_from(variable.at("valueFrom"), container, pod));
            continue;
        }
        for (at, line) in variable.str("value").split('\n').enumerate() {
            put!(w, 3, "{}\t{line}\n", if at == 0 { format!("{name}:") } else { String::new() });
        }
    }
}

fn value_from(source: &Tree, container: &Tree, pod: Option<&Tree>) -> String {
    if source.has("fieldRef") {
        let path = source.str("fieldRef.fieldPath");
        let value = pod.map(|pod| field_value(pod, path)).unwrap_or_default();
        return format!("{value} ({}:{path})", source.str("fieldRef.apiVersion"));
    }
    if source.has("resourceFieldRef") {
        let resource = source.str("resourceFieldRef.resource");
        let value = resource_value(container, resource, &text(source, "resourceFieldRef.divisor"));
        let is_limit = matches!(resource, "limits.cpu" | "limits.memory");
        let value = if value == "0" && is_limit { "node allocatable".to_string() } else { value };
        return format!("{value} ({resource})");
    }
    for (field, kind) in [("secretKeyRef", "in secret"), ("configMapKeyRef", "of config map")] {
        if source.has(field) {
            let reference = source.at(field);
            let (key, name) = (reference.str("key"), reference.str("name"));
            return format!("<set to the key '{key}' {kind} '{name}'>\tOptional: {}", reference.bool("optional"));
        }
    }
    String::new()
}

/// A field of the pod that variables may have.
fn field_value(pod: &Tree, path: &str) -> String {
    // Upstream has no value for one label or annotation.
    match path {
        "metadata.labels" | "metadata.annotations" => {
            let line = |(key, value): (&str, &Tree)| format!("{key}={}", go_quote(&text_of(value)));
            pod.map(path).iter().map(line).collect::<Vec<_>>().join("\n")
        }
        "status.hostIPs" | "status.podIPs" => {
            pod.list(path).iter().map(|one| one.str("ip").to_string()).collect::<Vec<_>>().join(",")
        }
        path => text(pod, path),
    }
}

/// Limits and requests in units of the divisor, rounded up.
fn resource_value(container: &Tree, resource: &str, divisor: &str) -> String {
    use api::quantity::Quantity;
    let Some((kind, name)) = resource.split_once('.') else { return String::new() };
    let found = container.at("resources").at(kind).get(name).map(text_of).unwrap_or_default();
    let parse = |text: &str| Quantity::parse(text).unwrap_or(Quantity::new(0, api::quantity::Format::DecimalSI));
    let (value, divisor) = (parse(&found), if matches!(divisor, "" | "0") { parse("1") } else { parse(divisor) });
    let (value, divisor) =
        if name == "cpu" { (value.milli_value(), divisor.milli_value()) } else { (value.value(), divisor.value()) };
    let divisor = divisor.max(1);
    (value / divisor + i64::from(value % divisor > 0)).to_string()
}

fn mounts(w: &mut Writer, container: &Tree) {
    let mut mounts: Vec<&Tree> = container.list("volumeMounts").iter().collect();
    mounts.sort_by_key(|mount| mount.str("mountPath"));
    let none = if mounts.is_empty() { "\t<none>" } else { "" };
    put!(w, 2, "Mounts:{none}\n");
    for mount in mounts {
        let mut flags = if mount.bool("readOnly") { "ro" } else { "rw" }.to_string();
        if is_set(mount, "subPath") && !mount.str("subPath").is_empty() {
            flags.push_str(&format!(",path={}", go_quote(mount.str("subPath"))));
        }
        put!(w, 3, "{} from {} ({flags})\n", mount.str("mountPath"), mount.str("name"));
    }
    let mut devices: Vec<&Tree> = container.list("volumeDevices").iter().collect();
    if devices.is_empty() {
        return;
    }
    devices.sort_by_key(|device| device.str("devicePath"));
    put!(w, 2, "Devices:{none}\n");
    for device in devices {
        put!(w, 3, "{} from {}\n", device.str("devicePath"), device.str("name"));
    }
}
