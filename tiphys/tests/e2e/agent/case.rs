//! The environment of a case: a namespace, the real kubectl, and fast waits for conditions.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use api::Tree;
use http_body_util::BodyExt;
use hyper::header::HeaderValue;

use super::cluster::{Cluster, IMAGE, Runtime};
use stdx::wait::{LazyDescription, until_ok};

use crate::support::{Client, request, tool};

const DEFAULT: &str = "default";
const DEADLINE: Duration = Duration::from_secs(60);
/// Connections that were not used for this long are opened again.
const IDLE: Duration = Duration::from_secs(5);

/// What a script writes after its output where containerd runs it.
const LAST_LINE: &str = "(end of output)";

/// A case is run by one thread, which is in the cluster's network.
pub struct Case<'a> {
    pub cluster: &'a Cluster,
    pub namespace: String,
    tokio: tokio::runtime::Runtime,
    client: RefCell<Client>,
    last_call: Cell<Instant>,
}

impl<'a> Case<'a> {
    pub fn new(cluster: &'a Cluster, name: &str) -> Case<'a> {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = tokio.block_on(Client::connect(&cluster.pki(), 6443));
        let namespace = name.replace([' ', '_', ','], "-").to_lowercase();
        let last_call = Cell::new(Instant::now());
        let case = Case { cluster, namespace, tokio, client: RefCell::new(client), last_call };
        case.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {}}}}}", case.namespace));
        // Pods need the service account, which a controller creates.
        case.until("its account", || case.object("serviceaccounts", "default"), |account| !account.is_null());
        case
    }

    /// A case without its own namespace, for objects of the cluster.
    pub fn of_cluster(cluster: &'a Cluster) -> Case<'a> {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = tokio.block_on(Client::connect(&cluster.pki(), 6443));
        Case {
            cluster,
            namespace: DEFAULT.to_string(),
            tokio,
            client: RefCell::new(client),
            last_call: Cell::new(Instant::now()),
        }
    }

    pub fn is_containerd(&self) -> bool {
        self.cluster.runtime == Runtime::Containerd
    }

    pub fn command(&self, kubectl: &Path) -> Command {
        let mut command = Command::new(kubectl);
        command.env("KUBECONFIG", self.cluster.kubeconfig());
        if self.namespace != DEFAULT {
            command.args(["--namespace", &self.namespace]);
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.run_by(&debians(), args)
    }

    pub fn run_by(&self, kubectl: &Path, args: &[&str]) -> Output {
        self.command(kubectl).args(args).stdin(Stdio::null()).output().expect("kubectl is there")
    }

    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) -> String {
        success_output(args, &self.run(args))
    }

    /// Runs a command that must fail, and returns its output.
    #[track_caller]
    pub fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(!output.status.success(), "{args:?} should fail: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).trim().to_string()
    }

    /// Starts a command that keeps running, with its output piped.
    pub fn start(&self, kubectl: &Path, args: &[&str]) -> ChildProcess {
        let mut command = self.command(kubectl);
        let command = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ChildProcess(command.spawn().expect("kubectl is there"))
    }

    /// Creates the objects of a manifest, in which `IMAGE` is the image with a shell. Through the API, because many
    /// kubectl processes are slow.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        for document in manifest.replace("IMAGE", IMAGE).split("\n---\n") {
            let object = api::yaml::decode(document.as_bytes()).unwrap_or_else(|error| panic!("{document}: {error}"));
            let body = String::from_utf8(api::json::encode(&object, None)).expect("text");
            let path = format!("{}?fieldValidation=Strict", self.path_of(object.str("kind")));
            let (code, response) = self.call("POST", &path, &body);
            assert_eq!(code, 201, "{document}: {}", String::from_utf8_lossy(&response));
        }
    }

    fn path_of(&self, kind: &str) -> String {
        let of = |prefix: &str, resource: &str| format!("{prefix}/namespaces/{}/{resource}", self.namespace);
        match kind {
            "Namespace" => "/api/v1/namespaces".to_string(),
            "RuntimeClass" => "/apis/node.k8s.io/v1/runtimeclasses".to_string(),
            "Deployment" | "DaemonSet" | "StatefulSet" => of("/apis/apps/v1", &format!("{}s", kind.to_lowercase())),
            "EndpointSlice" => of("/apis/discovery.k8s.io/v1", "endpointslices"),
            kind => of("/api/v1", &format!("{}s", kind.to_lowercase())),
        }
    }

    /// Creates a pod with this spec, in YAML's flow style.
    #[track_caller]
    pub fn pod(&self, name: &str, spec: &str) {
        self.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {{{spec}}}}}"
        ));
    }

    /// Creates a pod with one container that runs a command line once; returns its logs after it has ended.
    #[track_caller]
    pub fn script(&self, name: &str, command: &str, container: &str, spec: &str) -> String {
        let end = format!("/dev/shm/{}-{name}", self.namespace);
        let line = if self.is_containerd() { until_logged(command, &end) } else { command.to_string() };
        self.pod(
            name,
            &format!(
                "restartPolicy: Never, {spec} containers: [{{name: main, image: IMAGE, \
                 command: [sh, -c, {line:?}], {container}}}]"
            ),
        );
        if self.is_containerd() {
            let path = format!("/api/v1/namespaces/{}/pods/{name}/log", self.namespace);
            let log = || String::from_utf8_lossy(&self.call("GET", &path, "").1).into_owned();
            self.until("the last line of the log", log, |log| log.ends_with(&format!("{LAST_LINE}\n")));
            self.exec(name, &format!("touch {end}"));
        }
        self.until_pod(name, "its end", |pod| matches!(pod.str("status.phase"), "Succeeded" | "Failed"));
        self.kubectl(&["logs", name]).trim_end_matches(LAST_LINE).trim().to_string()
    }

    pub fn exec(&self, pod: &str, command: &str) -> String {
        self.kubectl(&["exec", pod, "--", "sh", "-c", command])
    }

    fn call(&self, method: &str, path: &str, body: &str) -> (u16, Vec<u8>) {
        let mut client = self.client.borrow_mut();
        // The server closes connections that are not used for long.
        if self.last_call.replace(Instant::now()).elapsed() > IDLE {
            *client = self.tokio.block_on(Client::connect(&self.cluster.pki(), 6443));
        }
        let (code, body) = self.tokio.block_on(client.call(method, path, body)).expect("an answer");
        (code, body.to_vec())
    }

    #[track_caller]
    pub fn patch(&self, path: &str, patch: &str) {
        let mut request = request("PATCH", path, patch);
        let strategic = HeaderValue::from_static("application/strategic-merge-patch+json");
        request.headers_mut().insert("content-type", strategic);
        let answer = self.tokio.block_on(self.client.borrow_mut().send(request)).expect("an answer");
        let code = answer.status();
        let body = self.tokio.block_on(answer.into_body().collect()).expect("a body").to_bytes();
        assert!(code.is_success(), "{path}: {}", String::from_utf8_lossy(&body));
    }

    /// An object of the case's namespace; null if it does not exist.
    pub fn object(&self, resource: &str, name: &str) -> Tree {
        self.read(&format!("/api/v1/namespaces/{}/{resource}/{name}", self.namespace))
    }

    pub fn read(&self, path: &str) -> Tree {
        match self.call("GET", path, "") {
            (200, body) => api::json::decode(&body).expect("JSON"),
            _ => Tree::Null,
        }
    }

    pub fn pods(&self, name: &str) -> Tree {
        self.object("pods", name)
    }

    /// Waits until a condition is true.
    #[track_caller]
    pub fn until<T: std::fmt::Debug>(&self, what: &str, look: impl Fn() -> T, is_right: impl Fn(&T) -> bool) -> T {
        self.until_or(what, look, is_right, String::new)
    }

    /// Like `until`, with more details for the failure.
    #[track_caller]
    pub fn until_or<T: std::fmt::Debug>(
        &self,
        what: &str,
        look: impl Fn() -> T,
        is_right: impl Fn(&T) -> bool,
        more: impl Fn() -> String,
    ) -> T {
        let more = &more;
        until_ok(what, DEADLINE, || {
            let seen = look();
            if is_right(&seen) { Ok(seen) } else { Err(LazyDescription(move || format!("{seen:?}\n{}", more()))) }
        })
    }

    #[track_caller]
    pub fn until_pod(&self, name: &str, what: &str, is_right: impl Fn(&Tree) -> bool) -> Tree {
        let what = format!("{what} of pod {name}");
        let pod = self.until(&what, || StatusOnly(self.pods(name)), |pod| is_right(&pod.0));
        pod.0
    }

    #[track_caller]
    pub fn until_ready(&self, name: &str) -> Tree {
        self.until_pod(name, "readiness", |pod| condition(pod, "Ready") == "True")
    }

    #[track_caller]
    pub fn until_gone(&self, name: &str) {
        self.until_pod(name, "the end", Tree::is_null);
    }

    /// The events of a pod: reasons with messages, in no order.
    pub fn events(&self, name: &str) -> Vec<(String, String)> {
        let path = format!("/api/v1/namespaces/{}/events?fieldSelector=involvedObject.name%3D{name}", self.namespace);
        let events = self.read(&path);
        events.list("items").iter().map(|event| (event.str("reason").into(), event.str("message").into())).collect()
    }

    #[track_caller]
    pub fn until_event(&self, name: &str, reason: &str, part: &str) {
        let what = format!("the event {reason} {part:?}");
        let is_it = |(why, text): &(String, String)| why == reason && text.contains(part);
        self.until(&what, || self.events(name), |events| events.iter().any(is_it));
    }

    /// The response at an address, if a server listens there.
    pub fn connect(&self, address: &str) -> Option<String> {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let mut received = String::new();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
        std::io::Read::read_to_string(&mut stream, &mut received).ok()?;
        Some(received)
    }

    /// A kubeconfig with the cluster's address and CA, but without a user.
    pub fn stranger(&self) -> String {
        let known = fs::read_to_string(self.cluster.kubeconfig()).expect("a file");
        let lines = known.lines().filter(|line| !line.trim_start().starts_with("client-"));
        let text: Vec<&str> = lines.collect();
        self.file("stranger", &text.join("\n"))
    }

    /// A directory of the node that does not exist yet.
    pub fn directory(&self, name: &str) -> String {
        self.cluster.dir.path().join(format!("{}-{name}", self.namespace)).to_string_lossy().into_owned()
    }

    /// A file for kubectl to read.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.directory(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

