//! A directory with the lifetime of its pod: on disk, in memory or on huge pages.

use api::Tree;
use api::quantity::Quantity;

use super::{Kind, PlanFuture, VolumeContext};
use crate::model::pod;
use crate::volumes::plan::{Medium, Plan};

pub(crate) const KIND: Kind = Kind { field: "emptyDir", directory: "kubernetes.io~empty-dir", refreshes: false, plan };

/// A medium that the volume cannot have.
#[derive(Debug, thiserror::Error)]
enum MediumError {
    #[error("unknown storage medium {0:?}")]
    Unknown(String),
    #[error("medium: {0} can't be used if container requests multiple huge page sizes")]
    SeveralPageSizes(String),
    #[error("medium {0}: hugePages storage requested, but there is no resource request for huge pages")]
    NoRequest(String),
    #[error("{text}: {source}")]
    Quantity { text: String, source: api::quantity::Error },
    #[error("{0} is not a supported huge page size")]
    PageSize(String),
}

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move { Ok(Plan::Directory(medium(context.pod, context.source, context.host.memory())?)) })
}

fn medium(pod: &Tree, source: &Tree, node_memory: Option<u64>) -> Result<Medium, MediumError> {
    match source.str("medium") {
        "" => Ok(Medium::Disk),
        "Memory" => Ok(Medium::Memory(memory(pod, bytes(source.get("sizeLimit")), node_memory))),
        medium if medium.starts_with("HugePages") => huge_pages(pod, medium),
        medium => Err(MediumError::Unknown(medium.to_string())),
    }
}

/// The requested size, but never more than the pod's or the node's memory.
pub(crate) fn memory(pod: &Tree, wanted: Option<u64>, node_memory: Option<u64>) -> Option<u64> {
    [wanted, pod_limit(pod), node_memory].into_iter().flatten().filter(|bytes| *bytes > 0).min()
}

fn bytes(quantity: Option<&Tree>) -> Option<u64> {
    let text = match quantity? {
        Tree::Int(number) => number.to_string(),
        other => other.as_str()?.to_string(),
    };
    u64::try_from(Quantity::parse(&text).ok()?.value()).ok()
}

/// The memory limit of all containers of a pod together; None if one of them has no limit.
fn pod_limit(pod: &Tree) -> Option<u64> {
    let limit = |of: &Tree| bytes(of.map("resources.limits").get("memory"));
    if let Some(limit) = limit(pod.at("spec")) {
        return Some(limit);
    }
    let mut beside = 0u64;
    let mut most = 0u64;
    for container in pod.list("spec.initContainers") {
        let own = limit(container)?;
        if pod::is_sidecar(container) {
            beside = beside.saturating_add(own);
        }
        most = most.max(if pod::is_sidecar(container) { beside } else { beside.saturating_add(own) });
    }
    let mut together = beside;
    for container in pod.list("spec.containers") {
        together = together.saturating_add(limit(container)?);
    }
    Some(most.max(together))
}

fn huge_pages(pod: &Tree, medium: &str) -> Result<Medium, MediumError> {
    let wanted = medium.strip_prefix("HugePages-").map(page_bytes).transpose()?;
    let mut found = None;
    for container in pod::containers(pod) {
        for resource in container.map("resources.requests").keys() {
            let Some(size) = resource.strip_prefix("hugepages-") else { continue };
            let size = page_bytes(size)?;
            if wanted.is_some_and(|wanted| wanted != size) {
                continue;
            }
            if found.is_some_and(|found| found != size) {
                return Err(MediumError::SeveralPageSizes(medium.to_string()));
            }
            found = Some(size);
        }
    }
    let page_bytes = found.ok_or_else(|| MediumError::NoRequest(medium.to_string()))?;
    Ok(Medium::HugePages { page_bytes })
}

fn page_bytes(text: &str) -> Result<u64, MediumError> {
    let size = Quantity::parse(text).map_err(|source| MediumError::Quantity { text: text.to_string(), source })?;
    u64::try_from(size.value()).map_err(|_| MediumError::PageSize(text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_volume_is_limited_by_pod_and_node() {
        let check = |pod: &str, source: &str, wanted: Result<Medium, &str>| {
            let (pod, source) =
                (api::yaml::decode(pod.as_bytes()).unwrap(), api::yaml::decode(source.as_bytes()).unwrap());
            let got = medium(&pod, &source, Some(1000)).map_err(|error| error.to_string());
            assert_eq!(got.as_ref().map_err(String::as_str), wanted.as_ref().map_err(|text| *text), "{source:?}");
        };
        let limited = "spec: {containers: [{name: a, resources: {limits: {memory: '100'}}}, {name: b, resources: {limits: {memory: '50'}}}]}";
        let open = "spec: {containers: [{name: a, resources: {limits: {memory: '100'}}}, {name: b}]}";
        let whole = "spec: {resources: {limits: {memory: '70'}}, containers: [{name: b}]}";
        let init = "spec: {initContainers: [{name: i, resources: {limits: {memory: '300'}}}], containers: [{name: a, resources: {limits: {memory: '100'}}}]}";
        check(open, "{}", Ok(Medium::Disk));
        check(open, "{medium: Memory}", Ok(Medium::Memory(Some(1000))));
        check(open, "{medium: Memory, sizeLimit: 2k}", Ok(Medium::Memory(Some(1000))));
        check(open, "{medium: Memory, sizeLimit: '0'}", Ok(Medium::Memory(Some(1000))));
        check(limited, "{medium: Memory}", Ok(Medium::Memory(Some(150))));
        check(limited, "{medium: Memory, sizeLimit: 20}", Ok(Medium::Memory(Some(20))));
        check(whole, "{medium: Memory}", Ok(Medium::Memory(Some(70))));
        check(init, "{medium: Memory}", Ok(Medium::Memory(Some(300))));
        check(open, "{medium: Tape}", Err("unknown storage medium \"Tape\""));
        let pages = "spec: {containers: [{name: a, resources: {requests: {hugepages-2Mi: 4Mi}}}]}";
        check(pages, "{medium: HugePages}", Ok(Medium::HugePages { page_bytes: 2 << 20 }));
        check(pages, "{medium: HugePages-2Mi}", Ok(Medium::HugePages { page_bytes: 2 << 20 }));
        let none = "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages";
        check(pages, "{medium: HugePages-1Gi}", Err(none));
        let two = "spec: {containers: [{name: a, resources: {requests: {hugepages-2Mi: 4Mi, hugepages-1Gi: 1Gi}}}]}";
        let many = "medium: HugePages can't be used if container requests multiple huge page sizes";
        check(two, "{medium: HugePages}", Err(many));
        check(two, "{medium: HugePages-1Gi}", Ok(Medium::HugePages { page_bytes: 1 << 30 }));
    }
}
