//! Add-ons: manifests of the data directory are applied, kept applied, and pruned when they are removed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use stdx::wait::{until, until_await};

use crate::support::{BINARY, Client, Server};

const DEADLINE: Duration = Duration::from_secs(60);
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: greetings, singular: greeting, kind: Greeting}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const GREETING: &str = "/apis/example.com/v1/namespaces/team/greetings/hello";
const MAP: &str = "/api/v1/namespaces/team/configmaps/settings";

/// Objects that need each other, in the wrong order.
fn team() -> String {
    let greeting = "apiVersion: example.com/v1\nkind: Greeting\nmetadata: {name: hello, namespace: team}\n";
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n";
    format!("{greeting}---\n{DEFINITION}---\n{}---\n{namespace}", map("blue"))
}

fn map(colour: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings, namespace: team}}\ndata: {{colour: {colour}}}\n"
    )
}

async fn until_code(client: &mut Client, path: &str, code: u16) {
    let is_so = async || client.call("GET", path, "").await.expect("a response").0 == code;
    until_await(&format!("{code} for {path}"), DEADLINE, is_so).await;
}

async fn until_colour(client: &mut Client, want: &str) {
    let is_so = async || {
        let (_, body) = client.call("GET", MAP, "").await.expect("a response");
        api::json::decode(&body).is_ok_and(|map| map.str("data.colour") == want)
    };
    until_await(&format!("the colour {want}"), DEADLINE, is_so).await;
}

fn status(dir: &Path) -> (bool, String) {
    let data = dir.join("data");
    let output = Command::new(BINARY).arg("status").arg("--data-dir").arg(&data).output().expect("the binary starts");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn manifests_are_applied_and_pruned() {
    let dir = Arc::new(tempfile::tempdir().expect("a directory"));
    let manifests = dir.path().join("data/manifests");
    fs::create_dir_all(&manifests).expect("a directory");
    fs::write(manifests.join("team.yaml"), team()).expect("a file");
    let mut server = Server::start_in(dir.clone());
    let mut client = server.client().await;
    until_code(&mut client, GREETING, 200).await;
    until_colour(&mut client, "blue").await;

    // Kept applied: a change and a deletion are undone, and a new content replaces the old one.
    let changed = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"colour":"red"}}"#;
    assert_eq!(client.call("PUT", MAP, changed).await.expect("a response").0, 200);
    until_colour(&mut client, "blue").await;
    assert_eq!(client.call("DELETE", GREETING, "").await.expect("a response").0, 200);
    until_code(&mut client, GREETING, 200).await;
    fs::write(manifests.join("team.yaml"), team().replace("blue", "green")).expect("a file");
    until_colour(&mut client, "green").await;

    // What is wrong is an event, and shown by the status; the rest is applied.
    let wrong = format!("{}---\napiVersion: v1\nkind: Nothing\nmetadata: {{name: a}}\n", map("white"));
    fs::write(manifests.join("wrong.yaml"), wrong.replace("settings", "other")).expect("a file");
    until_code(&mut client, &MAP.replace("settings", "other"), 200).await;
    until("the error", DEADLINE, || status(dir.path()).1.contains("wrong.yaml"));
    let (is_healthy, shown) = status(dir.path());
    assert!(!is_healthy && shown.contains("Nothing a: no server has Nothing of v1"), "{shown}");
    let events = "/api/v1/namespaces/kube-system/events";
    let is_recorded = async || {
        let (_, body) = client.call("GET", events, "").await.expect("a response");
        let text = String::from_utf8_lossy(&body).into_owned();
        text.contains("ManifestFailed") && text.contains("ManifestApplied")
    };
    until_await("the events", DEADLINE, is_recorded).await;

    // Pruned: an object of a file, a file, and a file that is removed while no server runs.
    fs::write(manifests.join("wrong.yaml"), "").expect("a file");
    until_code(&mut client, &MAP.replace("settings", "other"), 404).await;
    fs::write(manifests.join("late.yaml"), map("grey").replace("settings", "late")).expect("a file");
    until_code(&mut client, &MAP.replace("settings", "late"), 200).await;
    fs::remove_file(manifests.join("wrong.yaml")).expect("a file");
    until("no error", DEADLINE, || status(dir.path()).0);
    server.signal("-TERM");
    assert_eq!(server.wait(), Some(0));
    fs::remove_file(manifests.join("late.yaml")).expect("a file");
    let server = Server::start_in(dir.clone());
    let mut client = server.client().await;
    until_code(&mut client, &MAP.replace("settings", "late"), 404).await;
    until_code(&mut client, MAP, 200).await;
    fs::remove_file(manifests.join("team.yaml")).expect("a file");
    until_code(&mut client, GREETING, 404).await;
    until_code(&mut client, "/api/v1/namespaces/team", 404).await;
}
