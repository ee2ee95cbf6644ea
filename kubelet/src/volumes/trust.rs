//! Trust anchors of ClusterTrustBundles, each once.

use std::collections::BTreeSet;

use api::selector::Selector;
use api::{Tree, base64};

use crate::objects::{ObjectError, Objects, TRUST_BUNDLES};

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Trust anchors that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {0:?} not found")]
    NotFound(String),
    #[error("while parsing label selector: {0}")]
    Selector(#[from] api::selector::Error),
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoMatch,
}

pub(crate) async fn anchors(objects: &Objects, source: &Tree) -> Result<Vec<u8>, TrustError> {
    let all = objects.all(TRUST_BUNDLES).await?;
    Ok(merged(choose(&all, source)?).into_bytes())
}

/// The bundle of a name, or the bundles of a signer that labels select.
fn choose<'a>(all: &'a [Tree], source: &Tree) -> Result<Vec<&'a Tree>, TrustError> {
    let optional = source.bool("optional");
    if source.has("name") {
        let name = source.str("name");
        let found = all.iter().find(|bundle| bundle.str("metadata.name") == name);
        return match found {
            Some(bundle) => Ok(vec![bundle]),
            None if optional => Ok(Vec::new()),
            None => Err(TrustError::NotFound(name.to_string())),
        };
    }
    let selector = match source.get("labelSelector") {
        Some(selector) if !selector.is_null() => Selector::from_object(selector)?,
        _ => Selector::nothing(),
    };
    let signer = source.str("signerName");
    let is_meant =
        |bundle: &&Tree| bundle.str("spec.signerName") == signer && selector.matches_map(bundle.map("metadata.labels"));
    let found: Vec<&Tree> = all.iter().filter(is_meant).collect();
    if found.is_empty() && !optional {
        return Err(TrustError::NoMatch);
    }
    Ok(found)
}

fn merged(bundles: Vec<&Tree>) -> String {
    let mut anchors = BTreeSet::new();
    for bundle in bundles {
        for block in bundle.str("spec.trustBundle").split(BEGIN).skip(1) {
            let text: String = block.split(END).next().unwrap_or_default().split_whitespace().collect();
            anchors.extend(base64::decode(&text));
        }
    }
    anchors.iter().map(|anchor| pem(anchor)).collect()
}

fn pem(der: &[u8]) -> String {
    let text = base64::encode(der);
    let mut out = format!("{BEGIN}\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(END);
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(name: &str, signer: &str, labels: &str, anchors: &[&[u8]]) -> Tree {
        let text: String = anchors.iter().map(|anchor| pem(anchor)).collect();
        let mut bundle =
            api::yaml::decode(format!("{{metadata: {{name: '{name}', labels: {labels}}}}}").as_bytes()).unwrap();
        bundle.child("spec").set("signerName", signer);
        bundle.child("spec").set("trustBundle", format!("a comment\n{text}"));
        bundle
    }

    #[test]
    fn selects_and_merges_bundles() {
        let all = [
            bundle("a", "", "{}", &[b"one", b"two"]),
            bundle("s:b", "s", "{x: w}", &[b"two", b"three"]),
            bundle("s:c", "s", "{x: z}", &[&[7; 100]]),
        ];
        let check = |source: &str, wanted: Result<&[&[u8]], &str>| {
            let source = api::yaml::decode(source.as_bytes()).unwrap();
            let wanted = wanted.map(|anchors| anchors.iter().map(|anchor| pem(anchor)).collect::<String>());
            let got = choose(&all, &source).map(merged).map_err(|error| error.to_string());
            assert_eq!(got.as_ref().map_err(String::as_str), wanted.as_ref().map_err(|text| *text), "{source:?}");
        };
        check("{name: a}", Ok(&[b"one", b"two"]));
        check("{name: z, optional: true}", Ok(&[]));
        check(
            "{name: z}",
            Err("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"z\" not found"),
        );
        check("{signerName: s, labelSelector: {}}", Ok(&[&[7; 100], b"three", b"two"]));
        check("{signerName: s, labelSelector: {matchLabels: {x: w}}}", Ok(&[b"three", b"two"]));
        let none = "combination of signerName and labelSelector matched zero ClusterTrustBundles";
        check("{signerName: s}", Err(none));
        check("{signerName: t, labelSelector: {}}", Err(none));
        check("{signerName: t, labelSelector: {}, optional: true}", Ok(&[]));
    }
}
