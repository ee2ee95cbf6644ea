//! The example extension API server in a pod behind a Service, used by kubectl.

use std::path::PathBuf;
use std::process::Command;

use super::Table;
use super::case::{Case, debians};
use super::cluster::IMAGE;
use super::services::{client_with, machine_volumes};
use crate::support::root;

pub const CASES: Table = &[("an extension API server", extension)];

const API_SERVICE: &str = "v1.greetings.example.com";

/// Deletes the APIService: the namespaces of other cases cannot be deleted while a group does not respond.
struct Registration<'a>(&'a Case<'a>);

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.0.run(&["delete", "apiservice", API_SERVICE, "--ignore-not-found"]);
        self.0.run(&["delete", "clusterrolebinding", "greetings-auth-delegator", "--ignore-not-found"]);
        let reader = ["delete", "rolebinding", "greetings-authentication-reader", "--ignore-not-found"];
        self.0.run(&[&["--namespace=kube-system"], &reader[..]].concat());
    }
}

/// Built with the tests of this package.
fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let path = test.ancestors().nth(2).expect("the target directory").join("examples/extension-apiserver");
    assert!(path.exists(), "{}: cargo build -p tiphys --examples", path.display());
    path
}

/// A certificate for a Service of the case, and its key.
pub fn openssl(case: &Case, service: &str) -> (String, String) {
    let (key, certificate) = (case.file("tls.key", ""), case.file("tls.crt", ""));
    let name = format!("subjectAltName=DNS:{service}.{}.svc", case.namespace);
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &format!("/CN={service}")])
        .args(["-addext", &name, "-keyout", &key, "-out", &certificate])
        .output()
        .expect("openssl is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (certificate, key)
}

/// The manifest of the example. The binary and its libraries are those of the machine: an image of them would be large.
fn manifest(case: &Case, certificate: &str) -> String {
    let binary = binary();
    let directory = binary.parent().and_then(|path| path.to_str()).expect("text");
    let (volumes, mounts) = machine_volumes(&[(directory, "/example")]);
    let ca = api::base64::encode(&std::fs::read(certificate).expect("a certificate"));
    std::fs::read_to_string(root().join("examples/extension-apiserver/deploy.yaml"))
        .expect("the manifest")
        .replace("namespace: greetings", &format!("namespace: {}", case.namespace))
        .replace("registry.example.com/extension-apiserver:1", IMAGE)
        .replace("[/extension-apiserver", "[/example/extension-apiserver")
        .replace("volumeMounts: [", &format!("volumeMounts: [{mounts}, "))
        .replace("volumes: [", &format!("volumes: [{volumes}, "))
        .replace("CA_BUNDLE", &ca)
}

fn extension(case: &Case) {
    let (certificate, key) = openssl(case, "greetings");
    let (cert, key) = (format!("--cert={certificate}"), format!("--key={key}"));
    case.kubectl(&["create", "secret", "tls", "greetings-serving", &cert, &key]);
    let _registration = Registration(case);
    let manifest = case.file("deploy.yaml", &manifest(case, &certificate));
    // Its objects are in several namespaces.
    Case::of_cluster(case.cluster).kubectl(&["apply", "-f", &manifest]);
    let available = ["wait", "--for=condition=Available", "--timeout=60s", "apiservice", API_SERVICE];
    let log = || String::from_utf8_lossy(&case.run(&["logs", "deployment/greetings"]).stdout).into_owned();
    case.until_or("the APIService", || case.run(&available), |output| output.status.success(), log);
    manage_objects(case);
    watch_objects(case);
    explain_fields(case);
    check_roles(case);
    check_direct_requests(case);
    case.kubectl(&["delete", "greeting", "hello"]);
    assert_eq!(case.kubectl(&["get", "greetings", "-o", "name"]), "");
}

fn greeting(case: &Case, name: &str, text: &str) -> String {
    // kubectl parses a document that begins with a brace as JSON.
    let object = format!(
        "apiVersion: greetings.example.com/v1\nkind: Greeting\nmetadata: {{name: {name}}}\nspec: {{text: \"{text}\"}}\n"
    );
    case.file(&format!("{name}.yaml"), &object)
}

