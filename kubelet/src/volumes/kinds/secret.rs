//! The keys of a Secret as files, which never reach a disk.

use api::{Tree, base64};

use super::error::SourceError;
use super::{Kind, PlanFuture, VolumeContext, config_map, default_mode};
use crate::model::pod;
use crate::objects::{Objects, SECRETS};
use crate::volumes::files::Files;
use crate::volumes::plan::Plan;

pub(crate) const KIND: Kind = Kind { field: "secret", directory: "kubernetes.io~secret", refreshes: true, plan };

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let name = context.source.str("secretName");
        let files =
            files(&context.host.objects, context.pod, name, context.source, default_mode(context.source)).await?;
        Ok(Plan::Files { files, backing: context.host.in_memory(context.pod), due: None })
    })
}

pub(crate) async fn files(
    objects: &Objects,
    pod: &Tree,
    name: &str,
    source: &Tree,
    default_mode: u32,
) -> Result<Files, SourceError> {
    let object = objects.get(SECRETS, pod::namespace(pod), name).await?;
    match object {
        Some(object) => chosen(&object, source, default_mode),
        None if source.bool("optional") => Ok(Files::new()),
        None => Err(SourceError::NoSecret(name.to_string())),
    }
}

fn chosen(object: &Tree, source: &Tree, default_mode: u32) -> Result<Files, SourceError> {
    let data = |key: &str| object.map("data").get(key).and_then(Tree::as_str).map(base64::decode);
    let missing = |key: &str| SourceError::NoSecretKey(key.to_string());
    config_map::choose(object.map("data").keys(), data, source, default_mode, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_keys_as_files() {
        let object = api::yaml::decode(b"{data: {a: eA==, b: AAE=}}").unwrap();
        let read = |source: &str| chosen(&object, &api::yaml::decode(source.as_bytes()).unwrap(), 0o600);
        let files = read("{secretName: s}").unwrap();
        assert_eq!(
            files.iter().map(|(path, file)| (path.as_str(), &file.data[..])).collect::<Vec<_>>(),
            [("a", &b"x"[..]), ("b", &[0, 1])]
        );
        assert!(files.values().all(|file| file.mode == 0o600));
        assert_eq!(
            read("{items: [{key: z, path: p}]}").unwrap_err().to_string(),
            "references non-existent secret key: z"
        );
    }
}
