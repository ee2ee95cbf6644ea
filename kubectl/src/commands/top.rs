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

/// What a container, pod or node uses: CPU in thousandths, memory and swap in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    cpu: i64,
    memory: i64,
    swap: i64,
}

impl Usage {
    fn of(item: &Tree) -> Usage {
        let bytes = |name: &str| quantity(item.at("usage").str(name)).1;
        Usage { cpu: quantity(item.str("usage.cpu")).0, memory: bytes("memory"), swap: bytes("swap") }
    }

    fn plus(self, other: Usage) -> Usage {
        Usage { cpu: self.cpu + other.cpu, memory: self.memory + other.memory, swap: self.swap + other.swap }
    }

    fn cells(self, with_swap: bool) -> Vec<String> {
        let mut cells = vec![format!("{}m", self.cpu), mebibytes(self.memory)];
        cells.extend(with_swap.then(|| mebibytes(self.swap)));
        cells
    }
}

fn mebibytes(bytes: i64) -> String {
    format!("{}Mi", bytes / (1 << 20))
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

fn sort_rows(context: &Context, rows: &mut [(Vec<String>, Usage)]) {
    match context.flags.str("sort-by") {
        "cpu" => rows.sort_by_key(|row| std::cmp::Reverse(row.1.cpu)),
        "memory" => rows.sort_by_key(|row| std::cmp::Reverse(row.1.memory)),
        _ => rows.sort_by(|a, b| a.0.cmp(&b.0)),
    }
}

fn print_pods(context: &Context, items: &[Tree]) -> Result<()> {
    let flags = &context.flags;
    let (all, containers, swap) = (flags.bool("all-namespaces"), flags.bool("containers"), flags.bool("show-swap"));
    let mut rows = Vec::new();
    for item in items {
        let place = if all { vec![item.str("metadata.namespace").to_string()] } else { Vec::new() };
        let usage = item.list("containers").iter().map(|one| (one.str("name").to_string(), Usage::of(one)));
        let usage: Vec<(String, Usage)> = usage.collect();
        let name = item.str("metadata.name").to_string();
        if containers {
            rows.extend(
                usage
                    .into_iter()
                    .map(|(container, usage)| ([place.clone(), vec![name.clone(), container]].concat(), usage)),
            );
        } else {
            let sum = usage.iter().fold(Usage::default(), |sum, (_, one)| sum.plus(*one));
            rows.push(([place, vec![name]].concat(), sum));
        }
    }
    sort_rows(context, &mut rows);
    let mut tabs = TabWriter::default();
    if !flags.bool("no-headers") {
        let first = if containers { "POD\tNAME\t" } else { "NAME\t" };
        tabs.text(&format!(
            "{}{first}CPU(cores)\tMEMORY(bytes){}\n",
            if all { "NAMESPACE\t" } else { "" },
            if swap { "\tSWAP(bytes)" } else { "" }
        ));
    }
    let mut sum = Usage::default();
    let width = rows.first().map_or(1, |row| row.0.len());
    for (mut cells, usage) in rows {
        sum = sum.plus(usage);
        cells.extend(usage.cells(swap));
        tabs.line(cells);
    }
    if flags.bool("sum") {
        let cells = sum.cells(swap);
        tabs.line([vec![String::new(); width], vec!["________".into(); cells.len()]].concat());
        tabs.line([vec![String::new(); width], cells].concat());
    }
    context.print(&tabs.flush())
}

async fn print_nodes(context: &Context, items: Vec<Tree>) -> Result<()> {
    let flags = &context.flags;
    let swap = flags.bool("show-swap");
    let field = if flags.bool("show-capacity") { "status.capacity" } else { "status.allocatable" };
    let mut rows = Vec::new();
    for item in items {
        let name = item.str("metadata.name").to_string();
        let node = context.client().await?.tree(&Request::get(format!("/api/v1/nodes/{name}"))).await?;
        let usage = Usage::of(&item);
        let (all_cpu, all_memory) = (quantity(node.at(field).str("cpu")).0, quantity(node.at(field).str("memory")).1);
        let percent =
            |part: i64, all: i64| if all > 0 { format!("{}%", part * 100 / all) } else { "<unknown>".to_string() };
        let mut cells = vec![
            name,
            format!("{}m", usage.cpu),
            percent(usage.cpu, all_cpu),
            mebibytes(usage.memory),
            percent(usage.memory, all_memory),
        ];
        if swap {
            let all = node.int("status.nodeInfo.swap.capacity").unwrap_or(0);
            let is_known = item.at("usage").has("swap");
            cells.push(if is_known { mebibytes(usage.swap) } else { "<unknown>".to_string() });
            cells.push(percent(usage.swap, if is_known { all } else { 0 }));
        }
        rows.push((cells, usage));
    }
    sort_rows(context, &mut rows);
    let mut tabs = TabWriter::default();
    if !flags.bool("no-headers") {
        let swap = if swap { "\tSWAP(bytes)\tSWAP(%)" } else { "" };
        tabs.text(&format!("NAME\tCPU(cores)\tCPU(%)\tMEMORY(bytes)\tMEMORY(%){swap}\n"));
    }
    rows.into_iter().for_each(|(cells, ..)| tabs.line(cells));
    context.print(&tabs.flush())
}
