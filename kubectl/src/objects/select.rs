//! The objects that arguments, selectors and files select.

use api::{Tree, tree};

use super::guess::guess;
use super::{Files, Info, read_documents};
use crate::context::Context;
use crate::discovery::Resource;
use crate::error::{Error, Result, message};
use crate::transport::Request;

/// What upstream says if nothing is selected.
const NOTHING: &str = "You must provide one or more resources by argument or filename.\n\
                       Example resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'\n   \
                       '<resource> <name>'\n   '<resource>'";

/// What a command line selects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Select {
    pub(crate) files: Files,
    pub(crate) args: Vec<String>,
    pub(crate) selector: Option<String>,
    pub(crate) field_selector: String,
    /// `--all`.
    pub(crate) is_all: bool,
    pub(crate) all_namespaces: bool,
    /// A type without names means all of its objects.
    pub(crate) allows_types: bool,
    pub(crate) subresource: String,
    /// The revision or the time of the objects, if it is not now.
    pub(crate) at: String,
    /// Objects of a page; 0 for all at once.
    pub(crate) chunk: Option<i64>,
    /// Objects of files are read from the server.
    pub(crate) is_latest: bool,
    /// Objects by name are not read: only their names matter.
    pub(crate) is_by_name: bool,
    /// Objects of files are used as they are, without the server.
    pub(crate) is_local: bool,
}

/// One thing to read, or to use as it is.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    List { resource: Resource, namespace: String },
    Object { resource: Resource, namespace: String, name: String },
    File(Box<Info>),
}

/// The selected objects, and the errors of those that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) infos: Vec<Info>,
    pub(crate) errors: Vec<Error>,
    /// One object was named, and not a list.
    pub(crate) is_single: bool,
}

impl Found {
    /// The objects, if there was no error.
    pub(crate) fn infos(self) -> Result<Vec<Info>> {
        Error::all(self.errors)?;
        Ok(self.infos)
    }
}

/// The targets in their order.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub(crate) targets: Vec<Target>,
    pub(crate) errors: Vec<Error>,
    pub(crate) is_single: bool,
}

impl Select {
    /// The flags that most commands have, and all arguments.
    pub(crate) fn of(context: &Context) -> Select {
        let flags = &context.flags;
        Select {
            files: Files::of(context),
            args: context.args.clone(),
            selector: (flags.changed("selector") && !flags.str("selector").is_empty())
                .then(|| flags.str("selector").to_string()),
            field_selector: flags.str("field-selector").to_string(),
            is_all: flags.bool("all"),
            all_namespaces: flags.bool("all-namespaces"),
            subresource: flags.str("subresource").to_string(),
            at: flags.str("at").to_string(),
            is_latest: true,
            is_local: flags.bool("local"),
            ..Select::default()
        }
    }

    /// Finds and reads the objects.
    pub(crate) async fn find(&self, context: &Context) -> Result<Found> {
        let targets = self.targets(context).await?;
        let mut found = Found { errors: targets.errors, is_single: targets.is_single, ..Found::default() };
        for target in targets.targets {
            if let Err(error) = self.read(context, target, &mut found).await {
                found.errors.push(error);
            }
        }
        Ok(found)
    }

    async fn read(&self, context: &Context, target: Target, found: &mut Found) -> Result<()> {
        match target {
            Target::List { resource, namespace } => {
                list_pages(context, &resource, &namespace, &self.query(), async |page| {
                    found.infos.extend(split_list(&resource, page));
                    Ok(())
                })
                .await
            }
            Target::Object { resource, namespace, name } if self.is_by_name => {
                let object = tree! {
                    "apiVersion" => resource.api_version(), "kind" => &resource.kind,
                    "metadata" => tree! { "name" => &name, "namespace" => &namespace },
                };
                found.infos.push(Info { resource, namespace, name, object, source: String::new() });
                Ok(())
            }
            Target::Object { resource, namespace, name } => {
                let object = self.get(context, &resource, &namespace, &name).await?;
                found.infos.push(Info { resource, namespace, name, object, source: String::new() });
                Ok(())
            }
            Target::File(info) if self.is_latest && !self.is_local && !self.is_by_name => {
                let mut info = *info;
                info.object = self.get(context, &info.resource, &info.namespace, &info.name).await?;
                found.infos.push(info);
                Ok(())
            }
            Target::File(info) => {
                found.infos.push(*info);
                Ok(())
            }
        }
    }

