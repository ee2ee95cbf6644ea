//! A container's environment: from its own list, from ConfigMaps and Secrets, and from the services of its namespace.

use std::collections::BTreeMap;

use api::{Tree, base64};

use super::env_file;
use crate::model::env::{EnvFile, Variable, text};
use crate::model::expand::expand;
use crate::model::fields;
use crate::model::pod;
use crate::volumes::EnvFileError;

/// A variable that has no value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvError {
    #[error("{kind} \"{name}\" not found")]
    NotFound { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey { key: String, kind: &'static str, namespace: String, name: String },
    #[error("a secret's value is not base64: {:?}", .0.to_string())]
    Base64(#[from] base64::DecodeError),
    #[error(transparent)]
    Resource(#[from] fields::ResourceError),
    #[error("unsupported fieldPath: {0}")]
    FieldPath(String),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("environment variable key {key:?} not found in file {path:?}")]
    NoFileKey { key: String, path: String },
    #[error("unsupported source of an environment variable")]
    UnknownSource,
}

/// A file of variables that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileError {
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolume(String),
    #[error(transparent)]
    Unreadable(#[from] EnvFileError),
}

/// The objects and fields that a variable may refer to.
pub(crate) struct EnvSources<'a> {
    /// Gets an object: `configmaps` or `secrets`, and its name. None if it does not exist.
    pub(crate) object: &'a dyn Fn(&'static str, &str) -> Option<&'a Tree>,
    /// Files of volumes, by the volume's name and the path below it.
    pub(crate) files: &'a BTreeMap<(&'a str, &'a str), Result<EnvFile, FileError>>,
    /// Services of the pod's namespace, and the one of the API server.
    pub(crate) services: &'a [std::sync::Arc<Tree>],
    pub(crate) pod_ips: &'a [String],
    pub(crate) host_ips: &'a [String],
    pub(crate) node_name: &'a str,
    /// The values of limits that are not set.
    pub(crate) allocatable: &'a Tree,
}

/// The objects that a container's variables refer to: the resource and the name of each.
pub(crate) fn references(spec: &Tree) -> Vec<(&'static str, String)> {
    let named = |from: &Tree, fields: [(&str, &'static str); 2]| -> Vec<(&'static str, String)> {
        let found = fields.into_iter().filter_map(|(field, resource)| Some((resource, from.get(field)?)));
        found.map(|(resource, reference)| (resource, reference.str("name").to_string())).collect()
    };
    let sources = spec.list("envFrom").iter();
    let sources = sources.flat_map(|from| named(from, [("configMapRef", "configmaps"), ("secretRef", "secrets")]));
    let single = spec.list("env").iter().map(|variable| variable.at("valueFrom"));
    let keys = [("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")];
    sources.chain(single.flat_map(|from| named(from, keys))).collect()
}

/// Variables in order; a later one replaces an earlier one of the same name.
pub(crate) fn build_env(pod: &Tree, spec: &Tree, known: &EnvSources<'_>) -> Result<Vec<Variable>, EnvError> {
    let mut made = Variables::default();
    for source in spec.list("envFrom") {
        from_source(source, known, &mut made)?;
    }
    let services = service_variables(pod, known.services);
    for variable in spec.list("env") {
        let name = variable.str("name");
        let value = match variable.get("valueFrom") {
            None => {
                let before = |name: &str| made.text(name).or_else(|| services.get(name).cloned());
                Some(expand(variable.str("value"), before).into_bytes())
            }
            Some(from) => value_from(pod, spec, from, known)?,
        };
        if let Some(value) = value {
            made.set(name, value);
        }
    }
    // Services come last: variables of the container override them.
    for (name, value) in services {
        if made.text(&name).is_none() {
            made.set(&name, value.into_bytes());
        }
    }
    Ok(made.0)
}

#[derive(Default)]
struct Variables(Vec<Variable>);

impl Variables {
    fn text(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(known, _)| known == name).map(text)
    }

    fn set(&mut self, name: &str, value: Vec<u8>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name.to_string(), value)),
        }
    }
}

fn from_source(source: &Tree, known: &EnvSources<'_>, made: &mut Variables) -> Result<(), EnvError> {
    let prefix = source.str("prefix");
    for (field, resource, word) in [("configMapRef", "configmaps", "configmap"), ("secretRef", "secrets", "secret")] {
        let Some(reference) = source.get(field) else { continue };
        let name = reference.str("name");
        let Some(object) = (known.object)(resource, name) else {
            if reference.bool("optional") {
                continue;
            }
            return Err(EnvError::NotFound { kind: word, name: name.to_string() });
        };
        for (key, value) in object.map("data").iter() {
            made.set(&format!("{prefix}{key}"), plain(resource, value)?);
        }
    }
    Ok(())
}

fn plain(resource: &str, value: &Tree) -> Result<Vec<u8>, EnvError> {
    let text = value.as_str().unwrap_or_default();
    if resource == "configmaps" {
        return Ok(text.as_bytes().to_vec());
    }
    Ok(base64::decode(text)?)
}

