//! Dependencies between crates: which crates of the workspace each one may use, and which others none may bring in.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::layers::crates;
use crate::support::root;

/// Every crate with the crates of the workspace that it uses, lowest first; `stdx` is for all. A new entry is a decision
/// about layers: it belongs into ARCHITECTURE.md too.
const ALLOWED: &[(&str, &[&str])] = &[
    ("stdx", &[]),
    ("http-client", &[]),
    ("api", &[]),
    ("cgroup", &[]),
    ("cri", &[]),
    ("descriptions", &[]),
    ("network", &[]),
    ("store", &[]),
    ("streaming", &[]),
    ("tunnel", &["http-client"]),
    ("cel", &["api"]),
    ("gotemplate", &["api"]),
    ("jsonpath", &["api"]),
    ("kustomize", &["api"]),
    ("oracle", &["api"]),
    ("podmodel", &["api"]),
    ("client", &["api", "http-client"]),
    ("devices", &["api", "cel", "podmodel"]),
    ("kinds", &["api", "cel", "devices", "jsonpath"]),
    ("openapi", &["api", "kinds"]),
    ("server", &["api", "cel", "descriptions", "http-client", "kinds", "openapi", "store", "streaming", "tunnel"]),
    ("controllers", &["api", "client", "devices", "kinds"]),
    ("scheduler", &["api", "client", "devices", "podmodel"]),
    ("dns", &["api", "client"]),
    ("fakenode", &["api", "client", "podmodel"]),
    ("networkpolicy", &["api", "client", "network", "podmodel"]),
    ("overlay", &["api", "client", "network"]),
    ("proxy", &["api", "client", "network"]),
    ("hosts", &["cgroup", "network"]),
    ("runtime", &["cgroup", "cri", "http-client", "network", "streaming"]),
    ("kubelet", &["api", "cgroup", "client", "cri", "http-client", "kinds", "podmodel", "streaming"]),
    ("kubectl", &["api", "client", "gotemplate", "http-client", "jsonpath", "kustomize", "podmodel", "streaming"]),
    (
        "bench",
        &[
            "api",
            "cel",
            "cgroup",
            "client",
            "cri",
            "dns",
            "fakenode",
            "http-client",
            "network",
            "oracle",
            "podmodel",
            "proxy",
            "runtime",
            "scheduler",
            "store",
        ],
    ),
    (
        "cluster",
        &[
            "api",
            "cgroup",
            "client",
            "controllers",
            "cri",
            "dns",
            "fakenode",
            "hosts",
            "http-client",
            "kinds",
            "kubelet",
            "network",
            "networkpolicy",
            "overlay",
            "proxy",
            "runtime",
            "scheduler",
            "server",
            "store",
            "tunnel",
        ],
    ),
    (
        "testkit",
        &["api", "client", "cluster", "controllers", "fakenode", "http-client", "scheduler", "server", "store"],
    ),
    ("tiphys", &["bench", "cluster", "hosts", "kubectl", "network", "runtime"]),
];

/// Other crates that a crate must not need, directly or not.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("stdx", &["http", "hyper", "rustls", "serde_json", "tokio"]),
    ("http-client", &["serde_json"]),
    ("api", &["tokio", "hyper", "k8s-openapi", "serde_json"]),
    ("podmodel", &["tokio", "http"]),
    ("devices", &["tokio", "http"]),
    ("oracle", &["tokio"]),
    ("cel", &["tokio", "hyper", "http", "serde_json"]),
    ("kustomize", &["tokio", "http", "serde_json"]),
    ("gotemplate", &["tokio", "http", "serde_json"]),
    ("jsonpath", &["tokio", "http", "serde_json"]),
    ("kinds", &["tokio", "hyper", "http", "k8s-openapi"]),
    ("store", &["k8s-openapi"]),
    ("descriptions", &["tokio"]),
    ("openapi", &["tokio", "k8s-openapi"]),
    ("runtime", &["k8s-openapi"]),
    ("kubelet", &["k8s-openapi"]),
    ("cgroup", &["tokio", "libc"]),
    ("network", &["tokio"]),
    ("streaming", &["rustls"]),
];

#[test]
fn crates_use_only_the_crates_that_they_may() {
    let allowed: BTreeMap<&str, Vec<&str>> = ALLOWED.iter().map(|(name, uses)| (*name, uses.to_vec())).collect();
    let members = crates();
    for name in &members {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).expect("the manifest can be read");
        let mut used = dependency_names(&manifest);
        used.retain(|used| used != "stdx" && members.contains(used));
        assert_eq!(Some(&used.iter().map(String::as_str).collect()), allowed.get(name.as_str()), "{name}");
    }
    assert_eq!(members.len(), allowed.len(), "every entry is a crate");
}

/// The names below `[dependencies]`, also those for one target or of a build script, in order.
fn dependency_names(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_dependencies = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_dependencies = section.ends_with("dependencies") && !section.ends_with("dev-dependencies");
        } else if is_dependencies && line.starts_with(char::is_alphanumeric) {
            names.extend(line.split(['.', ' ', '=']).next().map(str::to_string));
        }
    }
    names.sort();
    names.dedup();
    names
}

#[test]
fn reads_the_dependencies_of_a_manifest() {
    let manifest = "[package]\nname = \"x\"\n\n[dependencies]\n# Why.\nhttp-client.workspace = true\napi = { path = \"\" }\n\
        [dev-dependencies]\nkinds.workspace = true\n[target.'cfg(unix)'.dependencies]\nlibc=\"1\"\n";
    assert_eq!(dependency_names(manifest), ["api", "http-client", "libc"]);
}

#[test]
fn crates_have_no_forbidden_dependencies() {
    for (package, absent) in FORBIDDEN {
        let needed = needed_crates(package);
        for name in *absent {
            assert!(!needed.iter().any(|needed| needed == name), "{package} needs {name}");
        }
    }
}

/// Every crate that a package needs, directly or not, to be built.
fn needed_crates(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "-e", "normal,build", "--prefix", "none", "-f", "{p}", "-p", package])
        .current_dir(root())
        .output()
        .expect("cargo is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.starts_with(package.as_bytes()), "{package} itself comes first");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().skip(1).filter_map(|line| line.split(' ').next()).map(str::to_string).collect()
}

#[test]
fn builds_need_only_a_c_compiler_and_one_crypto_library() {
    let needed = needed_crates("tiphys");
    for name in ["ring", "openssl-sys", "native-tls", "prost-build", "protoc-bin-vendored"] {
        assert!(!needed.iter().any(|needed| needed == name), "the binary needs {name}");
    }
}
