//! The downward API: fields and resources of a pod that its containers can read.

use api::quantity::Quantity;
use api::{Map, Tree};

use crate::model::pod;

/// The value of a field of the metadata; None for a path that names none.
pub(crate) fn metadata(pod: &Tree, path: &str) -> Option<String> {
    if let Some((of, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        return matches!(of, "metadata.annotations" | "metadata.labels").then(|| pod.map(of).str(key).to_string());
    }
    Some(match path {
        "metadata.annotations" | "metadata.labels" => lines(pod.map(path)),
        "metadata.name" | "metadata.namespace" | "metadata.uid" => pod.str(path).to_string(),
        _ => return None,
    })
}

/// A line an entry: `key="value"`.
fn lines(map: &Map) -> String {
    let lines: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}={}", api::quote::go_quote(value.as_str().unwrap_or_default())))
        .collect();
    lines.join("\n")
}

/// A `resourceFieldRef` that has no value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResourceError {
    #[error("container {0} not found")]
    NoContainer(String),
    #[error("unsupported container resource : {0}")]
    Unsupported(String),
    #[error("{text:?}: {source}")]
    Quantity { text: String, source: api::quantity::Error },
}

/// The value of a `resourceFieldRef`, in units of its divisor and rounded up. A container without a limit is limited by
/// the node's allocatable resources.
pub(crate) fn resource(pod: &Tree, own: &str, reference: &Tree, allocatable: &Tree) -> Result<String, ResourceError> {
    let name = match reference.str("containerName") {
        "" => own,
        name => name,
    };
    let container = pod::container(pod, name).ok_or_else(|| ResourceError::NoContainer(name.to_string()))?;
    let wanted = reference.str("resource");
    let unsupported = || ResourceError::Unsupported(wanted.to_string());
    let (of, resource) = wanted.split_once('.').ok_or_else(unsupported)?;
    let (is_limit, is_cpu) = (of == "limits", resource == "cpu");
    let known = matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    if !known || !matches!(of, "limits" | "requests") {
        return Err(unsupported());
    }
    let own = container.at("resources").map(of).get(resource);
    let value = own.or_else(|| allocatable.get(resource).filter(|_| is_limit)).map(quantity).transpose()?;
    let divisor = match reference.get("divisor").map(quantity).transpose()? {
        Some(divisor) if !divisor.is_zero() => divisor,
        _ => Quantity::new(1, api::quantity::Format::DecimalSI),
    };
    let parts = |quantity: &Quantity| if is_cpu { quantity.milli_value() } else { quantity.value() };
    let (value, divisor) = (value.as_ref().map_or(0, parts), parts(&divisor).max(1));
    Ok(i64::try_from((i128::from(value) + i128::from(divisor) - 1) / i128::from(divisor))
        .unwrap_or(i64::MAX)
        .to_string())
}

fn quantity(value: &Tree) -> Result<Quantity, ResourceError> {
    let text = match value {
        Tree::Int(number) => number.to_string(),
        other => other.as_str().unwrap_or_default().to_string(),
    };
    Quantity::parse(&text).map_err(|source| ResourceError::Quantity { text, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"
metadata: {name: p, namespace: n, uid: u, labels: {b: "2", a: "1"}, annotations: {x/y: "q\"\n\té\u00a0\u0001"}}
spec:
  containers:
  - {name: c, resources: {limits: {cpu: 1500m, memory: 100Mi}, requests: {cpu: 250m, ephemeral-storage: 1500}}}
"#;

    #[test]
    fn prints_metadata_like_upstream() {
        let pod = api::yaml::decode(POD.as_bytes()).unwrap();
        let cases = [
            ("metadata.name", Some("p")),
            ("metadata.uid", Some("u")),
            ("metadata.labels", Some("a=\"1\"\nb=\"2\"")),
            ("metadata.labels['b']", Some("2")),
            ("metadata.labels['c']", Some("")),
            ("metadata.annotations", Some(r#"x/y="q\"\n\té\u00a0\x01""#)),
            ("metadata.annotations['x/y']", Some("q\"\n\té\u{a0}\u{1}")),
            ("spec.nodeName", None),
            ("metadata.name['x']", None),
        ];
        for (path, wanted) in cases {
            assert_eq!(metadata(&pod, path).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn divides_resources_by_the_divisor() {
        let pod = api::yaml::decode(POD.as_bytes()).unwrap();
        let node = api::yaml::decode(b"{cpu: '4', memory: 8Gi, ephemeral-storage: 10Gi}").unwrap();
        let cases = [
            ("limits.cpu", "", Ok("2")),
            ("limits.cpu", "1m", Ok("1500")),
            ("limits.cpu", "0", Ok("2")),
            ("requests.cpu", "1", Ok("1")),
            ("limits.memory", "1Mi", Ok("100")),
            ("limits.memory", "1", Ok("104857600")),
            ("limits.ephemeral-storage", "1Gi", Ok("10")),
            ("requests.ephemeral-storage", "1k", Ok("2")),
            ("requests.memory", "", Ok("0")),
            ("limits.hugepages-2Mi", "", Ok("0")),
            ("limits.pods", "", Err("unsupported container resource : limits.pods")),
            ("cpu", "", Err("unsupported container resource : cpu")),
        ];
        for (name, divisor, wanted) in cases {
            let mut reference = api::tree! { "containerName" => "c", "resource" => name };
            if !divisor.is_empty() {
                reference.set("divisor", divisor);
            }
            let got = resource(&pod, "", &reference, &node).map_err(|error| error.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), wanted, "{name}");
        }
        let other = api::tree! { "containerName" => "x", "resource" => "limits.cpu" };
        let error = resource(&pod, "", &other, &node).expect_err("no container");
        assert_eq!(error.to_string(), "container x not found");
    }
}
