//! Reads metrics from the aggregated metrics APIs.

use std::collections::BTreeMap;
use std::pin::Pin;

use api::Tree;
use api::quantity::Quantity;
use api::query::percent_encode;
use api::time::{self, Timestamp};
use client::Client;
use thiserror::Error;

use crate::support::kinds::{Kinds, LookupError};

/// A measured value of a pod, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub value: i64,
    pub time: Timestamp,
    pub window_seconds: i64,
}

/// By pod name.
pub(super) type Samples = BTreeMap<String, Sample>;

/// Why metrics cannot be read.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum SourceError {
    #[error("unable to fetch metrics from {api}: {}", error_text(source, resource))]
    Fetch { api: &'static str, resource: String, source: client::Error },
    #[error(transparent)]
    Object(#[from] LookupError),
    #[error("no metrics returned from {0}")]
    Empty(&'static str),
    #[error("failed to get container metrics: container {container} not present in metrics for pod {pod}")]
    NoContainer { container: String, pod: String },
}

pub(crate) type FetchFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + Send + 'a>>;

/// A metric in a namespace, with selectors in query syntax.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query<'a> {
    pub namespace: &'a str,
    pub metric: &'a str,
    pub pods: &'a str,
    pub labels: &'a str,
}

pub(super) trait Source: Send + Sync {
    /// `cpu` or `memory` of pods, or of one container if `container` is not empty.
    fn resource<'a>(&'a self, query: Query<'a>, container: &'a str) -> FetchFuture<'a, Samples>;
    fn pods<'a>(&'a self, query: Query<'a>) -> FetchFuture<'a, Samples>;
    fn object<'a>(&'a self, query: Query<'a>, object: &'a Tree) -> FetchFuture<'a, i64>;
    fn external<'a>(&'a self, query: Query<'a>) -> FetchFuture<'a, Vec<i64>>;
}

pub(crate) struct ApiSource {
    pub client: Client,
    pub kinds: Kinds,
}

const RESOURCE: &str = "metrics.k8s.io";
const CUSTOM: &str = "custom.metrics.k8s.io";
const EXTERNAL: &str = "external.metrics.k8s.io";

/// The names of the APIs in messages.
const RESOURCE_API: &str = "resource metrics API";
const CUSTOM_API: &str = "custom metrics API";
const EXTERNAL_API: &str = "external metrics API";

impl ApiSource {
    async fn fetch(&self, group: &str, rest: &str, resource: &str) -> Result<Tree, SourceError> {
        let answer = async {
            let versions = self.client.get_path(&format!("/apis/{group}"), "").await?;
            let version = match versions.str("preferredVersion.version") {
                "" => "v1beta1",
                version => version,
            };
            self.client.get_path(&format!("/apis/{group}/{version}/{rest}"), "").await
        };
        let api = match group {
            RESOURCE => RESOURCE_API,
            CUSTOM => CUSTOM_API,
            _ => EXTERNAL_API,
        };
        answer.await.map_err(|source| SourceError::Fetch { api, resource: resource.to_string(), source })
    }
}

/// The text of an error; a group that is not served is reported as upstream's client does.
fn error_text(error: &client::Error, resource: &str) -> String {
    if error.is_path_not_found() {
        return format!("the server could not find the requested resource (get {resource})");
    }
    error.message()
}

impl Source for ApiSource {
    fn resource<'a>(&'a self, query: Query<'a>, container: &'a str) -> FetchFuture<'a, Samples> {
        Box::pin(async move {
            let path = format!("namespaces/{}/pods?labelSelector={}", query.namespace, percent_encode(query.pods));
            let list = self.fetch(RESOURCE, &path, "pods.metrics.k8s.io").await?;
            read_resource(&list, query.metric, container)
        })
    }

    fn pods<'a>(&'a self, query: Query<'a>) -> FetchFuture<'a, Samples> {
        Box::pin(async move {
            let selectors = format!(
                "labelSelector={}&metricLabelSelector={}",
                percent_encode(query.pods),
                percent_encode(query.labels)
            );
            let path = format!("namespaces/{}/pods/*/{}?{selectors}", query.namespace, query.metric);
            read_custom(&self.fetch(CUSTOM, &path, "pods.custom.metrics.k8s.io").await?)
        })
    }

    fn object<'a>(&'a self, query: Query<'a>, object: &'a Tree) -> FetchFuture<'a, i64> {
        Box::pin(async move {
            let (api_version, kind, name) = (object.str("apiVersion"), object.str("kind"), object.str("name"));
            let served = self.kinds.require(&self.client, api_version, kind).await?;
            let dot = if served.resource.group.is_empty() { "" } else { "." };
            let resource = format!("{}{dot}{}", served.resource.plural, served.resource.group);
            let place = if kind == "Namespace" {
                format!("namespaces/{name}/metrics")
            } else {
                format!("namespaces/{}/{resource}/{name}", query.namespace)
            };
            let path = format!("{place}/{}?metricLabelSelector={}", query.metric, percent_encode(query.labels));
            let list = self.fetch(CUSTOM, &path, &format!("{resource}.{CUSTOM}")).await?;
            let value = list.list("items").first().map(|item| milli(item.at("value")));
            value.ok_or(SourceError::Empty(CUSTOM_API))
        })
    }

    fn external<'a>(&'a self, query: Query<'a>) -> FetchFuture<'a, Vec<i64>> {
        Box::pin(async move {
            let path = format!(
                "namespaces/{}/{}?labelSelector={}",
                query.namespace,
                query.metric,
                percent_encode(query.labels)
            );
            let list = self.fetch(EXTERNAL, &path, &format!("{}.{EXTERNAL}", query.metric)).await?;
            let values: Vec<i64> = list.list("items").iter().map(|item| milli(item.at("value"))).collect();
            if values.is_empty() { Err(SourceError::Empty(EXTERNAL_API)) } else { Ok(values) }
        })
    }
}

