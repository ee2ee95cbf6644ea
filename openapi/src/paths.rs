//! The paths and operations of a resource, with upstream's identifiers and descriptions.

use std::borrow::Cow;

use api::schema::type_of;
use kinds::{Subresource, Verb};

use crate::names::{capitalized, group_words, prefix, tag, with_article};
use crate::operation::{
    ANY, Body, CUSTOM, Content, Gvk, LOG, OBJECT, Operation, PATCHES, PATCHES_OF_CUSTOM, Path, STREAM,
};
use crate::parameters::{self as params, Parameter};
use crate::resource::Resource;

pub(crate) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
pub(crate) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

pub(crate) fn paths_of(resource: &Resource) -> Vec<Path> {
    let maker = PathBuilder { resource };
    let mut paths = vec![maker.collection(), maker.item(), maker.all_namespaces()];
    paths.extend(resource.subresources.iter().flat_map(|sub| maker.subresource(sub)));
    if resource.strategic_merge {
        paths.extend(maker.watches());
    } else {
        paths.iter_mut().flat_map(|path| &mut path.operations).for_each(adapt_to_custom);
    }
    paths.retain(|path| !path.operations.is_empty());
    paths
}

/// Upstream describes custom resources with a builder of its own: other media types, and a parameter of reads.
fn adapt_to_custom(operation: &mut Operation) {
    operation.produces = CUSTOM;
    if operation.action == "get" {
        operation.parameters.insert(0, params::AT_REVISION);
    }
    if let Some(body) = operation.body.as_mut().filter(|body| body.media != PATCHES_OF_CUSTOM) {
        body.media = CUSTOM;
    }
}

struct PathBuilder<'a> {
    resource: &'a Resource,
}

/// Whole collections.
impl PathBuilder<'_> {
    fn collection(&self) -> Path {
        let mut operations = Vec::new();
        if self.resource.has(Verb::List) {
            operations.push(self.list("list", self.scope(), ""));
        }
        if self.resource.has(Verb::Create) {
            operations.push(self.create());
        }
        if self.resource.has(Verb::DeleteCollection) {
            operations.push(self.delete_collection());
        }
        Path { path: self.path(""), operations: self.scoped(operations, None) }
    }

    fn item(&self) -> Path {
        let mut operations = Vec::new();
        for verb in [Verb::Get, Verb::Update, Verb::Delete, Verb::Patch] {
            if self.resource.has(verb) {
                operations.push(self.object_operation(verb, &self.resource_target()));
            }
        }
        Path { path: self.path("/{name}"), operations: self.scoped(operations, Some(&self.resource.kind)) }
    }

    fn all_namespaces(&self) -> Path {
        let mut operations = Vec::new();
        if self.resource.namespaced && self.resource.has(Verb::List) {
            let mut list = self.list("list", "", "ForAllNamespaces");
            list.parameters.push(params::PRETTY);
            operations.push(list);
        }
        Path { path: format!("/{}/{}", self.prefix(), self.resource.plural), operations }
    }

    fn list(&self, verb: &str, scope: &str, suffix: &str) -> Operation {
        let can_watch = self.resource.has(Verb::Watch) && self.resource.strategic_merge;
        let what = if can_watch { "list or watch" } else { "list" };
        Operation {
            id: self.id(verb, scope, suffix),
            description: format!("{what} objects of kind {}", self.resource.kind).into(),
            parameters: [params::SELECT, params::WATCH].concat(),
            produces: STREAM,
            responses: answers(&["200"], Content::Object(self.resource.list_schema.clone())),
            ..self.operation("get", "list", &self.resource_target().gvk)
        }
    }

    fn create(&self) -> Operation {
        Operation {
            id: self.id("create", self.scope(), ""),
            description: format!("create {}", with_article(&self.resource.kind)).into(),
            ..self.post_operation(&self.resource_target())
        }
    }

    fn delete_collection(&self) -> Operation {
        Operation {
            id: self.id("delete", &format!("Collection{}", self.scope()), ""),
            description: format!("delete collection of {}", self.resource.kind).into(),
            parameters: [params::DELETE, params::SELECT].concat(),
            body: Some(Body { schema: DELETE_OPTIONS.to_string(), required: false, media: OBJECT }),
            responses: answers(&["200"], Content::Object(STATUS.to_string())),
            ..self.operation("delete", "deletecollection", &self.resource_target().gvk)
        }
    }
}

/// The object of a path: the resource itself or a subresource.
struct PathTarget {
    /// The subresource; empty for the resource itself.
    name: &'static str,
    gvk: Gvk,
    schema: String,
}

