//! Secret.

use api::field::{Errors, Path};
use api::{Map, Tree, base64, json};

use super::config_map::{MAX_BYTES, decoded_bytes, validate_frozen, validate_keys};
use crate::cells;
use crate::kind::{Context, Kind, column, selectable};
use crate::meta::validate_immutable;
use crate::pem;

/// Secret.
pub static KIND: Kind = Kind {
    columns: &[
        column("Name", "string", "name", 0),
        column("Type", "string", "", 0),
        column("Data", "string", "", 0),
        column("Age", "string", "", 0),
    ],
    selectable: &[selectable("type")],
    set_defaults,
    prepare_update,
    validate,
    validate_update,
    warnings,
    cells,
    ..Kind::namespaced("", "v1", "Secret", "secrets", "secret")
};

const DATA: Path<'static> = Path::root("data");
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// `stringData` is a write-only form of `data` without base64.
fn set_defaults(object: &mut Tree) {
    if let Some(Tree::Map(texts)) = object.remove("stringData") {
        for (key, text) in texts.iter() {
            object.child("data").set(key, base64::encode(text.as_str().unwrap_or("").as_bytes()));
        }
    }
    object.set_default("type", "Opaque");
}

fn prepare_update(object: &mut Tree, old: &Tree, _: &Context<'_>) {
    if object.str("type").is_empty() {
        object.set("type", old.str("type"));
    }
}

fn validate(object: &Tree, errors: &mut Errors) {
    let data = object.map("data");
    validate_keys(data, &DATA, errors);
    if decoded_bytes(data) > MAX_BYTES {
        errors.too_long(&DATA, MAX_BYTES);
    }
    validate_type(object, data, errors);
}

fn validate_type(object: &Tree, data: &Map, errors: &mut Errors) {
    match object.str("type") {
        "kubernetes.io/service-account-token" => validate_token(object, errors),
        "kubernetes.io/dockercfg" => validate_json(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_json(data, ".dockerconfigjson", errors),
        // One of the two suffices, and may be empty.
        "kubernetes.io/basic-auth" if !data.contains("username") && !data.contains("password") => {
            errors.required(&DATA.key("username"), "");
            errors.required(&DATA.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if data.str("ssh-privatekey").is_empty() => {
            errors.required(&DATA.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !data.contains(key)) {
                errors.required(&DATA.key(key), "");
            }
        }
        _ => {}
    }
}

fn validate_token(object: &Tree, errors: &mut Errors) {
    if object.map("metadata.annotations").str(ACCOUNT_NAME).is_empty() {
        errors.required(&Path::root("metadata").field("annotations").key(ACCOUNT_NAME), "");
    }
}

/// The value is never printed in the error: it is secret.
fn validate_json(data: &Map, key: &str, errors: &mut Errors) {
    if !data.contains(key) {
        return errors.required(&DATA.key(key), "");
    }
    let bytes = base64::decode(data.str(key)).unwrap_or_default();
    let problem = match json::decode(&bytes) {
        Err(error) => error.to_string(),
        Ok(Tree::Map(_) | Tree::Null) => return,
        Ok(other) => format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", noun(&other)),
    };
    errors.invalid(&DATA.key(key), "<secret contents redacted>", &problem);
}

fn noun(value: &Tree) -> &'static str {
    match value {
        Tree::Null => "null",
        Tree::Bool(_) => "bool",
        Tree::Int(_) | Tree::Float(_) => "number",
        Tree::Str(_) => "string",
        Tree::List(_) => "array",
        Tree::Map(_) => "object",
    }
}

fn validate_update(object: &Tree, old: &Tree, errors: &mut Errors) {
    validate_immutable(object.at("type"), old.at("type"), &Path::root("type"), errors);
    if old.bool("immutable") {
        validate_frozen(object, old, &["data"], errors);
    }
    validate(object, errors);
}

/// An unusable TLS pair is stored nevertheless. Whether key and certificate match is not checked, since that needs
/// cryptography.
fn warnings(object: &Tree, _: Option<&Tree>) -> Vec<String> {
    if object.str("type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let labels = |key: &str| -> Vec<String> {
        let bytes = base64::decode(object.map("data").str(key)).unwrap_or_default();
        pem::blocks(&String::from_utf8_lossy(&bytes)).into_iter().map(|block| block.label).collect()
    };
    let (certificates, keys) = (labels("tls.crt"), labels("tls.key"));
    let is_key = |label: &String| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let problem = if certificates.is_empty() {
        "tls: failed to find any PEM data in certificate input"
    } else if !certificates.iter().any(|label| label == "CERTIFICATE") {
        if certificates.len() == 1 && is_key(&certificates[0]) {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
             have been switched"
        } else {
            return vec![format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                certificates.join(" ")
            )];
        }
    } else if keys.is_empty() {
        "tls: failed to find any PEM data in key input"
    } else if !keys.iter().any(is_key) && keys.len() == 1 && keys[0] == "CERTIFICATE" {
        "tls: found a certificate rather than a key in the PEM for the private key"
    } else {
        return Vec::new();
    };
    vec![problem.to_string()]
}

fn cells(object: &Tree, now: i64) -> Vec<Tree> {
    let count = object.map("data").len() as i64;
    vec![cells::name(object), Tree::from(object.str("type")), Tree::Int(count), cells::age(object, now)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tree;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = tree! { "stringData" => tree! { "a" => "b" }, "data" => tree! { "c" => "ZA==" } };
        set_defaults(&mut secret);
        assert_eq!(secret, tree! { "data" => tree! { "a" => "Yg==", "c" => "ZA==" }, "type" => "Opaque" });
    }

    #[test]
    fn types_require_their_keys() {
        let check = |ty: &str, data: Tree, want: &[&str]| {
            let mut errors = Errors::new();
            validate(&tree! { "type" => ty, "data" => data }, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want, "{ty}");
        };
        check("kubernetes.io/tls", tree! { "tls.crt" => "" }, &["data[tls.key]: Required value"]);
        check("kubernetes.io/basic-auth", tree! { "password" => "" }, &[]);
        check("kubernetes.io/ssh-auth", tree! {}, &["data[ssh-privatekey]: Required value"]);
        let bad = base64::encode(b"[1]");
        check(
            "kubernetes.io/dockercfg",
            tree! { ".dockercfg" => bad },
            &[
                "data[.dockercfg]: Invalid value: \"<secret contents redacted>\": json: cannot unmarshal array into Go value of type map[string]interface {}",
            ],
        );
    }
}