fn manage_objects(case: &Case) {
    let text = || case.kubectl(&["get", "gr", "hello", "-o", "jsonpath={.spec.text}"]);
    let hello = greeting(case, "hello", "hello");
    assert!(case.kubectl(&["apply", "-f", &hello]).contains("created"));
    assert!(case.kubectl(&["apply", "-f", &hello]).contains("unchanged"));
    assert_eq!(text(), "hello");
    let changed = greeting(case, "hello", "good morning");
    assert!(case.kubectl(&["apply", "-f", &changed]).contains("configured"));
    assert_eq!(text(), "good morning");
    case.kubectl(&["label", "greeting", "hello", "tone=kind"]);
    assert_eq!(case.kubectl(&["get", "greetings", "-l", "tone=kind", "-o", "name"]), name("hello"));
    assert_eq!(case.kubectl(&["get", "greetings", "-l", "tone=rude", "-o", "name"]), "");
    assert!(case.kubectl(&["get", "greetings", "-A"]).contains("hello"));
    let refused = case.refused(&["create", "-f", &greeting(case, "empty", "")]);
    assert!(refused.contains("spec.text: Required value"), "{refused}");
    let again = case.refused(&["create", "-f", &hello]);
    assert!(again.contains("greetings.greetings.example.com \"hello\" already exists"), "{again}");
    assert!(case.kubectl(&["api-resources", "--api-group=greetings.example.com"]).contains("Greeting"));
}

fn name(name: &str) -> String {
    format!("greeting.greetings.example.com/{name}")
}

/// `kubectl wait` watches one object.
fn watch_objects(case: &Case) {
    let watching = ["wait", "--for=condition=Said", "--timeout=50s", "greeting/hello"];
    let waiting = case.start(&debians(), &watching);
    let patch = r#"{"status":{"conditions":[{"type":"Said","status":"True"}]}}"#;
    case.kubectl(&["patch", "greeting", "hello", "--type=merge", "-p", patch]);
    let output = waiting.finish();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A watch of the collection shows existing and then added objects; kubectl exits at the end of the request.
    let all = case.start(&debians(), &["get", "greetings", "--watch", "-o", "name", "--request-timeout=8s"]);
    case.kubectl(&["create", "-f", &greeting(case, "later", "later")]);
    let seen = String::from_utf8_lossy(&all.finish().stdout).into_owned();
    assert!(seen.contains(&name("hello")) && seen.contains(&name("later")), "{seen}");
    case.kubectl(&["delete", "greeting", "later"]);
}

/// `kubectl explain` reads the OpenAPI document of the group, once it is published.
fn explain_fields(case: &Case) {
    let explain = || String::from_utf8_lossy(&case.run(&["explain", "greetings.spec.text"]).stdout).into_owned();
    let text = case.until("the field", explain, |text| text.contains("<string>"));
    assert!(text.contains("Greeting"), "{text}");
}

/// A user without a role.
fn check_roles(case: &Case) {
    let list = ["get", "greetings", "--as=jane", "-o", "name"];
    let refused = case.refused(&list);
    assert!(refused.contains("User \"jane\" cannot list resource \"greetings\""), "{refused}");
    case.kubectl(&["create", "role", "reader", "--verb=get,list", "--resource=greetings.greetings.example.com"]);
    case.kubectl(&["create", "rolebinding", "jane", "--role=reader", "--user=jane"]);
    assert_eq!(case.kubectl(&list), name("hello"));
    let refused = case.refused(&["delete", "greeting", "hello", "--as=jane"]);
    assert!(refused.contains("User \"jane\" cannot delete resource \"greetings\""), "{refused}");
}

/// Headers that name a user are ignored without the certificate of the API server.
fn check_direct_requests(case: &Case) {
    client_with(case, "client", "", &[]);
    let url = format!("https://greetings.{}.svc/apis/greetings.example.com/v1/greetings", case.namespace);
    let headers = "-H 'X-Remote-User: admin' -H 'X-Remote-Group: system:masters'";
    let code = case.exec("client", &format!("/usr/bin/curl -sk -o /dev/null -w '%{{http_code}}' {headers} {url}"));
    assert_eq!(code, "401");
}