    async fn get(&self, context: &Context, resource: &Resource, namespace: &str, name: &str) -> Result<Tree> {
        let path = resource.object_path(namespace, name);
        match self.at.as_str() {
            "" => get_object(context, resource, namespace, name, &self.subresource).await,
            at => get_named(context, Request::get(path).at(at), namespace).await,
        }
    }

    /// The query of lists.
    pub(crate) fn query(&self) -> ListQuery {
        let selector = self.selector.clone().unwrap_or_default();
        let chunk = self.chunk.unwrap_or(0);
        ListQuery {
            selector,
            field_selector: self.field_selector.clone(),
            chunk,
            accept: String::new(),
            at: self.at.clone(),
            extra: Vec::new(),
        }
    }

    /// What is selected, without reading it.
    pub(crate) async fn targets(&self, context: &Context) -> Result<Targets> {
        if !self.files.is_empty() {
            return self.file_targets(context).await;
        }
        let args = distribute(&self.args);
        let with_slash = args.iter().filter(|arg| arg.contains('/')).count();
        if with_slash > 0 && with_slash < args.len() {
            return message(
                "there is no need to specify a resource type as a separate argument when passing arguments in \
                 resource/name form (e.g. 'kubectl get resource/<resource_name>' instead of 'kubectl get resource \
                 resource/<resource_name>'",
            );
        }
        let is_selecting = self.selector.is_some() || !self.field_selector.is_empty() || self.is_all;
        if with_slash > 0 {
            if is_selecting {
                return message("selectors and the all flag cannot be used when passing resource/name arguments");
            }
            return self.named_targets(context, &args).await;
        }
        match args.as_slice() {
            [] if is_selecting => message("at least one resource must be specified to use a selector"),
            [] => message(NOTHING),
            [types] if is_selecting || self.allows_types => self.list_targets(context, types).await,
            [types] => {
                self.list_targets(context, types).await?;
                message("resource(s) were provided, but no name was specified")
            }
            _ if is_selecting => message("name cannot be provided when a selector is specified"),
            [types, names @ ..] => {
                let args: Vec<String> = names.iter().map(|name| format!("{types}/{name}")).collect();
                self.named_targets(context, &args).await
            }
        }
    }

    async fn list_targets(&self, context: &Context, types: &str) -> Result<Targets> {
        if !self.subresource.is_empty() {
            return message("subresource cannot be used when bulk resources are specified");
        }
        let mut targets = Targets::default();
        let namespace = if self.all_namespaces { String::new() } else { context.namespace()?.0 };
        for name in types.split(',') {
            let mapper = context.mapper().await?;
            let of_category: Vec<Resource> = mapper.category(name).into_iter().cloned().collect();
            let found = if of_category.is_empty() { vec![context.resolve(name).await?] } else { of_category };
            for resource in found {
                let namespace = if resource.is_namespaced { namespace.clone() } else { String::new() };
                targets.targets.push(Target::List { resource, namespace });
            }
        }
        Ok(targets)
    }

    /// Arguments of the form TYPE/NAME.
    async fn named_targets(&self, context: &Context, args: &[String]) -> Result<Targets> {
        let mut targets = Targets { is_single: args.len() == 1, ..Targets::default() };
        for arg in args {
            let parts: Vec<&str> = arg.split('/').collect();
            let [kind, name] = parts[..] else {
                return message("arguments in resource/name form may not have more than one slash");
            };
            if kind.is_empty() || name.is_empty() || kind.contains(',') {
                return message("arguments in resource/name form must have a single resource and name");
            }
            let resource = context.resolve(kind).await?;
            if resource.is_namespaced && self.all_namespaces {
                return message("a resource cannot be retrieved by name across all namespaces");
            }
            let namespace = if resource.is_namespaced { context.namespace()?.0 } else { String::new() };
            targets.targets.push(Target::Object { resource, namespace, name: name.to_string() });
        }
        Ok(targets)
    }

