//! Every kubectl on the machine, and always Debian's 1.20, with common commands.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Server, tool};

pub struct Kubectl<'a> {
    pub binary: &'a Path,
    pub version: (u32, u32),
    pub server: &'a Server,
    pub namespace: String,
}

const DEPLOYMENT: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'nginx:1', ports: [{containerPort: 80}]}
";

impl Kubectl<'_> {
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.binary);
        command
            .env("KUBECONFIG", self.server.kubeconfig())
            .env("HOME", self.server.dir.path())
            .args(["--cache-dir", &format!("{}/cache-{}", self.server.dir.path().display(), self.namespace)])
            .args(["-n", &self.namespace])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn output(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        // A kubectl that reads nothing may have exited already.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("kubectl ends")
    }

    pub fn run_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.output(arguments, input);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {:?} {arguments:?}: {out}{err}", self.version);
        out.into_owned()
    }

    pub fn run(&self, arguments: &str) -> String {
        self.run_with(&arguments.split(' ').collect::<Vec<_>>(), "")
    }

    /// Runs a command whose output must contain a text.
    pub fn shows(&self, arguments: &str, want: &str) {
        let out = self.run(arguments);
        assert!(out.contains(want), "kubectl {:?} {arguments}: {want:?} is not in {out}", self.version);
    }

    /// Runs a command that must be refused with a text.
    pub fn fails(&self, arguments: &[&str], input: &str, want: &str) {
        let output = self.output(arguments, input);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(want), "kubectl {:?} {arguments:?}: {text}", self.version);
    }

    fn create(&self) {
        self.shows("create configmap plain --from-literal=a=1", "configmap/plain created");
        self.shows("create deployment made --image=nginx", "deployment.apps/made created");
        self.fails(&["create", "configmap", "plain"], "", "already exists");
        self.fails(&["create", "configmap", "Wrong_Name"], "", "Wrong_Name");
    }

    fn apply(&self) {
        let apply = &["apply", "-f", "-"];
        assert!(self.run_with(apply, DEPLOYMENT).contains("deployment.apps/web created"));
        assert!(self.run_with(apply, DEPLOYMENT).contains("deployment.apps/web unchanged"));
        let changed = DEPLOYMENT.replace("nginx:1", "nginx:2");
        let diff = self.output(&["diff", "-f", "-"], &changed);
        assert_eq!(diff.status.code(), Some(1), "{}", String::from_utf8_lossy(&diff.stderr));
        assert!(String::from_utf8_lossy(&diff.stdout).contains("+      - image: nginx:2"), "{:?}", self.version);
        assert!(self.run_with(apply, &changed).contains("deployment.apps/web configured"));
        self.shows("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}", "nginx:2");
    }

    fn get(&self) {
        self.shows("get deployments", "UP-TO-DATE");
        self.shows("get deployments -o wide", "nginx:2");
        self.shows("get deployment web -o yaml", "  name: web\n");
        self.shows("get deployments -o json", "\"kind\": \"List\"");
        self.shows("get deployment web -o json", "\"kind\": \"Deployment\"");
        self.shows("get deploy -o name", "deployment.apps/web\n");
        self.shows("get deploy -o jsonpath={.items[*].metadata.name}", "made web");
        self.shows("get deploy -o custom-columns=NAME:.metadata.name,R:.spec.replicas", "web    1");
        self.shows("get deploy web -o go-template={{.metadata.name}}-{{.spec.replicas}}", "web-1");
        self.shows("get deploy -l app=web -o name", "deployment.apps/web\n");
        self.shows("get deploy -l app!=web -o name", "deployment.apps/made\n");
        self.shows("get cm --field-selector metadata.name=plain -o name", "configmap/plain\n");
        self.shows("get deploy,cm --show-labels", "app=web");
        self.shows("get all -A", "deployment.apps/web");
        self.shows("get deploy --chunk-size=1 -o name", "deployment.apps/web\n");
        self.shows("get deploy --sort-by=.metadata.name", "web");
        self.fails(&["get", "cm", "none"], "", "configmaps \"none\" not found");
        self.fails(&["get", "nonsense"], "", "the server doesn't have a resource type \"nonsense\"");
        self.shows("describe deployment web", "nginx:2");
        self.shows("describe configmap plain", "a:");
        self.shows("describe namespace default", "Status:       Active");
    }

    fn change(&self) {
        self.run_with(&["patch", "deployment", "web", "-p", r#"{"spec":{"paused":true}}"#], "");
        self.shows("get deploy web -o jsonpath={.spec.paused}", "true");
        self.run_with(&["patch", "cm", "plain", "--type=merge", "-p", r#"{"data":{"a":null,"b":"2"}}"#], "");
        let json = r#"[{"op":"add","path":"/data/c","value":"3"}]"#;
        self.run_with(&["patch", "cm", "plain", "--type=json", "-p", json], "");
        self.shows("get cm plain -o jsonpath={.data}", r#"{"b":"2","c":"3"}"#);
        let mut edit = self.command(&["edit", "cm", "plain"]);
        let edited = edit.env("KUBE_EDITOR", "sed -i s/\\\"2\\\"/\\\"edited\\\"/").output().expect("kubectl starts");
        assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
        self.shows("get cm plain -o jsonpath={.data.b}", "edited");
        if self.version >= (1, 23) {
            self.shows("wait --for=jsonpath={.data.b}=edited cm/plain --timeout=10s", "condition met");
        }
        self.run("label cm plain tier=one");
        self.shows("get cm -l tier=one -o name", "configmap/plain");
        self.fails(&["label", "cm", "plain", "tier=two"], "", "overwrite is false");
        self.run("label cm plain tier-");
        self.run("annotate cm plain note=here");
        self.shows("get cm plain -o jsonpath={.metadata.annotations.note}", "here");
        self.run("scale deployment web --replicas=3");
        self.shows("get deploy web -o jsonpath={.spec.replicas}", "3");
        self.run("set image deployment/web web=nginx:3");
        self.shows("expose deployment web --port=80", "service/web exposed");
        self.shows("get service web", "10.96.");
    }

    fn server_side(&self) {
        let map =
            |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: owned}}\ndata: {{k: {value}}}\n");
        let apply = ["apply", "--server-side", "-f", "-"];
        assert!(self.run_with(&apply, &map("one")).contains("serverside-applied"));
        let other = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
        self.fails(&other, &map("two"), "conflict");
        let forced = ["apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-"];
        self.run_with(&forced, &map("two"));
        self.shows("get cm owned -o jsonpath={.data.k}", "two");
        let dry = self.run_with(&["apply", "--dry-run=server", "-f", "-"], &map("three").replace("owned", "dry"));
        assert!(dry.contains("configmap/dry created (server dry run)"), "{dry}");
        self.fails(&["get", "cm", "dry"], "", "not found");
    }

    fn learn(&self) {
        self.shows("api-resources", "deployments");
        self.shows("api-resources --namespaced=false -o name", "namespaces");
        self.shows("api-versions", "apps/v1");
        self.shows("explain deployment.spec.replicas", "Number of desired pods");
        self.shows("explain pods", "VERSION");
        // Older versions do not print values.
        if self.version >= (1, 30) {
            self.shows("explain pod.spec.restartPolicy", "ENUM:");
            self.shows("explain pod.spec.restartPolicy", "OnFailure");
        }
        self.shows("version", "v1.37.0");
        self.shows("cluster-info", "is running at");
        self.shows("auth can-i create pods", "yes");
    }

    /// A binding applies to the next command; no user grants more than they have.
    fn authorize(&self) {
        let can = "auth can-i list configmaps --as=jane";
        let refused = self.output(&can.split(' ').collect::<Vec<_>>(), "");
        assert_eq!(String::from_utf8_lossy(&refused.stdout).trim(), "no");
        self.fails(&["get", "cm", "--as=jane"], "", "cannot list resource \"configmaps\" in API group \"\"");
        self.run("create role reader --verb=get,list --resource=configmaps");
        self.run("create rolebinding jane --role=reader --user=jane");
        self.shows(can, "yes");
        self.shows("get cm --as=jane -o name", "configmap/plain");
        let listed = self.run("auth can-i --list --as=jane");
        assert!(listed.contains("configmaps ") && listed.contains("[/healthz]"), "{listed}");
        self.shows("auth can-i --list", "*.*");
        self.run("create role binder --verb=create --resource=rolebindings.rbac.authorization.k8s.io");
        self.run("create rolebinding binder --role=binder --user=jane");
        let grab = ["create", "rolebinding", "grab", "--clusterrole=cluster-admin", "--user=jane", "--as=jane"];
        self.fails(&grab, "", "is attempting to grant RBAC permissions not currently held");
        self.run("delete rolebinding jane binder");
        self.fails(&["get", "cm", "--as=jane"], "", "cannot list resource");
    }

    /// Authentication, impersonation, and the token of an account.
    fn identify(&self) {
        self.fails(&["get", "secrets", "--as=jane"], "", "User \"jane\" cannot list resource \"secrets\"");
        self.run("get secrets --as=jane --as-group=system:masters");
        self.fails(&["get", "secrets", "--as-group=devs"], "", "without impersonating a user");
        self.run("create serviceaccount robot");
        if self.version < (1, 28) {
            return;
        }
        self.shows("auth whoami", "kubernetes-admin");
        self.shows("auth whoami --as=jane --as-group=devs -o json", "\"devs\"");
        let token = self.run("create token robot --duration=10m");
        let ca = self.server.dir.path().join("data/pki/ca.crt");
        let words = [
            "--kubeconfig=/dev/null",
            &format!("--server=https://127.0.0.1:{}", self.server.port),
            &format!("--certificate-authority={}", ca.display()),
            &format!("--token={}", token.trim()),
            "auth",
            "whoami",
        ];
        let out = self.run_with(&words, "");
        let name = format!("system:serviceaccount:{}:robot", self.namespace);
        assert!(out.contains(&name), "kubectl {:?}: {out}", self.version);
    }

    fn watch(&self) {
        let mut watching = self.command(&["get", "cm", "--watch", "-o", "name"]).spawn().expect("kubectl starts");
        let mut lines = BufReader::new(watching.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        // After the first line, the list is complete and the watch has started.
        let first = lines.next();
        assert!(first.is_some());
        self.run("create configmap later --from-literal=a=1");
        assert!(lines.any(|line| line == "configmap/later"));
        watching.kill().expect("it runs");
        watching.wait().expect("it ends");
    }

    fn delete(&self) {
        self.shows("delete cm later", "configmap \"later\" deleted");
        let mut waiting =
            self.command(&["wait", "--for=delete", "cm/owned", "--timeout=30s"]).spawn().expect("kubectl");
        self.shows("delete cm owned", "configmap \"owned\" deleted");
        let status = waiting.wait().expect("kubectl ends");
        // The object may be deleted before kubectl reads it; old versions report that as an error.
        assert!(status.success() || self.version < (1, 23), "{:?}", self.version);
        self.run("delete deployment web made --wait=false");
        self.run("delete cm --all");
        self.fails(&["delete", "cm", "plain"], "", "not found");
    }

    fn all(&self) {
        self.run(&format!("create namespace {}", self.namespace));
        self.create();
        self.apply();
        self.get();
        self.change();
        self.server_side();
        self.learn();
        self.identify();
        self.authorize();
        self.watch();
        self.delete();
    }
}

fn version_of(binary: &Path) -> Option<(u32, u32)> {
    let output = Command::new(binary).args(["version", "--client", "-o", "json"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, rest) = text.split_once("\"gitVersion\": \"v")?;
    let mut parts = rest.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The kubectls of the machine, one of each version, besides Debian's.
pub fn binaries() -> BTreeMap<(u32, u32), PathBuf> {
    let mut found = BTreeMap::new();
    let path = std::env::var("PATH").unwrap_or_default();
    let directories = path.split(':').map(PathBuf::from).chain([PathBuf::from("/usr/lib/google-cloud-sdk/bin")]);
    for entry in directories.filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().filter_map(Result::ok)
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_kubectl = name == "kubectl" || name.starts_with("kubectl.1.");
        // A dispatcher selects another binary; those are in the list anyway.
        if let Some(version) = is_kubectl.then(|| version_of(&entry.path())).flatten() {
            found.insert(version, entry.path());
        }
    }
    found.insert((1, 20), tool("kubectl-1.20/usr/bin/kubectl"));
    found
}

#[test]
fn every_kubectl_version_works() {
    let server = Server::start();
    let binaries = binaries();
    std::thread::scope(|scope| {
        for (version, binary) in &binaries {
            let namespace = format!("kubectl-{}-{}", version.0, version.1);
            let kubectl = Kubectl { binary, version: *version, server: &server, namespace };
            scope.spawn(move || kubectl.all());
        }
    });
    println!("kubectl versions driven: {:?}", binaries.keys().collect::<Vec<_>>());
}
