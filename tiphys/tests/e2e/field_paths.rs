//! Paths of fields: every dotted path by which the code reads or writes an object exists in the schema table.
//!
//! `Tree::at` and the accessors built on it return null for a path that does not exist, so that a typo would read as
//! an unset field. The string literals are read from the sources of all crates, tests included:
//!
//! - the argument of an accessor has to exist below the kind that the receiver is named after
//!   (`pod.str("spec.nodeName")`, `old_pod.at("spec.volumes")`), below the kind of the file for the receivers `object`
//!   and `old` in the crate `kinds`, and otherwise below any type of the table; and its type has to be one that the
//!   accessor returns;
//! - any other literal that begins with `metadata.`, `spec.` or `status.` has to exist below any type: a helper receives
//!   it, or a message names it.

use std::fs;
use std::path::{Path, PathBuf};

use api::schema::{self, Ty, Type};

use crate::support::root;

/// The methods of `Tree` whose argument is a dotted path.
const ACCESSORS: &[&str] = &["at", "at_mut", "str", "int", "bool", "list", "map", "list_mut", "remove_at", "child"];

/// The fields of an object by which a path is recognised without an accessor.
const OBJECT_FIELDS: &[&str] = &["metadata", "spec", "status"];

/// Paths of values that have no type in the table.
struct Exception {
    reason: &'static str,
    /// The prefixes of the paths: whole names of fields.
    paths: &'static [&'static str],
    /// The directories or files in which they may be used.
    files: &'static [&'static str],
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        reason: "in the table only if initializers are enabled",
        paths: &["metadata.initializers"],
        files: &["kinds/src/initializers.rs", "server/src/storage/cache/item.rs"],
    },
    Exception {
        reason: "names that upstream shows or accepts, and that are no fields",
        paths: &[
            "metadata.clusterName",
            "metadata.taints",
            "spec.attachedRequired",
            "spec.host",
            "spec.persistentvolumesource",
            "status.successful",
        ],
        files: &["api/src/apply/managers.rs", "kinds/src", "server/src/registry/verbs/list.rs"],
    },
    Exception {
        reason: "a key of a ConfigMap or Secret",
        paths: &["ca.crt"],
        files: &["controllers/src", "testkit/tests"],
    },
    Exception {
        reason: "reviews of conversions, which are not stored",
        paths: &["request.desiredAPIVersion", "request.objects", "result.message", "result.status"],
        files: &["server/src/registry/conversion/review.rs", "testkit/tests/custom_resources"],
    },
    Exception {
        reason: "custom resources of tests, and fields of the first version of their definitions",
        paths: &[
            "spec.any",
            "spec.b",
            "spec.host",
            "spec.hostPort",
            "spec.map",
            "spec.port",
            "spec.size",
            "spec.tmpl",
            "spec.validation",
        ],
        files: &["kinds/src/apiextensions/validate/tests.rs", "kinds/src/custom", "testkit/tests/custom_resources"],
    },
    Exception {
        reason: "kubeconfig files",
        paths: &["cluster.server", "context.cluster", "context.user"],
        files: &["cluster/src/node", "server/src/outbound/callout/kubeconfig.rs"],
    },
    Exception {
        reason: "configuration files of the kubelet and the scheduler",
        paths: &["componentconfig", "labelPreference", "logging", "plugins"],
        files: &["cluster/src/node/flags.rs", "scheduler/src/config", "testkit/tests/scheduling/process.rs"],
    },
    Exception {
        reason: "the kubelet's summary of resource usage",
        paths: &["cpu", "full", "logs", "memory", "network", "node", "podRef", "pvcRef", "some"],
        files: &["kubelet/src/server/stats", "server/src/registry/usage/mod.rs"],
    },
    Exception {
        reason: "audit events",
        paths: &[
            "authenticationMetadata",
            "impersonatedUser",
            "objectRef",
            "requestObject",
            "responseObject",
            "responseStatus",
        ],
        files: &["testkit/tests/gate"],
    },
    Exception {
        reason: "OpenAPI documents",
        paths: &["components.schemas", "requestBody.content"],
        files: &["kubectl/src/commands/explain.rs", "openapi/tests", "testkit/tests/custom_resources"],
    },
    Exception { reason: "resources of metrics.k8s.io", paths: &["usage"], files: &["kubectl/src/commands/top.rs"] },
    Exception {
        reason: "the output of `kubectl version`",
        paths: &["serverVersion.gitVersion"],
        files: &["kubectl/src/commands/version.rs"],
    },
    Exception {
        reason: "the claims of a service account token",
        paths: &["serviceaccount"],
        files: &["server/src/authentication/token.rs"],
    },
    Exception { reason: "the report of `tiphys why`", paths: &["preemption"], files: &["cluster/src/cli/why.rs"] },
    Exception { reason: "the name of a file", paths: &["spec.json"], files: &["runtime"] },
    Exception {
        reason: "tests of how missing fields are read and shown",
        paths: &["a.b", "spec.cidr", "spec.ip", "spec.missing", "spec.zzz"],
        files: &["api/src", "kubelet/src/config/tests.rs"],
    },
];

