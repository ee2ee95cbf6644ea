//! The official clients of other languages.

use std::process::Command;

use crate::support::{Server, root, tool};

fn run(mut command: Command) {
    let server = Server::start();
    let output = command.env("KUBECONFIG", server.kubeconfig()).output().expect("the interpreter starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("all done"), "{out}\n{err}");
}

fn python(script: &str) {
    let mut command = Command::new(tool("python/bin/python"));
    // Compiled modules would be written beside the scripts.
    command.arg("-B").arg(root().join("tiphys/tests/clients").join(script));
    run(command);
}

fn javascript(script: &str) {
    let modules = tool("javascript/node_modules/@kubernetes/client-node");
    let mut command = Command::new("node");
    // Modules are resolved relative to the script, so it runs in their directory.
    let copy = modules.ancestors().nth(3).expect("a directory").join(script);
    std::fs::copy(root().join("tiphys/tests/clients").join(script), &copy).expect("a copy");
    command.arg(copy);
    run(command);
}

#[test]
fn python_client_works() {
    python("client.py");
}

#[test]
fn python_client_works_as_a_service_account() {
    python("account.py");
}

#[test]
fn python_dynamic_client_uses_custom_resources() {
    python("dynamic.py");
}

#[test]
fn kr8s_uses_custom_resources() {
    python("kr8s_client.py");
}

#[test]
fn kopf_operator_works() {
    python("kopf_operator.py");
}

#[test]
fn javascript_client_works() {
    javascript("client.mjs");
}

#[test]
fn javascript_client_uses_custom_resources() {
    javascript("custom.mjs");
}
