//! Several sources in one directory: ConfigMaps, Secrets, the pod itself, tokens, trust bundles and certificates.

use api::Tree;

use super::error::SourceError;
use super::{Kind, PlanFuture, VolumeContext, config_map, default_mode, downward_api, secret};
use crate::volumes::files::{File, Files};
use crate::volumes::plan::Plan;
use crate::volumes::trust;

pub(crate) const KIND: Kind = Kind { field: "projected", directory: "kubernetes.io~projected", refreshes: true, plan };

fn plan<'a>(context: &'a VolumeContext<'a>) -> PlanFuture<'a> {
    Box::pin(async move {
        let (mut files, mut errors, mut due) = (Files::new(), Vec::new(), None::<i64>);
        for (index, source) in context.source.list("sources").iter().enumerate() {
            match project(context, source, index).await {
                Ok((more, at)) => {
                    // Later sources override earlier ones with the same path.
                    files.extend(more);
                    due = due.into_iter().chain(at).min();
                }
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(SourceError::all(errors).into());
        }
        Ok(Plan::Files { files, backing: context.host.in_memory(context.pod), due })
    })
}

/// Files, and when they have to be renewed.
type ProjectionResult = Result<(Files, Option<i64>), SourceError>;

async fn project(context: &VolumeContext<'_>, source: &Tree, index: usize) -> ProjectionResult {
    let mode = default_mode(context.source);
    if source.has("secret") {
        let source = source.at("secret");
        let files = secret::files(&context.host.objects, context.pod, source.str("name"), source, mode).await?;
        return Ok((files, None));
    }
    if source.has("configMap") {
        return Ok((config_map::files(&context.host.objects, context.pod, source.at("configMap"), mode).await?, None));
    }
    if source.has("downwardAPI") {
        let files = downward_api::files(context.pod, source.at("downwardAPI"), mode, &context.host.allocatable())?;
        return Ok((files, None));
    }
    if source.has("serviceAccountToken") {
        return token(context, source.at("serviceAccountToken")).await;
    }
    if source.has("clusterTrustBundle") {
        return bundle(context, source.at("clusterTrustBundle")).await;
    }
    if source.has("podCertificate") {
        return certificate(context, source.at("podCertificate"), index).await;
    }
    let names: Vec<&str> = source.as_map().map(|map| map.keys().collect()).unwrap_or_default();
    Err(SourceError::UnknownSource(names.join(", ")))
}

async fn token(context: &VolumeContext<'_>, source: &Tree) -> ProjectionResult {
    let token = context.host.tokens.get(&context.host.client, &*context.host.clock, context.pod, source).await?;
    let file = private(context, token.text.into_bytes());
    Ok((Files::from([(source.str("path").to_string(), file)]), Some(token.due)))
}

async fn bundle(context: &VolumeContext<'_>, source: &Tree) -> ProjectionResult {
    let anchors = trust::anchors(&context.host.objects, source).await?;
    Ok((Files::from([(source.str("path").to_string(), private(context, anchors))]), None))
}

async fn certificate(context: &VolumeContext<'_>, source: &Tree, index: usize) -> ProjectionResult {
    let has = context.host.certificates.get(context.host, context.pod, (context.name, index), source).await?;
    let parts = [
        ("credentialBundlePath", format!("{}{}", has.key, has.chain)),
        ("keyPath", has.key.clone()),
        ("certificateChainPath", has.chain.clone()),
    ];
    let desired = parts.into_iter().filter(|(field, _)| !source.str(field).is_empty());
    let files = desired.map(|(field, text)| (source.str(field).to_string(), private(context, text.into_bytes())));
    Ok((files.collect(), Some(has.due)))
}

/// A file that only the pod's user or group can read, if it has one.
fn private(context: &VolumeContext<'_>, data: Vec<u8>) -> File {
    let is_owned = context.owner.fs_user.is_some() || context.owner.fs_group.is_some();
    let mode = if is_owned { 0o600 } else { default_mode(context.source) };
    File { data, mode, user: context.owner.fs_user }
}
