//! The parameters of requests.

use std::borrow::Cow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub name: &'static str,
    pub place: Location,
    /// `string`, `boolean` or `integer`.
    pub ty: &'static str,
    pub description: Cow<'static, str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    Path,
    Query,
}

impl Location {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Location::Path => "path",
            Location::Query => "query",
        }
    }
}

const fn query(name: &'static str, ty: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Location::Query, ty, description: Cow::Borrowed(description) }
}

const fn path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: Location::Path, ty: "string", description: Cow::Borrowed(description) }
}

/// `name of the Pod`
pub(crate) fn name_of(kind: &str) -> Parameter {
    Parameter { description: Cow::Owned(format!("name of the {kind}")), ..path("name", "") }
}

pub(crate) const NAMESPACE: Parameter = path("namespace", "the namespace of the object");
pub(crate) const PATH_TO_RESOURCE: Parameter = path("path", "the path behind the proxy");

pub(crate) const PRETTY: Parameter = query(
    "pretty",
    "string",
    "'true' indents the answer for people; browsers, curl and wget get it so unless they say 'false'.",
);

const DRY_RUN: Parameter = query(
    "dryRun",
    "string",
    "'All' carries the request through every stage but the last: nothing is kept. No other value is taken.",
);
const FIELD_MANAGER: Parameter =
    query("fieldManager", "string", "Who owns the fields that this request sets: printable, at most 128 characters.");
const FIELD_MANAGER_OF_PATCH: Parameter = query(
    "fieldManager",
    "string",
    "Who owns the fields that this request sets: printable, at most 128 characters. An apply cannot do without it.",
);
const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What happens to unknown and repeated fields: 'Ignore' drops them in silence, 'Warn' (the default) drops them and answers with a Warning header for each, 'Strict' refuses the request and names them all.",
);
const FORCE: Parameter = query(
    "force",
    "boolean",
    "For apply alone: takes over fields that other managers own instead of answering with a conflict.",
);

pub(crate) const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
pub(crate) const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER_OF_PATCH, FIELD_VALIDATION, FORCE];

pub(crate) const DELETE: &[Parameter] = &[
    DRY_RUN,
    query(
        "gracePeriodSeconds",
        "integer",
        "Seconds that the object gets before it is removed; 0 removes it at once. Without it the object's own period counts.",
    ),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Removes an object that cannot be read from the store any more, without looking at its finalizers or preconditions. Off unless asked for; what depends on the object may break.",
    ),
    query(
        "orphanDependents",
        "boolean",
        "The older form of propagationPolicy: true leaves dependents alone, false lets them be deleted. Only one of the two may be given.",
    ),
    query(
        "propagationPolicy",
        "string",
        "What becomes of dependents: 'Orphan' leaves them, 'Background' deletes them afterwards, 'Foreground' deletes them first. Without it the object's finalizers and its kind decide.",
    ),
];

const RESOURCE_VERSION: &str = "The moment that the answer must show: none is the newest, 0 whatever is at hand, any other not \
    older than that; a watch begins behind it.";

pub(crate) const AT_REVISION: Parameter = query("resourceVersion", "string", RESOURCE_VERSION);

/// Selectors of a collection, for list and deletecollection.
pub(crate) const SELECT: &[Parameter] = &[
    query(
        "continue",
        "string",
        "The token of an earlier page, with the same other parameters. A token that has grown too old is answered with 410, and with a new one that goes on without showing the first page's moment.",
    ),
    query("fieldSelector", "string", "Only objects whose fields match; everything by default."),
    query("labelSelector", "string", "Only objects whose labels match; everything by default."),
    query(
        "limit",
        "integer",
        "The most objects that a page may hold. If there are more, the answer's metadata holds a token for the next page; all pages show the same moment.",
    ),
    AT_REVISION,
    query(
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant: 'Exact' or 'NotOlderThan'. Only together with resourceVersion.",
    ),
    query(
        "sendInitialEvents",
        "boolean",
        "Begins a watch with the objects that are there, each as an event, closed by a bookmark that says so. Needs resourceVersionMatch=NotOlderThan.",
    ),
    query("timeoutSeconds", "integer", "Seconds after which the request ends, whether or not anything has happened."),
];

/// Additional parameters of lists.
pub(crate) const WATCH: &[Parameter] = &[
    query(
        "allowWatchBookmarks",
        "boolean",
        "Lets the server send events of type BOOKMARK, which carry a resourceVersion to resume from and nothing else.",
    ),
    query("watch", "boolean", "Follows changes as events instead of listing; resourceVersion says from where."),
];

/// Parameters of connect subresources, by name.
pub(crate) fn connect_parameters(subresource: &str) -> &'static [Parameter] {
    match subresource {
        "attach" => ATTACH,
        "exec" => EXEC,
        "portforward" => PORT_FORWARD,
        "proxy" => PROXY,
        _ => &[],
    }
}

const CONTAINER: Parameter = query("container", "string", "The container; may be left out where the pod has just one.");
const STDERR: Parameter = query("stderr", "boolean", "Carries the standard error stream.");
const STDIN: Parameter = query("stdin", "boolean", "Carries the standard input stream; off by default.");
const STDOUT: Parameter = query("stdout", "boolean", "Carries the standard output stream.");
const TTY: Parameter = query("tty", "boolean", "Gives the call a terminal; off by default.");
const ATTACH: &[Parameter] = &[CONTAINER, STDERR, STDIN, STDOUT, TTY];
const EXEC: &[Parameter] = &[
    query("command", "string", "The program and its arguments, one a parameter; no shell reads them."),
    CONTAINER,
    STDERR,
    STDIN,
    STDOUT,
    TTY,
];
const PORT_FORWARD: &[Parameter] = &[query("ports", "integer", "The ports to forward; needed over WebSocket.")];
const PROXY: &[Parameter] = &[query("path", "string", "The path that is asked for behind the proxy.")];

pub(crate) const LOG: &[Parameter] = &[
    query("container", "string", "The container; may be left out where the pod has just one."),
    query("follow", "boolean", "Goes on with new lines as they come; off by default."),
    query(
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "Takes the node's certificate without checking it, so that logs can be read when it is not valid. The answer may then come from anyone.",
    ),
    query("limitBytes", "integer", "The most bytes to answer with; the last line may be cut."),
    query("previous", "boolean", "The log of the container's last run; off by default."),
    query("sinceSeconds", "integer", "Only lines of the last so many seconds."),
    query("stream", "string", "'All', 'Stdout' or 'Stderr'; all by default. Not together with tailLines."),
    query("tailLines", "integer", "Only the last so many lines."),
    query("timestamps", "boolean", "Puts a time before each line; off by default."),
];
