//! Extensions of the API: what custom resources, their rules and admission policies cost against built-in objects, and
//! what many definitions cost the server.

mod custom;
mod many;
mod policies;
mod rules;

use std::time::{Duration, Instant};

use super::{MIB, Plan};
use crate::Result;
use crate::child::Server;
use crate::client::Connection;
use crate::figure::Report;
use crate::objects::Template;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// A definition that is not served within this time is broken.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(quick: bool, plan: &Plan, report: &mut Report) -> Result<()> {
    report.progress("measuring custom resources");
    custom::run(plan, report).await?;
    report.progress("measuring the evaluation of rules");
    rules::run(report)?;
    report.progress("measuring many definitions");
    many::run(quick, plan, report).await?;
    report.progress("measuring an admission policy");
    policies::run(plan, report).await
}

/// A definition of a namespaced resource with one version.
fn definition(group: &str, plural: &str, kind: &str, schema: &str) -> String {
    format!(
        r#"{{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{{"name":"{plural}.{group}"}},"spec":{{"group":"{group}","scope":"Namespaced","names":{{"plural":"{plural}","kind":"{kind}"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#
    )
}

/// The path of the objects of a definition.
fn collection(group: &str, plural: &str) -> String {
    format!("/apis/{group}/v1/namespaces/default/{plural}")
}

/// Creates a definition, and waits until its resource is served: the time from the request to the first good response.
async fn install(server: &Server, definition: &str, path: &str) -> Result<Duration> {
    let mut connection = server.connect().await?;
    let started = Instant::now();
    connection.fetch(Template::post(CRDS, definition).bytes()).await?;
    wait_until_served(&mut connection, path, started).await?;
    Ok(started.elapsed())
}

async fn wait_until_served(connection: &mut Connection, path: &str, started: Instant) -> Result<()> {
    let request = Template::get(path);
    while connection.exchange(request.bytes()).await?.code != 200 {
        if started.elapsed() > SERVED_WITHIN {
            return Err(format!("{path} is not served").into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
