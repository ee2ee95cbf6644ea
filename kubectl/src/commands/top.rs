//! `top`.

use api::Tree;

use crate::command::Command;
use crate::context::Context;
use crate::error::{Result, message};
use crate::flags::{Flag, switch, text};
use crate::objects::SELECTOR;
use crate::print::TabWriter;
use crate::transport::Request;

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
        return message("only one of NAME or selector can be provided");
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