    async fn file_targets(&self, context: &Context) -> Result<Targets> {
        if !self.args.is_empty() {
            return message(
                "when paths, URLs, or stdin is provided as input, you may not specify resource arguments as well",
            );
        }
        let mut targets = Targets::default();
        let mut count = 0;
        for document in read_documents(context, &self.files).await? {
            let document = match document {
                Ok(document) => document,
                Err(error) => {
                    targets.errors.push(error);
                    continue;
                }
            };
            for object in flatten(document.tree) {
                count += 1;
                match self.info(context, object, &document.source).await {
                    Ok(info) => targets.targets.extend(info.map(|info| Target::File(Box::new(info)))),
                    Err(error) => targets.errors.push(error),
                }
            }
        }
        targets.is_single = count == 1 && self.files.names.len() == 1;
        let verb = self.verb(context);
        // There may be nothing to delete.
        if count == 0 && targets.errors.is_empty() && verb != "delete" {
            return message(format!("no objects passed to {verb}"));
        }
        Ok(targets)
    }

    fn verb(&self, context: &Context) -> String {
        context.path.rsplit(' ').next().unwrap_or_default().to_string()
    }

    /// A selector applies to the objects of files too.
    fn matches(&self, object: &Tree) -> bool {
        let Some(selector) = &self.selector else { return true };
        api::selector::Selector::parse(selector)
            .is_ok_and(|selector| selector.matches_map(object.map("metadata.labels")))
    }

    /// An object of a file; None if the selector excludes it.
    async fn info(&self, context: &Context, mut object: Tree, source: &str) -> Result<Option<Info>> {
        let (api_version, kind) = (object.str("apiVersion").to_string(), object.str("kind").to_string());
        let mut missing = Vec::new();
        if api_version.is_empty() {
            missing.push("apiVersion not set");
        }
        if kind.is_empty() {
            missing.push("kind not set");
        }
        if !missing.is_empty() {
            let missing = if missing.len() == 1 { missing.concat() } else { format!("[{}]", missing.join(", ")) };
            return message(format!(
                "error validating \"{source}\": error validating data: {missing}; if you choose to ignore these errors, \
                 turn validation off with --validate=false"
            ));
        }
        let resource = if self.is_local {
            guess(&api_version, &kind)
        } else {
            context.resource_of(&api_version, &kind).await.map_err(|error| unmapped(&error, &object, source))?
        };
        if !self.matches(&object) {
            return Ok(None);
        }
        let name = object.str("metadata.name").to_string();
        let mut namespace = String::new();
        if resource.is_namespaced && !self.is_local {
            let (default, is_explicit) = context.namespace()?;
            namespace = object.str("metadata.namespace").to_string();
            if !namespace.is_empty() && is_explicit && namespace != default {
                return message(format!(
                    "the namespace from the provided object \"{namespace}\" does not match the namespace \"{default}\". \
                     You must pass '--namespace={namespace}' to perform this operation."
                ));
            }
            if namespace.is_empty() {
                namespace = default;
                if !namespace.is_empty() {
                    object.child("metadata").set("namespace", &namespace);
                }
            }
        }
        Ok(Some(Info { resource, namespace, name, object, source: source.to_string() }))
    }
}

fn unmapped(error: &Error, object: &Tree, source: &str) -> Error {
    let (name, namespace) = (object.str("metadata.name"), object.str("metadata.namespace"));
    match error {
        Error::Message(text) if text.starts_with("no matches") => Error::Message(format!(
            "resource mapping not found for name: \"{name}\" namespace: \"{namespace}\" from \"{source}\": {text}\nensure CRDs \
             are installed first"
        )),
        Error::Message(text) => Error::Message(text.clone()),
        Error::Connect { host, reason, is_refused } => {
            Error::Connect { host: host.clone(), reason: reason.clone(), is_refused: *is_refused }
        }
        other => Error::Message(other.to_string()),
    }
}

/// `a,b x y` as `a/x a/y b/x b/y`.
fn distribute(args: &[String]) -> Vec<String> {
    match args {
        [types, names @ ..] if !names.is_empty() && types.contains(',') => {
            types.split(',').flat_map(|kind| names.iter().map(move |name| format!("{kind}/{name}"))).collect()
        }
        args => args.to_vec(),
    }
}

/// The objects of a list, or the object itself.
pub(crate) fn flatten(object: Tree) -> Vec<Tree> {
    let is_list = object.str("kind").ends_with("List") && object.at("items").as_list().is_some();
    if !is_list {
        return vec![object];
    }
    let list_kind = object.str("kind").trim_end_matches("List").to_string();
    let api_version = object.str("apiVersion").to_string();
    let Some(Tree::List(items)) = object.get("items").cloned() else { return vec![object] };
    let with_type = |mut item: Tree| {
        if item.str("kind").is_empty() && !list_kind.is_empty() {
            item.set("kind", &list_kind);
            item.set("apiVersion", &api_version);
        }
        item
    };
    items.into_iter().map(with_type).flat_map(flatten).collect()
}

