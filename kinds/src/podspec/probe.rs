//! Probes, lifecycle hooks and the handlers of both.

use api::field::{Errors, Path};
use api::{Tree, validation};

use super::check;

/// The probe of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Liveness,
    Readiness,
    Startup,
}

const PROBES: &[(&str, Kind)] =
    &[("livenessProbe", Kind::Liveness), ("readinessProbe", Kind::Readiness), ("startupProbe", Kind::Startup)];

/// The hooks and probes of a long-running container.
pub(crate) fn validate_lifecycle_and_probes(
    container: &Tree,
    grace_period: Option<i64>,
    os: &Tree,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(lifecycle) = container.get("lifecycle") {
        validate_lifecycle(lifecycle, grace_period, os, &path.field("lifecycle"), errors);
    }
    for (key, kind) in PROBES {
        if let Some(probe) = container.get(key) {
            validate_probe(probe, *kind, grace_period, &path.field(key), errors);
        }
    }
}

fn validate_lifecycle(lifecycle: &Tree, grace_period: Option<i64>, os: &Tree, path: &Path<'_>, errors: &mut Errors) {
    for key in ["postStart", "preStop"] {
        if let Some(hook) = lifecycle.get(key) {
            validate_handler(hook, HOOK_HANDLERS, grace_period, &path.field(key), errors);
        }
    }
    if lifecycle.has("stopSignal") {
        validate_stop_signal(lifecycle, os, path, errors);
    }
}

/// Signals depend on the operating system, so the pod must set it.
fn validate_stop_signal(lifecycle: &Tree, os: &Tree, path: &Path<'_>, errors: &mut Errors) {
    match os.str("name") {
        "" => errors.forbidden(&path.field("stopSignal"), "may not be set for containers with empty `spec.os.name`"),
        "windows" => check::one_of(lifecycle, "stopSignal", &["SIGKILL", "SIGTERM"], path, errors),
        _ => check::one_of(lifecycle, "stopSignal", LINUX_SIGNALS, path, errors),
    }
}

const LINUX_SIGNALS: &[&str] = &[
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

fn validate_probe(probe: &Tree, kind: Kind, grace_period: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    validate_handler(probe, PROBE_HANDLERS, grace_period, path, errors);
    for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        check::not_negative(probe, key, path, errors);
    }
    let grace = path.field("terminationGracePeriodSeconds");
    if let Some(seconds) = probe.int("terminationGracePeriodSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&grace, seconds, "must be greater than 0");
    }
    match kind {
        Kind::Readiness => {
            if let Some(seconds) = probe.int("terminationGracePeriodSeconds") {
                errors.invalid(&grace, seconds, "must not be set for readinessProbes");
            }
        }
        Kind::Liveness | Kind::Startup => {
            let threshold = probe.int("successThreshold").unwrap_or(0);
            if threshold != 1 {
                errors.invalid(&path.field("successThreshold"), threshold, "must be 1");
            }
        }
    }
}

type Validate = fn(&Tree, Option<i64>, &Path<'_>, &mut Errors);

const PROBE_HANDLERS: &[(&str, Validate)] =
    &[("exec", validate_exec), ("httpGet", validate_http_get), ("tcpSocket", validate_port), ("grpc", validate_port)];

const HOOK_HANDLERS: &[(&str, Validate)] =
    &[("exec", validate_exec), ("httpGet", validate_http_get), ("tcpSocket", validate_port), ("sleep", validate_sleep)];

/// Exactly one handler; only the first is validated.
fn validate_handler(
    tree: &Tree,
    handlers: &[(&str, Validate)],
    grace_period: Option<i64>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut found = false;
    for (key, validate) in handlers {
        let Some(handler) = tree.get(key) else { continue };
        if found {
            errors.forbidden(&path.field(key), "may not specify more than 1 handler type");
        } else {
            validate(handler, grace_period, &path.field(key), errors);
        }
        found = true;
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn validate_exec(exec: &Tree, _: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    if exec.list("command").is_empty() {
        errors.required(&path.field("command"), "");
    }
}

fn validate_http_get(get: &Tree, _: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    check::required(get, "path", path, errors);
    check::port(get.at("port"), &path.field("port"), errors);
    let scheme = get.str("scheme");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.not_supported(&path.field("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in get.list("httpHeaders") {
        let name = header.str("name");
        errors.invalid_all(&path.field("httpHeaders"), name, validation::http_header_name(name));
    }
}

fn validate_port(action: &Tree, _: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    check::port(action.at("port"), &path.field("port"), errors);
}

/// A missing grace period is reported elsewhere.
fn validate_sleep(sleep: &Tree, grace_period: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let Some(grace) = grace_period else { return };
    let seconds = sleep.int("seconds").unwrap_or(0);
    if seconds < 0 || seconds > grace {
        let text = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, &text);
    }
}
