//! Deletes pods whose devices have NoExecute taints that their claims do not tolerate, and reports it in the rules that
//! add such taints.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Tree, tree};
use client::index::Index;
use client::{DeleteOptions, Patch, Queue, Resource, Result, Selection, Store, key, split};
use devices::{Claim, DeviceId, ResourceSlice, TaintEffect, TaintRule};
use stdx::sync::Mutex;

use crate::support::PODS;
use crate::support::resource_claims::{BY_RESOURCE_CLAIM, CLAIMS, is_allocated};
use crate::{Context, Outcome, Reconcile, ReconcileFuture, Setup};
use plan::{Devices, RuleCounts};

const SLICES: Selection = Selection::all(Resource::new("resource.k8s.io", "v1", "resourceslices"));
const RULES: Selection = Selection::all(Resource::new("resource.k8s.io", "v1", "devicetaintrules"));
/// Slices by their pool, and allocated claims by the pools of their devices.
const BY_POOL: Index = Index { name: "pool", values: pool_of };
const BY_ALLOCATED_POOL: Index = Index { name: "allocated-pool", values: allocated_pools };

const POD: &str = "pod:";
const RULE: &str = "rule:";
const REASON: &str = "DeviceTaintManagerEviction";
const MANAGER: &str = "device-taint-eviction-controller";
/// The condition of a rule changes no more often.
const RULE_STATUS_PERIOD: Duration = Duration::from_secs(10);
/// Rules of which the numbers of evicted pods are kept.
const MAX_RULES: usize = 4096;

struct Controller {
    pods: Arc<Store>,
    claims: Arc<Store>,
    slices: Arc<Store>,
    rules: Arc<Store>,
    /// By the uid of a rule: the pods that were evicted because of it.
    evicted: Mutex<BTreeMap<String, usize>>,
    /// Pods, by uid, whose eviction is due later.
    planned: Mutex<BTreeSet<String>>,
    context: Context,
}

pub(crate) fn start(setup: &Setup, context: &Context) -> Option<Box<dyn Reconcile>> {
    let (pods, claims) = (setup.informer(PODS), setup.informer(CLAIMS));
    let (slices, rules) = (setup.informer(SLICES), setup.informer(RULES));
    pods.index_by(BY_RESOURCE_CLAIM);
    claims.index_by(BY_ALLOCATED_POOL);
    slices.index_by(BY_POOL);
    let queue = context.queue.clone();
    pods.on_change(move |change| {
        let has_claims = |pod: &&Tree| !pod.list("spec.resourceClaims").is_empty();
        if change.new.as_deref().filter(has_claims).is_some() {
            queue.add(prefixed(POD, &change.key));
        }
    });
    let (store, queue) = (pods.store().clone(), context.queue.clone());
    claims.on_change(move |change| enqueue_users(&store, &queue, &change.key));
    let (store, by_pool, queue) = (pods.store().clone(), claims.store().clone(), context.queue.clone());
    slices.on_change(move |change| {
        let pools: BTreeSet<String> =
            [&change.old, &change.new].into_iter().flatten().flat_map(|slice| pool_of(slice)).collect();
        for claim in pools.iter().flat_map(|pool| by_pool.find_keys(BY_ALLOCATED_POOL, pool)) {
            enqueue_users(&store, &queue, &claim);
        }
    });
    let (store, all, queue) = (pods.store().clone(), claims.store().clone(), context.queue.clone());
    rules.on_change(move |change| {
        let spec = |rule: Option<&Tree>| rule.map(|rule| rule.at("spec").clone());
        if spec(change.old.as_deref()) == spec(change.new.as_deref()) {
            return;
        }
        for claim in all.all().iter().filter(|claim| is_allocated(claim)) {
            enqueue_users(&store, &queue, &client::key_of(claim));
        }
        if change.new.is_some() {
            queue.add(prefixed(RULE, &change.key));
        }
    });
    Some(Box::new(Controller {
        pods: pods.store().clone(),
        claims: claims.store().clone(),
        slices: slices.store().clone(),
        rules: rules.store().clone(),
        evicted: Mutex::default(),
        planned: Mutex::default(),
        context: context.clone(),
    }))
}

