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

#[test]
fn python_client_works() {
    let mut command = Command::new(tool("python/bin/python"));
    command.arg(root().join("tiphys/tests/clients/client.py"));
    run(command);
}

#[test]
fn python_client_works_as_a_service_account() {
    let mut command = Command::new(tool("python/bin/python"));
    command.arg(root().join("tiphys/tests/clients/account.py"));
    run(command);
}

#[test]
fn javascript_client_works() {
    let modules = tool("javascript/node_modules/@kubernetes/client-node");
    let mut command = Command::new("node");
    // Modules are looked for beside the script, so it is run from where they are.
    let script = modules.ancestors().nth(3).expect("a directory").join("client.mjs");
    std::fs::copy(root().join("tiphys/tests/clients/client.mjs"), &script).expect("a copy");
    command.arg(script);
    run(command);
}
