//! The EncryptionConfiguration file: resources and their providers. Each error names the file, the line and the field;
//! secrets are never shown.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Tree;

use super::key::Cipher;
use crate::common::files::{Error, File};

pub(crate) struct Rule {
    pub resources: Vec<String>,
    /// The first provider encrypts; all of them decrypt.
    pub providers: Vec<Provider>,
}

#[derive(Clone)]
pub(super) enum Provider {
    Identity,
    Key { cipher: Cipher, name: String, secret: Vec<u8> },
    Kms { name: String, socket: PathBuf, timeout: Duration },
}

const VERSIONS: &[&str] = &["apiserver.config.k8s.io/v1"];

pub(super) fn read(path: &Path) -> Result<Vec<Rule>, Error> {
    of(&File::read(path, "EncryptionConfiguration", VERSIONS)?)
}

fn of(file: &File) -> Result<Vec<Rule>, Error> {
    file.only(&file.tree, "", &["apiVersion", "kind", "resources"])?;
    let list = file.tree.list("resources");
    if list.is_empty() {
        return Err(file.wrong("resources", "", "nothing is configured"));
    }
    list.iter().enumerate().map(|(at, one)| rule(file, one, &format!("resources[{at}]"))).collect()
}

fn rule(file: &File, one: &Tree, field: &str) -> Result<Rule, Error> {
    file.only(one, field, &["resources", "providers"])?;
    let resources = file.texts(one, &format!("{field}.resources"))?;
    if resources.is_empty() {
        return Err(file.wrong(&format!("{field}.resources"), "", "no resource is named"));
    }
    if let Some(unknown) = resources.iter().find(|pattern| !super::matches_resources(pattern)) {
        let why = "unknown resource; use RESOURCE, RESOURCE.GROUP, *.GROUP or *.*";
        return Err(file.wrong(&format!("{field}.resources"), unknown, why));
    }
    let mut all = Vec::new();
    for (at, provider) in one.list("providers").iter().enumerate() {
        all.extend(providers(file, provider, &format!("{field}.providers[{at}]"))?);
    }
    if all.is_empty() {
        return Err(file.wrong(&format!("{field}.providers"), "", "no provider is named"));
    }
    Ok(Rule { resources, providers: all })
}

/// A provider with several keys is several: each of them reads, and the first of all writes.
fn providers(file: &File, one: &Tree, field: &str) -> Result<Vec<Provider>, Error> {
    let map = one.as_map().filter(|map| map.len() == 1);
    let Some((name, inner)) = map.and_then(|map| map.iter().next()) else {
        return Err(file.wrong(field, "", "it must name one provider"));
    };
    let field = format!("{field}.{name}");
    match name {
        "identity" => Ok(vec![Provider::Identity]),
        "aescbc" => keys(file, inner, &field, Cipher::AesCbc),
        "aesgcm" => keys(file, inner, &field, Cipher::AesGcm),
        "secretbox" => keys(file, inner, &field, Cipher::SecretBox),
        "kms" => kms(file, inner, &field).map(|kms| vec![kms]),
        _ => Err(file.wrong(&field, name, "there are identity, aescbc, aesgcm, secretbox and kms")),
    }
}

fn keys(file: &File, inner: &Tree, field: &str, cipher: Cipher) -> Result<Vec<Provider>, Error> {
    file.only(inner, field, &["keys"])?;
    let list = inner.list("keys");
    if list.is_empty() {
        return Err(file.wrong(&format!("{field}.keys"), "", "a key is needed"));
    }
    list.iter().enumerate().map(|(at, one)| key(file, one, &format!("{field}.keys[{at}]"), cipher)).collect()
}

fn key(file: &File, one: &Tree, field: &str, cipher: Cipher) -> Result<Provider, Error> {
    file.only(one, field, &["name", "secret"])?;
    let name = one.str("name");
    if name.is_empty() || name.contains(':') {
        return Err(file.wrong(&format!("{field}.name"), name, "a name without a colon is needed"));
    }
    let bad = |why: String| file.wrong_secret(&format!("{field}.secret"), why);
    let secret = api::base64::decode(one.str("secret")).map_err(|_| bad("it must be base64".to_string()))?;
    if !cipher.key_bytes().contains(&secret.len()) {
        return Err(bad(format!("it has {} bytes; {:?} are possible", secret.len(), cipher.key_bytes())));
    }
    Ok(Provider::Key { cipher, name: name.to_string(), secret })
}