/// A command line that ends only when a file exists: containerd 1.6 may lose output right before the exit.
fn until_logged(command: &str, file: &str) -> String {
    format!(
        "( {command} ); code=$?; echo '{LAST_LINE}'; until [ -e {file} ]; do sleep 0.1; done; rm -f {file}; exit $code"
    )
}

/// Debian's kubectl, which `./test` installs.
pub fn debians() -> std::path::PathBuf {
    tool("kubectl-1.20/usr/bin/kubectl")
}

#[track_caller]
pub fn success_output(args: &[&str], output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    assert!(output.status.success(), "{args:?}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

pub fn condition<'t>(object: &'t Tree, kind: &str) -> &'t str {
    let conditions = object.list("status.conditions").iter();
    conditions.into_iter().find(|one| one.str("type") == kind).map_or("", |one| one.str("status"))
}

/// The status of a pod's container of any type.
pub fn container<'t>(pod: &'t Tree, name: &str) -> &'t Tree {
    let sorts = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let all = sorts.iter().flat_map(|sort| pod.at("status").list(sort));
    all.into_iter().find(|status| status.str("name") == name).unwrap_or(&Tree::Null)
}

/// A tree that shows only its status.
struct StatusOnly(Tree);

impl std::fmt::Debug for StatusOnly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&api::json::encode(self.0.at("status"), None)))
    }
}

/// A process that is killed at the end of the case.
pub struct ChildProcess(pub Child);

impl ChildProcess {
    pub fn finish(mut self) -> Output {
        drop(self.0.stdin.take());
        let mut output = Output { status: Default::default(), stdout: Vec::new(), stderr: Vec::new() };
        if let Some(mut stdout) = self.0.stdout.take() {
            std::io::Read::read_to_end(&mut stdout, &mut output.stdout).expect("its output");
        }
        if let Some(mut stderr) = self.0.stderr.take() {
            std::io::Read::read_to_end(&mut stderr, &mut output.stderr).expect("its output");
        }
        output.status = self.0.wait().expect("it ends");
        output
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