/// The objects of a page of a list.
pub(crate) fn split_list(resource: &Resource, mut page: Tree) -> Vec<Info> {
    let Some(Tree::List(items)) = page.remove("items") else { return Vec::new() };
    let infos = items.into_iter().map(|mut object| {
        if object.str("kind").is_empty() {
            object.set("kind", &resource.kind);
            object.set("apiVersion", resource.api_version());
        }
        let text = |path: &str| object.str(path).to_string();
        let (name, namespace) = (text("metadata.name"), text("metadata.namespace"));
        Info { resource: resource.clone(), namespace, name, object, source: String::new() }
    });
    infos.collect()
}

/// Reads an object, or a subresource of it.
pub(crate) async fn get_object(
    context: &Context,
    resource: &Resource,
    namespace: &str,
    name: &str,
    sub: &str,
) -> Result<Tree> {
    let mut path = resource.object_path(namespace, name);
    if !sub.is_empty() {
        path = format!("{path}/{sub}");
    }
    get_named(context, Request::get(path), namespace).await
}

/// Reads an object of a namespace. If it does not exist, the namespace may be what is missing.
pub(crate) async fn get_named(context: &Context, request: Request, namespace: &str) -> Result<Tree> {
    let client = context.client().await?;
    match client.tree(&request).await {
        Err(error) if error.is_not_found() && !namespace.is_empty() && namespace != "default" => {
            let path = guess("v1", "Namespace").object_path("", namespace);
            match client.bytes(&Request::get(path)).await {
                Err(missing) if missing.is_not_found() => Err(missing),
                _ => Err(error),
            }
        }
        other => other,
    }
}

/// The parameters of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListQuery {
    pub(crate) selector: String,
    pub(crate) field_selector: String,
    /// Objects of a page; 0 for all at once.
    pub(crate) chunk: i64,
    /// The media type, if it is not JSON.
    pub(crate) accept: String,
    /// The revision or the time of the objects, if it is not now.
    pub(crate) at: String,
    pub(crate) extra: Vec<(&'static str, String)>,
}

impl ListQuery {
    /// The request of a page.
    pub(crate) fn request(&self, resource: &Resource, namespace: &str, token: &str) -> Request {
        let limit = if self.chunk > 0 { self.chunk.to_string() } else { String::new() };
        let mut request = Request::get(resource.path(namespace))
            .query("labelSelector", &self.selector)
            .query("fieldSelector", &self.field_selector)
            .query("limit", limit)
            .query("continue", token)
            .at(&self.at);
        for (name, value) in &self.extra {
            request = request.query(name, value);
        }
        if self.accept.is_empty() { request } else { request.accept(&self.accept) }
    }
}

/// Reads a list page by page. If the token expires, the rest is read at the newest state.
pub(crate) async fn list_pages(
    context: &Context,
    resource: &Resource,
    namespace: &str,
    query: &ListQuery,
    mut page: impl AsyncFnMut(Tree) -> Result<()>,
) -> Result<()> {
    let client = context.client().await?;
    let mut token = String::new();
    loop {
        let tree = match client.tree(&query.request(resource, namespace, &token)).await {
            Ok(tree) => tree,
            Err(Error::Server { status, .. }) if status.code == 410 && status.continue_token.is_some() => {
                token = status.continue_token.clone().unwrap_or_default();
                continue;
            }
            Err(error) => return Err(list_error(error, resource, query)),
        };
        token = tree.str("metadata.continue").to_string();
        page(tree).await?;
        if token.is_empty() {
            return Ok(());
        }
    }
}

/// A rejected list, with what was asked for.
fn list_error(mut error: Error, resource: &Resource, query: &ListQuery) -> Error {
    if let Error::Server { status, .. } = &mut error
        && matches!(&*status.reason, "BadRequest" | "NotFound")
    {
        let subject = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
        let subject = api::field::go_quote(&subject);
        let text = std::mem::take(&mut status.message);
        status.message = if query.selector.is_empty() && query.field_selector.is_empty() {
            format!("Unable to list {subject}: {text}")
        } else {
            let quote = api::field::go_quote;
            let (labels, fields) = (quote(&query.selector), quote(&query.field_selector));
            format!("Unable to find {subject} that match label selector {labels}, field selector {fields}: {text}")
        };
    }
    error
}