fn prefixed(prefix: &str, key: &str) -> client::Key {
    client::Key::from(format!("{prefix}{key}"))
}

fn enqueue_users(pods: &Store, queue: &Queue, claim: &str) {
    pods.find_keys(BY_RESOURCE_CLAIM, claim).iter().for_each(|key| queue.add(prefixed(POD, key)));
}

fn pool_of(slice: &Tree) -> Vec<String> {
    vec![format!("{}/{}", slice.str("spec.driver"), slice.str("spec.pool.name"))]
}

fn allocated_pools(claim: &Tree) -> Vec<String> {
    let devices = claim.list("status.allocation.devices.results").iter();
    let pools: BTreeSet<String> = devices.map(|one| format!("{}/{}", one.str("driver"), one.str("pool"))).collect();
    pools.into_iter().collect()
}

/// The devices as the informers know them, with the rules of the moment.
struct KnownDevices<'a> {
    controller: &'a Controller,
    rules: Vec<TaintRule>,
}

impl Devices for KnownDevices<'_> {
    fn claim(&self, namespace: &str, name: &str) -> Option<Arc<Claim>> {
        self.controller.claims.get(&key(namespace, name)).map(|claim| Arc::new(Claim::read(&claim)))
    }

    fn slices(&self, driver: &str, pool: &str) -> Vec<ResourceSlice> {
        let found = self.controller.slices.find(BY_POOL, &format!("{driver}/{pool}"));
        let mut slices: Vec<ResourceSlice> = found.iter().map(|slice| ResourceSlice::read(slice)).collect();
        let newest = slices.iter().map(|slice| slice.generation).max();
        slices.retain(|slice| Some(slice.generation) == newest);
        slices
    }

    fn rules(&self) -> &[TaintRule] {
        &self.rules
    }
}