/// Single objects and subresources.
impl PathBuilder<'_> {
    fn resource_target(&self) -> PathTarget {
        let Resource { group, version, kind, .. } = self.resource;
        PathTarget {
            name: "",
            gvk: Gvk(group.clone(), version.clone(), kind.clone()),
            schema: self.resource.schema.clone(),
        }
    }

    fn part(&self, sub: &Subresource) -> PathTarget {
        let Some((group, version, kind)) = sub.gvk else {
            return PathTarget { name: sub.name, ..self.resource_target() };
        };
        let schema = type_of(group, version, kind).map(|ty| ty.openapi_name()).unwrap_or_default();
        let own = self.resource_target();
        // The operations of a custom resource have its kind, also those of its scale.
        let gvk = if self.resource.strategic_merge { Gvk(group.into(), version.into(), kind.into()) } else { own.gvk };
        PathTarget { name: sub.name, gvk, schema }
    }

    fn object_operation(&self, verb: Verb, part: &PathTarget) -> Operation {
        let (word, what) = match verb {
            Verb::Get => ("read", "read"),
            Verb::Update => ("replace", "replace"),
            Verb::Patch => ("patch", "partially update"),
            _ => ("delete", "delete"),
        };
        let operation = match verb {
            Verb::Get => self.get_operation(part),
            Verb::Update => self.put_operation(part),
            Verb::Patch => self.patch_operation(part),
            _ => self.delete_operation(part),
        };
        Operation {
            id: self.id(word, self.scope(), &capitalized(part.name)),
            description: self.sentence(what, part).into(),
            ..operation
        }
    }

    fn sentence(&self, what: &str, part: &PathTarget) -> String {
        let kind = &self.resource.kind;
        match (what, part.name) {
            ("delete", "") => format!("delete {}", with_article(kind)),
            (_, "") => format!("{what} the specified {kind}"),
            (_, name) => format!("{what} {name} of the specified {kind}"),
        }
    }

    fn get_operation(&self, part: &PathTarget) -> Operation {
        Operation {
            responses: answers(&["200"], Content::Object(part.schema.clone())),
            ..self.operation("get", "get", &part.gvk)
        }
    }

    fn put_operation(&self, part: &PathTarget) -> Operation {
        Operation {
            parameters: params::WRITE.to_vec(),
            body: Some(Body { schema: part.schema.clone(), required: true, media: OBJECT }),
            responses: answers(&["200", "201"], Content::Object(part.schema.clone())),
            ..self.operation("put", "put", &part.gvk)
        }
    }

    fn post_operation(&self, part: &PathTarget) -> Operation {
        Operation {
            parameters: params::WRITE.to_vec(),
            body: Some(Body { schema: part.schema.clone(), required: true, media: OBJECT }),
            responses: answers(&["200", "201", "202"], Content::Object(part.schema.clone())),
            ..self.operation("post", "post", &part.gvk)
        }
    }

    fn patch_operation(&self, part: &PathTarget) -> Operation {
        let media = if self.resource.strategic_merge { PATCHES } else { PATCHES_OF_CUSTOM };
        Operation {
            parameters: params::PATCH.to_vec(),
            body: Some(Body { schema: PATCH.to_string(), required: true, media }),
            responses: answers(&["200", "201"], Content::Object(part.schema.clone())),
            ..self.operation("patch", "patch", &part.gvk)
        }
    }

    fn delete_operation(&self, part: &PathTarget) -> Operation {
        let answer = if self.resource.returns_deleted { part.schema.clone() } else { STATUS.to_string() };
        Operation {
            parameters: params::DELETE.to_vec(),
            body: Some(Body { schema: DELETE_OPTIONS.to_string(), required: false, media: OBJECT }),
            responses: answers(&["200", "202"], Content::Object(answer)),
            ..self.operation("delete", "delete", &part.gvk)
        }
    }
}

const ALL_METHODS: &[&str] = &["delete", "get", "head", "options", "patch", "post", "put"];

impl PathBuilder<'_> {
    fn subresource(&self, sub: &Subresource) -> Vec<Path> {
        let path = self.path(&format!("/{{name}}/{}", sub.name));
        let part = self.part(sub);
        match sub.name {
            "attach" | "exec" | "portforward" => vec![self.connect_path(path, &part, &["get", "post"], "")],
            "proxy" => vec![
                self.connect_path(format!("{path}/{{path}}"), &part, ALL_METHODS, "WithPath"),
                self.connect_path(path, &part, ALL_METHODS, ""),
            ],
            _ => vec![self.plain_subresource(path, sub, &part)],
        }
    }

    fn plain_subresource(&self, path: String, sub: &Subresource, part: &PathTarget) -> Path {
        let operation = |verb: &Verb| match verb {
            Verb::Create => Operation {
                id: self.id("create", self.scope(), &capitalized(part.name)),
                description: format!("create {} of {}", part.name, with_article(&self.resource.kind)).into(),
                ..self.post_operation(part)
            },
            Verb::Get if sub.name == "log" => self.logging(part),
            verb => self.object_operation(*verb, part),
        };
        let operations = sub.verbs.iter().map(operation).collect();
        Path { path, operations: self.scoped(operations, Some(&part.gvk.2)) }
    }

    fn logging(&self, part: &PathTarget) -> Operation {
        Operation {
            parameters: params::LOG.to_vec(),
            produces: LOG,
            responses: answers(&["200"], Content::Text),
            ..self.object_operation(Verb::Get, part)
        }
    }

    fn connect_path(&self, path: String, part: &PathTarget, methods: &[&'static str], suffix: &str) -> Path {
        let operation = |method: &&'static str| Operation {
            id: self.connect_id(method, &format!("{}{suffix}", capitalized(part.name))),
            description: format!(
                "connect {} requests to {} of {}",
                method.to_uppercase(),
                part.name,
                self.resource.kind
            )
            .into(),
            parameters: params::connect_parameters(part.name).to_vec(),
            produces: ANY,
            responses: answers(&["200"], Content::Text),
            ..self.operation(method, "connect", &part.gvk)
        };
        let operations = methods.iter().map(operation).collect();
        let mut operations = self.scoped(operations, Some(&part.gvk.2));
        for operation in &mut operations {
            // The response is proxied, so it cannot be pretty-printed.
            operation.parameters.retain(|parameter| *parameter != params::PRETTY);
            if !suffix.is_empty() {
                operation.parameters.push(params::PATH_TO_RESOURCE);
            }
        }
        Path { path, operations }
    }

    fn connect_id(&self, method: &str, suffix: &str) -> String {
        self.id("connect", &format!("{}{}", capitalized(method), self.scope()), suffix)
    }
}

