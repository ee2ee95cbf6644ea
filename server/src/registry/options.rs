//! The options of requests: query parameters and DeleteOptions bodies, checked as upstream checks them.

use api::field::{Errors, Path, Value};
use api::status::Status;
use api::{Tree, tree};

use crate::request::codec::Validation;
use crate::request::head::RequestHead;
use crate::request::info::Query;

/// Options of create, update and patch.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    pub validation: Validation,
    pub force: bool,
}

impl WriteOptions {
    /// `kind` is CreateOptions, UpdateOptions or PatchOptions; `apply` is true for server-side apply.
    pub(crate) fn parse(head: &RequestHead, kind: &str, apply: bool) -> Result<WriteOptions, Status> {
        let query = &head.query;
        let mut errors = Errors::new();
        let given = query.get("fieldManager");
        if apply && given.is_empty() {
            errors.required(&Path::root("fieldManager"), "is required for apply patch");
        }
        if !apply && kind == "PatchOptions" && query.has("force") {
            errors.forbidden(&Path::root("force"), "may not be specified for non-apply patch");
        }
        kinds::meta::validate_field_manager(given, &Path::root("fieldManager"), &mut errors);
        check_dry_run(query, &mut errors);
        let validation = check_validation(query.get("fieldValidation"), &mut errors);
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", kind, "", &errors));
        }
        let field_manager = if given.is_empty() { default_manager(head) } else { given.to_string() };
        Ok(WriteOptions { dry_run: query.has("dryRun"), field_manager, validation, force: query.flag("force") })
    }
}

/// The first word of the user agent, up to the slash.
fn default_manager(head: &RequestHead) -> String {
    let agent = head.header(http::header::USER_AGENT).unwrap_or("");
    let word = agent.split('/').next().unwrap_or("");
    let printable: String = word.chars().filter(|c| !c.is_control()).take(128).collect();
    printable
}

fn check_dry_run(query: &Query, errors: &mut Errors) {
    let values: Vec<&str> = query.all("dryRun").collect();
    if values.iter().any(|value| *value != "All") {
        let shown = Tree::List(values.iter().map(|value| Tree::from(*value)).collect());
        errors.not_supported(&Path::root("dryRun"), Value::from(&shown), &["All"]);
    }
}

fn check_validation(value: &str, errors: &mut Errors) -> Validation {
    match value {
        "" | "Warn" => Validation::Warn,
        "Strict" => Validation::Strict,
        "Ignore" => Validation::Ignore,
        _ => {
            errors.not_supported(&Path::root("fieldValidation"), value, &["", "Ignore", "Strict", "Warn"]);
            Validation::Warn
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Orphan,
    Background,
    Foreground,
}

/// DeleteOptions, from the body or, without a body, from the query.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    pub(crate) fn parse(query: &Query, body: Option<&Tree>) -> Result<DeleteOptions, Status> {
        let from_query;
        let tree = match body {
            Some(tree) => tree,
            None => {
                from_query = query_tree(query)?;
                &from_query
            }
        };
        let mut errors = Errors::new();
        let propagation = check_propagation(tree, &mut errors);
        let dry: Vec<&str> = tree.list("dryRun").iter().filter_map(Tree::as_str).collect();
        if dry.iter().any(|value| *value != "All") {
            errors.not_supported(&Path::root("dryRun"), Value::from(tree.at("dryRun")), &["All"]);
        }
        if !errors.is_empty() {
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        let text = |path: &str| tree.at(path).as_str().map(str::to_string);
        Ok(DeleteOptions {
            dry_run: !dry.is_empty(),
            grace_period_seconds: tree.int("gracePeriodSeconds"),
            propagation,
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
        })
    }
}

impl DeleteOptions {
    /// The options for webhooks.
    pub(crate) fn to_tree(&self) -> Tree {
        let mut tree = tree! {};
        if let Some(seconds) = self.grace_period_seconds {
            tree.set("gracePeriodSeconds", seconds);
        }
        if let Some(propagation) = self.propagation {
            tree.set("propagationPolicy", format!("{propagation:?}"));
        }
        for (key, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(value) = value {
                tree.child("preconditions").set(key, value);
            }
        }
        tree
    }
}

fn query_tree(query: &Query) -> Result<Tree, Status> {
    let mut tree = tree! {};
    let grace = query.get("gracePeriodSeconds");
    if !grace.is_empty() {
        let seconds: i64 = grace
            .parse()
            .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {grace:?}: invalid syntax")))?;
        tree.set("gracePeriodSeconds", seconds);
    }
    if query.has("propagationPolicy") {
        tree.set("propagationPolicy", query.get("propagationPolicy"));
    }
    if query.has("orphanDependents") {
        tree.set("orphanDependents", query.flag("orphanDependents"));
    }
    if query.has("dryRun") {
        tree.set("dryRun", Tree::List(query.all("dryRun").map(Tree::from).collect()));
    }
    Ok(tree)
}

fn check_propagation(tree: &Tree, errors: &mut Errors) -> Option<Propagation> {
    let orphan = tree.at("orphanDependents").as_bool();
    let policy = tree.at("propagationPolicy").as_str();
    if orphan.is_some() && policy.is_some() {
        errors.invalid(
            &Path::root("propagationPolicy"),
            policy.unwrap_or(""),
            "orphanDependents and deletionPropagation cannot be both set",
        );
    }
    match policy {
        Some("Orphan") => Some(Propagation::Orphan),
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some(other) => {
            errors.not_supported(
                &Path::root("propagationPolicy"),
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            );
            None
        }
        None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
    }
}
