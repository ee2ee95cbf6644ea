//! The keys of a ConfigMap as files.

use api::Tree;
use api::base64::{self, DecodeError};

use super::error::SourceError;
use super::{Kind, PlanFuture, VolumeContext, default_mode, mode};
use crate::model::pod;
use crate::objects::{CONFIG_MAPS, Objects};
use crate::volumes::files::{File, Files};
use crate::volumes::plan::{Medium, Plan};

pub(crate) const KIND: Kind = Kind { field: "configMap", directory: "kubernetes.io~configmap", refreshes: true, plan };

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let files = files(&context.host.objects, context.pod, context.source, default_mode(context.source)).await?;
        Ok(Plan::Files { files, backing: Medium::Disk, due: None })
    })
}

pub(crate) async fn files(
    objects: &Objects,
    pod: &Tree,
    source: &Tree,
    default_mode: u32,
) -> Result<Files, SourceError> {
    let name = source.str("name");
    let object = objects.get(CONFIG_MAPS, pod::namespace(pod), name).await?;
    match object {
        Some(object) => chosen(&object, source, default_mode),
        None if source.bool("optional") => Ok(Files::new()),
        None => Err(SourceError::NoConfigMap(name.to_string())),
    }
}

fn chosen(object: &Tree, source: &Tree, default_mode: u32) -> Result<Files, SourceError> {
    let data = |key: &str| -> Option<Result<Vec<u8>, DecodeError>> {
        let text = object.map("data").get(key).and_then(Tree::as_str).map(|text| Ok(text.as_bytes().to_vec()));
        text.or_else(|| object.map("binaryData").get(key).and_then(Tree::as_str).map(base64::decode))
    };
    let keys = object.map("data").keys().chain(object.map("binaryData").keys());
    let missing = |key: &str| SourceError::NoConfigMapKey(key.to_string());
    choose(keys, data, source, default_mode, missing)
}

/// All keys, or the keys of items, by the items' paths.
pub(crate) fn choose<'a>(
    keys: impl Iterator<Item = &'a str>,
    data: impl Fn(&str) -> Option<Result<Vec<u8>, DecodeError>>,
    source: &Tree,
    default_mode: u32,
    missing: impl Fn(&str) -> SourceError,
) -> Result<Files, SourceError> {
    let items = source.list("items");
    if items.is_empty() {
        return keys
            .filter_map(|key| Some((key, data(key)?)))
            .map(|(key, data)| Ok((key.to_string(), File::new(data?, default_mode))))
            .collect();
    }
    let mut files = Files::new();
    for item in items {
        match data(item.str("key")) {
            Some(data) => {
                files.insert(item.str("path").to_string(), File::new(data?, mode(item, default_mode)));
            }
            None if source.bool("optional") => {}
            None => return Err(missing(item.str("key"))),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_keys_as_files() {
        let object = api::yaml::decode(b"{data: {a: x, b: ''}, binaryData: {c: AAE=}}").unwrap();
        type ExpectedFiles<'a> = &'a [(&'a str, &'a [u8], u32)];
        let check = |source: &str, wanted: Result<ExpectedFiles<'_>, &str>| {
            let got = chosen(&object, &api::yaml::decode(source.as_bytes()).unwrap(), 0o644)
                .map_err(|error| error.to_string());
            let got = got.as_ref().map_err(String::as_str).map(|files| {
                files.iter().map(|(path, file)| (path.as_str(), &file.data[..], file.mode)).collect::<Vec<_>>()
            });
            assert_eq!(got, wanted.map(<[_]>::to_vec), "{source}");
        };
        check("{name: x}", Ok(&[("a", b"x", 0o644), ("b", b"", 0o644), ("c", &[0, 1], 0o644)]));
        check("{items: [{key: a, path: p/q, mode: 256}]}", Ok(&[("p/q", b"x", 0o400)]));
        check("{items: [{key: z, path: p}]}", Err("configmap references non-existent config key: z"));
        check("{optional: true, items: [{key: z, path: p}, {key: c, path: d}]}", Ok(&[("d", &[0, 1], 0o644)]));
    }
}
