//! `cluster-info`.

use crate::command::Command;
use crate::context::Context;
use crate::error::Result;
use crate::flags::{Flag, Kind, switch, text, typed};
use crate::objects::{ListQuery, guess, list_pages, split_list};
use crate::print::PRINT;
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
    let (own, is_explicit) = context.namespace()?;
    let namespace = if is_explicit { own } else { "kube-system".to_string() };
    let query = ListQuery { selector: "kubernetes.io/cluster-service=true".to_string(), ..ListQuery::default() };
    let mut services = Vec::new();
    list_pages(context, &guess("v1", "Service"), &namespace, &query, async |page| {
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
