//! ApplySets: a parent object remembers which types and namespaces have members, members have a label with the set's ID,
//! and what is no longer applied is deleted.

use std::collections::BTreeSet;

use api::{Tree, json, tree};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;

use super::prune::delete_pruned;
use super::{Plan, server_side};
use crate::commands::common::DryRun;
use crate::commands::hash::sha256_bytes;
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::objects::{Info, ListQuery, guess, list_pages, split_list};
use crate::transport::Request;

const TOOLING: &str = "applyset.kubernetes.io/tooling";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const RESOURCES: &str = "applyset.kubernetes.io/contains-group-resources";
const KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
const ID: &str = "applyset.kubernetes.io/id";
const PART_OF: &str = "applyset.kubernetes.io/part-of";
const PARENT_TYPE: &str = "applyset.kubernetes.io/is-parent-type";
const TOOL: &str = "kubectl";
const TOOL_VERSION: &str = "v1.37.0";
const MANAGER: &str = "kubectl-applyset";

/// The types and namespaces that may have members.
#[derive(Debug, Default, Clone)]
struct Scope {
    /// By group and kind.
    kinds: BTreeSet<(String, String)>,
    namespaces: BTreeSet<String>,
}

/// A set, by its parent object.
pub(super) struct ApplySet {
    resource: Resource,
    namespace: String,
    name: String,
    /// What the parent said before this command.
    before: Scope,
    after: Scope,
}

fn go_quote(text: &str) -> String {
    api::field::go_quote(text)
}

fn kind_name((group, kind): &(String, String)) -> String {
    if group.is_empty() { kind.clone() } else { format!("{kind}.{group}") }
}

impl ApplySet {
    /// The set of `--applyset`, `[RESOURCE][.GROUP]/NAME`; a Secret if no resource is named.
    pub(super) async fn parse(context: &Context, text: &str) -> Result<ApplySet> {
        let (resource, name) = match text.split_once('/') {
            Some((resource, name)) => (Some(resource), name),
            None => (None, text),
        };
        let invalid = |error: Error| Error::new(format!("invalid parent reference {}: {error}", go_quote(text)));
        if name.is_empty() {
            return Err(invalid(Error::new("name cannot be blank")));
        }
        let resource = match resource {
            Some(text) => {
                let (plural, group) = text.split_once('.').unwrap_or((text, ""));
                let missing = || Error::new(format!("no matches for {group}/, Resource={plural}"));
                context.resolve(text).await.map_err(|_| invalid(missing()))?
            }
            None => guess("v1", "Secret"),
        };
        let mut namespace = String::new();
        // The namespace of a kubeconfig is no statement about where the parent is.
        if resource.is_namespaced && context.flags.changed("namespace") {
            namespace = context.namespace()?.0;
        }
        let (before, after) = Default::default();
        Ok(ApplySet { resource, namespace, name: name.to_string(), before, after })
    }

    /// `secrets./web`, as errors name the parent.
    fn label(&self) -> String {
        format!("{}.{}/{}", self.resource.plural, self.resource.group, self.name)
    }

    fn path(&self) -> String {
        self.resource.object_path(&self.namespace, &self.name)
    }