fn kms(file: &File, inner: &Tree, field: &str) -> Result<Provider, Error> {
    file.only(inner, field, &["apiVersion", "name", "endpoint", "timeout", "cachesize"])?;
    if inner.str("apiVersion") != "v2" {
        return Err(file.wrong(&format!("{field}.apiVersion"), inner.str("apiVersion"), "only v2 is there"));
    }
    if inner.has("cachesize") {
        return Err(file.wrong(&format!("{field}.cachesize"), "cachesize", "v2 has no such field"));
    }
    let name = inner.str("name");
    if name.is_empty() || name.contains(':') {
        return Err(file.wrong(&format!("{field}.name"), name, "a name without a colon is needed"));
    }
    let endpoint = inner.str("endpoint");
    let socket = endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/') || path.starts_with('@'));
    let Some(socket) = socket else {
        return Err(file.wrong(&format!("{field}.endpoint"), endpoint, "it must be unix:///PATH"));
    };
    Ok(Provider::Kms { name: name.to_string(), socket: socket.into(), timeout: timeout(file, inner, field)? })
}

fn timeout(file: &File, inner: &Tree, field: &str) -> Result<Duration, Error> {
    let text = inner.str("timeout");
    if text.is_empty() {
        return Ok(Duration::from_secs(3));
    }
    let nanos = api::time::parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
    let positive = nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos);
    positive.ok_or_else(|| file.wrong(&format!("{field}.timeout"), text, "it must be a time above 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Rule>, Error> {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n{text}");
        of(&File::parse(Path::new("e.yaml"), text.as_bytes(), "EncryptionConfiguration", VERSIONS)?)
    }

    fn one(provider: &str) -> String {
        format!("resources:\n- resources: [secrets]\n  providers:\n  - {provider}\n")
    }

    #[test]
    fn errors_name_the_field_and_hide_secrets() {
        let short = api::base64::encode(b"far too short");
        let cases = [
            ("resources: []\n".to_string(), "resources: nothing"),
            (one("rot13: {}"), "e.yaml:6: resources[0].providers[0].rot13: rot13"),
            (one("aesgcm: {keys: []}"), "resources[0].providers[0].aesgcm.keys: a key"),
            (
                one(&format!("aesgcm: {{keys: [{{name: a, secret: {short}}}]}}")),
                "aesgcm.keys[0].secret: it has 13 bytes",
            ),
            (one("aescbc: {keys: [{name: a, secret: '%%'}]}"), "aescbc.keys[0].secret: it must be base64"),
            (one("aescbc: {keys: [{name: 'a:b', secret: ''}]}"), "keys[0].name: a:b"),
            (one("kms: {name: a, endpoint: 'unix:///x'}"), "kms.apiVersion: only v2"),
            (one("kms: {apiVersion: v2, name: a, endpoint: 'tcp://x'}"), "kms.endpoint: tcp://x"),
            (one("identity: {}").replace("secrets", "secretz"), "e.yaml:4: resources[0].resources: secretz"),
        ];
        for (text, want) in cases {
            let error = parse(&text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(want), "{error:?} has no {want}");
            assert!(!error.contains(&short));
        }
    }

    #[test]
    fn keys_are_read_in_order() {
        let secret = api::base64::encode(&[1; 32]);
        let text =
            one(&format!("secretbox: {{keys: [{{name: new, secret: {secret}}}, {{name: old, secret: {secret}}}]}}"));
        let rules = parse(&format!("{text}  - identity: {{}}\n")).expect("a good file");
        let names: Vec<_> = rules[0]
            .providers
            .iter()
            .map(|provider| match provider {
                Provider::Key { name, .. } => name.as_str(),
                _ => "other",
            })
            .collect();
        assert_eq!(names, ["new", "old", "other"]);
    }
}
