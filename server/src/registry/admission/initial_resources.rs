//! InitialResources, of old Kubernetes: a container without requests gets the usage of containers with the same image,
//! as kubelets report it.

use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use api::quantity::{Format, Quantity};
use api::status::Status;

use super::setup::{FieldError, Source};
use super::{Attributes, Operation, Settings};
use crate::registry::usage::history::History;

const ANNOTATION: &str = "kubernetes.io/initial-resources";
/// The number of samples that make a good estimate.
const ENOUGH: u64 = 30;
const DAY: u64 = 86_400;
const WEEK: Duration = Duration::from_secs(7 * DAY);
const MONTH: Duration = Duration::from_secs(30 * DAY);

/// A query for past usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageQuery<'a> {
    /// `cpu` in thousandths, or `memory` in bytes.
    pub resource: &'a str,
    pub percentile: u8,
    /// The image with its tag, or without for any tag.
    pub image: &'a str,
    pub any_tag: bool,
    /// "" for all.
    pub namespace: &'a str,
    pub since: Duration,
}

/// The usage of containers: the percentile, and the number of samples.
pub trait Usage: Send + Sync {
    fn percentile(&self, question: &UsageQuery<'_>) -> Option<(i64, u64)>;
}

pub(crate) struct Estimates {
    percentile: u8,
    namespace_only: bool,
    pub usage: Arc<dyn Usage>,
    /// The usage collected from nodes, unless the configuration names another source.
    pub history: Arc<History>,
}

impl Default for Estimates {
    fn default() -> Estimates {
        let history: Arc<History> = Arc::default();
        Estimates { percentile: 90, namespace_only: false, usage: history.clone(), history }
    }
}

pub(crate) fn configure(settings: &mut Settings, source: &Source<'_>) -> Result<(), FieldError> {
    source.only("", source.tree, &["percentile", "namespaceOnly"])?;
    if let Some(percentile) = source.tree.int("percentile") {
        let given = u8::try_from(percentile).ok().filter(|percentile| (1..=100).contains(percentile));
        let out_of_range = || FieldError::new("percentile", "it must be between 1 and 100");
        settings.estimates.percentile = given.ok_or_else(out_of_range)?;
    }
    settings.estimates.namespace_only = source.tree.bool("namespaceOnly");
    Ok(())
}

pub(crate) fn mutate(
    attributes: &Attributes<'_>,
    pod: &mut Tree,
    _: Option<&Tree>,
    _: &mut Vec<String>,
) -> Result<(), Status> {
    let estimates = &attributes.registry.admission.settings.estimates;
    if attributes.is("", "Pod", Operation::Create) {
        fill(pod, estimates, &*estimates.usage, attributes.namespace);
    }
    Ok(())
}

fn fill(pod: &mut Tree, estimates: &Estimates, usage: &dyn Usage, namespace: &str) {
    let mut changes = Vec::new();
    for container in pod.child("spec").list_mut("containers") {
        let mut set = Vec::new();
        for resource in ["cpu", "memory"] {
            let resources = container.at("resources");
            if resources.at("requests").has(resource) || resources.at("limits").has(resource) {
                continue;
            }
            let image = container.str("image").to_string();
            if let Some(amount) = estimate(estimates, usage, resource, &image, namespace) {
                container.child("resources.requests").set(resource, quantity(resource, amount));
                set.push(resource);
            }
        }
        if !set.is_empty() {
            changes.push(format!("{} request for container {}", set.join(", "), container.str("name")));
        }
    }
    if !changes.is_empty() {
        let text = format!("Initial Resources plugin set: {}", changes.join("; "));
        pod.child("metadata.annotations").set(ANNOTATION, text);
    }
}

fn quantity(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" => Quantity::milli(amount, Format::DecimalSI).to_string(),
        _ => Quantity::new(amount, Format::DecimalSI).to_string(),
    }
}

/// The colon of a port precedes a slash; the colon of a tag follows the last slash.
pub(crate) fn without_tag(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or(image);
    name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).map_or(name, |(name, _)| name)
}

/// From near to far: the first scope with enough samples is used, else the last one with any.
fn estimate(estimates: &Estimates, usage: &dyn Usage, resource: &str, image: &str, namespace: &str) -> Option<i64> {
    let bare = without_tag(image);
    let near: &[_] = &[(image, false, namespace, WEEK), (image, false, namespace, MONTH)];
    let far: &[_] = if estimates.namespace_only {
        &[(bare, true, namespace, MONTH)]
    } else {
        &[(image, false, "", WEEK), (image, false, "", MONTH), (bare, true, "", MONTH)]
    };
    let mut found = None;
    for (image, any_tag, namespace, since) in near.iter().chain(far).copied() {
        let percentile = estimates.percentile;
        let (amount, samples) =
            usage.percentile(&UsageQuery { resource, percentile, image, any_tag, namespace, since }).unwrap_or((0, 0));
        found = (samples > 0).then_some(amount);
        if samples >= ENOUGH {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::json;
    use super::*;

    /// Samples by image, namespace and days; the rest has none.
    struct FakeUsage(Vec<(&'static str, &'static str, u64, i64, u64)>);

    impl Usage for FakeUsage {
        fn percentile(&self, request: &UsageQuery<'_>) -> Option<(i64, u64)> {
            let days = request.since.as_secs() / DAY;
            let found = self.0.iter().find(|(image, namespace, since, _, _)| {
                (*image, *namespace, *since) == (request.image, request.namespace, days)
            });
            found.filter(|_| request.percentile == 90).map(|(_, _, _, amount, samples)| (*amount, *samples))
        }
    }

    fn check(given: FakeUsage, namespace_only: bool, container: &str, want: &str) {
        let mut pod = json(&format!(r#"{{"spec":{{"containers":[{container}]}}}}"#));
        fill(&mut pod, &Estimates { namespace_only, ..Estimates::default() }, &given, "n");
        let requests = pod.list("spec.containers")[0].at("resources.requests");
        let got = format!("{} {}", requests.str("cpu"), requests.str("memory"));
        assert_eq!(got, want);
        assert_eq!(pod.map("metadata.annotations").contains(ANNOTATION), want != " ");
    }

    #[test]
    fn the_nearest_place_with_enough_samples_counts() {
        let bare = r#"{"name":"c","image":"app:1"}"#;
        check(FakeUsage(vec![]), false, bare, " ");
        check(FakeUsage(vec![("app:1", "n", 7, 100, 30)]), false, bare, "100m 100");
        check(FakeUsage(vec![("app:1", "n", 7, 100, 5), ("app:1", "n", 30, 200, 40)]), false, bare, "200m 200");
        check(FakeUsage(vec![("app:1", "", 30, 300, 40)]), false, bare, "300m 300");
        check(FakeUsage(vec![("app", "", 30, 400, 1)]), false, bare, "400m 400");
        check(FakeUsage(vec![("app", "", 30, 400, 50)]), true, bare, " ");
        let asks = r#"{"name":"c","image":"app:1","resources":{"limits":{"cpu":"1"}}}"#;
        check(FakeUsage(vec![("app:1", "n", 7, 100, 30)]), false, asks, " 100");
    }
}