/// None if the target of an optional reference does not exist.
fn value_from(pod: &Tree, spec: &Tree, from: &Tree, known: &EnvSources<'_>) -> Result<Option<Vec<u8>>, EnvError> {
    let bytes = |text: String| Some(text.into_bytes());
    if let Some(field) = from.get("fieldRef") {
        return field_ref(pod, field.str("fieldPath"), known).map(bytes);
    }
    if let Some(resource) = from.get("resourceFieldRef") {
        return Ok(bytes(fields::resource(pod, spec.str("name"), resource, known.allocatable)?));
    }
    for (field, resource, word) in
        [("configMapKeyRef", "configmaps", "configmap"), ("secretKeyRef", "secrets", "secret")]
    {
        let Some(reference) = from.get(field) else { continue };
        return key_ref(pod, reference, resource, word, known);
    }
    if let Some(reference) = from.get("fileKeyRef") {
        return file_ref(pod, reference, known).map(|value| value.map(String::into_bytes));
    }
    Err(EnvError::UnknownSource)
}

fn key_ref(
    pod: &Tree,
    reference: &Tree,
    resource: &'static str,
    word: &'static str,
    known: &EnvSources<'_>,
) -> Result<Option<Vec<u8>>, EnvError> {
    let (name, key) = (reference.str("name"), reference.str("key"));
    let optional = reference.bool("optional");
    let Some(object) = (known.object)(resource, name) else {
        return if optional { Ok(None) } else { Err(EnvError::NotFound { kind: word, name: name.to_string() }) };
    };
    match object.map("data").get(key) {
        Some(value) => plain(resource, value).map(Some),
        None if optional => Ok(None),
        None => {
            let kind = if resource == "secrets" { "Secret" } else { "ConfigMap" };
            let (key, namespace) = (key.to_string(), pod::namespace(pod).to_string());
            Err(EnvError::NoKey { key, kind, namespace, name: name.to_string() })
        }
    }
}

/// The value of a key in a file. As upstream does, an empty value counts as a missing key.
fn file_ref(pod: &Tree, reference: &Tree, known: &EnvSources<'_>) -> Result<Option<String>, EnvError> {
    let (volume, path, key) = (reference.str("volumeName"), reference.str("path"), reference.str("key"));
    let file = known.files.get(&(volume, path)).cloned().unwrap_or(Err(EnvFileError.into()))?;
    let value = env_file::value(&file.text, key).map_err(|error| {
        // A file may contain a secret: events only report that it is invalid.
        tracing::warn!(pod = pod::name(pod), volume, path, why = %error, "failed to read environment file");
        FileError::from(EnvFileError)
    })?;
    match value.filter(|value| !value.is_empty()) {
        None if !reference.bool("optional") => Err(EnvError::NoFileKey { key: key.to_string(), path: file.path }),
        value => Ok(value),
    }
}

/// A field of the pod.
fn field_ref(pod: &Tree, path: &str, known: &EnvSources<'_>) -> Result<String, EnvError> {
    let first = |addresses: &[String]| addresses.first().cloned().unwrap_or_default();
    let text = match path {
        "status.podIP" => first(known.pod_ips),
        "status.podIPs" => known.pod_ips.join(","),
        "status.hostIP" => first(known.host_ips),
        "status.hostIPs" => known.host_ips.join(","),
        "spec.nodeName" => known.node_name.to_string(),
        "spec.serviceAccountName" => pod.str(path).to_string(),
        _ => return fields::metadata(pod, path).ok_or_else(|| EnvError::FieldPath(path.to_string())),
    };
    Ok(text)
}

/// The names that links between containers used to have: `NAME_SERVICE_HOST` and the like.
fn service_variables(pod: &Tree, services: &[std::sync::Arc<Tree>]) -> BTreeMap<String, String> {
    let links = pod.at("spec").get("enableServiceLinks").and_then(Tree::as_bool).unwrap_or(true);
    let is_master =
        |service: &Tree| service.str("metadata.namespace") == "default" && service.str("metadata.name") == "kubernetes";
    let own = |service: &Tree| links && service.str("metadata.namespace") == pod::namespace(pod);
    let mut variables = BTreeMap::new();
    // The API server's service comes first: a service of the namespace may have the same variables.
    let (masters, others): (Vec<_>, Vec<_>) = services.iter().partition(|service| is_master(service));
    let chosen = masters.into_iter().chain(others.into_iter().filter(|service| own(service)));
    for service in chosen {
        add_service(service, &mut variables);
    }
    variables
}

fn add_service(service: &Tree, variables: &mut BTreeMap<String, String>) {
    let address = service.str("spec.clusterIP");
    let ports = service.list("spec.ports");
    let Some(first) = ports.first().filter(|_| !matches!(address, "" | "None")) else { return };
    let upper = |text: &str| text.to_ascii_uppercase().replace('-', "_");
    let name = upper(service.str("metadata.name"));
    let number = |port: &Tree| port.int("port").unwrap_or(0).to_string();
    let url = |port: &Tree| {
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_string() };
        format!("{}://{host}:{}", protocol(port).to_ascii_lowercase(), number(port))
    };
    variables.insert(format!("{name}_SERVICE_HOST"), address.to_string());
    variables.insert(format!("{name}_SERVICE_PORT"), number(first));
    variables.insert(format!("{name}_PORT"), url(first));
    for port in ports {
        if !port.str("name").is_empty() {
            variables.insert(format!("{name}_SERVICE_PORT_{}", upper(port.str("name"))), number(port));
        }
        let prefix = format!("{name}_PORT_{}_{}", number(port), protocol(port));
        variables.insert(prefix.clone(), url(port));
        variables.insert(format!("{prefix}_PROTO"), protocol(port).to_ascii_lowercase());
        variables.insert(format!("{prefix}_PORT"), number(port));
        variables.insert(format!("{prefix}_ADDR"), address.to_string());
    }
}

fn protocol(port: &Tree) -> &str {
    match port.str("protocol") {
        "" => "TCP",
        protocol => protocol,
    }
}