/// A dotted path in a source file.
#[derive(Debug, PartialEq, Eq)]
struct PathUse<'a> {
    line: usize,
    path: &'a str,
    /// The accessor that the path is passed to, and the last name of the expression that it is called on.
    call: Option<(&'a str, &'a str)>,
}

#[test]
fn every_dotted_path_is_in_the_schema_table() {
    let mut failures = Vec::new();
    let mut count = 0;
    for file in sources() {
        let text = fs::read_to_string(root().join(&file)).expect("the file can be read");
        for found in path_uses(&text).iter().filter(|found| !is_exception(&file, found.path)) {
            count += 1;
            let problem = find_problem(found, kind_of_file(&file));
            failures.extend(problem.map(|why| format!("{}:{}: {:?} {why}", file.display(), found.line, found.path)));
        }
    }
    assert!(count > 3000, "only {count} paths");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_exception_is_used() {
    let sources: Vec<(PathBuf, String)> = sources()
        .into_iter()
        .map(|file| (file.clone(), fs::read_to_string(root().join(file)).expect("the file can be read")))
        .collect();
    for Exception { reason, paths, files } in EXCEPTIONS {
        let used = |prefix: &str, directory: &str| {
            let mut below = sources.iter().filter(|(file, _)| file.starts_with(directory));
            below.any(|(_, text)| path_uses(text).iter().any(|found| begins_with(found.path, prefix)))
        };
        for path in *paths {
            assert!(files.iter().any(|file| used(path, file)), "{reason}: {path} is not used");
        }
        for file in *files {
            assert!(paths.iter().any(|path| used(path, file)), "{reason}: {file} uses none");
        }
    }
}

fn is_exception(file: &Path, path: &str) -> bool {
    EXCEPTIONS.iter().any(|exception| {
        exception.files.iter().any(|allowed| file.starts_with(allowed))
            && exception.paths.iter().any(|prefix| begins_with(path, prefix))
    })
}

/// Whether a path is another one or continues it with further fields.
fn begins_with(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Why a path is wrong; None if it is right.
fn find_problem(found: &PathUse<'_>, kind_of_file: Option<&str>) -> Option<String> {
    let (accessor, receiver) = found.call.unwrap_or(("", ""));
    let first = found.path.split('.').next()?;
    let kinds = kinds_of_receiver(receiver, kind_of_file).into_iter().filter(|ty| ty.field(first).is_some());
    let kinds: Vec<&'static Type> = kinds.collect();
    let (types, of) = match kinds.first() {
        Some(kind) => (&kinds[..], kind.name),
        None => (schema::schema().types(), "any type"),
    };
    let found: Vec<Ty> = types.iter().filter_map(|ty| type_at(ty, found.path, accessor.is_empty())).collect();
    if found.is_empty() {
        return Some(format!("is not a field of {of}"));
    }
    (!found.iter().any(|ty| returns(accessor, *ty)))
        .then(|| format!("of {of} has a type that `{accessor}` never returns"))
}

/// The kinds that a variable is named after; empty for other names.
fn kinds_of_receiver(receiver: &str, kind_of_file: Option<&str>) -> Vec<&'static Type> {
    if let (Some(kind), "object" | "old") = (kind_of_file, receiver) {
        return kinds_named(kind);
    }
    // The longest name first: `old_csi_node` is a CSINode, not a Node.
    let mut rest = receiver;
    loop {
        let kinds = kinds_named(rest);
        match rest.split_once('_') {
            Some((_, shorter)) if kinds.is_empty() => rest = shorter,
            _ => return kinds,
        }
    }
}

/// The kinds, in all groups and versions, with a name in snake case.
fn kinds_named(name: &str) -> Vec<&'static Type> {
    let name = name.replace('_', "");
    let types = schema::schema().types().iter().copied();
    types.filter(|ty| ty.gvk.is_some() && ty.name.eq_ignore_ascii_case(&name)).collect()
}

