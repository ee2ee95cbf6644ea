//! `/runningpods/`: the pods of the runtime, whether they are desired or not.

use std::collections::BTreeMap;

use api::{Tree, tree};
use cri::{Container, ContainerFilter, ContainerState, ContainerStateValue, ListContainersRequest, Status};
use http::StatusCode;

use super::body::{json, text};
use super::{Host, ServerResponse, pod_list};

pub(crate) async fn respond(host: &dyn Host) -> ServerResponse {
    match running(host).await {
        Ok(containers) => json(&pod_list(pods(containers))),
        Err(status) => text(StatusCode::INTERNAL_SERVER_ERROR, status.message().to_string()),
    }
}

async fn running(host: &dyn Host) -> Result<Vec<Container>, Status> {
    let state = Some(ContainerStateValue { state: ContainerState::Running as i32 });
    let filter = Some(ContainerFilter { state, ..ContainerFilter::default() });
    Ok(host.runtime().list_containers(ListContainersRequest { filter }).await?.containers)
}

fn pods(containers: Vec<Container>) -> Vec<Tree> {
    let mut pods: BTreeMap<[String; 3], Vec<Tree>> = BTreeMap::new();
    for container in containers {
        let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
        let keys = ["io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.pod.uid"];
        let image = container.image.as_ref().map_or("", |image| &image.image);
        let name = label("io.kubernetes.container.name");
        let shown = tree! { "name" => name.as_str(), "image" => image, "resources" => tree! {} };
        pods.entry(keys.map(label)).or_default().push(shown);
    }
    let pod = |([namespace, name, uid], containers): ([String; 3], Vec<Tree>)| {
        tree! {
            "metadata" => tree! { "name" => name, "namespace" => namespace, "uid" => uid },
            "spec" => tree! { "containers" => containers },
            "status" => tree! {},
        }
    };
    pods.into_iter().map(pod).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_containers_by_pod() {
        let container = |pod: &str, name: &str| {
            let labels = [("io.kubernetes.pod.name", pod), ("io.kubernetes.container.name", name)];
            Container { labels: labels.map(|(key, value)| (key.into(), value.into())).into(), ..Default::default() }
        };
        let shown = pods(vec![container("b", "x"), container("a", "y"), container("b", "z")]);
        let names: Vec<String> = shown
            .iter()
            .map(|pod| {
                let containers = pod.list("spec.containers").iter().map(|container| container.str("name"));
                format!("{} {}", pod.str("metadata.name"), containers.collect::<Vec<_>>().join(","))
            })
            .collect();
        assert_eq!(names, ["a y", "b x,z"]);
    }
}
