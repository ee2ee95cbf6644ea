//! `/healthz`, `/livez` and `/readyz`: one list of checks, each by upstream's name where upstream has it.

use std::time::Duration;

use super::Step;
use crate::call::{Answer, answer, text};
use crate::request::head::RequestHead;
use crate::routes::Routes;

struct Check {
    name: &'static str,
    probes: &'static [&'static str],
    test: Test,
}

enum Test {
    /// True for any server that responds: it is done before the port is opened.
    Answers,
    Store,
    Done(Step),
    /// New requests are taken.
    Open,
}

const ALL: &[&str] = &["healthz", "livez", "readyz"];
const READY: &[&str] = &["readyz"];

/// How long the store may take to say a word.
const PATIENCE: Duration = Duration::from_secs(2);

const fn check(name: &'static str, probes: &'static [&'static str], test: Test) -> Check {
    Check { name, probes, test }
}

/// In the order in which they are shown.
const CHECKS: &[Check] = &[
    check("ping", ALL, Test::Answers),
    check("log", ALL, Test::Answers),
    check("etcd", ALL, Test::Store),
    check("etcd-readiness", READY, Test::Store),
    check("informer-sync", READY, Test::Answers),
    check("poststarthook/generic-apiserver-start-informers", ALL, Test::Answers),
    check("poststarthook/priority-and-fairness-config-consumer", ALL, Test::Answers),
    check("poststarthook/priority-and-fairness-filter", ALL, Test::Answers),
    check("poststarthook/start-system-namespaces-controller", ALL, Test::Done(Step::Cluster)),
    check("poststarthook/start-cluster-authentication-info-controller", ALL, Test::Done(Step::Identity)),
    check("poststarthook/start-kube-apiserver-identity-lease-controller", ALL, Test::Done(Step::Identity)),
    check("poststarthook/storage-readiness", ALL, Test::Answers),
    check("poststarthook/start-legacy-token-tracking-controller", ALL, Test::Done(Step::Identity)),
    check("poststarthook/start-service-ip-repair-controllers", ALL, Test::Done(Step::Repair)),
    check("poststarthook/rbac/bootstrap-roles", ALL, Test::Done(Step::Roles)),
    check("poststarthook/scheduling/bootstrap-system-priority-classes", ALL, Test::Done(Step::Cluster)),
    check("poststarthook/priority-and-fairness-config-producer", ALL, Test::Done(Step::Cluster)),
    check("poststarthook/bootstrap-controller", ALL, Test::Done(Step::Service)),
    check("poststarthook/start-kubernetes-service-cidr-controller", ALL, Test::Done(Step::Identity)),
    check("poststarthook/apiservice-status-local-available-controller", ALL, Test::Done(Step::Cluster)),
    check("poststarthook/apiservice-registration-controller", ALL, Test::Done(Step::Cluster)),
    check("poststarthook/kube-apiserver-autoregistration", ALL, Test::Done(Step::Cluster)),
    check("autoregister-completion", ALL, Test::Done(Step::Cluster)),
    check("shutdown", READY, Test::Open),
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
            Test::Answers => true,
            Test::Store => {
                matches!(tokio::time::timeout(PATIENCE, routes.registry.storage.store.revision()).await, Ok(Ok(_)))
            }
            Test::Done(step) => routes.health.is_done(step),
            Test::Open => !routes.health.is_leaving() && !*routes.registry.closing.borrow(),
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

pub(super) async fn route(routes: &Routes, head: &RequestHead) -> Option<Answer> {
    let path = head.path.strip_prefix('/')?;
    if path == "metrics/slis" {
        let lines = indicators(routes).await;
        return Some(answer(200, "text/plain; version=0.0.4; charset=utf-8", lines.into_bytes()));
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

/// All checks of a probe; each is listed if the client asks for it, or if one fails.
async fn whole(routes: &Routes, head: &RequestHead, probe: &'static str) -> Answer {
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
