//! `/healthz`, `/livez` and `/readyz`: one list of checks, with upstream's names where upstream has the check.

use std::time::Duration;

use super::Step;
use crate::call::{HttpResponse, build_response, text};
use crate::request::head::RequestHead;
use crate::routes::Routes;

struct Check {
    name: &'static str,
    probes: &'static [&'static str],
    test: CheckKind,
}

enum CheckKind {
    /// True for any server that responds: it is done before the port is opened.
    Answers,
    Store,
    Done(Step),
    /// New requests are accepted.
    Open,
}

const ALL: &[&str] = &["healthz", "livez", "readyz"];
const READY: &[&str] = &["readyz"];

/// The timeout of a request to the store.
const PATIENCE: Duration = Duration::from_secs(2);

const fn check(name: &'static str, probes: &'static [&'static str], test: CheckKind) -> Check {
    Check { name, probes, test }
}

/// In the order of the output.
const CHECKS: &[Check] = &[
    check("ping", ALL, CheckKind::Answers),
    check("log", ALL, CheckKind::Answers),
    check("etcd", ALL, CheckKind::Store),
    check("etcd-readiness", READY, CheckKind::Store),
    check("informer-sync", READY, CheckKind::Answers),
    check("poststarthook/generic-apiserver-start-informers", ALL, CheckKind::Answers),
    check("poststarthook/priority-and-fairness-config-consumer", ALL, CheckKind::Answers),
    check("poststarthook/priority-and-fairness-filter", ALL, CheckKind::Answers),
    check("poststarthook/start-system-namespaces-controller", ALL, CheckKind::Done(Step::Cluster)),
    check("poststarthook/start-cluster-authentication-info-controller", ALL, CheckKind::Done(Step::Identity)),
    check("poststarthook/start-kube-apiserver-identity-lease-controller", ALL, CheckKind::Done(Step::Identity)),
    check("poststarthook/storage-readiness", ALL, CheckKind::Answers),
    check("poststarthook/start-legacy-token-tracking-controller", ALL, CheckKind::Done(Step::Identity)),
    check("poststarthook/start-service-ip-repair-controllers", ALL, CheckKind::Done(Step::Repair)),
    check("poststarthook/rbac/bootstrap-roles", ALL, CheckKind::Done(Step::Roles)),
    check("poststarthook/scheduling/bootstrap-system-priority-classes", ALL, CheckKind::Done(Step::Cluster)),
    check("poststarthook/priority-and-fairness-config-producer", ALL, CheckKind::Done(Step::Cluster)),
    check("poststarthook/bootstrap-controller", ALL, CheckKind::Done(Step::Service)),
    check("poststarthook/start-kubernetes-service-cidr-controller", ALL, CheckKind::Done(Step::Identity)),
    check("poststarthook/apiservice-status-local-available-controller", ALL, CheckKind::Done(Step::Cluster)),
    check("poststarthook/apiservice-registration-controller", ALL, CheckKind::Done(Step::Cluster)),
    check("poststarthook/kube-apiserver-autoregistration", ALL, CheckKind::Done(Step::Cluster)),
    check("autoregister-completion", ALL, CheckKind::Done(Step::Cluster)),
    check("shutdown", READY, CheckKind::Open),
];

impl Check {
    /// The same, counted for a probe.
    async fn run(&self, routes: &Routes, probe: &'static str) -> bool {
        let passes = self.passes(routes).await;
        routes.health.slis.record(probe, self.name, passes);
        passes
    }

    async fn passes(&self, routes: &Routes) -> bool {
        match self.test {
            CheckKind::Answers => true,
            CheckKind::Store => {
                matches!(tokio::time::timeout(PATIENCE, routes.registry.storage.store.revision()).await, Ok(Ok(_)))
            }
            CheckKind::Done(step) => routes.health.is_done(step),
            CheckKind::Open => !routes.health.is_leaving() && !*routes.registry.closing.borrow(),
        }
    }
}

fn of(probe: &str) -> impl Iterator<Item = &'static Check> {
    CHECKS.iter().filter(move |check| check.probes.contains(&probe))
}

/// The path of every probe and check.
pub(super) fn paths() -> Vec<String> {
    let below = |probe: &&str| of(probe).map(|check| format!("/{probe}/{}", check.name)).collect::<Vec<_>>();
    ALL.iter().map(|probe| format!("/{probe}")).chain(ALL.iter().flat_map(below)).collect()
}

pub(super) async fn route(routes: &Routes, head: &RequestHead) -> Option<HttpResponse> {
    let path = head.path.strip_prefix('/')?;
    if path == "metrics/slis" {
        let lines = indicators(routes).await;
        return Some(build_response(200, "text/plain; version=0.0.4; charset=utf-8", lines.into_bytes()));
    }
    let (probe, name) = path.split_once('/').unwrap_or((path, ""));
    let probe = *ALL.iter().find(|known| **known == probe)?;
    if name.is_empty() {
        return Some(whole(routes, head, probe).await);
    }
    let check = of(probe).find(|check| check.name == name)?;
    Some(if check.run(routes, probe).await {
        text(200, "ok")
    } else {
        text(500, "internal server error: reason withheld\n")
    })
}

/// Runs all checks of a probe; they are listed if the client requests it, or if one fails.
async fn whole(routes: &Routes, head: &RequestHead, probe: &'static str) -> HttpResponse {
    let mut excluded: Vec<&str> = head.query.all("exclude").filter(|name| !name.is_empty()).collect();
    let (mut lines, mut failed) = (String::new(), false);
    for check in of(probe) {
        let line = if excluded.contains(&check.name) {
            excluded.retain(|name| *name != check.name);
            format!("[+]{} excluded: ok\n", check.name)
        } else if check.run(routes, probe).await {
            format!("[+]{} ok\n", check.name)
        } else {
            failed = true;
            format!("[-]{} failed: reason withheld\n", check.name)
        };
        lines.push_str(&line);
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| format!("{name:?}")).collect();
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", names.join(", ")));
    }
    match (failed, head.query.has("verbose")) {
        (true, _) => text(500, &format!("{lines}{probe} check failed\n")),
        (false, true) => text(200, &format!("{lines}{probe} check passed\n")),
        (false, false) => text(200, "ok"),
    }
}

async fn indicators(routes: &Routes) -> String {
    let mut now = Vec::new();
    for probe in ALL {
        for check in of(probe) {
            now.push(((*probe, check.name), check.passes(routes).await));
        }
    }
    routes.health.slis.text(&now)
}
