//! Clients that run in pods: the official ones of other languages, with the service account of their pod. They are the
//! machine's own files, since an image with an interpreter would be large.

use std::path::{Path, PathBuf};

use super::Table;
use super::case::{Case, debians};
use super::services::{client_with, machine_volumes};
use crate::support::{BINARY, tool};

pub const CASES: Table = &[
    ("an operator in Python", operator),
    ("an operator with kopf", kopf),
    ("a client in JavaScript", javascript),
    ("a client in Go", kubectl),
    ("a scheduler as a deployment", scheduler),
];

/// Replies to ConfigMaps with a label by writing other ConfigMaps.
const OPERATOR: &str = r#"
from kubernetes import client, config, watch

config.load_incluster_config()
# By its name instead of its address, which the certificate has to contain too.
configuration = client.Configuration.get_default_copy()
print("configured for", configuration.host, flush=True)
configuration.host = "https://kubernetes.default.svc"
api = client.CoreV1Api(client.ApiClient(configuration))
namespace = open("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read()
for event in watch.Watch().stream(api.list_namespaced_config_map, namespace, label_selector="greet=yes"):
    question = event["object"]
    if event["type"] != "ADDED":
        continue
    meta = client.V1ObjectMeta(name=question.metadata.name + "-answer")
    answer = client.V1ConfigMap(metadata=meta, data={"text": "hello " + question.data["name"]})
    api.create_namespaced_config_map(namespace, answer)
    print("answered", question.metadata.name, flush=True)
"#;

/// The interpreter that a path leads to, and the directory of its installation.
pub fn interpreter(path: &Path) -> (String, String) {
    let file = std::fs::canonicalize(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let prefix = file.ancestors().nth(2).expect("a program is in a directory").to_string_lossy().into_owned();
    (file.to_string_lossy().into_owned(), prefix)
}

/// The modules of the virtual environment.
fn python_modules() -> PathBuf {
    let versions = std::fs::read_dir(tool("python/lib")).expect("a directory").flatten();
    let modules = versions.map(|version| version.path().join("site-packages")).find(|path| path.is_dir());
    modules.expect("the virtual environment has modules")
}

fn operator(case: &Case) {
    let namespace = &case.namespace;
    case.kubectl(&["create", "serviceaccount", "operator"]);
    let account = format!("--serviceaccount={namespace}:operator");
    case.kubectl(&["create", "rolebinding", "operator", "--clusterrole=edit", &account]);
    let script = case.file("operator.py", OPERATOR);
    case.kubectl(&["create", "configmap", "script", &format!("--from-file=operator.py={script}")]);
    let modules = python_modules();
    let (python, prefix) = interpreter(&tool("python/bin/python"));
    let mut directories = vec![(modules.to_str().expect("text"), "/modules")];
    // All pods of the tests have Debian's own programs.
    directories.extend((prefix != "/usr").then_some((prefix.as_str(), prefix.as_str())));
    let (volumes, mounts) = machine_volumes(&directories);
    case.apply(&format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: operator}}, spec: {{selector: {{matchLabels: {{app: \
         operator}}}}, template: {{metadata: {{labels: {{app: operator}}}}, spec: {{serviceAccountName: operator, \
         terminationGracePeriodSeconds: 1, volumes: [{volumes}, {{name: script, configMap: {{name: script}}}}], \
         containers: [{{name: main, image: IMAGE, command: [{python}, /script/operator.py], \
         env: [{{name: PYTHONPATH, value: /modules}}], \
         volumeMounts: [{mounts}, {{name: script, mountPath: /script}}]}}]}}}}}}}}"
    ));
    case.apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: question, labels: {greet: 'yes'}}, data: {name: world}}",
    );
    let answer = || case.object("configmaps", "question-answer").str("data.text").to_string();
    let log = || String::from_utf8_lossy(&case.run(&["logs", "deployment/operator"]).stdout).into_owned();
    case.until_or("the answer", answer, |text| text == "hello world", log);
    assert!(log().contains("configured for https://10.96.0.1:443"), "{}", log());
}

/// Completes ConfigMaps with a label.
const KOPF: &str = r#"
import kopf

@kopf.on.create('', 'v1', 'configmaps', labels={'greet': 'kopf'})
def greet(body, patch, **_):
    patch.setdefault('data', {})['text'] = 'hello ' + body['data']['name']
"#;