/// The kind that a file of the crate `kinds` describes: `kinds/src/GROUP/KIND.rs`, or a file in `kinds/src/GROUP/KIND/`.
fn kind_of_file(file: &Path) -> Option<&str> {
    let name = file.strip_prefix("kinds/src").ok()?.iter().nth(1)?.to_str()?;
    Some(name.strip_suffix(".rs").unwrap_or(name))
}

/// The type of the value at a path below a type. A map has any key, and untyped JSON any field.
fn type_at(ty: &'static Type, path: &str, through_lists: bool) -> Option<Ty> {
    path.split('.').try_fold(Ty::Struct(ty), |mut here, step| {
        while let (Ty::List(item), true) = (here, through_lists) {
            here = *item;
        }
        match here {
            Ty::Struct(ty) => Some(ty.field(step)?.ty),
            Ty::Map(item) => Some(*item),
            here if is_untyped(here) => Some(here),
            _ => None,
        }
    })
}

/// Whether an accessor returns values of a type.
fn returns(accessor: &str, ty: Ty) -> bool {
    match accessor {
        _ if is_untyped(ty) => true,
        "str" => matches!(ty, Ty::String | Ty::Bytes | Ty::Time | Ty::MicroTime | Ty::Quantity | Ty::IntOrString),
        "int" => matches!(ty, Ty::Int32 | Ty::Int64 | Ty::IntOrString | Ty::Quantity),
        "bool" => matches!(ty, Ty::Bool),
        "list" | "list_mut" => matches!(ty, Ty::List(_)),
        "map" | "child" => matches!(ty, Ty::Map(_) | Ty::Struct(_)),
        _ => true,
    }
}

fn is_untyped(ty: Ty) -> bool {
    matches!(ty, Ty::Raw | Ty::Json | Ty::Fields | Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings)
}

/// The Rust files of all crates, relative to the root.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries = fs::read_dir(root()).expect("the workspace can be read").filter_map(Result::ok);
    for directory in entries.map(|entry| entry.path()).filter(|path| path.join("Cargo.toml").exists()) {
        add_sources(&directory.join("src"), &mut files);
        add_sources(&directory.join("tests"), &mut files);
    }
    files.sort();
    assert!(files.len() > 500, "only {} files", files.len());
    let relative = |file: &PathBuf| file.strip_prefix(root()).expect("the file is below the root").to_path_buf();
    files.iter().map(relative).filter(|file| !file.ends_with("tests/e2e/field_paths.rs")).collect()
}

fn add_sources(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            add_sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn path_uses(text: &str) -> Vec<PathUse<'_>> {
    let mut uses = Vec::new();
    for (at, path) in literals(text).into_iter().filter(|(_, literal)| is_path(literal)) {
        let call = call_before(&text[..at]).filter(|(accessor, _)| ACCESSORS.contains(accessor));
        if call.is_some() || OBJECT_FIELDS.iter().any(|field| begins_with(path, field)) {
            uses.push(PathUse { line: text[..at].matches('\n').count() + 1, path, call });
        }
    }
    uses
}