impl Controller {
    fn devices(&self) -> KnownDevices<'_> {
        KnownDevices { controller: self, rules: self.rules.all().iter().map(|rule| TaintRule::read(rule)).collect() }
    }

    async fn sync_pod(&self, pod_key: &str) -> Result<Outcome> {
        let Some(pod) = self.pods.get(pod_key) else { return Ok(Outcome::Done) };
        let uid = pod.str("metadata.uid").to_string();
        let Some(eviction) = plan::eviction_of(&pod, &self.devices()) else {
            if self.planned.lock().remove(&uid) {
                self.context.recorder.normal(&pod, REASON, "Cancelling deletion");
            }
            return Ok(Outcome::Done);
        };
        let left = eviction.at.saturating_sub(self.context.now_seconds());
        if let Ok(seconds @ 1..) = u64::try_from(left) {
            self.planned.lock().insert(uid);
            return Ok(Outcome::RequeueAfter(Duration::from_secs(seconds)));
        }
        self.evict(pod_key, &pod).await?;
        self.planned.lock().remove(&uid);
        self.count_evictions(&eviction.rules);
        Ok(Outcome::Done)
    }

    /// Both requests have the pod's uid: another pod of this name is not affected.
    async fn evict(&self, pod_key: &str, pod: &Tree) -> Result<()> {
        let (namespace, name) = split(pod_key);
        let client = &self.context.client;
        self.context.recorder.normal(pod, REASON, "Marking for deletion");
        let patch = plan::disruption_patch(pod, self.context.now_seconds());
        let patched = client.patch(PODS.resource, namespace, name, "status", Patch::Strategic(&patch)).await;
        let deleted = match patched {
            Ok(_) => client.delete(PODS.resource, namespace, name, DeleteOptions::of(pod)).await.map(drop),
            Err(error) => Err(error),
        };
        match deleted {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn count_evictions(&self, rules: &BTreeSet<String>) {
        let mut evicted = self.evicted.lock();
        for rule in rules.iter().filter_map(|name| self.rules.get(name)) {
            let uid = rule.str("metadata.uid");
            if evicted.len() < MAX_RULES || evicted.contains_key(uid) {
                *evicted.entry(uid.to_string()).or_default() += 1;
            }
            self.context.queue.add_after(prefixed(RULE, rule.str("metadata.name")), RULE_STATUS_PERIOD);
        }
    }

    async fn sync_rule(&self, name: &str) -> Result<Outcome> {
        let Some(rule) = self.rules.get(name) else { return Ok(Outcome::Done) };
        let known = rule.list("status.conditions").iter().find(|one| one.str("type") == "EvictionInProgress");
        let generation = rule.int("metadata.generation");
        if let Some(known) = known.filter(|known| known.int("observedGeneration") == generation) {
            let changed = api::time::parse(known.str("lastTransitionTime")).map_or(0, |time| time.seconds);
            let since = Duration::from_secs(u64::try_from(self.context.now_seconds() - changed).unwrap_or(0));
            if since < RULE_STATUS_PERIOD {
                return Ok(Outcome::RequeueAfter(RULE_STATUS_PERIOD - since));
            }
        }
        let mut condition = plan::condition_of(&rule, self.count(&rule));
        let fields = ["status", "reason", "message", "observedGeneration"];
        if known.is_some_and(|known| fields.iter().all(|field| known.at(field) == condition.at(field))) {
            return Ok(Outcome::Done);
        }
        condition.set("lastTransitionTime", api::time::format_seconds(self.context.now_seconds()));
        let object = tree! {
            "apiVersion" => "resource.k8s.io/v1",
            "kind" => "DeviceTaintRule",
            "metadata" => tree! { "name" => name, "uid" => rule.str("metadata.uid") },
            "status" => tree! { "conditions" => api::list![condition] },
        };
        let patch = Patch::Apply { object: &object, manager: MANAGER, force: true };
        self.context.client.patch(RULES.resource, "", name, "status", patch).await?;
        Ok(Outcome::Done)
    }

    /// What a rule does; a rule without an effect is counted as if it evicted.
    fn count(&self, rule: &Tree) -> RuleCounts {
        let own = TaintRule::read(rule);
        let mut devices = self.devices();
        if own.taint.effect() == TaintEffect::None {
            let simulated = devices.rules.iter_mut().filter(|one| one.name == own.name);
            simulated.for_each(|one| one.taint.effect = "NoExecute".into());
        }
        let mut counts = RuleCounts::default();
        let mut namespaces = BTreeSet::new();
        for pod in self.pods.all().iter().filter(|pod| !pod.list("spec.resourceClaims").is_empty()) {
            let eviction = plan::eviction_of(pod, &devices);
            if eviction.is_some_and(|eviction| eviction.rules.contains(own.name.as_str())) {
                counts.pending_pods += 1;
                namespaces.insert(pod.str("metadata.namespace").to_string());
            }
        }
        counts.pending_namespaces = namespaces.len();
        counts.evicted = self.evicted.lock().get(rule.str("metadata.uid")).copied().unwrap_or(0);
        let slices: Vec<ResourceSlice> = self.slices.all().iter().map(|slice| ResourceSlice::read(slice)).collect();
        let ids = slices.iter().flat_map(|slice| slice.devices.iter().map(|device| slice.id_of(device)));
        counts.published = ids.filter(|id| own.selects(id)).count();
        let claims = self.claims.all();
        let results = claims.iter().flat_map(|claim| claim.list("status.allocation.devices.results"));
        counts.allocated = results.map(DeviceId::read).filter(|id| own.selects(id)).count();
        counts
    }
}

impl Reconcile for Controller {
    fn reconcile<'a>(&'a self, key: &'a str) -> ReconcileFuture<'a> {
        Box::pin(async move {
            match (key.strip_prefix(POD), key.strip_prefix(RULE)) {
                (Some(key), _) => self.sync_pod(key).await,
                (_, Some(name)) => self.sync_rule(name).await,
                (None, None) => Ok(Outcome::Done),
            }
        })
    }
}
