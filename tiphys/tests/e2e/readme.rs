//! The commands of the README work, and the links of all documents are valid.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{BINARY, Server, root, tool};

/// The lines of all shell blocks.
fn commands() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("README.md")).expect("the README");
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty()).map(str::to_string).collect()
}

#[test]
fn readme_commands_work() {
    let commands = commands();
    assert_eq!(commands.first().map(String::as_str), Some("cargo run --release -- up"), "the first command");
    assert_eq!(commands.get(1).map(String::as_str), Some("./test"), "the second command");
    let server = Server::start();
    let mut ran = 0;
    for command in &commands {
        if command.starts_with("kubectl ") {
            kubectl(command, &server);
            ran += 1;
        } else if let Some(rest) = command.strip_prefix("tiphys ") {
            let status = Command::new(BINARY).args(rest.split(' ')).status().expect("the binary starts");
            assert!(status.success(), "{command}");
            ran += 1;
        }
    }
    assert!(ran > 2, "the README shows too little to be tested");
    for script in ["test", ".ci/run"] {
        let check = Command::new("sh").args(["-n", script]).current_dir(root()).status().expect("a shell");
        assert!(check.success(), "{script}");
    }
}

fn kubectl(command: &str, server: &Server) {
    let binary = tool("kubectl-1.20/usr/bin");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-ec", command])
        .env("PATH", path)
        .env("KUBECONFIG", server.kubeconfig())
        .current_dir(root())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The pages whose links are followed: those of the root, and all below `docs`.
fn pages() -> Vec<PathBuf> {
    let names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let mut pages: Vec<PathBuf> = names.iter().map(|name| root().join(name)).collect();
    for directory in ["docs", "docs/adr", "docs/howto", "docs/operations"] {
        let entries = std::fs::read_dir(root().join(directory)).expect("the directory can be read");
        let files = entries.filter_map(Result::ok).map(|entry| entry.path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages
}

#[test]
fn links_of_documents_are_valid() {
    let mut followed = 0;
    for path in pages() {
        let text = std::fs::read_to_string(&path).expect("the page");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.starts_with("http")) {
            let linked = path.parent().expect("a directory").join(target);
            assert!(linked.exists(), "{} links to {target}, which does not exist", path.display());
            followed += 1;
        }
    }
    assert!(followed > 20, "only {followed} links were found");
}