/// Whether a literal is names of fields with dots between them.
fn is_path(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    text.contains('.') && text.split('.').all(is_name)
}

/// The method whose argument begins at the end of a text, and the last name before its dot.
fn call_before(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_end().strip_suffix('(')?;
    let method = last_name(text);
    let receiver = text[..text.len() - method.len()].trim_end().strip_suffix('.')?;
    Some((method, last_name(receiver.trim_end())))
}

fn last_name(text: &str) -> &str {
    let start = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    &text[start..]
}

/// The string literals outside of comments and raw strings: where each begins, and its text.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        at += match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            'r' if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            '\'' => char_length(rest),
            '"' => {
                let length = string_length(&rest[1..]);
                found.push((at, &rest[1..1 + length]));
                length + 2
            }
            other => other.len_utf8(),
        };
    }
    found
}

/// The length of a character literal with its quotes, or 1 for the quote of a lifetime.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((escaped, _))) => {
            text[escaped + 1..].find('\'').map_or(text.len(), |end| escaped + 1 + end + 1)
        }
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// The length of a string literal's text, up to its closing quote.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.unwrap_or(text.len() - 1)
}

#[test]
fn finds_paths_and_their_receivers() {
    let text = r##"// pod.str("spec.comment")
        let host = old_pod . str( "spec.nodeName"); let quote = '"'; let escaped = ('\'', '\\', "\"");
        let name: &'static str = self.node.at("metadata.name");
        r#"in.str("spec.raw")"#; check("status.phase", "file.txt", "spec.containers[0]", "spec.a b");
        object.child("a.b").map(|| "c.d")"##;
    let use_of = |line, path, call| PathUse { line, path, call };
    assert_eq!(
        path_uses(text),
        [
            use_of(2, "spec.nodeName", Some(("str", "old_pod"))),
            use_of(3, "metadata.name", Some(("at", "node"))),
            use_of(4, "status.phase", None),
            use_of(5, "a.b", Some(("child", "object"))),
        ]
    );
}

#[test]
fn finds_typos() {
    let check = |file: &str, code: &str, expected: Option<&str>| {
        let uses = path_uses(code);
        let problem = find_problem(&uses[0], kind_of_file(Path::new(file)));
        assert_eq!(problem.as_deref(), expected, "{file}: {code}");
    };
    check("kubelet/src/a.rs", r#"pod.str("spec.nodeName")"#, None);
    check("kubelet/src/a.rs", r#"pod.str("spec.nodename")"#, Some("is not a field of Pod"));
    check("kubelet/src/a.rs", r#"static_pod.int("spec.replicas")"#, Some("is not a field of Pod"));
    check("kubelet/src/a.rs", r#"pod.str("securityContext.fsGroupPolicy")"#, Some("is not a field of any type"));
    check("kubelet/src/a.rs", r#"pod.list("spec.nodeName")"#, Some("of Pod has a type that `list` never returns"));
    check("kubelet/src/a.rs", r#"csi_node.list("spec.drivers")"#, None);
    check("kubelet/src/a.rs", r#"object.int("spec.replicas")"#, None);
    check("kubelet/src/a.rs", r#"object.int("spec.replica")"#, Some("is not a field of any type"));
    check("kubelet/src/a.rs", r#"object.str("spec.containers.name")"#, Some("is not a field of any type"));
    check("kubelet/src/a.rs", r#"helper("spec.containers.name")"#, None);
    check("kubelet/src/a.rs", r#"helper("spec.containers.nam")"#, Some("is not a field of any type"));
    check("kubelet/src/a.rs", r#"object.str("metadata.labels.app")"#, None);
    check("kinds/src/apps/deployment.rs", r#"object.at("spec.paused")"#, None);
    check("kinds/src/apps/deployment.rs", r#"old.at("spec.serviceName")"#, Some("is not a field of Deployment"));
    check("kinds/src/core/pod/mod.rs", r#"object.at("spec.paused")"#, Some("is not a field of Pod"));
}
