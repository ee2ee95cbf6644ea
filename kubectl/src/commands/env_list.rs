//! `set env --list`: the variables of containers, with `--resolve` the values of references.

use std::collections::BTreeMap;

use api::Tree;

use super::set::{matches, no_match, pod_spec_path, set_variables};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::objects::{Info, Select, guess};
use crate::transport::Request;

/// Objects that references name, by kind and name: each is read once.
type Objects = BTreeMap<(&'static str, String), std::result::Result<Tree, String>>;

/// Prints the variables as they would be after the changes.
pub(super) async fn list_env(
    context: &Context,
    resources: Vec<String>,
    changes: &[(String, Option<Tree>)],
) -> Result<()> {
    let select = Select { args: resources, ..Select::of(context) };
    let pattern = context.flags.str("containers");
    for info in select.find(context).await?.infos()? {
        let Some(path) = pod_spec_path(&info.object) else { continue };
        let mut objects = Objects::new();
        let containers = info.object.at(path).list("containers");
        if !containers.iter().any(|one| matches(pattern, one.str("name"))) {
            context.note(&no_match(&info, pattern));
        }
        for container in containers.iter().filter(|one| matches(pattern, one.str("name"))) {
            let mut container = container.clone();
            set_variables(&mut container, changes);
            list_container(context, &info, &container, &mut objects).await?;
        }
    }
    Ok(())
}

async fn list_container(context: &Context, info: &Info, container: &Tree, objects: &mut Objects) -> Result<()> {
    context.print(&format!("# {} {}, container {}\n", info.resource.kind, info.name, container.str("name")))?;
    let mut failures: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for one in container.list("env") {
        let name = one.str("name");
        if !one.has("valueFrom") {
            context.print(&format!("{name}={}\n", one.str("value")))?;
            continue;
        }
        let source = one.at("valueFrom");
        if context.flags.bool("resolve") {
            match resolve(context, info, container, source, objects).await {
                Ok(value) => {
                    context.print(&format!("{name}={value}\n"))?;
                    continue;
                }
                Err(error) => failures.entry(error.to_string()).or_default().push(name),
            }
        }
        context.print(&format!("# {name} from {}\n", describe(source)))?;
    }
    for (error, names) in failures {
        context.note(&format!("error retrieving reference for {}: {error}", names.join(", ")));
    }
    Ok(())
}

/// A source of a value: its kind, and its fields.
fn source_of(source: &Tree) -> (&str, &Tree) {
    source.as_map().and_then(|map| map.iter().next()).unwrap_or(("", &Tree::Null))
}

fn describe(source: &Tree) -> String {
    let (kind, fields) = source_of(source);
    match kind {
        "secretKeyRef" => format!("secret {}, key {}", fields.str("name"), fields.str("key")),
        "configMapKeyRef" => format!("configmap {}, key {}", fields.str("name"), fields.str("key")),
        "fieldRef" => format!("field path {}", fields.str("fieldPath")),
        "resourceFieldRef" => {
            let container = match fields.str("containerName") {
                "" => String::new(),
                name => format!("{name}/"),
            };
            format!("resource field {container}{}", fields.str("resource"))
        }
        other => other.to_string(),
    }
}

async fn resolve(
    context: &Context,
    info: &Info,
    container: &Tree,
    source: &Tree,
    objects: &mut Objects,
) -> Result<String> {
    let (kind, fields) = source_of(source);
    match kind {
        "secretKeyRef" => key_of(context, info, "Secret", fields, objects).await,
        "configMapKeyRef" => key_of(context, info, "ConfigMap", fields, objects).await,
        "fieldRef" => field_of(&info.object, fields.str("fieldPath")),
        "resourceFieldRef" => resource_of(info, container, fields),
        other => Err(Error::new(format!("invalid valueFrom: {other}"))),
    }
}

/// The value of a key of a ConfigMap or Secret.
async fn key_of(
    context: &Context,
    info: &Info,
    kind: &'static str,
    fields: &Tree,
    objects: &mut Objects,
) -> Result<String> {
    let (name, key) = (fields.str("name"), fields.str("key"));
    let at = (kind, name.to_string());
    if !objects.contains_key(&at) {
        let path = format!("{}/{name}", guess("v1", kind).path(&info.namespace));
        let found = context.client().await?.tree(&Request::get(path)).await;
        objects.insert(at.clone(), found.map_err(|error| error.to_string()));
    }
    let object = match &objects[&at] {
        Ok(object) => object,
        Err(error) => return Err(Error::new(error.clone())),
    };
    let missing = || {
        Error::new(format!("key {key} not found in {} {name}", if kind == "Secret" { "secret" } else { "config map" }))
    };
    let value = object.at("data").get(key).and_then(Tree::as_str).ok_or_else(missing)?;
    if kind == "ConfigMap" {
        return Ok(value.to_string());
    }
    let bytes =
        api::base64::decode(value).map_err(|_| Error::new(format!("key {key} of secret {name} is not base64")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A field of the object, by the paths that variables may have.
fn field_of(object: &Tree, path: &str) -> Result<String> {
    for map in ["annotations", "labels"] {
        if let Some(key) = path.strip_prefix(&format!("metadata.{map}['")).and_then(|rest| rest.strip_suffix("']")) {
            return Ok(object.at("metadata").map(map).str(key).to_string());
        }
    }
    match path {
        "metadata.name" | "metadata.namespace" | "metadata.uid" => Ok(object.str(path).to_string()),
        _ => Err(Error::new(format!("unsupported fieldPath: {path}"))),
    }
}

/// A limit or request of a container; without one it is zero, as upstream prints it.
fn resource_of(info: &Info, own: &Tree, fields: &Tree) -> Result<String> {
    let name = fields.str("containerName");
    let spec = pod_spec_path(&info.object).map_or(&Tree::Null, |path| info.object.at(path));
    let found = spec.list("containers").iter().find(|one| one.str("name") == name);
    let container =
        if name.is_empty() { own } else { found.ok_or_else(|| Error::new(format!("container {name} not found")))? };
    let Some((field, resource)) = fields.str("resource").split_once('.') else {
        return Err(Error::new(format!("unsupported container resource : {}", fields.str("resource"))));
    };
    let value = container.at("resources").map(field).str(resource);
    let parsed = |text: &str| api::quantity::Quantity::parse(text).ok();
    let (Some(value), divisor) = (parsed(value), parsed(fields.str("divisor"))) else { return Ok("0".to_string()) };
    let divisor = divisor.map_or(1000, |divisor| divisor.milli_value()).max(1);
    // Rounded up, so that a small share is not nothing.
    let (milli, divisor) = (i128::from(value.milli_value()), i128::from(divisor));
    Ok(((milli + divisor - 1) / divisor).to_string())
}
