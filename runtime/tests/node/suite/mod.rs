//! A conformance suite of CRI, run against this runtime and against Debian's containerd with runc.
//!
//! A case does something and describes the result in a short text. This runtime must give the text of the table;
//! containerd must give the same text, unless the list of differences has another one and the reason for it.

mod containerd;
mod containers;
mod differences;
mod images;
mod others;
mod sandboxes;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use cri::{
    AuthConfig, ContainerConfig, ImageService, ImageSpec, NamespaceMode, PodSandboxConfig, PullImageRequest,
    RunPodSandboxRequest, RuntimeService, Status,
};
use runtime::images::{Config, Images, NoProgress};
use tokio::task::JoinSet;

use crate::debian::{Registry, user};
use crate::harness::{Node, container, layer};
use differences::DIFFERENCES;

type Run = fn(Arc<Suite>) -> Pin<Box<dyn Future<Output = String> + Send>>;

struct Case {
    /// The call, a colon, and the case.
    name: &'static str,
    run: Run,
    /// The expected result.
    says: &'static str,
}

macro_rules! cases {
    ($($name:literal => $run:ident, $says:expr;)*) => {
        pub const CASES: &[super::Case] = &[
            $(super::Case { name: $name, run: |suite| Box::pin($run(suite)), says: $says },)*
        ];
    };
}
use cases;

const TABLES: [&[Case]; 5] = [sandboxes::CASES, containers::CASES, streams::CASES, images::CASES, others::CASES];

/// The number of cases that run concurrently.
const AT_ONCE: usize = 6;
const DEADLINE: Duration = Duration::from_secs(60);

/// A runtime, and a registry that it can pull from.
pub struct Suite {
    pub node: Node,
    pub registry: Registry,
}

/// A running sandbox.
pub struct Pod {
    pub id: String,
    pub config: PodSandboxConfig,
}

impl Suite {
    pub fn image(&self) -> String {
        self.registry.name("test/busybox:1")
    }

    /// A name of the pushed image that no other case uses.
    pub fn own_image(&self, name: &str) -> String {
        self.registry.name(&format!("own/{name}:1"))
    }

    pub fn container(&self, name: &str, command: &str) -> ContainerConfig {
        let image = Some(ImageSpec { image: self.image(), ..Default::default() });
        ContainerConfig { image, ..container(name, command) }
    }

    /// A pod in the host's network, which is enough for most cases.
    pub async fn pod(&self, name: &str) -> Pod {
        self.pod_with(name, |_| {}).await
    }

    pub async fn pod_with(&self, name: &str, change: impl FnOnce(&mut PodSandboxConfig)) -> Pod {
        let mut config = self.node.sandbox_config(name);
        change(&mut config);
        if is_host_network(&config) {
            config.hostname.clear();
        }
        let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let made = self.node.runtime.run_pod_sandbox(request).await;
        Pod { id: made.unwrap_or_else(|error| panic!("running {name}: {error}")).pod_sandbox_id, config }
    }

    pub async fn create(&self, pod: &Pod, config: ContainerConfig) -> String {
        self.node.create(&pod.id, config, &pod.config).await.unwrap_or_else(|error| panic!("creating: {error}"))
    }

    pub async fn run(&self, pod: &Pod, config: ContainerConfig) -> String {
        let id = self.create(pod, config).await;
        self.node.start_container(&id).await.unwrap_or_else(|error| panic!("starting: {error}"));
        id
    }

    /// A pod with one container that runs a command line.
    pub async fn running(&self, name: &str, command: &str) -> (Pod, String) {
        let pod = self.pod(name).await;
        let id = self.run(&pod, self.container("main", command)).await;
        (pod, id)
    }

    pub async fn pull(&self, image: &str, auth: Option<AuthConfig>) -> Result<String, Status> {
        let image = Some(ImageSpec { image: image.into(), ..Default::default() });
        let request = PullImageRequest { image, auth, ..Default::default() };
        self.node.images.pull_image(request).await.map(|response| response.image_ref)
    }
}

/// Such a pod has the host's hostname: containerd does not accept another one.
fn is_host_network(config: &PodSandboxConfig) -> bool {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = security.and_then(|security| security.namespace_options.as_ref());
    options.is_some_and(|options| options.network() == NamespaceMode::Node)
}

pub fn password(password: &str) -> Option<AuthConfig> {
    Some(AuthConfig { username: "user".into(), password: password.into(), ..Default::default() })
}

/// The gRPC code of a response, or `ok`.
pub fn code<T>(answer: &Result<T, Status>) -> String {
    answer.as_ref().map_or_else(|status| format!("{:?}", status.code()), |_| "ok".into())
}

/// Waits until a condition holds that another process causes.
pub async fn until(what: &str, holds: impl FnMut() -> bool) {
    stdx::wait::until_async(what, DEADLINE, holds).await;
}

