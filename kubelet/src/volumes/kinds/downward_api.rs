//! Fields of the pod as files.

use api::Tree;

use super::error::SourceError;
use super::{Kind, PlanFuture, VolumeContext, default_mode, mode};
use crate::model::fields;
use crate::volumes::files::{File, Files};
use crate::volumes::plan::Plan;

pub(crate) const KIND: Kind =
    Kind { field: "downwardAPI", directory: "kubernetes.io~downward-api", refreshes: true, plan };

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let files = files(context.pod, context.source, default_mode(context.source), &context.host.allocatable())?;
        Ok(Plan::Files { files, backing: context.host.in_memory(context.pod), due: None })
    })
}

pub(crate) fn files(pod: &Tree, source: &Tree, default_mode: u32, allocatable: &Tree) -> Result<Files, SourceError> {
    let (mut files, mut errors) = (Files::new(), Vec::new());
    for item in source.list("items") {
        match value(pod, item, allocatable) {
            Ok(value) => {
                files.insert(item.str("path").to_string(), File::new(value, mode(item, default_mode)));
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(files) } else { Err(SourceError::all(errors)) }
}

fn value(pod: &Tree, item: &Tree, allocatable: &Tree) -> Result<String, SourceError> {
    if item.has("resourceFieldRef") {
        return Ok(fields::resource(pod, "", item.at("resourceFieldRef"), allocatable)?);
    }
    let path = item.str("fieldRef.fieldPath");
    fields::metadata(pod, path).ok_or_else(|| SourceError::FieldPath(path.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_pod_fields_as_files() {
        let pod = api::yaml::decode(
            b"{metadata: {name: p, labels: {a: b}}, spec: {containers: [{name: c, resources: {limits: {cpu: '2'}}}]}}",
        );
        let pod = pod.unwrap();
        let read = |source: &str| files(&pod, &api::yaml::decode(source.as_bytes()).unwrap(), 0o644, &Tree::Null);
        let good = "items: [{path: l, fieldRef: {fieldPath: metadata.labels}, mode: 256}, {path: r, resourceFieldRef: {containerName: c, resource: limits.cpu}}]";
        let wanted = [("l", File::new("a=\"b\"", 0o400)), ("r", File::new("2", 0o644))];
        assert_eq!(read(good).unwrap(), wanted.map(|(path, file)| (path.to_string(), file)).into());
        let bad = "items: [{path: l, fieldRef: {fieldPath: x}}, {path: r, resourceFieldRef: {containerName: d, resource: limits.cpu}}]";
        assert_eq!(read(bad).unwrap_err().to_string(), "[unsupported fieldPath: x, container d not found]");
    }
}
