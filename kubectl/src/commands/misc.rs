//! `cluster-info`, `events`, `top`, `plugin`.

use api::Tree;

use crate::clock;
use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{ListQuery, SELECTOR, guess, list_pages, split_list};
use crate::print::{PRINT, Printer, TabWriter, list_of};
use crate::transport::Request;

const DUMP_FLAGS: &[Flag] = &[
    switch("all-namespaces", 'A', "Dump all namespaces."),
    typed(
        "namespaces",
        '\0',
        Kind::Slice,
        "",
        "The namespaces to dump; by default that of the system and the current one.",
    ),
    text("output-directory", '\0', "", "A directory for the files; - is the standard output."),
    typed("pod-running-timeout", '\0', Kind::Duration, "20s", "How long to wait for logs."),
];

static DUMP: Command = Command {
    name: "dump",
    short: "Dump relevant information for debugging and diagnosis",
    flags: &[DUMP_FLAGS, PRINT],
    run: Some(|context| Box::pin(dump(context))),
    ..Command::EMPTY
};

pub(crate) static CLUSTER_INFO: Command = Command {
    name: "cluster-info",
    short: "Display cluster information",
    children: &[&DUMP],
    run: Some(|context| Box::pin(cluster_info(context))),
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

async fn cluster_info(context: &Context) -> Result<()> {
    let url = context.client().await?.url();
    let (green, yellow, end) = ("\u{1b}[0;32m", "\u{1b}[0;33m", "\u{1b}[0m");
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let paint = |color: &str, text: &str| if is_terminal { format!("{color}{text}{end}") } else { text.to_string() };
    let query = ListQuery { selector: "kubernetes.io/cluster-service=true".to_string(), ..ListQuery::default() };
    let mut services = Vec::new();
    list_pages(context, &guess("v1", "Service"), "kube-system", &query, async |page| {
        services.extend(split_list(&guess("v1", "Service"), page));
        Ok(())
    })
    .await?;
    context.print(&format!("{} is running at {}\n", paint(green, "Kubernetes control plane"), paint(yellow, &url)))?;
    for service in services {
        let name = service.object.map("metadata.labels").str("kubernetes.io/name");
        let name = if name.is_empty() { &service.name } else { name };
        let ports = service.object.list("spec.ports");
        let port = ports.first().map_or("", |port| port.str("name"));
        let address = format!(
            "{url}/api/v1/namespaces/{}/services/{}{}/proxy",
            service.namespace,
            service.name,
            if port.is_empty() { String::new() } else { format!(":{port}") }
        );
        context.print(&format!("{} is running at {}\n", paint(green, name), paint(yellow, &address)))?;
    }
    context.print("\nTo further debug and diagnose cluster problems, use 'kubectl cluster-info dump'.\n")
}

/// The types that a dump has of each namespace.
const DUMPED: &[(&str, &str)] = &[
    ("v1", "Event"),
    ("v1", "ReplicationController"),
    ("v1", "Service"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("v1", "Pod"),
];

async fn dump(context: &Context) -> Result<()> {
    let directory = context.flags.str("output-directory").to_string();
    let mut namespaces = context.flags.list("namespaces");
    if context.flags.bool("all-namespaces") {
        let query = ListQuery::default();
        list_pages(context, &guess("v1", "Namespace"), "", &query, async |page| {
            namespaces.extend(page.list("items").iter().map(|one| one.str("metadata.name").to_string()));
            Ok(())
        })
        .await?;
    }
    if namespaces.is_empty() {
        namespaces = vec!["kube-system".to_string(), context.namespace()?.0];
    }
    dump_list(context, &directory, "nodes", "v1", "Node", "").await?;
    for namespace in &namespaces {
        for (version, kind) in DUMPED {
            let name = format!("{namespace}/{}", guess(version, kind).plural);
            dump_list(context, &directory, &name, version, kind, namespace).await?;
        }
        for pod in super::pods::list_pods(context, namespace, &ListQuery::default()).await? {
            for container in super::pods::container_names(&pod.object) {
                let request = Request::get(format!("{}/log", pod.path())).query("container", &container);
                let log = match context.client().await?.bytes(&request).await {
                    Ok(log) => log.to_vec(),
                    Err(error) => format!("Request log error: {error}\n").into_bytes(),
                };
                let title = format!("==== START logs for container {container} of pod {namespace}/{} ====\n", pod.name);
                let end = format!("==== END logs for container {container} of pod {namespace}/{} ====\n", pod.name);
                if directory.is_empty() || directory == "-" {
                    context.print(&title)?;
                    context.write(&log)?;
                    context.print(&end)?;
                } else {
                    write(
                        &directory,
                        &format!("{namespace}/{}/logs.txt", pod.name),
                        &[title.as_bytes(), &log, end.as_bytes()].concat(),
                    )?;
                }
            }
        }
    }
    if !directory.is_empty() && directory != "-" {
        context.print(&format!("Cluster info dumped to {directory}\n"))?;
    }
    Ok(())
}

fn write(directory: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let path = std::path::Path::new(directory).join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(std::fs::write(path, bytes)?)
}

async fn dump_list(
    context: &Context,
    directory: &str,
    name: &str,
    version: &str,
    kind: &str,
    namespace: &str,
) -> Result<()> {
    let resource = guess(version, kind);
    let mut list = context.client().await?.tree(&Request::get(resource.path(namespace))).await?;
    list.set("kind", format!("{kind}List"));
    if directory.is_empty() || directory == "-" {
        return context.write(&crate::print::pretty(&list));
    }
    write(directory, &format!("{name}.json"), &crate::print::pretty(&list))
}

const EVENTS_FLAGS: &[Flag] = &[
    switch("all-namespaces", 'A', "Events of all namespaces."),
    typed("chunk-size", '\0', Kind::Int64, "500", "Objects in one response of the server."),
    text("for", '\0', "", "Only events of an object, as TYPE/NAME."),
    switch("no-headers", '\0', "Do not print the names of columns."),
    typed("types", '\0', Kind::Slice, "", "Only events of these types: Normal, Warning."),
    switch("watch", 'w', "Print new events too."),
];

pub(crate) static EVENTS: Command = Command {
    name: "events",
    usage: "[(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file] [--for TYPE/NAME] [--watch] [--types=Normal,Warning]",
    short: "List events",
    flags: &[EVENTS_FLAGS, PRINT],
    run: Some(|context| Box::pin(events(context))),
    group: "Troubleshooting and Debugging Commands",
    ..Command::EMPTY
};

/// The time by which events are sorted.
fn event_time(event: &Tree) -> String {
    for path in ["series.lastObservedTime", "lastTimestamp", "eventTime"] {
        let time = event.str(path);
        if !time.is_empty() {
            return time.to_string();
        }
    }
    String::new()
}

fn ago(time: &str) -> String {
    match api::time::parse(time) {
        Ok(time) => api::time::human_duration(clock::now() - time.seconds),
        Err(_) => "<unknown>".to_string(),
    }
}

fn event_row(event: &Tree, with_namespace: bool) -> Vec<String> {
    let first =
        if event.str("eventTime").is_empty() { ago(event.str("firstTimestamp")) } else { ago(event.str("eventTime")) };
    let count = event.int("count").unwrap_or(0);
    let seen = if !event.at("series").is_null() {
        format!(
            "{} (x{} over {first})",
            ago(event.str("series.lastObservedTime")),
            event.int("series.count").unwrap_or(0)
        )
    } else if count > 1 {
        format!("{} (x{count} over {first})", ago(event.str("lastTimestamp")))
    } else {
        first
    };
    let object = format!("{}/{}", event.str("involvedObject.kind"), event.str("involvedObject.name"));
    let mut cells = vec![
        seen,
        event.str("type").to_string(),
        event.str("reason").to_string(),
        object,
        event.str("message").trim().to_string(),
    ];
    if with_namespace {
        cells.insert(0, event.str("metadata.namespace").to_string());
    }
    cells
}

async fn events(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let printer = Printer::new(context, false)?;
    let types = flags.list("types");
    if types.iter().any(|one| !matches!(one.to_lowercase().as_str(), "normal" | "warning")) {
        return message("valid --types are Normal or Warning");
    }
    let mut query = ListQuery { chunk: flags.int("chunk-size"), ..ListQuery::default() };
    if !flags.str("for").is_empty() {
        let Some((kind, name)) = flags.str("for").split_once('/') else {
            return message("--for must be in resource/name form");
        };
        let resource = context.resolve(kind).await?;
        query.field_selector = format!(
            "involvedObject.kind={},involvedObject.apiVersion={},involvedObject.name={name}",
            resource.kind,
            resource.api_version()
        );
    }
    let all = flags.bool("all-namespaces");
    let namespace = if all { String::new() } else { context.namespace()?.0 };
    let is_wanted =
        |event: &Tree| types.is_empty() || types.iter().any(|one| one.eq_ignore_ascii_case(event.str("type")));
    let resource = guess("v1", "Event");
    let (mut found, mut revision) = (Vec::new(), String::new());
    list_pages(context, &resource, &namespace, &query, async |page| {
        revision = page.str("metadata.resourceVersion").to_string();
        found.extend(split_list(&resource, page).into_iter().map(|info| info.object).filter(|event| is_wanted(event)));
        Ok(())
    })
    .await?;
    found.sort_by_cached_key(event_time);
    if found.is_empty() && !flags.bool("watch") {
        context.note(&if all {
            "No events found.".to_string()
        } else {
            format!("No events found in {namespace} namespace.")
        });
        return Ok(());
    }
    let mut tabs = TabWriter::default();
    if !printer.is_human() {
        printer.print(context, &list_of(found))?;
    } else {
        if !flags.bool("no-headers") {
            tabs.text(&format!("{}LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n", if all { "NAMESPACE\t" } else { "" }));
        }
        found.iter().for_each(|event| tabs.line(event_row(event, all)));
        context.print(&tabs.flush())?;
    }
    if !flags.bool("watch") {
        return Ok(());
    }
    context.flush()?;
    query.chunk = 0;
    let request = query.request(&resource, &namespace, "").query("watch", "true").query("resourceVersion", revision);
    let mut lines = context.client().await?.send(&Request { is_long: true, ..request }).await?.lines();
    while let Some(line) = lines.next().await {
        let Ok(event) = api::json::decode(&line?) else { break };
        if event.str("type") == "DELETED" || !is_wanted(event.at("object")) {
            continue;
        }
        if printer.is_human() {
            tabs.line(event_row(event.at("object"), all));
            context.print(&tabs.flush())?;
        } else {
            printer.print(context, event.at("object"))?;
        }
        context.flush()?;
    }
    Ok(())
}

const TOP_POD_FLAGS: &[Flag] = &[
    switch("all-namespaces", 'A', "Pods of all namespaces."),
    switch("containers", '\0', "Print the use of each container."),
    text("field-selector", '\0', "", "Field selector, such as --field-selector key1=value1,key2=value2."),
    switch("no-headers", '\0', "Do not print the names of columns."),
    text("sort-by", '\0', "", "cpu or memory."),
    switch("sum", '\0', "Print the sum."),
    switch("show-swap", '\0', "Print the use of swap."),
    switch("use-protocol-buffers", '\0', "").hidden(),
];

static TOP_POD: Command = Command {
    name: "pod",
    aliases: &["pods", "po"],
    usage: "[NAME | -l label]",
    short: "Display resource (CPU/memory) usage of pods",
    flags: &[TOP_POD_FLAGS, SELECTOR],
    run: Some(|context| Box::pin(top(context, "PodMetrics"))),
    ..Command::EMPTY
};

const TOP_NODE_FLAGS: &[Flag] = &[
    switch("no-headers", '\0', "Do not print the names of columns."),
    switch("show-capacity", '\0', "Percentages of the capacity instead of what is allocatable."),
    text("sort-by", '\0', "", "cpu or memory."),
    switch("show-swap", '\0', "Print the use of swap."),
    switch("use-protocol-buffers", '\0', "").hidden(),
];

static TOP_NODE: Command = Command {
    name: "node",
    aliases: &["nodes", "no"],
    usage: "[NAME | -l label]",
    short: "Display resource (CPU/memory) usage of nodes",
    flags: &[TOP_NODE_FLAGS, SELECTOR],
    run: Some(|context| Box::pin(top(context, "NodeMetrics"))),
    ..Command::EMPTY
};

pub(crate) static TOP: Command = Command {
    name: "top",
    short: "Display resource (CPU/memory) usage",
    children: &[&TOP_NODE, &TOP_POD],
    group: "Cluster Management Commands",
    ..Command::EMPTY
};

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

fn quantity(text: &str) -> (i64, i64) {
    let parsed = api::quantity::Quantity::parse(text);
    parsed.map_or((0, 0), |quantity| (quantity.milli_value(), quantity.value()))
}

async fn top(context: &Context, kind: &str) -> Result<()> {
    let flags = &context.flags;
    if !matches!(flags.str("sort-by"), "" | "cpu" | "memory") {
        return message("--sort-by accepts only cpu or memory");
    }
    if context.args.len() > 1 {
        return context.usage_error(&format!("Unexpected args: [{}]", context.args.join(" ")));
    }
    if !context.args.is_empty() && !flags.str("selector").is_empty() {
        return message("only one of NAME or --selector can be provided");
    }
    let mapper = context.mapper().await?;
    if !mapper.groups().iter().any(|group| group.name == "metrics.k8s.io") {
        return message("Metrics API not available");
    }
    let is_pod = kind == "PodMetrics";
    let namespace = if flags.bool("all-namespaces") { String::new() } else { context.namespace()?.0 };
    let base = match (is_pod, namespace.is_empty()) {
        (true, true) => format!("{METRICS}/pods"),
        (true, false) => format!("{METRICS}/namespaces/{namespace}/pods"),
        (false, _) => format!("{METRICS}/nodes"),
    };
    let client = context.client().await?;
    let items = match context.args.first() {
        Some(name) => vec![client.tree(&Request::get(format!("{base}/{name}"))).await?],
        None => {
            let request = Request::get(base)
                .query("labelSelector", flags.str("selector"))
                .query("fieldSelector", flags.str("field-selector"));
            client.tree(&request).await?.list("items").to_vec()
        }
    };
    if items.is_empty() {
        if is_pod && !namespace.is_empty() {
            context.note(&format!("No resources found in {namespace} namespace."));
        } else {
            context.note("No resources found");
        }
        return Ok(());
    }
    if is_pod { print_pods(context, &items) } else { print_nodes(context, items).await }
}

fn sort_rows(context: &Context, rows: &mut [(Vec<String>, i64, i64)]) {
    match context.flags.str("sort-by") {
        "cpu" => rows.sort_by_key(|row| std::cmp::Reverse(row.1)),
        "memory" => rows.sort_by_key(|row| std::cmp::Reverse(row.2)),
        _ => rows.sort_by(|a, b| a.0.cmp(&b.0)),
    }
}

fn print_pods(context: &Context, items: &[Tree]) -> Result<()> {
    let flags = &context.flags;
    let (all, containers) = (flags.bool("all-namespaces"), flags.bool("containers"));
    let mut rows = Vec::new();
    for item in items {
        let place = if all { vec![item.str("metadata.namespace").to_string()] } else { Vec::new() };
        let usage = item.list("containers").iter().map(|one| {
            (one.str("name").to_string(), quantity(one.str("usage.cpu")).0, quantity(one.str("usage.memory")).1)
        });
        let usage: Vec<(String, i64, i64)> = usage.collect();
        let name = item.str("metadata.name").to_string();
        if containers {
            rows.extend(usage.into_iter().map(|(container, cpu, memory)| {
                ([place.clone(), vec![name.clone(), container]].concat(), cpu, memory)
            }));
        } else {
            let (cpu, memory) = usage.iter().fold((0, 0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
            rows.push(([place, vec![name]].concat(), cpu, memory));
        }
    }
    sort_rows(context, &mut rows);
    let mut tabs = TabWriter::default();
    if !flags.bool("no-headers") {
        let first = if containers { "POD\tNAME\t" } else { "NAME\t" };
        tabs.text(&format!("{}{first}CPU(cores)\tMEMORY(bytes)\n", if all { "NAMESPACE\t" } else { "" }));
    }
    let (mut cpus, mut memories) = (0, 0);
    let width = rows.first().map_or(1, |row| row.0.len());
    for (mut cells, cpu, memory) in rows {
        (cpus, memories) = (cpus + cpu, memories + memory);
        cells.extend([format!("{cpu}m"), format!("{}Mi", memory / (1 << 20))]);
        tabs.line(cells);
    }
    if flags.bool("sum") {
        tabs.line([vec![String::new(); width], vec!["________".into(), "________".into()]].concat());
        tabs.line(
            [vec![String::new(); width], vec![format!("{cpus}m"), format!("{}Mi", memories / (1 << 20))]].concat(),
        );
    }
    context.print(&tabs.flush())
}

async fn print_nodes(context: &Context, items: Vec<Tree>) -> Result<()> {
    let flags = &context.flags;
    let field = if flags.bool("show-capacity") { "status.capacity" } else { "status.allocatable" };
    let mut rows = Vec::new();
    for item in items {
        let name = item.str("metadata.name").to_string();
        let node = context.client().await?.tree(&Request::get(format!("/api/v1/nodes/{name}"))).await?;
        let (cpu, memory) = (quantity(item.str("usage.cpu")).0, quantity(item.str("usage.memory")).1);
        let (all_cpu, all_memory) = (quantity(node.at(field).str("cpu")).0, quantity(node.at(field).str("memory")).1);
        let percent =
            |part: i64, all: i64| if all > 0 { format!("{}%", part * 100 / all) } else { "<unknown>".to_string() };
        let cells = vec![
            name,
            format!("{cpu}m"),
            percent(cpu, all_cpu),
            format!("{}Mi", memory / (1 << 20)),
            percent(memory, all_memory),
        ];
        rows.push((cells, cpu, memory));
    }
    sort_rows(context, &mut rows);
    let mut tabs = TabWriter::default();
    if !flags.bool("no-headers") {
        tabs.text("NAME\tCPU(cores)\tCPU(%)\tMEMORY(bytes)\tMEMORY(%)\n");
    }
    rows.into_iter().for_each(|(cells, ..)| tabs.line(cells));
    context.print(&tabs.flush())
}

const PLUGIN_LIST_FLAGS: &[Flag] = &[switch("name-only", '\0', "Print only the names, without the paths.")];

static PLUGIN_LIST: Command = Command {
    name: "list",
    short: "List all visible plugin executables on a user's PATH",
    flags: &[PLUGIN_LIST_FLAGS],
    run: Some(|context| Box::pin(async move { plugin_list(context) })),
    ..Command::EMPTY
};

pub(crate) static PLUGIN: Command = Command {
    name: "plugin",
    usage: "[flags]",
    short: "Provides utilities for interacting with plugins",
    children: &[&PLUGIN_LIST],
    group: "Other Commands",
    ..Command::EMPTY
};

fn plugin_list(context: &Context) -> Result<()> {
    let mut seen: Vec<String> = Vec::new();
    let mut warnings = 0;
    for directory in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with("kubectl-") {
                continue;
            }
            if seen.is_empty() {
                context.print("The following compatible plugins are available:\n\n")?;
            }
            let shown = if context.flags.bool("name-only") { name.clone() } else { path.display().to_string() };
            context.print(&format!("{shown}\n"))?;
            if !crate::plugins::is_executable(&path) {
                warnings += 1;
                context.note(&format!(
                    "  - warning: {} identified as a kubectl plugin, but it is not executable",
                    path.display()
                ));
            }
            if seen.contains(&name) {
                warnings += 1;
                context.note(&format!("  - warning: {} is overshadowed by a similarly named plugin", path.display()));
            }
            seen.push(name);
        }
    }
    match (seen.is_empty(), warnings) {
        (true, _) => message("unable to find any kubectl plugins in your PATH"),
        (_, 0) => Ok(()),
        (_, 1) => message("one plugin warning was found"),
        (_, count) => message(format!("{count} plugin warnings were found")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn events_have_rows() {
        let event = tree! {
            "type" => "Normal", "reason" => "Started", "message" => " it runs ", "count" => 1,
            "involvedObject" => tree! { "kind" => "Pod", "name" => "a" },
        };
        assert_eq!(event_row(&event, false), ["<unknown>", "Normal", "Started", "Pod/a", "it runs"]);
    }
}
