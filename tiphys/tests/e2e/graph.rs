//! Forbidden dependencies between crates.

use std::process::Command;

use crate::support::root;

/// Every crate that a package needs, directly or not, to be built.
fn dependencies(package: &str) -> Vec<String> {
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
fn crates_have_no_forbidden_dependencies() {
    let absences: &[(&str, &[&str])] = &[
        ("stdx", &["api", "http", "hyper", "rustls", "serde_json", "tokio"]),
        ("http-client", &["api", "kinds", "client", "server", "streaming", "serde_json"]),
        ("podmodel", &["client", "kinds", "kubelet", "scheduler", "tokio", "http"]),
        ("devices", &["client", "kinds", "scheduler", "controllers", "server", "tokio", "http"]),
        ("oracle", &["podmodel", "scheduler", "client", "kinds", "tokio"]),
        ("api", &["tokio", "kinds", "store", "server", "hyper", "k8s-openapi", "serde_json"]),
        ("cel", &["tokio", "hyper", "http", "kinds", "store", "server", "client", "serde_json"]),
        ("kustomize", &["tokio", "http", "kinds", "cel", "client", "server", "store", "serde_json"]),
        ("gotemplate", &["tokio", "http", "kinds", "cel", "client", "server", "store", "serde_json"]),
        ("jsonpath", &["tokio", "http", "kinds", "cel", "client", "server", "store", "serde_json"]),
        ("kinds", &["tokio", "hyper", "http", "store", "server", "descriptions", "k8s-openapi"]),
        ("store", &["api", "kinds", "server", "descriptions", "k8s-openapi"]),
        ("descriptions", &["api", "kinds", "store", "server", "tokio"]),
        ("openapi", &["tokio", "store", "server", "descriptions", "k8s-openapi"]),
        ("client", &["kinds", "store", "server", "cluster", "openapi", "descriptions"]),
        ("controllers", &["store", "server", "cluster", "openapi", "descriptions"]),
        (
            "fakenode",
            &["kubelet", "cri", "kinds", "store", "server", "cluster", "controllers", "openapi", "descriptions"],
        ),
        ("dns", &["proxy", "kubelet", "network", "kinds", "store", "server", "cluster", "controllers", "descriptions"]),
        (
            "scheduler",
            &["oracle", "kubelet", "kinds", "store", "server", "cluster", "controllers", "openapi", "descriptions"],
        ),
        ("runtime", &["api", "kinds", "store", "server", "client", "cluster", "descriptions", "k8s-openapi"]),
        ("cgroup", &["tokio", "api", "cri", "libc"]),
        (
            "kubelet",
            &[
                "scheduler",
                "oracle",
                "controllers",
                "store",
                "server",
                "cluster",
                "runtime",
                "network",
                "descriptions",
                "k8s-openapi",
            ],
        ),
        ("network", &["api", "kinds", "store", "server", "client", "cluster", "tokio", "cri", "runtime"]),
        (
            "proxy",
            &[
                "kubelet",
                "cri",
                "runtime",
                "kinds",
                "store",
                "server",
                "cluster",
                "controllers",
                "openapi",
                "descriptions",
            ],
        ),
        (
            "networkpolicy",
            &[
                "proxy",
                "dns",
                "kubelet",
                "cri",
                "runtime",
                "kinds",
                "store",
                "server",
                "cluster",
                "controllers",
                "openapi",
                "descriptions",
            ],
        ),
        ("hosts", &["api", "client", "kubelet", "cri", "runtime", "kinds", "store", "server", "cluster"]),
        (
            "overlay",
            &["proxy", "dns", "networkpolicy", "kubelet", "cri", "runtime", "kinds", "store", "server", "cluster"],
        ),
        ("streaming", &["api", "kinds", "store", "server", "client", "cri", "rustls"]),
        (
            "kubectl",
            &["kinds", "store", "server", "controllers", "scheduler", "kubelet", "runtime", "cluster", "descriptions"],
        ),
        ("tunnel", &["api", "kinds", "store", "server", "client", "cluster"]),
        ("server", &["client", "cluster", "controllers", "scheduler"]),
    ];
    for (package, absent) in absences {
        let known = dependencies(package);
        for name in *absent {
            assert!(!known.iter().any(|known| known == name), "{package} knows {name}");
        }
    }
}

#[test]
fn builds_need_only_a_c_compiler_and_one_crypto_library() {
    let known = dependencies("tiphys");
    for name in ["ring", "openssl-sys", "native-tls", "prost-build", "protoc-bin-vendored"] {
        assert!(!known.iter().any(|known| known == name), "the binary needs {name}");
    }
}
