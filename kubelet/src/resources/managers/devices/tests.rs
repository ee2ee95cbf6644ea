//! Devices as tables, and with a fake plugin over real sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{Tree, tree};
use cri::grpc::{BoxFuture, CallHandler, ResponseStream, dial, respond_stream, respond_unary, serve_calls};
use stdx::clock::SystemClock;
use stdx::sync::Mutex;
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::inventory::{Device, Ids, Inventory, Resource};
use super::*;

const GPU: &str = "example.com/gpu";

fn device(is_healthy: bool, nodes: Option<&[u32]>) -> Device {
    Device { is_healthy, nodes: nodes.map(<[u32]>::to_vec) }
}

fn inventory(devices: &[(&str, Device)]) -> Inventory {
    let devices = devices.iter().map(|(id, device)| (id.to_string(), device.clone())).collect();
    let resources = BTreeMap::from([(GPU.to_string(), Resource { devices, silent_since: None })]);
    Inventory { resources, ..Inventory::default() }
}

fn ids(list: &[&str]) -> Ids {
    list.iter().map(|id| id.to_string()).collect()
}

fn pod(uid: &str, init: &[(&str, u32)], main: &[(&str, u32)]) -> Tree {
    let container = |(name, count): &(&str, u32)| {
        let limits = tree! { GPU => count.to_string() };
        tree! { "name" => *name, "resources" => tree! { "limits" => limits } }
    };
    let list = |containers: &[(&str, u32)]| containers.iter().map(container).collect::<Vec<Tree>>();
    tree! {
        "metadata" => tree! { "uid" => uid, "name" => uid },
        "spec" => tree! { "initContainers" => list(init), "containers" => list(main) },
    }
}

#[test]
fn chooses_healthy_devices_near_the_hint() {
    let placed = [
        ("a", device(true, Some(&[0]))),
        ("b", device(true, Some(&[1]))),
        ("c", device(false, Some(&[1]))),
        ("d", device(true, Some(&[1]))),
        ("e", device(true, None)),
    ];
    let all = inventory(&placed);
    let choose = |near: Option<u32>, wanted: usize, preferred: &[&str]| {
        let near = near.map(|node| [node].into_iter().collect());
        let choice = all.choose(&pod("u", &[], &[]), "c", GPU, wanted, near).expect("devices").expect("a choice");
        let preferred: Vec<String> = preferred.iter().map(|id| id.to_string()).collect();
        choice.finish(&preferred).into_iter().collect::<Vec<_>>().join("")
    };
    let cases = [
        (None, 2, &[][..], "ab"),
        (None, 2, &["e", "c"], "ae"),
        (Some(1), 1, &[], "b"),
        (Some(1), 1, &["a", "d"], "d"),
        (Some(1), 3, &[], "abd"),
        (Some(1), 3, &["e"], "bde"),
    ];
    for (near, wanted, preferred, want) in cases {
        assert_eq!(choose(near, wanted, preferred), want, "{near:?} {wanted} {preferred:?}");
    }
}

