//! Images that cannot be pulled, and images that need credentials.

use std::path::Path;
use std::process::Command;

use runtime::images::{Config, Images, NoProgress};

use super::CaseFn;
use super::case::{Case, container};
use crate::busybox;
use crate::debian::{Registry, user};
use crate::support::BINARY;

pub const CASES: &[(&str, CaseFn)] = &[
    ("images that cannot be pulled", errors),
    ("a pull secret authenticates to a registry", with_secret),
    ("an image imported while the cluster runs", imported),
];

fn errors(case: &Case) {
    let pod = |name: &str, image: &str, policy: &str| {
        case.pod(name, &format!("containers: [{{name: main, image: {image:?}, imagePullPolicy: {policy}}}]"));
    };
    pod("unreachable", "127.0.0.1:9/none:1", "Always");
    pod("never", "suite.local/none:1", "Never");
    pod("odd", "Not-A-Name:1", "Always");
    let reason = |name: &str| container(&case.pods(name), "main").str("state.waiting.reason").to_string();
    case.until("a failed pull", || reason("unreachable"), |seen| seen == "ErrImagePull" || seen == "ImagePullBackOff");
    case.until("back-off", || reason("unreachable"), |seen| seen == "ImagePullBackOff");
    let message = container(&case.pods("unreachable"), "main").str("state.waiting.message").to_string();
    assert!(message.starts_with("Back-off pulling image \"127.0.0.1:9/none:1\": ErrImagePull: "), "{message}");
    case.until_event("unreachable", "Pulling", "Pulling image \"127.0.0.1:9/none:1\"");
    case.until_event("unreachable", "Failed", "Failed to pull image \"127.0.0.1:9/none:1\": ");
    case.until_event("unreachable", "Failed", "Error: ErrImagePull");
    case.until_event("unreachable", "BackOff", "Back-off pulling image \"127.0.0.1:9/none:1\"");
    case.until_event("unreachable", "Failed", "Error: ImagePullBackOff");
    let table = case.kubectl(&["get", "pods"]);
    assert!(table.contains("ErrImagePull") || table.contains("ImagePullBackOff"), "{table}");
    case.until("a refusal", || reason("never"), |seen| seen == "ErrImageNeverPull");
    case.until_event(
        "never",
        "ErrImageNeverPull",
        "Container image \"suite.local/none:1\" is not present with pull policy of Never",
    );
    case.until("a bad name", || reason("odd"), |seen| seen == "InvalidImageName");
    case.until_event("odd", "InspectFailed", "Failed to apply default image tag \"Not-A-Name:1\": ");
}

/// Builds an image that sleeps, in a separate store. Its name is in its configuration: the kubelet requires the
/// credentials of a pull for every image of the same content.
fn build(tokio: &tokio::runtime::Runtime, directory: &Path, name: &str) -> (Images, String) {
    let images = Images::open(directory, Default::default()).expect("images");
    let cmd = ["sleep", "1000"].map(String::from).to_vec();
    let config = Config { cmd, env: vec![format!("NAME={name}")], ..Default::default() };
    let id = tokio.block_on(images.build(name, vec![busybox::layer()], config, &NoProgress)).expect("an image");
    (images, id)
}

/// `tiphys images` finds the store of the running cluster; containerd has its own commands for its store.
fn imported(case: &Case) {
    if case.is_containerd() {
        return;
    }
    let name = "maker.local/imported:1";
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let (store, archive) = (directory.path().join("store"), directory.path().join("image.tar"));
    build(&tokio, &store, name);
    let mut export = Command::new(BINARY);
    let exported = export.args(["images", "export", name, "--root"]).arg(&store).arg("--output").arg(&archive).status();
    assert!(exported.expect("the binary runs").success());
    let mut import = case.cluster.command("sh");
    let output = import.args(["-c", "cd / && exec \"$0\" images import \"$1\"", BINARY]).arg(&archive).output();
    let output = output.expect("nsenter is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("sha256:"), "{output:?}");
    case.pod("imported", &format!("containers: [{{name: main, image: {name:?}, imagePullPolicy: Never}}]"));
    case.until_ready("imported");
}

fn with_secret(case: &Case) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let registry = tokio.block_on(Registry::start());
    let name = registry.name("closed/busybox:1");
    let directory = tempfile::tempdir().expect("a directory");
    let (images, id) = build(&tokio, directory.path(), "maker.local/closed:1");
    tokio.block_on(images.push(&id, &name, user())).expect("it is pushed");
    let server = format!("--docker-server={}", registry.address);
    let secret =
        ["create", "secret", "docker-registry", "key", &server, "--docker-username=user", "--docker-password=secret"];
    case.kubectl(&secret);
    case.pod("without", &format!("containers: [{{name: main, image: {name:?}}}]"));
    case.pod("with", &format!("imagePullSecrets: [{{name: key}}], containers: [{{name: main, image: {name:?}}}]"));
    let pod = case.until_ready("with");
    let status = container(&pod, "main");
    assert_eq!(status.str("image"), name);
    assert!(status.str("imageID").contains("sha256:"), "{status:?}");
    case.until_event("with", "Pulled", &format!("Successfully pulled image \"{name}\" in "));
    case.until_event("without", "Failed", "Failed to pull image");
    // The same by the account.
    case.kubectl(&["patch", "serviceaccount", "default", "-p", r#"{"imagePullSecrets":[{"name":"key"}]}"#]);
    case.pod("by-account", &format!("containers: [{{name: main, image: {name:?}, imagePullPolicy: Always}}]"));
    case.until_ready("by-account");
}
