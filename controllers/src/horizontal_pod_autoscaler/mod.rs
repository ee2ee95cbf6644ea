//! The horizontal pod autoscaler. `plan` decides the size; this module reads the scale and the metrics and writes the
//! scale.

mod behavior;
mod counts;
mod plan;
mod replicas;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Tree;
use api::selector::Selector;
use client::{Resource, Result, Selection, Store, index};
use stdx::sync::Mutex;

use tokio::time::Instant;

use crate::metrics;
use crate::support::kinds::{Kinds, LookupError, RestMapping};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use behavior::History;
use counts::ReconcileMetrics;
use plan::{Event, Inputs, MetricError, MetricValues, Plan};
use source::{ApiSource, Query, Source};

const AUTOSCALERS: Resource = Resource::new("autoscaling", "v2", "horizontalpodautoscalers");
const PODS: Resource = Resource::core("pods");
/// The target's controller updates its status concurrently.
const SCALE_TRIES: usize = 5;

struct Controller {
    autoscalers: Arc<Store>,
    pods: Arc<Store>,
    context: Context,
    kinds: Kinds,
    source: Box<dyn Source>,
    /// State by key, at most one for each autoscaler.
    known: Mutex<BTreeMap<String, AutoscalerState>>,
}

#[derive(Clone, Default)]
struct AutoscalerState {
    history: History,
    /// The last selector of the target's pods.
    selector: String,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let autoscalers = setup.informer(Selection::all(AUTOSCALERS));
    let pods = setup.informer(Selection::all(PODS));
    pods.index_by(index::LABELS);
    let queue = context.queue.clone();
    autoscalers.on_change(move |change| {
        let spec = |seen: &Option<client::ObservedObject>| seen.as_deref().map(|object| object.at("spec").clone());
        // Status changes do not trigger a reconcile before the sync period is over.
        if change.new.is_none() || spec(&change.old) != spec(&change.new) {
            queue.add(change.key.clone());
        }
    });
    let all = autoscalers.store().clone();
    context.metrics.on_collect([&metrics::HPA_DESIRED], move |metrics| counts::show(metrics, &all.all()));
    let source = ApiSource { client: context.client.clone(), kinds: Kinds::default() };
    let context = Context { recorder: context.recorder.named("horizontal-pod-autoscaler"), ..context.clone() };
    Some(Box::new(Controller {
        autoscalers: autoscalers.store().clone(),
        pods: pods.store().clone(),
        context,
        kinds: Kinds::default(),
        source: Box::new(source),
        known: Mutex::default(),
    }))
}

impl Controller {
    async fn sync(&self, key: &str) -> Result<Outcome> {
        let Some(autoscaler) = self.autoscalers.get(key) else {
            self.states().remove(key);
            return Ok(Outcome::Done);
        };
        let begun = Instant::now();
        let mut run_metrics = ReconcileMetrics::default();
        let result = self.reconcile_autoscaler(key, &autoscaler, &mut run_metrics).await;
        run_metrics.end(&self.context.metrics, result.is_ok(), begun.elapsed());
        // The sync period applies to failed reconciles too.
        match result {
            Err(error) if error.is_conflict() => Err(error),
            Err(error) => {
                tracing::debug!(key, %error, "failed to reconcile autoscaler, requeueing");
                Ok(Outcome::RequeueAfter(self.context.options.horizontal_pod_autoscaler_sync_period))
            }
            Ok(()) => Ok(Outcome::RequeueAfter(self.context.options.horizontal_pod_autoscaler_sync_period)),
        }
    }