/// The framework finds the API server and its service account itself. It watches namespaces and definitions too, and
/// repeats requests that are forbidden for most of a minute.
fn kopf(case: &Case) {
    let namespace = &case.namespace;
    let account = format!("--serviceaccount={namespace}:default");
    let watcher = format!("{namespace}-watcher");
    let resources = "--resource=namespaces,customresourcedefinitions.apiextensions.k8s.io";
    case.kubectl(&["create", "clusterrole", &watcher, "--verb=list,watch", resources]);
    case.kubectl(&["create", "clusterrolebinding", &watcher, &format!("--clusterrole={watcher}"), &account]);
    case.kubectl(&["create", "rolebinding", "operator", "--clusterrole=edit", &account]);
    let script = case.file("kopf.py", KOPF);
    case.kubectl(&["create", "configmap", "script", &format!("--from-file=operator.py={script}")]);
    let modules = python_modules();
    let (python, prefix) = interpreter(&tool("python/bin/python"));
    let mut directories = vec![(modules.to_str().expect("text"), "/modules")];
    directories.extend((prefix != "/usr").then_some((prefix.as_str(), prefix.as_str())));
    let (volumes, mounts) = machine_volumes(&directories);
    case.pod(
        "operator",
        &format!(
            "terminationGracePeriodSeconds: 1, volumes: [{volumes}, {{name: script, configMap: {{name: script}}}}], \
             containers: [{{name: main, image: IMAGE, \
             command: [{python}, -m, kopf, run, --standalone, --namespace, {namespace}, /script/operator.py], \
             env: [{{name: PYTHONPATH, value: /modules}}], \
             volumeMounts: [{mounts}, {{name: script, mountPath: /script}}]}}]"
        ),
    );
    case.apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: question, labels: {greet: kopf}}, data: {name: world}}",
    );
    let text = || case.object("configmaps", "question").str("data.text").to_string();
    let log = || String::from_utf8_lossy(&case.run(&["logs", "operator"]).stdout).into_owned();
    case.until_or("the operator's change", text, |text| text == "hello world", log);
}

const LIST_PODS: &str = "import * as k8s from \"@kubernetes/client-node\"; \
    const config = new k8s.KubeConfig(); config.loadFromCluster(); \
    const pods = await config.makeApiClient(k8s.CoreV1Api).listNamespacedPod({ namespace: process.argv[1] }); \
    console.log(pods.items.map((pod) => pod.metadata.name).join(\" \"));";

fn javascript(case: &Case) {
    let namespace = &case.namespace;
    let account = format!("--serviceaccount={namespace}:default");
    case.kubectl(&["create", "rolebinding", "viewer", "--clusterrole=view", &account]);
    let modules = tool("javascript");
    let output = std::process::Command::new("sh").args(["-c", "command -v node"]).output().expect("a shell");
    let (node, prefix) = interpreter(Path::new(String::from_utf8_lossy(&output.stdout).trim()));
    let mut directories = vec![(modules.to_str().expect("text"), "/modules")];
    directories.extend((prefix != "/usr").then_some((prefix.as_str(), prefix.as_str())));
    client_with(case, "client", "", &directories);
    let command = format!("cd /modules && {node} --input-type=module -e '{LIST_PODS}' {namespace}");
    assert_eq!(case.exec("client", &command), "client");
}

/// kubectl without a kubeconfig uses client-go's configuration of pods.
fn kubectl(case: &Case) {
    let account = format!("--serviceaccount={}:default", case.namespace);
    case.kubectl(&["create", "rolebinding", "viewer", "--clusterrole=view", &account]);
    let kubectl = debians();
    let directory = kubectl.parent().and_then(Path::to_str).expect("a directory");
    client_with(case, "client", "", &[(directory, "/kubectl")]);
    assert_eq!(case.exec("client", "/kubectl/kubectl get pods -o name"), "pod/client");
}

const SECOND: &str = "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles: [{schedulerName: second}]
";

/// A second scheduler, with the service account of its pod.
fn scheduler(case: &Case) {
    case.kubectl(&["create", "serviceaccount", "second"]);
    let account = format!("--serviceaccount={}:second", case.namespace);
    for role in ["kube-scheduler", "volume-scheduler"] {
        let (name, role) = (format!("{}-{role}", case.namespace), format!("--clusterrole=system:{role}"));
        case.kubectl(&["create", "clusterrolebinding", &name, &role, &account]);
    }
    let file = case.file("config.yaml", SECOND);
    case.kubectl(&["create", "configmap", "second", &format!("--from-file=config.yaml={file}")]);
    let directory = Path::new(BINARY).parent().and_then(Path::to_str).expect("a directory");
    let (volumes, mounts) = machine_volumes(&[(directory, "/tiphys")]);
    case.apply(&format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: second}}, spec: {{selector: {{matchLabels: {{app: \
         second}}}}, template: {{metadata: {{labels: {{app: second}}}}, spec: {{serviceAccountName: second, \
         terminationGracePeriodSeconds: 1, volumes: [{volumes}, {{name: config, configMap: {{name: second}}}}], \
         containers: [{{name: main, image: IMAGE, \
         command: [/tiphys/tiphys, kube-scheduler, --config=/config/config.yaml], \
         volumeMounts: [{mounts}, {{name: config, mountPath: /config}}]}}]}}}}}}}}"
    ));
    case.pod("chosen", "schedulerName: second, containers: [{name: main, image: IMAGE}]");
    let log = || String::from_utf8_lossy(&case.run(&["logs", "deployment/second"]).stdout).into_owned();
    let phase = || case.object("pods", "chosen").str("status.phase").to_string();
    case.until_or("a pod of the second scheduler", phase, |phase| phase == "Running", log);
    for role in ["kube-scheduler", "volume-scheduler"] {
        case.kubectl(&["delete", "clusterrolebinding", &format!("{}-{role}", case.namespace)]);
    }
}
