//! Several sources in one directory: ConfigMaps, Secrets, the pod itself, tokens, trust bundles and certificates.

use api::Tree;

use super::error::SourceError;
use super::{Ask, Kind, Planning, config_map, default_mode, downward_api, secret};
use crate::volumes::files::{File, Files};
use crate::volumes::plan::Plan;
use crate::volumes::trust;

pub(crate) const KIND: Kind = Kind { field: "projected", directory: "kubernetes.io~projected", refreshes: true, plan };

fn plan<'a>(ask: &'a Ask<'a>) -> Planning<'a> {
    Box::pin(async move {
        let (mut files, mut errors, mut due) = (Files::new(), Vec::new(), None::<i64>);
        for (index, source) in ask.source.list("sources").iter().enumerate() {
            match project(ask, source, index).await {
                Ok((more, at)) => {
                    // Later sources win where two name one path.
                    files.extend(more);
                    due = due.into_iter().chain(at).min();
                }
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(SourceError::all(errors).into());
        }
        Ok(Plan::Files { files, backing: ask.host.in_memory(ask.pod), due })
    })
}

/// Files, and when they have to be renewed.
type Projected = Result<(Files, Option<i64>), SourceError>;

async fn project(ask: &Ask<'_>, source: &Tree, index: usize) -> Projected {
    let mode = default_mode(ask.source);
    if source.has("secret") {
        let source = source.at("secret");
        let files = secret::files(&ask.host.objects, ask.pod, source.str("name"), source, mode).await?;
        return Ok((files, None));
    }
    if source.has("configMap") {
        return Ok((config_map::files(&ask.host.objects, ask.pod, source.at("configMap"), mode).await?, None));
    }
    if source.has("downwardAPI") {
        let files = downward_api::files(ask.pod, source.at("downwardAPI"), mode, &ask.host.allocatable())?;
        return Ok((files, None));
    }
    if source.has("serviceAccountToken") {
        return token(ask, source.at("serviceAccountToken")).await;
    }
    if source.has("clusterTrustBundle") {
        return bundle(ask, source.at("clusterTrustBundle")).await;
    }
    if source.has("podCertificate") {
        return certificate(ask, source.at("podCertificate"), index).await;
    }
    let names: Vec<&str> = source.as_map().map(|map| map.keys().collect()).unwrap_or_default();
    Err(SourceError::UnknownSource(names.join(", ")))
}

async fn token(ask: &Ask<'_>, source: &Tree) -> Projected {
    let token = ask.host.tokens.get(&ask.host.client, &*ask.host.clock, ask.pod, source).await?;
    let file = private(ask, token.text.into_bytes());
    Ok((Files::from([(source.str("path").to_string(), file)]), Some(token.due)))
}

async fn bundle(ask: &Ask<'_>, source: &Tree) -> Projected {
    let anchors = trust::anchors(&ask.host.objects, source).await?;
    Ok((Files::from([(source.str("path").to_string(), private(ask, anchors))]), None))
}

async fn certificate(ask: &Ask<'_>, source: &Tree, index: usize) -> Projected {
    let has = ask.host.certificates.get(ask.host, ask.pod, (ask.name, index), source).await?;
    let parts = [
        ("credentialBundlePath", format!("{}{}", has.key, has.chain)),
        ("keyPath", has.key.clone()),
        ("certificateChainPath", has.chain.clone()),
    ];
    let wanted = parts.into_iter().filter(|(field, _)| !source.str(field).is_empty());
    let files = wanted.map(|(field, text)| (source.str(field).to_string(), private(ask, text.into_bytes())));
    Ok((files.collect(), Some(has.due)))
}

/// Only the pod's user or group reads it, where there is one.
fn private(ask: &Ask<'_>, data: Vec<u8>) -> File {
    let is_owned = ask.owner.fs_user.is_some() || ask.owner.fs_group.is_some();
    let mode = if is_owned { 0o600 } else { default_mode(ask.source) };
    File { data, mode, user: ask.owner.fs_user }
}
