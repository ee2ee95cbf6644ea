//! Kubectls before the one whose texts are compared: the same exit codes and the same objects.

use std::path::{Path, PathBuf};

use super::compare::normalize;
use super::{Case, Client, OLDEST, prepare_namespace};
use crate::kubectl::binaries;
use crate::support::{BINARY, Server, root};

/// The oldest of them: before it, commands had other defaults.
const FIRST: (u32, u32) = (1, 27);
/// The types of the objects that the commands create.
const TYPES: &str =
    "configmaps,secrets,deployments,services,serviceaccounts,roles,rolebindings,quota,pdb,ingresses,cronjobs";

fn older() -> Vec<((u32, u32), PathBuf)> {
    binaries().into_iter().filter(|(version, _)| (FIRST..OLDEST).contains(version)).collect()
}

/// What a client did: the exit code of each command, and the objects at the end.
#[derive(Debug, PartialEq)]
struct Effect {
    codes: Vec<(String, Option<i32>)>,
    objects: String,
}

/// Runs all commands with a client; the objects are read by ours.
fn effect(client: &Client, reader: &Client, number: usize, case: &Case) -> Effect {
    prepare_namespace(client, number);
    let codes = case.steps.iter().map(|step| (step.line.clone(), client.run(number, &case.name, step).code)).collect();
    let namespace = client.namespace(number);
    let output =
        reader.command().args(["-n", &namespace, "get", TYPES, "-o", "yaml"]).output().expect("kubectl starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).replace(&namespace, "NAMESPACE");
    // Controllers write them at their own time.
    let is_of_controllers = |line: &&str| !line.trim_start().starts_with("observedGeneration:");
    let lines: Vec<&str> = text.lines().filter(is_of_controllers).collect();
    Effect { codes, objects: normalize(&without_status(&lines), "NAMESPACE") }
}

/// The objects without their status.
fn without_status(lines: &[&str]) -> String {
    let mut text = String::new();
    let mut is_status = false;
    for line in lines {
        let indent = line.len() - line.trim_start().len();
        if indent <= 2 {
            is_status = line.trim_start().starts_with("status:");
        }
        if !is_status {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_kubectls_create_the_same_objects() {
    let server = Server::start_with(&["--fake-nodes", "2"]);
    server.wait_for_kubeconfig();
    let text = std::fs::read_to_string(root().join("tiphys/tests/e2e/kubectl_diff/older.txt")).expect("the commands");
    let case = super::parse(&format!("[older]\n{text}")).remove(0);
    let program = std::env::var("TIPHYS_KUBECTL").unwrap_or_else(|_| BINARY.to_string());
    let ours = Client::new(Path::new(&program), 'b', &server).await;
    let mut others = Vec::new();
    for (version, path) in older() {
        let letter = char::from(b'c' + u8::try_from(others.len()).expect("a few versions"));
        others.push((version, Client::new(&path, letter, &server).await));
    }
    let differences = tokio::task::spawn_blocking(move || {
        let want = effect(&ours, &ours, 0, &case);
        let of = |(version, client): &((u32, u32), Client)| {
            difference(&want, &effect(client, &ours, 0, &case)).map(|text| format!("{version:?}:\n{text}"))
        };
        std::thread::scope(|scope| {
            let running: Vec<_> = others.iter().map(|other| scope.spawn(|| of(other))).collect();
            running.into_iter().filter_map(|one| one.join().expect("it ends")).collect::<Vec<_>>()
        })
    });
    let differences = differences.await.expect("it ends");
    drop(server);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn difference(ours: &Effect, theirs: &Effect) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for (own, other) in ours.codes.iter().zip(&theirs.codes).filter(|(own, other)| own != other) {
        lines.push(format!("  {}: {:?}, and ours {:?}", own.0, other.1, own.1));
    }
    let pairs = ours.objects.lines().zip(theirs.objects.lines());
    if ours.objects != theirs.objects {
        let first = pairs.enumerate().find(|(_, (own, other))| own != other);
        lines.push(format!("  objects differ, first at {first:?}"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}