const DEPRECATED_LIST: &str = "deprecated: use the 'watch' parameter with a list operation instead.";
const DEPRECATED_OBJECT: &str = "deprecated: use the 'watch' parameter with a list operation instead, filtered to a \
    single item with the 'fieldSelector' parameter.";

/// The deprecated paths below `/watch/`.
impl PathBuilder<'_> {
    fn watches(&self) -> Vec<Path> {
        if !self.resource.has(Verb::Watch) {
            return Vec::new();
        }
        let kind = &self.resource.kind;
        let of_list: Cow<'_, str> = format!("watch individual changes to a list of {kind}. {DEPRECATED_LIST}").into();
        let of_one = format!("watch changes to an object of kind {kind}. {DEPRECATED_OBJECT}");
        let list = self.watch_operation("watchlist", self.scope(), "List", &of_list);
        let one = self.watch_operation("watch", self.scope(), "", &of_one);
        let mut paths = vec![
            Path { path: self.watch_path(""), operations: self.scoped(vec![list], None) },
            Path { path: self.watch_path("/{name}"), operations: self.scoped(vec![one], Some(kind)) },
        ];
        if self.resource.namespaced {
            let mut all = self.watch_operation("watchlist", "", "ListForAllNamespaces", &of_list);
            all.parameters.push(params::PRETTY);
            let path = format!("/{}/watch/{}", self.prefix(), self.resource.plural);
            paths.push(Path { path, operations: vec![all] });
        }
        paths
    }

    fn watch_operation(&self, action: &'static str, scope: &str, suffix: &str, description: &str) -> Operation {
        Operation {
            id: self.id("watch", scope, suffix),
            description: description.to_string().into(),
            parameters: [params::SELECT, params::WATCH].concat(),
            produces: STREAM,
            responses: answers(&["200"], Content::Object(WATCH_EVENT.to_string())),
            ..self.operation("get", action, &self.resource_target().gvk)
        }
    }

    fn watch_path(&self, rest: &str) -> String {
        let namespace = if self.resource.namespaced { "/namespaces/{namespace}" } else { "" };
        format!("/{}/watch{namespace}/{}{rest}", self.prefix(), self.resource.plural)
    }
}

/// Names and shared parts of operations.
impl PathBuilder<'_> {
    fn prefix(&self) -> String {
        prefix(&self.resource.group, &self.resource.version)
    }

    fn path(&self, rest: &str) -> String {
        let namespace = if self.resource.namespaced { "/namespaces/{namespace}" } else { "" };
        format!("/{}{namespace}/{}{rest}", self.prefix(), self.resource.plural)
    }

    fn scope(&self) -> &'static str {
        if self.resource.namespaced { "Namespaced" } else { "" }
    }

    /// `createCoreV1NamespacedPodBinding`
    fn id(&self, verb: &str, scope: &str, suffix: &str) -> String {
        let Resource { group, version, kind, .. } = self.resource;
        format!("{verb}{}{}{scope}{kind}{suffix}", group_words(group), capitalized(version))
    }

    fn operation(&self, method: &'static str, action: &'static str, gvk: &Gvk) -> Operation {
        Operation {
            method,
            action,
            gvk: Some(gvk.clone()),
            tag: tag(&self.resource.group, &self.resource.version),
            produces: OBJECT,
            ..Operation::default()
        }
    }

    /// Adds the parameters of the path.
    fn scoped(&self, mut operations: Vec<Operation>, named: Option<&str>) -> Vec<Operation> {
        let mut own: Vec<Parameter> = named.map(params::name_of).into_iter().collect();
        if self.resource.namespaced {
            own.push(params::NAMESPACE);
        }
        own.push(params::PRETTY);
        for operation in &mut operations {
            operation.parameters.extend(own.iter().cloned());
        }
        operations
    }
}

fn answers(codes: &[&'static str], content: Content) -> Vec<(&'static str, Content)> {
    codes.iter().map(|code| (*code, content.clone())).collect()
}