    /// The value of the members' label.
    fn id(&self) -> String {
        let text =
            [&self.name, &self.namespace, &self.resource.kind, &self.resource.group].map(String::as_str).join(".");
        format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(sha256_bytes(text.as_bytes())))
    }

    fn is_built_in(&self) -> bool {
        let resource = &self.resource;
        resource.group.is_empty() && resource.version == "v1" && matches!(&*resource.plural, "secrets" | "configmaps")
    }

    /// Whether such an object can be a parent.
    pub(super) async fn check(&self, context: &Context) -> Result<()> {
        let mut errors = Vec::new();
        if self.resource.is_namespaced && self.namespace.is_empty() {
            errors.push(Error::new("namespace is required to use namespace-scoped ApplySet"));
        }
        if !self.is_built_in() && !self.is_permitted(context).await? {
            let resource = &self.resource;
            let text = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
            errors.push(Error::new(format!("resource {} is not permitted as an ApplySet parent", go_quote(&text))));
        }
        if errors.is_empty() { Ok(()) } else { message(Error::Many(errors).to_string()) }
    }

    /// Definitions have a label that permits their objects to be parents.
    async fn is_permitted(&self, context: &Context) -> Result<bool> {
        let definitions = guess("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let query = ListQuery { selector: PARENT_TYPE.to_string(), ..ListQuery::default() };
        let mut is_permitted = false;
        list_pages(context, &definitions, "", &query, async |page| {
            is_permitted |= split_list(&definitions, page).iter().any(|info| info.name == self.resource.qualified());
            Ok(())
        })
        .await
        .map_err(|error| error.with_context("identifying allowed custom resource parent types"))?;
        Ok(is_permitted)
    }

    /// Makes objects members.
    pub(super) fn add_label(&self, infos: &mut [Info]) -> Result<()> {
        let id = self.id();
        for info in infos {
            if info.object.at("metadata.labels").has(PART_OF) {
                return message(format!("ApplySet label {} already set in input data", go_quote(PART_OF)));
            }
            info.object.child("metadata.labels").set(PART_OF, &id);
        }
        Ok(())
    }

    /// Reads the parent, and extends its scope before anything is applied: an interrupted command leaves no member that
    /// the parent does not cover.
    pub(super) async fn begin(&mut self, context: &Context, plan: &Plan, infos: &[Info]) -> Result<()> {
        self.before = self.read_parent(context).await?;
        for info in infos {
            self.after.kinds.insert((info.resource.group.clone(), info.resource.kind.clone()));
            if info.resource.is_namespaced && !info.namespace.is_empty() {
                self.after.namespaces.insert(info.namespace.clone());
            }
        }
        let both = Scope {
            kinds: &self.before.kinds | &self.after.kinds,
            namespaces: &self.before.namespaces | &self.after.namespaces,
        };
        self.write_parent(context, plan, &both).await
    }

    async fn read_parent(&self, context: &Context) -> Result<Scope> {
        let label = go_quote(&self.label());
        let parent = match context.client().await?.tree(&Request::get(self.path())).await {
            Ok(parent) => parent,
            Err(error) if error.is_not_found() && self.is_built_in() => return Ok(Scope::default()),
            Err(error) if error.is_not_found() => {
                return message("custom resource ApplySet parents cannot be created automatically");
            }
            Err(error) => return message(format!("failed to fetch ApplySet parent object {label}: {error}")),
        };
        let annotations = parent.at("metadata.annotations");
        let Some(tooling) = annotations.get(TOOLING).and_then(Tree::as_str) else {
            return message(format!(
                "ApplySet parent object {label} already exists and is missing required annotation {}",
                go_quote(TOOLING)
            ));
        };
        let tool = tooling.rsplit_once('/').map_or(tooling, |(tool, _)| tool);
        if tool != TOOL {
            let tool = go_quote(tool);
            return message(format!(
                "ApplySet parent object {label} already exists and is managed by tooling {tool} instead of \"{TOOL}\""
            ));
        }
        let want = self.id();
        match parent.at("metadata.labels").get(ID).and_then(Tree::as_str) {
            None => message(format!("ApplySet parent object {label} exists and does not have required label {ID}")),
            Some(id) if id != want => message(format!(
                "ApplySet parent object {label} exists and has incorrect value for label {} (got: {id}, want: {want})",
                go_quote(ID)
            )),
            Some(_) => self
                .scope(context, annotations)
                .await
                .map_err(|error| Error::new(format!("parsing ApplySet annotation on {label}: {error}"))),
        }
    }

    async fn scope(&self, context: &Context, annotations: &Tree) -> Result<Scope> {
        let texts = |key: &str| {
            let text = annotations.get(key).and_then(Tree::as_str);
            text.map(|text| text.split(',').filter(|part| !part.is_empty()).map(str::to_string).collect::<Vec<_>>())
        };
        let mut scope = Scope::default();
        match (texts(KINDS), texts(RESOURCES).filter(|list| !list.is_empty())) {
            (Some(kinds), _) => {
                for text in kinds {
                    let (kind, group) = text.split_once('.').unwrap_or((&text, ""));
                    scope.kinds.insert((group.to_string(), kind.to_string()));
                }
            }
            // What sets had before kinds were kept.
            (None, Some(resources)) => {
                for text in resources {
                    let resource = context.resolve(&text).await.map_err(|error| {
                        Error::new(format!("invalid group resource in {} annotation: {error}", go_quote(RESOURCES)))
                    })?;
                    scope.kinds.insert((resource.group, resource.kind));
                }
            }
            (None, None) => {
                return message(format!(
                    "kubectl requires the {} annotation to be set on all ApplySet parent objects",
                    go_quote(KINDS)
                ));
            }
        }
        for kind in &scope.kinds {
            member_resource(context, kind).await?;
        }
        scope.namespaces.extend(texts(NAMESPACES).unwrap_or_default());
        if self.resource.is_namespaced {
            scope.namespaces.insert(self.namespace.clone());
        }
        Ok(scope)
    }

    fn parent(&self, scope: &Scope) -> Tree {
        let kinds: Vec<String> = scope.kinds.iter().map(kind_name).collect();
        let kinds: BTreeSet<String> = kinds.into_iter().collect();
        let others = scope.namespaces.iter().filter(|name| **name != self.namespace);
        let annotations = tree! {
            TOOLING => format!("{TOOL}/{TOOL_VERSION}"),
            KINDS => kinds.into_iter().collect::<Vec<_>>().join(","),
            NAMESPACES => others.cloned().collect::<Vec<_>>().join(","),
        };
        let mut metadata =
            tree! { "name" => &self.name, "annotations" => annotations, "labels" => tree! { ID => self.id() } };
        if !self.namespace.is_empty() {
            metadata.set("namespace", &self.namespace);
        }
        tree! { "apiVersion" => self.resource.api_version(), "kind" => &self.resource.kind, "metadata" => metadata }
    }

    async fn write_parent(&self, context: &Context, plan: &Plan, scope: &Scope) -> Result<()> {
        if plan.dry_run == DryRun::Client {
            return Ok(());
        }
        let body = json::encode(&self.parent(scope), None);
        let request = |force: &str| {
            let request = Request::new(Method::PATCH, self.path())
                .query("fieldManager", MANAGER)
                .query("fieldValidation", plan.validation)
                .query("force", force)
                .body(server_side::APPLY, body.clone());
            plan.dry_run.apply(request)
        };
        let client = context.client().await?;
        let failed = |error: Error| error.with_context("failed to update ApplySet");
        match client.bytes(&request("false")).await {
            Err(error) if error.is_conflict() => {
                context.note(&format!(
                    "Warning: failed to update ApplySet: {error}\nApplySet field manager {MANAGER} should own these \
                     fields. Retrying with conflicts forced."
                ));
                client.bytes(&request("true")).await.map(drop).map_err(failed)
            }
            other => other.map(drop).map_err(failed),
        }
    }

    /// Deletes the members that were not applied, and reduces the parent's scope.
    pub(super) async fn prune(&self, context: &Context, plan: &Plan, visited: &BTreeSet<String>) -> Result<()> {
        let mut pruned = Vec::new();
        for kind in &self.before.kinds {
            let resource = member_resource(context, kind).await?;
            let outside = BTreeSet::from([String::new()]);
            let namespaces = if resource.is_namespaced { &self.before.namespaces } else { &outside };
            for namespace in namespaces {
                let query = ListQuery { selector: format!("{PART_OF}={}", self.id()), ..ListQuery::default() };
                list_pages(context, &resource, namespace, &query, async |page| {
                    let infos = split_list(&resource, page).into_iter();
                    pruned.extend(infos.filter(|info| !visited.contains(info.object.str("metadata.uid"))));
                    Ok(())
                })
                .await
                .map_err(|error| {
                    let kind = &resource.kind;
                    error.with_context(&format!("listing {}, Kind={kind} objects for pruning", resource.api_version()))
                })?;
            }
        }
        for info in &pruned {
            let name = kind_name(&(info.resource.group.clone(), info.resource.kind.clone()));
            let place = if info.namespace.is_empty() { String::new() } else { format!("{}/", info.namespace) };
            delete_pruned(context, plan, info)
                .await
                .map_err(|error| error.with_context(&format!("pruning {name} {place}{}", info.name)))?;
        }
        self.write_parent(context, plan, &self.after)
            .await
            .map_err(|error| error.with_context("apply and prune succeeded, but ApplySet update failed"))
    }
}