    fn states(&self) -> stdx::sync::MutexGuard<'_, BTreeMap<String, AutoscalerState>> {
        self.known.lock()
    }

    async fn reconcile_autoscaler(
        &self,
        key: &str,
        autoscaler: &Tree,
        run_metrics: &mut ReconcileMetrics,
    ) -> Result<()> {
        let now = self.context.clock.now();
        let (served, scale) = match self.scale(autoscaler).await {
            Ok(found) => found,
            Err(why) => {
                run_metrics.fail("internal");
                return self.finish(autoscaler, plan::without_scale(autoscaler, &why.to_string(), now)).await;
            }
        };
        let namespace = autoscaler.str("metadata.namespace");
        let text = scale.str("status.selector").to_string();
        let selector = Selector::parse(&text);
        let pods = selector.as_ref().map_or_else(|_| Vec::new(), |selector| self.pods.select(namespace, selector));
        let options = &self.context.options;
        let reconcile_autoscaler = Inputs { autoscaler, scale: &scale, pods: &pods, options, now };
        let mut known = self.states().get(key).cloned().unwrap_or_default();
        known.history.begin(scale.int("spec.replicas").unwrap_or(0), now.seconds);
        known.selector.clone_from(&text);
        self.states().insert(key.to_string(), known.clone());
        let mut plan = match reconcile_autoscaler.begin() {
            (_, Some(plan)) => plan,
            (status, None) => {
                match self.selector_error(key, namespace, &text, selector.err().map(|e| e.to_string()), &pods) {
                    Some((reason, message, event, said)) => {
                        run_metrics.fail("spec");
                        reconcile_autoscaler.without_selector(status, (reason, &message), event, &said)
                    }
                    None => {
                        let readings = self.read(autoscaler, &text, run_metrics).await;
                        reconcile_autoscaler.by_metrics(status, &readings, &mut known.history)
                    }
                }
            }
        };
        if let Some((size, reason)) = plan.scale.clone() {
            run_metrics.act(scale.int("spec.replicas").unwrap_or(0), size);
            self.rescale(autoscaler, served, &scale, (size, &reason), &mut plan, &mut known.history).await;
        }
        run_metrics.record_failures(&plan.events);
        self.states().insert(key.to_string(), known);
        self.finish(autoscaler, plan).await
    }

    /// Why the target's pods cannot be determined: reason and message of the condition, reason and text of the event.
    fn selector_error(
        &self,
        key: &str,
        namespace: &str,
        selector: &str,
        bad: Option<String>,
        pods: &[Arc<Tree>],
    ) -> Option<(&'static str, String, &'static str, String)> {
        if selector.is_empty() {
            let message = "the HPA target's scale is missing a selector".to_string();
            return Some(("InvalidSelector", message, "SelectorRequired", "selector is required".to_string()));
        }
        if let Some(why) = bad {
            let text = format!("couldn't convert selector into a corresponding internal selector object: {why}");
            return Some(("InvalidSelector", text.clone(), "InvalidSelector", text));
        }
        let rivals = self.autoscalers_of_pods(key, namespace, pods);
        (rivals.len() > 1).then(|| {
            let text = format!("pods by selector {selector} are controlled by multiple HPAs: [{}]", rivals.join(" "));
            ("AmbiguousSelector", text.clone(), "AmbiguousSelector", text)
        })
    }

    /// The autoscalers in a namespace that select some of the same pods, including this one.
    fn autoscalers_of_pods(&self, key: &str, namespace: &str, pods: &[Arc<Tree>]) -> Vec<String> {
        let prefix = format!("{namespace}/");
        let known = self.states();
        let chooses = |other: &str, selector: &str| {
            let selector = Selector::parse(selector);
            other == key
                || selector.is_ok_and(|selector| {
                    !selector.is_everything() && pods.iter().any(|pod| selector.matches_map(pod.map("metadata.labels")))
                })
        };
        let rivals =
            known.iter().filter(|(other, known)| other.starts_with(&prefix) && chooses(other, &known.selector));
        let text = |key: &str| {
            let (namespace, name) = client::split(key);
            format!("{{{name} {namespace}}}")
        };
        rivals.map(|(other, _)| text(other)).collect()
    }

    /// The scale of the target, and the resource that serves it.
    async fn scale(&self, autoscaler: &Tree) -> std::result::Result<(RestMapping, Tree), LookupError> {
        let target = autoscaler.at("spec.scaleTargetRef");
        let (api_version, kind, name) = (target.str("apiVersion"), target.str("kind"), target.str("name"));
        let client = &self.context.client;
        let served = self.kinds.require(client, api_version, kind).await?;
        let namespace = autoscaler.str("metadata.namespace");
        match client.get_subresource(served.resource, namespace, name, "scale").await {
            Ok(scale) => Ok((served, scale)),
            Err(error) => {
                self.kinds.invalidate(api_version, kind);
                Err(error.into())
            }
        }
    }

    /// Reads the current value of each metric in the spec.
    async fn read(
        &self,
        autoscaler: &Tree,
        pods: &str,
        run_metrics: &mut ReconcileMetrics,
    ) -> Vec<std::result::Result<MetricValues, MetricError>> {
        let mut readings = Vec::new();
        for spec in autoscaler.list("spec.metrics") {
            let begun = Instant::now();
            let reading = self.read_one(autoscaler.str("metadata.namespace"), spec, pods).await;
            run_metrics.metric(spec.str("type"), reading.is_ok(), begun.elapsed());
            readings.push(reading);
        }
        readings
    }

    async fn read_one(
        &self,
        namespace: &str,
        spec: &Tree,
        pods: &str,
    ) -> std::result::Result<MetricValues, MetricError> {
        let source = plan::source(spec);
        let labels = match source.at("metric.selector") {
            Tree::Null => String::new(),
            selector => Selector::from_object(selector)?.to_string(),
        };
        let named = source.str("metric.name");
        let metric = if named.is_empty() { source.str("name") } else { named };
        let query = Query { namespace, metric, pods, labels: &labels };
        match spec.str("type") {
            "Resource" | "ContainerResource" => {
                let wrap = |source| MetricError::Resource { metric: metric.to_string(), source };
                self.source.resource(query, source.str("container")).await.map(MetricValues::Samples).map_err(wrap)
            }
            "Pods" => {
                let wrap = |source| MetricError::Pods { metric: metric.to_string(), source };
                self.source.pods(query).await.map(MetricValues::Samples).map_err(wrap)
            }
            "Object" => {
                let object = source.at("describedObject");
                let target = format!("{} on {namespace} {}", object.str("kind"), object.str("name"));
                let wrap = |source| MetricError::Object { metric: metric.to_string(), target, source };
                self.source.object(query, object).await.map(MetricValues::Value).map_err(wrap)
            }
            "External" => {
                let wrap = |source| MetricError::External { metric: format!("{namespace}/{metric}/{labels}"), source };
                self.source.external(query).await.map(|values| MetricValues::Value(values.iter().sum())).map_err(wrap)
            }
            other => Err(MetricError::UnknownType(other.to_string())),
        }
    }

    /// Writes the scale, and records the result in the status and as an event.
    async fn rescale(
        &self,
        autoscaler: &Tree,
        served: RestMapping,
        scale: &Tree,
        (size, reason): (i64, &str),
        plan: &mut Plan,
        history: &mut History,
    ) {
        let now = self.context.clock.now();
        match self.write_scale(served, scale, size).await {
            Ok(()) => {
                let message = format!("the HPA controller was able to update the target scale to {size}");
                plan::set_condition(&mut plan.status, "AbleToScale", true, ("SucceededRescale", &message), now);
                plan.status.set("lastScaleTime", api::time::format_seconds(now.seconds));
                let message = format!("New size: {size}; reason: {reason}");
                plan.events.push(Event { warns: false, reason: "SuccessfulRescale".to_string(), message });
                let from = scale.int("spec.replicas").unwrap_or(0);
                plan::set_scaled_conditions(autoscaler, &mut plan.status, from, size, now);
                history.scaled(from, size, autoscaler.at("spec.behavior"), now.seconds);
            }
            Err(error) => {
                let why = error.message();
                let message = format!("the HPA controller was unable to update the target scale: {why}");
                plan::set_condition(&mut plan.status, "AbleToScale", false, ("FailedUpdateScale", &message), now);
                plan.status.set("desiredReplicas", autoscaler.int("status.desiredReplicas").unwrap_or(0));
                let message = format!("New size: {size}; reason: {reason}; error: {why}");
                plan.events.push(Event::warning("FailedRescale", message));
            }
        }
    }

    /// Retries after conflicts with status updates: the decision remains valid.
    async fn write_scale(&self, served: RestMapping, scale: &Tree, size: i64) -> Result<()> {
        let (namespace, name) = (scale.str("metadata.namespace"), scale.str("metadata.name"));
        let client = &self.context.client;
        let mut changed = scale.clone();
        for _ in 0..SCALE_TRIES {
            changed.child("spec").set("replicas", size);
            match client.update_subresource(served.resource, namespace, name, "scale", &changed).await {
                Err(error) if error.is_conflict() => {}
                result => return result.map(|_| ()),
            }
            changed = client.get_subresource(served.resource, namespace, name, "scale").await?;
            if changed.at("spec") != scale.at("spec") {
                break;
            }
        }
        Err(client::Error::failed(format!("the scale of {name} keeps changing")))
    }

    /// Records the events, and writes the status if it changed.
    async fn finish(&self, autoscaler: &Tree, plan: Plan) -> Result<()> {
        for event in &plan.events {
            if event.warns {
                self.context.recorder.warning(autoscaler, &event.reason, event.message.as_str());
            } else {
                self.context.recorder.normal(autoscaler, &event.reason, event.message.as_str());
            }
        }
        if *autoscaler.at("status") == plan.status {
            return Ok(());
        }
        let mut changed = autoscaler.clone();
        changed.set("status", plan.status);
        let (namespace, name) = (autoscaler.str("metadata.namespace"), autoscaler.str("metadata.name"));
        match self.context.client.update_status(AUTOSCALERS, namespace, name, &changed).await {
            Err(error) if error.is_not_found() => Ok(()),
            result => result.map(|_| ()),
        }
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(self.sync(key))
    }
}