#[test]
fn errors_have_upstreams_words() {
    let mut some = inventory(&[("a", device(true, None)), ("b", device(false, None))]);
    let check = |inventory: &Inventory, resource: &str, wanted: usize| {
        inventory
            .choose(&pod("u", &[], &[]), "c", resource, wanted, None)
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    assert_eq!(check(&some, "x/y", 1), "cannot allocate unregistered device x/y");
    let want = "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1";
    assert_eq!(check(&some, GPU, 2), want);
    some.allocate("u", "c", GPU, &ids(&["a"]), Default::default());
    let want = "pod \"u\" container \"c\" changed request for resource \"example.com/gpu\" from 1 to 2";
    assert_eq!(check(&some, GPU, 2), want);
    some.allocate("v", "c", GPU, &ids(&["b"]), Default::default());
    let broken = some.choose(&pod("v", &[], &[]), "c", GPU, 1, None).err().map(|error| error.to_string());
    let want = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/gpu";
    assert_eq!(broken.as_deref(), Some(want));
    some.mark_disconnected(GPU, 0);
    let none = some.choose(&pod("v", &[], &[]), "c", GPU, 1, None).err().map(|error| error.to_string());
    assert_eq!(none.as_deref(), Some("no healthy devices present; cannot allocate unhealthy devices example.com/gpu"));
}

#[test]
fn init_containers_pass_on_their_devices() {
    let mut some = inventory(&[("a", device(true, None)), ("b", device(true, None)), ("c", device(true, None))]);
    let wanted = pod("u", &[("i", 2), ("j", 1)], &[("c", 1), ("d", 2)]);
    for spec in requests::containers(&wanted) {
        let count = requests::devices(spec)[GPU];
        let choice = some.choose(&wanted, spec.str("name"), GPU, count, None).expect("devices").expect("a choice");
        some.allocate("u", spec.str("name"), GPU, &choice.finish(&[]), Default::default());
    }
    let has = |name: &str| some.ids("u", name, GPU).expect("devices").into_iter().collect::<Vec<_>>().join("");
    assert_eq!([has("i"), has("j"), has("c"), has("d")], ["ab", "a", "a", "bc"]);
    assert_eq!(some.free(GPU), Ids::new());
}

#[test]
fn resource_outlives_its_plugin_for_a_while() {
    let mut some = inventory(&[("a", device(true, None)), ("b", device(false, None))]);
    some.allocate("u", "c", GPU, &ids(&["a"]), Default::default());
    let shown = |inventory: &Inventory| {
        let report = inventory.report(&BTreeSet::from(["old/one".to_string()]));
        let of = |resources: &crate::config::Resources| resources.get(GPU).map(ToString::to_string).unwrap_or_default();
        (of(&report.capacity), of(&report.allocatable), report.removed.join(" "))
    };
    let text = |a: &str, b: &str, c: &str| (a.to_string(), b.to_string(), c.to_string());
    assert_eq!(shown(&some), text("2", "1", "old/one"));
    assert_eq!(some.mark_disconnected(GPU, 1000), ["u"], "its pod is told");
    assert_eq!(shown(&some), text("2", "0", "old/one"));
    assert_eq!(some.next_expiry(), Some(1300));
    assert_eq!(some.expire(1299), Vec::<String>::new());
    assert_eq!(some.expire(1300), [GPU]);
    assert_eq!(shown(&some).0, "");
    let health = |inventory: &Inventory| inventory.health("u", "c")[0].list("resources")[0].str("health").to_string();
    assert_eq!(health(&some), "Unknown");
}

#[test]
fn hints_name_nodes_with_enough_devices() {
    let placed = [("a", device(true, Some(&[0]))), ("b", device(true, Some(&[1]))), ("c", device(true, Some(&[1])))];
    let all = inventory(&placed);
    let hints = |wanted: usize| {
        let hints = all.hints(&[0, 1], GPU, None, &Ids::new(), wanted).expect("hints");
        let one = |hint: &super::super::numa::Hint| {
            let nodes: crate::model::cpuset::CpuSet = hint.affinity.unwrap_or_default().bits().collect();
            format!("{nodes}{}", if hint.preferred { "!" } else { "" })
        };
        hints.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    assert_eq!([hints(1), hints(2), hints(3), hints(4)], ["0! 1! 0-1", "1! 0-1", "0-1!", ""]);
    let nowhere = inventory(&[("a", device(true, None))]);
    assert_eq!(nowhere.hints(&[0, 1], GPU, None, &Ids::new(), 1), None);
}

/// A plugin whose devices a test changes; it counts its PreStartContainer calls.
struct FakePlugin {
    devices: watch::Sender<Vec<(&'static str, bool)>>,
    pre_starts: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

fn list(devices: &[(&'static str, bool)]) -> wire::ListAndWatchResponse {
    let device = |(id, healthy): &(&str, bool)| wire::Device {
        id: id.to_string(),
        health: if *healthy { "Healthy" } else { "Unhealthy" }.to_string(),
        topology: None,
    };
    wire::ListAndWatchResponse { devices: devices.iter().map(device).collect() }
}

fn allocated(request: wire::AllocateRequest) -> Result<wire::AllocateResponse, cri::Status> {
    let ids = request.container_requests[0].ids.join(",");
    if ids.contains("bad") {
        return Err(cri::Status::unknown("it burns"));
    }
    let answer = wire::ContainerAllocateResponse {
        envs: BTreeMap::from([("GPUS".to_string(), ids)]),
        devices: vec![wire::DeviceSpec {
            container_path: "/dev/gpu".to_string(),
            host_path: "/dev/null".to_string(),
            permissions: "rw".to_string(),
        }],
        cdi_devices: vec![wire::CdiDevice { name: "example.com/gpu=0".to_string() }],
        ..Default::default()
    };
    Ok(wire::AllocateResponse { container_responses: vec![answer] })
}

impl FakePlugin {
    fn start(socket: &Path, devices: &[(&'static str, bool)]) -> FakePlugin {
        let (devices, _) = watch::channel(devices.to_vec());
        let (pre_starts, lists) = (Arc::new(AtomicUsize::new(0)), devices.clone());
        let counted = pre_starts.clone();
        let answering: CallHandler = Arc::new(move |request| {
            let (lists, counted) = (lists.subscribe(), counted.clone());
            match request.uri().path() {
                "/v1beta1.DevicePlugin/ListAndWatch" => respond_stream(
                    request,
                    move |_: wire::Empty| -> BoxFuture<'static, ResponseStream<wire::ListAndWatchResponse>> {
                        let mut lists = lists.clone();
                        let (sender, receiver) = tokio::sync::mpsc::channel(1);
                        tokio::spawn(async move {
                            loop {
                                let now = list(&lists.borrow_and_update());
                                if sender.send(Ok(now)).await.is_err() || lists.changed().await.is_err() {
                                    return;
                                }
                            }
                        });
                        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
                        Box::pin(async move { Ok(Box::pin(stream) as ResponseStream<wire::ListAndWatchResponse>) })
                    },
                ),
                "/v1beta1.DevicePlugin/Allocate" => {
                    respond_unary(request, |request: wire::AllocateRequest| -> BoxFuture<'static, wire::AllocateResponse> {
                        Box::pin(async move { allocated(request) })
                    })
                }
                "/v1beta1.DevicePlugin/GetPreferredAllocation" => respond_unary(
                    request,
                    |request: wire::PreferredAllocationRequest| -> BoxFuture<'static, wire::PreferredAllocationResponse> {
                        let last = request.container_requests[0].available.last().cloned().unwrap_or_default();
                        let answer = wire::ContainerPreferredAllocationResponse { ids: vec![last] };
                        let answer = wire::PreferredAllocationResponse { container_responses: vec![answer] };
                        Box::pin(async move { Ok(answer) })
                    },
                ),
                _ => respond_unary(request, move |_: wire::ContainerAllocateRequest| -> BoxFuture<'static, wire::Empty> {
                    counted.fetch_add(1, Ordering::SeqCst);
                    Box::pin(async move { Ok(wire::Empty {}) })
                }),
            }
        });
        let listener = UnixListener::bind(socket).expect("a socket");
        let task = tokio::spawn(async move { drop(serve_calls(listener, answering).await) });
        FakePlugin { devices, pre_starts, task }
    }
}

async fn register(dir: &Path, version: &str, resource: &str) -> Result<wire::Empty, cri::Status> {
    let request = wire::RegisterRequest {
        version: version.to_string(),
        endpoint: "gpu.sock".to_string(),
        resource_name: resource.to_string(),
        options: Some(wire::Options { pre_start_required: true, get_preferred_allocation_available: true }),
    };
    cri::grpc::call(&dial(&dir.join("kubelet.sock")), wire::REGISTER, request).await
}

async fn eventually(what: &str, holds: impl FnMut() -> bool) {
    stdx::wait::until_async(what, Duration::from_secs(20), holds).await;
}

#[derive(Clone, Default)]
struct CallLog {
    shown: Arc<Mutex<status_input::Devices>>,
    woken: Arc<Mutex<Vec<String>>>,
}

impl CallLog {
    fn start(&self, devices: &Arc<Devices>) -> tokio::task::JoinHandle<()> {
        let (shown, woken) = (self.shown.clone(), self.woken.clone());
        let show = move |devices: status_input::Devices| *shown.lock() = devices;
        let wake = move |uid: &str| woken.lock().push(uid.to_string());
        tokio::spawn(devices.clone().run(show, wake))
    }

    fn count(&self) -> (String, String) {
        let shown = self.shown.lock();
        let of = |resources: &crate::config::Resources| resources.get(GPU).map(ToString::to_string).unwrap_or_default();
        (of(&shown.capacity), of(&shown.allocatable))
    }
}

fn text(a: &str, b: &str) -> (String, String) {
    (a.to_string(), b.to_string())
}

#[tokio::test]
async fn plugin_allocations_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        Arc::new(
            Devices::open(dir.path().to_path_buf(), vec![0], Arc::new(SystemClock), Metrics::default())
                .expect("devices"),
        )
    };
    let (devices, seen) = (open(), CallLog::default());
    let task = seen.start(&devices);
    let socket = dir.path().join("kubelet.sock");
    eventually("the socket is there", || socket.exists()).await;
    let plugin = FakePlugin::start(&dir.path().join("gpu.sock"), &[("a", true), ("b", true), ("z", false)]);
    for (version, resource, want) in [
        ("v1", GPU, "requested API version \"v1\" is not supported by kubelet. Supported version is \"v1beta1\""),
        ("v1beta1", "gpu", "the ResourceName \"gpu\" is invalid"),
    ] {
        let refused = register(dir.path(), version, resource).await.expect_err("refused");
        assert_eq!(refused.message(), want);
    }
    register(dir.path(), "v1beta1", GPU).await.expect("registered");
    eventually("the node shows them", || seen.count() == text("3", "2")).await;
    let wanted = pod("u", &[], &[("c", 1)]);
    let spec = requests::containers(&wanted).next().expect("a container");
    assert!(devices.are_wanted(&wanted));
    devices.allocate(&wanted, spec, None).await.expect("devices");
    let share = devices.of("u", "c").remove(GPU).expect("a share");
    assert_eq!(share.answer.envs["GPUS"], "b", "the one that the plugin prefers");
    devices.pre_start("u", "c").await.expect("told");
    assert_eq!(plugin.pre_starts.load(Ordering::SeqCst), 1);
    plugin.devices.send_replace(vec![("a", true), ("b", false)]);
    eventually("its pod is told", || seen.woken.lock().contains(&"u".to_string())).await;
    assert_eq!(devices.health("u", "c")[0].list("resources")[0].str("health"), "Unhealthy");
    plugin.devices.send_replace(vec![("bad", true)]);
    eventually("there is another", || seen.count() == text("1", "1")).await;
    let other = pod("v", &[], &[("c", 1)]);
    let spec = requests::containers(&other).next().expect("a container");
    let why = devices.allocate(&other, spec, None).await.expect_err("refused");
    assert_eq!(why.to_string(), "rpc error: code = Unknown desc = it burns");
    plugin.task.abort();
    let _ = plugin.task.await;
    eventually("none is allocatable", || seen.count() == text("1", "0")).await;
    task.abort();
    let _ = task.await;
    let again = open();
    assert_eq!(again.of("u", "c").get(GPU), Some(&share), "who has what is known after a restart");
    assert_eq!(again.report().0.capacity[GPU].to_string(), "0", "until the plugin is back");
    again.keep(|uid| uid != "u");
    assert!(again.of("u", "c").is_empty() && open().of("u", "c").is_empty());
}

#[tokio::test]
async fn limits_pending_registrations() {
    let dir = tempfile::tempdir().expect("a directory");
    let devices = Devices::open(dir.path().to_path_buf(), vec![0], Arc::new(SystemClock), Metrics::default());
    let devices = devices.expect("devices");
    let register = || {
        let (resource, socket) = (GPU.to_string(), dir.path().join("gpu.sock"));
        devices.register(Registration { resource, socket, options: None })
    };
    let taken = (0..1000).map_while(|_| register().ok()).count();
    assert_eq!(taken, WAITING);
    assert_eq!(register().expect_err("refused").to_string(), "too many plugins register at once");
}