/// The sum over the containers of a pod, or the value of one container. Pods with missing values are skipped.
fn read_resource(list: &Tree, resource: &str, container: &str) -> Result<Samples, SourceError> {
    if list.list("items").is_empty() {
        return Err(SourceError::Empty(RESOURCE_API));
    }
    let mut samples = Samples::new();
    for item in list.list("items") {
        let (namespace, name) = (item.str("metadata.namespace"), item.str("metadata.name"));
        let mut containers = item.list("containers").iter();
        if !container.is_empty() && !containers.any(|one| one.str("name") == container) {
            let pod = format!("{namespace}/{name}");
            return Err(SourceError::NoContainer { container: container.to_string(), pod });
        }
        let chosen = item.list("containers").iter().filter(|one| container.is_empty() || one.str("name") == container);
        let values: Option<Vec<i64>> = chosen.map(|one| one.map("usage").get(resource).map(milli)).collect();
        if let Some(values) = values.filter(|values| !values.is_empty()) {
            let window = time::parse_duration(item.str("window")).unwrap_or(0) / 1_000_000_000;
            let sample = Sample { value: values.iter().sum(), time: stamp(item), window_seconds: window };
            samples.insert(name.to_string(), sample);
        }
    }
    Ok(samples)
}

fn read_custom(list: &Tree) -> Result<Samples, SourceError> {
    let sample = |item: &Tree| {
        let window_seconds = item.int("windowSeconds").unwrap_or(60);
        let sample = Sample { value: milli(item.at("value")), time: stamp(item), window_seconds };
        (item.str("describedObject.name").to_string(), sample)
    };
    let samples: Samples = list.list("items").iter().map(sample).collect();
    if samples.is_empty() { Err(SourceError::Empty(CUSTOM_API)) } else { Ok(samples) }
}

fn stamp(item: &Tree) -> Timestamp {
    time::parse(item.str("timestamp")).unwrap_or_default()
}

fn milli(value: &Tree) -> i64 {
    let text = value.as_int().map_or_else(|| value.as_str().unwrap_or("").to_string(), |number| number.to_string());
    Quantity::parse(&text).map_or(0, |quantity| quantity.milli_value())
}

#[cfg(test)]
mod tests {
    use api::json::decode;

    use super::*;

    #[test]
    fn sums_container_metrics() {
        let containers =
            |cpu: &str| format!(r#"[{{"name":"a","usage":{{"cpu":"{cpu}"}}}},{{"name":"b","usage":{{"cpu":"50m"}}}}]"#);
        let item = |name: &str, cpu: &str| {
            let times = r#""timestamp":"1970-01-01T00:01:00Z","window":"30s""#;
            format!(r#"{{"metadata":{{"namespace":"n","name":"{name}"}},{times},"containers":{}}}"#, containers(cpu))
        };
        let list = format!(r#"{{"items":[{},{}]}}"#, item("x", "100m"), item("y", "1"));
        let list = decode(list.as_bytes()).expect("a list");
        let values = |container: &str| {
            let samples = read_resource(&list, "cpu", container).map_err(|error| error.to_string())?;
            Ok(samples.values().map(|sample| sample.value).collect::<Vec<_>>())
        };
        assert_eq!(values(""), Ok(vec![150, 1050]));
        assert_eq!(values("a"), Ok(vec![100, 1000]));
        let missing = "failed to get container metrics: container c not present in metrics for pod n/x";
        assert_eq!(values("c"), Err(missing.to_string()));
        let samples = read_resource(&list, "cpu", "").expect("samples");
        assert_eq!((samples["x"].time.seconds, samples["x"].window_seconds), (60, 30));
        assert_eq!(read_resource(&list, "memory", ""), Ok(Samples::new()));
        let nothing = read_resource(&decode(b"{}").expect("a list"), "cpu", "");
        assert_eq!(
            nothing.map_err(|error| error.to_string()),
            Err("no metrics returned from resource metrics API".to_string())
        );
    }

    #[test]
    fn reports_missing_metrics_apis() {
        let absent = client::Error::Status {
            code: 404,
            reason: "NotFound".to_string(),
            message: "the server could not find the requested resource".to_string(),
            causes: Vec::new(),
            object: String::new(),
        };
        let want = "the server could not find the requested resource (get pods.metrics.k8s.io)";
        assert_eq!(error_text(&absent, "pods.metrics.k8s.io"), want);
        assert_eq!(percent_encode("a=b,c in (d)"), "a%3Db%2Cc%20in%20%28d%29");
    }
}