/// A registry with the image of the cases, and with the pause image of containerd.
async fn publish() -> Registry {
    let registry = Registry::start().await;
    let directory = tempfile::tempdir().unwrap();
    let images = Images::open(directory.path(), Default::default()).unwrap();
    let config = Config {
        env: vec!["FROM_IMAGE=yes".into()],
        cmd: vec!["sh".into()],
        user: "web".into(),
        working_dir: "/tmp".into(),
        ..Default::default()
    };
    let id = images.build("maker.local/busybox:1", vec![layer()], config, &NoProgress).await.unwrap();
    for name in ["test/busybox:1", "own/digest:1"] {
        images.push(&id, &registry.name(name), user()).await.unwrap();
    }
    // Removing an image removes all its names, so the cases that remove images use other images.
    for (label, names) in [("one", &["lone/remove:1"][..]), ("two", &["lone/names:a", "lone/names:b"])] {
        let config = Config { env: vec![format!("LABEL={label}")], ..Default::default() };
        let id = images.build("maker.local/lone:1", vec![layer()], config, &NoProgress).await.unwrap();
        for name in names {
            images.push(&id, &registry.name(name), user()).await.unwrap();
        }
    }
    let sleep = ["/bin/busybox", "sleep", "1000000"].map(String::from).to_vec();
    let config = Config { entrypoint: sleep, ..Default::default() };
    let pause = images.build("maker.local/pause:1", vec![layer()], config, &NoProgress).await.unwrap();
    images.push(&pause, &registry.name(PAUSE), user()).await.unwrap();
    registry
}

const PAUSE: &str = "test/pause:1";

/// The results of all cases, by their names.
async fn said(suite: &Arc<Suite>) -> BTreeMap<&'static str, String> {
    let (mut going, mut said) = (JoinSet::new(), BTreeMap::new());
    let mut cases = TABLES.into_iter().flatten();
    loop {
        while going.len() < AT_ONCE
            && let Some(case) = cases.next()
        {
            let (name, run) = (case.name, (case.run)(suite.clone()));
            going.spawn(async move { (name, tokio::spawn(tokio::time::timeout(DEADLINE, run)).await) });
        }
        let Some(done) = going.join_next().await else { return said };
        let (name, outcome) = done.unwrap();
        let text = match outcome {
            Ok(Ok(text)) => text,
            Ok(Err(_)) => "it took too long".to_string(),
            Err(panic) => {
                format!("it failed: {}", panic.into_panic().downcast_ref::<String>().cloned().unwrap_or_default())
            }
        };
        said.insert(name, text);
    }
}

/// The results that differ from the expected ones.
fn wrong(said: &BTreeMap<&str, String>, expected: impl Fn(&Case) -> &'static str) -> Vec<String> {
    let cases = TABLES.into_iter().flatten().filter_map(|case| Some((case, said.get(case.name)?)));
    let wrong = cases.filter(|(case, said)| *said != expected(case));
    wrong.map(|(case, said)| format!("{}\n    expected: {}\n    said:     {said}", case.name, expected(case))).collect()
}

#[tokio::test]
async fn this_runtime_matches_the_table() {
    let mut node = Node::unstarted();
    let registry = publish().await;
    node.start_runtime(&[]).await;
    others::set_pod_cidr(&node, "10.213.80.0/24").await.unwrap();
    let suite = Arc::new(Suite { node, registry });
    suite.pull(&suite.image(), password("secret")).await.unwrap();
    let said = said(&suite).await;
    let suite = Arc::into_inner(suite).expect("all cases are over");
    let wrong = wrong(&said, |case| case.says);
    assert!(wrong.is_empty(), "{}\n\n{}", wrong.join("\n"), suite.node.log());
    suite.node.end().await;
}

#[tokio::test]
async fn containerd_matches_except_for_the_list() {
    let suite = Arc::new(containerd::start().await);
    let said = said(&suite).await;
    let said = said.into_iter().filter(|(case, said)| !differences::is_race(case, said)).collect();
    let wrong = wrong(&said, |case| differences::of(case.name).map_or(case.says, |difference| difference.says));
    containerd::end(Arc::into_inner(suite).expect("all cases are over")).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_listed_difference_differs() {
    let says: BTreeMap<_, _> = TABLES.into_iter().flatten().map(|case| (case.name, case.says)).collect();
    for difference in DIFFERENCES {
        let ours = says.get(difference.case).unwrap_or_else(|| panic!("there is no case {:?}", difference.case));
        assert_ne!(*ours, difference.says, "{:?} is no difference", difference.case);
        assert!(!difference.why.is_empty(), "{:?} is not explained", difference.case);
    }
}

#[test]
fn every_call_has_a_case() {
    let calls = |case: &'static Case| case.name.split_once(": ").expect("CALL: WHAT").0;
    let tested: BTreeSet<&str> = TABLES.into_iter().flatten().map(calls).collect();
    let all: BTreeSet<&str> = cri::RUNTIME_CALLS.iter().chain(cri::IMAGE_CALLS).copied().collect();
    assert_eq!((cri::RUNTIME_CALLS.len(), cri::IMAGE_CALLS.len()), (37, 6));
    assert_eq!(tested, all);
}
