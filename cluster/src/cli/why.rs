//! `tiphys why`: requests from a cluster's scheduler why a pod is pending, or where a pod of a manifest would be
//! scheduled.

use std::path::{Path, PathBuf};

use api::Tree;
use clap::ValueEnum;
use client::Client;

use crate::component::remote::{Remote, find_kubeconfig};
use crate::error::{Error, Result};

/// The question and the output format.
pub struct WhyRequest {
    pub kubeconfig: Option<PathBuf>,
    pub namespace: String,
    pub about: WhySubject,
    pub output: Output,
}

/// The subject of an explanation.
pub enum WhySubject {
    Pod(String),
    Manifest(PathBuf),
}

/// The form of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// The scheduler's response as JSON
    Json,
}

/// `pod NAME`, `pod/NAME` or `NAME`.
pub fn pod_name(words: &[String]) -> Option<String> {
    let is_pod = |word: &str| matches!(word, "pod" | "pods" | "po");
    let name = match words {
        [one] => one.split_once('/').filter(|(kind, _)| is_pod(kind)).map_or(one.as_str(), |(_, name)| name),
        [kind, name] if is_pod(kind) => name,
        _ => return None,
    };
    (!name.is_empty() && !name.contains('/')).then(|| name.to_string())
}

/// Requests the explanation and formats it.
pub async fn ask(question: &WhyRequest) -> Result<String> {
    let client = Remote::read("tiphys", "kubeconfig", &find_kubeconfig(question.kubeconfig.as_deref())?)?.client();
    let explanation = match &question.about {
        WhySubject::Pod(name) => client.get_path(&format!("{}/{name}", root(&question.namespace)), "").await,
        WhySubject::Manifest(file) => what_if(&client, question, file).await?,
    };
    let explanation = explanation.map_err(|error| Error::Response(error.message()))?;
    Ok(match question.output {
        Output::Json => format!("{}\n", String::from_utf8_lossy(&api::json::encode(&explanation, None))),
        Output::Text => shown(&explanation),
    })
}

fn root(namespace: &str) -> String {
    format!("/tiphys/v1/why/{namespace}")
}

async fn what_if(client: &Client, question: &WhyRequest, file: &Path) -> Result<client::Result<Tree>> {
    let bad = |why: String| Error::Flags(vec![format!("--if: {}: {why}", file.display())]);
    let text = std::fs::read(file).map_err(Error::file(file))?;
    let manifest = api::yaml::decode(&text).map_err(|error| bad(error.to_string()))?;
    let pod = pod_of(&manifest).map_err(|error| bad(error.to_string()))?;
    let namespace = match pod.str("metadata.namespace") {
        "" => question.namespace.as_str(),
        namespace => namespace,
    };
    Ok(client.post_path(&root(namespace), &pod).await)
}

/// Why a manifest has no pod.
#[derive(Debug, PartialEq, thiserror::Error)]
enum ManifestError {
    #[error("kind: required")]
    NoKind,
    #[error("kind: {0} has no pod template")]
    NoTemplate(String),
}

/// The pod of a manifest: itself, or the pod template of a workload.
fn pod_of(manifest: &Tree) -> Result<Tree, ManifestError> {
    let template = match manifest.str("kind") {
        "Pod" => return Ok(manifest.clone()),
        "CronJob" => manifest.at("spec.jobTemplate.spec.template"),
        "" => return Err(ManifestError::NoKind),
        _ => manifest.at("spec.template"),
    };
    if !template.has("spec") {
        return Err(ManifestError::NoTemplate(manifest.str("kind").to_string()));
    }
    let mut pod = template.clone();
    pod.set("apiVersion", "v1");
    pod.set("kind", "Pod");
    pod.child("metadata").set("namespace", manifest.str("metadata.namespace"));
    Ok(pod)
}

/// A sentence, then a line for each node.
fn shown(explanation: &Tree) -> String {
    let mut text = match (explanation.str("message"), explanation.str("node")) {
        ("", node) => format!("the pod would be scheduled to node {node}\n"),
        (message, _) => format!("{message}\n"),
    };
    if explanation.has("preemption") {
        let victims: Vec<&str> = explanation.list("preemption.victims").iter().filter_map(Tree::as_str).collect();
        text.push_str(&format!(
            "the pod would be scheduled to node {} after preempting {}\n",
            explanation.str("preemption.node"),
            victims.join(", ")
        ));
    }
    let mut rows: Vec<[String; 3]> = explanation.list("nodes").iter().map(|node| row(node.str("node"), node)).collect();
    if explanation.has("allNodes") {
        rows.push(row("(all)", explanation.at("allNodes")));
    }
    if rows.is_empty() {
        return text;
    }
    rows.insert(0, ["NODE", "PLUGIN", "REASON"].map(str::to_string));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    text.push('\n');
    for [node, plugin, reason] in &rows {
        text.push_str(&format!("{node:first$}   {plugin:second$}   {reason}\n"));
    }
    text
}

fn row(node: &str, verdict: &Tree) -> [String; 3] {
    let reasons: Vec<&str> = verdict.list("reasons").iter().filter_map(Tree::as_str).collect();
    [node.to_string(), verdict.str("plugin").to_string(), reasons.join(", ")]
}

#[cfg(test)]
mod tests {
    use api::{list, tree};

    use super::*;

    #[test]
    fn accepts_pod_names_like_kubectl() {
        let name = |words: &str| pod_name(&words.split(' ').map(str::to_string).collect::<Vec<_>>());
        for words in ["pod web", "po web", "pod/web", "web"] {
            assert_eq!(name(words).as_deref(), Some("web"), "{words}");
        }
        for words in ["node web", "node/web", "pod a b", "pod/"] {
            assert_eq!(name(words), None, "{words}");
        }
    }

    #[test]
    fn takes_the_pod_of_a_workload_from_its_template() {
        let spec = tree! { "containers" => list![tree! { "name" => "c" }] };
        let template = tree! { "metadata" => tree! { "labels" => tree! { "a" => "b" } }, "spec" => spec.clone() };
        let deployment = tree! {
            "kind" => "Deployment",
            "metadata" => tree! { "name" => "d", "namespace" => "n" },
            "spec" => tree! { "template" => template },
        };
        let pod = pod_of(&deployment).expect("a pod");
        assert_eq!((pod.str("kind"), pod.str("metadata.namespace"), pod.at("spec")), ("Pod", "n", &spec));
        assert_eq!(pod_of(&tree! { "kind" => "Secret" }), Err(ManifestError::NoTemplate("Secret".to_string())));
    }

    #[test]
    fn prints_verdicts_as_a_table() {
        let verdict = |node: &str, plugin: &str, reason: &str| {
            tree! { "node" => node, "plugin" => plugin, "reasons" => list![reason] }
        };
        let nodes = list![verdict("a", "NodeResourcesFit", "Insufficient cpu"), verdict("long", "NodeName", "no")];
        let explanation = shown(&tree! { "message" => "0/2 nodes are available", "nodes" => nodes });
        let want = "0/2 nodes are available\n\nNODE   PLUGIN             REASON\n\
                    a      NodeResourcesFit   Insufficient cpu\nlong   NodeName           no\n";
        assert_eq!(explanation, want);
        assert_eq!(shown(&tree! { "node" => "a" }), "the pod would be scheduled to node a\n");
    }
}