/// The resource of a kind in any version.
async fn member_resource(context: &Context, kind: &(String, String)) -> Result<Resource> {
    let find =
        |mapper: &crate::discovery::Mapper| mapper.all().find(|one| one.group == kind.0 && one.kind == kind.1).cloned();
    if let Some(found) = find(&*context.mapper().await?) {
        return Ok(found);
    }
    find(&*context.fresh_mapper().await?).ok_or_else(|| {
        let kind = kind_name(kind);
        Error::new(format!("could not find mapping for kind in {} annotation: {}", go_quote(KINDS), go_quote(&kind)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_name_their_scope() {
        let mut set = ApplySet {
            resource: guess("v1", "Secret"),
            namespace: "test".to_string(),
            name: "my-set".to_string(),
            before: Scope::default(),
            after: Scope::default(),
        };
        // As upstream's specification computes it.
        assert_eq!(set.id(), "applyset-0eFHV8ySqp7XoShsGvyWFQD3s96yqwHmzc4e0HR1dsY-v1");
        set.after.kinds.insert((String::new(), "Secret".to_string()));
        set.after.kinds.insert(("apps".to_string(), "Deployment".to_string()));
        set.after.namespaces.extend(["test".to_string(), "b".to_string(), "a".to_string()]);
        let parent = set.parent(&set.after);
        let annotations = parent.at("metadata.annotations");
        assert_eq!(annotations.get(KINDS).and_then(Tree::as_str), Some("Deployment.apps,Secret"));
        assert_eq!(annotations.get(NAMESPACES).and_then(Tree::as_str), Some("a,b"));
        assert_eq!(set.label(), "secrets./my-set");
    }
}
