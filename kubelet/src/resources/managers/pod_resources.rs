//! The pod resources API: monitoring agents call this socket for the CPUs, memory and devices of pods.

pub(crate) mod wire;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use cri::Status;
use cri::grpc::{Body, BoxFuture, ResponseFuture, respond_unary, serve_calls};
use stdx::sync::Mutex;
use stdx::token_bucket::TokenBucket;
use tokio::net::UnixListener;
use tokio::time::Instant;

use super::numa::Mask;
use super::{Managers, metrics, requests};
use crate::model::pod;
use crate::model::state::ListPods;
use wire::*;

/// Upstream's limits.
const PER_SECOND: f64 = 100.0;
const BURST: f64 = 10.0;
const PAUSE: Duration = Duration::from_secs(5);

/// Lists the pods of the node at the time of a call.
pub(crate) type Pods = Arc<dyn Fn() -> Vec<Arc<Tree>> + Send + Sync>;

/// Serves for ever.
pub(crate) async fn serve(managers: Arc<Managers>, list: ListPods) {
    let dir = managers.config.root_dir.join("pod-resources");
    let pods: Pods = Arc::new(move || {
        let runs = |pod: &Arc<Tree>| !pod::is_over(pod) && !pod.list("spec.containers").is_empty();
        list().into_iter().map(|(pod, _)| pod).filter(runs).collect()
    });
    loop {
        if let Err(error) = serve_once(&managers, &pods, &dir).await {
            tracing::warn!(%error, dir = %dir.display(), "failed to serve the pod resources API");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub(crate) async fn serve_once(managers: &Arc<Managers>, pods: &Pods, dir: &Path) -> std::io::Result<()> {
    crate::volumes::create_dirs(dir)?;
    let socket = dir.join("kubelet.sock");
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let service = Arc::new(Service {
        managers: managers.clone(),
        pods: pods.clone(),
        bucket: Mutex::new(TokenBucket::new(PER_SECOND, BURST, Instant::now())),
    });
    serve_calls(UnixListener::bind(socket)?, Arc::new(move |request| answer(&service, request))).await
}

struct Service {
    managers: Arc<Managers>,
    pods: Pods,
    /// Limits the calls.
    bucket: Mutex<TokenBucket<Instant>>,
}

fn answer(service: &Arc<Service>, request: http::Request<Body>) -> ResponseFuture {
    match request.uri().path() {
        "/v1.PodResourcesLister/List" => respond(service, request, |service, _: Empty| Ok(service.list())),
        "/v1.PodResourcesLister/Get" => respond(service, request, Service::get),
        "/v1.PodResourcesLister/GetAllocatableResources" => {
            respond(service, request, |service, _: Empty| Ok(service.allocatable()))
        }
        "/v1alpha1.PodResourcesLister/List" => {
            respond(service, request, |service, _: Empty| Ok(service.list_devices()))
        }
        path => {
            let status = Status::unimplemented(format!("unknown method {path}"));
            Box::pin(async move { status.into_http() })
        }
    }
}

fn respond<Q, A>(
    service: &Arc<Service>,
    request: http::Request<Body>,
    call: impl Fn(&Service, Q) -> Result<A, Status> + Send + Sync + 'static,
) -> ResponseFuture
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
{
    let service = service.clone();
    let version = if request.uri().path().starts_with("/v1.") { "v1" } else { "v1alpha1" };
    service.managers.metrics.count(&metrics::POD_RESOURCES, &[version]);
    respond_unary(request, move |message: Q| -> BoxFuture<'static, A> {
        let result = if service.admit_call() { call(&service, message) } else { Err(too_many()) };
        Box::pin(async move { result })
    })
}

fn too_many() -> Status {
    Status::resource_exhausted("rejected by rate limit")
}

impl Service {
    fn admit_call(&self) -> bool {
        self.bucket.lock().try_take(Instant::now())
    }

    fn list(&self) -> ListResponse {
        ListResponse { pod_resources: (self.pods)().iter().map(|pod| self.pod(pod)).collect() }
    }

    /// The first version knew of devices only.
    fn list_devices(&self) -> ListResponse {
        let mut list = self.list();
        for container in list.pod_resources.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.cpu_ids.clear();
            container.memory.clear();
            container.devices.iter_mut().for_each(|devices| devices.topology = None);
        }
        list
    }

    fn get(&self, request: GetRequest) -> Result<GetResponse, Status> {
        let is_it =
            |pod: &&Arc<Tree>| pod::name(pod) == request.pod_name && pod::namespace(pod) == request.pod_namespace;
        let pods = (self.pods)();
        let found = pods.iter().find(is_it).ok_or_else(|| {
            Status::unknown(format!("pod {} in namespace {} not found", request.pod_name, request.pod_namespace))
        })?;
        Ok(GetResponse { pod_resources: Some(self.pod(found)) })
    }

    fn pod(&self, pod: &Tree) -> PodResources {
        // Init containers complete soon, and their resources are reused.
        let containers = requests::containers(pod).filter(|spec| !requests::is_passing(pod, spec));
        PodResources {
            name: pod::name(pod).to_string(),
            namespace: pod::namespace(pod).to_string(),
            containers: containers.map(|spec| self.container(pod::uid(pod), spec.str("name"))).collect(),
        }
    }

    fn container(&self, uid: &str, name: &str) -> ContainerResources {
        let memory = self.managers.own_memory(uid, name).into_iter().map(|block| ContainerMemory {
            memory_type: block.kind,
            size: block.bytes,
            topology: topology(block.nodes),
        });
        let devices = self.managers.devices.of(uid, name).into_iter().flat_map(|(resource, share)| {
            share.devices.into_iter().map(move |(id, nodes)| devices(&resource, id, &nodes))
        });
        ContainerResources {
            name: name.to_string(),
            devices: devices.collect(),
            cpu_ids: self.managers.own_cpus(uid, name).iter().map(i64::from).collect(),
            memory: memory.collect(),
        }
    }

    fn allocatable(&self) -> AllocatableResponse {
        let memory = self.managers.allocatable_memory().into_iter().flat_map(|(node, kinds)| {
            let kinds = kinds.into_iter().filter(|(_, bytes)| *bytes > 0);
            kinds.map(move |(memory_type, size)| ContainerMemory {
                memory_type,
                size,
                topology: topology([node].into_iter().collect()),
            })
        });
        let all = self.managers.devices.all().into_iter();
        AllocatableResponse {
            devices: all.map(|(resource, id, nodes)| devices(&resource, id, &nodes)).collect(),
            cpu_ids: self.managers.allocatable_cpus().iter().map(i64::from).collect(),
            memory: memory.collect(),
        }
    }
}

fn devices(resource: &str, id: String, nodes: &[u32]) -> ContainerDevices {
    let topology = topology(nodes.iter().copied().collect());
    ContainerDevices { resource_name: resource.to_string(), device_ids: vec![id], topology }
}

fn topology(nodes: Mask) -> Option<TopologyInfo> {
    let nodes: Vec<NumaNode> = nodes.bits().map(|node| NumaNode { id: node.into() }).collect();
    (!nodes.is_empty()).then_some(TopologyInfo { nodes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_calls_like_upstream() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(PER_SECOND, BURST, start);
        let mut take = |millis: u64| bucket.try_take(start + Duration::from_millis(millis));
        assert!((0..10).all(|_| take(0)));
        assert_eq!([take(9), take(10), take(10)], [false, true, false]);
        assert!((0..10).all(|_| take(60_000)));
        assert!(!take(60_000));
    }
}
