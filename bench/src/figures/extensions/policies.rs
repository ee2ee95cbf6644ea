//! Creates of pods with a ValidatingAdmissionPolicy, against the same without one.

use std::time::Instant;

use super::SERVED_WITHIN;
use crate::Result;
use crate::child::Server;
use crate::figure::{BenchmarkResult, Goal, Report};
use crate::figures::Plan;
use crate::load::{Side, compare};
use crate::objects::{PODS, Template, pod};

const NAME: &str = "create pod with a policy against without";
const WRITERS: usize = 64;
const API: &str = "/apis/admissionregistration.k8s.io/v1";
const POLICY: &str = r#"{"kind":"ValidatingAdmissionPolicy","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"bench"},"spec":{"failurePolicy":"Fail","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["pods"]}]},"variables":[{"name":"containers","expression":"object.spec.containers"}],"validations":[{"expression":"variables.containers.all(c, c.image.startsWith('registry.example/'))","message":"images come from registry.example"},{"expression":"'app' in object.metadata.labels","message":"pods have the label app"},{"expression":"!has(object.spec.hostNetwork) || !object.spec.hostNetwork"}]}}"#;
const BINDING: &str = r#"{"kind":"ValidatingAdmissionPolicyBinding","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"name":"bench"},"spec":{"policyName":"bench","validationActions":["Deny"]}}"#;

pub(super) async fn run(plan: &Plan, report: &mut Report) -> Result<()> {
    let ours = Server::api(&plan.data("policy")).await?;
    let mut connection = ours.connect().await?;
    let policies = format!("{API}/validatingadmissionpolicies");
    if let Err(error) = connection.fetch(Template::post(&policies, POLICY).bytes()).await {
        report.skip(NAME, &format!("the server accepts no ValidatingAdmissionPolicy: {error}"));
        return Ok(());
    }
    let bindings = format!("{API}/validatingadmissionpolicybindings");
    connection.fetch(Template::post(&bindings, BINDING).bytes()).await?;
    wait_until_enforced(&ours).await?;
    let without = Server::api(&plan.data("no-policy")).await?;
    let create = Template::post(PODS, &pod("policy", 0));
    let mut ours = Side::open(&ours, WRITERS, create.clone()).await?;
    let mut without = Side::open(&without, WRITERS, create).await?;
    let (value, limit) = compare(&mut ours, &mut without, plan.rounds, plan.round).await?;
    report.add(&BenchmarkResult { name: NAME, value, unit: "1/s", limit, goal: Goal::AtLeast(0.85) });
    Ok(())
}

/// Policies are watched: the first requests may come before them.
async fn wait_until_enforced(server: &Server) -> Result<()> {
    let (mut connection, started) = (server.connect().await?, Instant::now());
    let refused = pod("refused", 0).replace("registry.example/", "elsewhere.example/");
    let request = Template::post(&format!("{PODS}?dryRun=All"), &refused);
    while connection.exchange(request.bytes()).await?.code != 422 {
        if started.elapsed() > SERVED_WITHIN {
            return Err("the policy is not enforced".into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(())
}
