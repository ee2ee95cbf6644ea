//! Directories on disk: symbolic links do not lead out of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use kustomize::{Disk, Options, build};

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
    fs::write(path, text).expect("a file");
}

#[test]
fn links_lead_to_no_file_outside() {
    let root = tempfile::tempdir().expect("a temporary directory");
    write(root.path(), "secret.yaml", CONFIG_MAP);
    write(root.path(), "app/kustomization.yaml", "resources: [link.yaml]\n");
    symlink(root.path().join("secret.yaml"), root.path().join("app/link.yaml")).expect("a link");
    let error = build(&Disk, &root.path().join("app"), Options::default()).expect_err("it is outside");
    assert!(error.to_string().contains("security; file"), "{error}");
    let options = Options { loads_from_anywhere: true, ..Options::default() };
    let built = build(&Disk, &root.path().join("app"), options).expect("any file may be loaded");
    assert_eq!(built.resources.len(), 1);
}

#[test]
fn links_to_visited_directories_are_cycles() {
    let root = tempfile::tempdir().expect("a temporary directory");
    write(root.path(), "a/kustomization.yaml", "resources: [down]\n");
    symlink(root.path().join("a"), root.path().join("a/down")).expect("a link");
    let error = build(&Disk, &root.path().join("a"), Options::default()).expect_err("a cycle");
    assert!(error.to_string().contains("cycle detected"), "{error}");
}

#[test]
fn remote_bases_and_charts_are_refused_by_name() {
    let root = tempfile::tempdir().expect("a temporary directory");
    for (text, part) in [
        ("resources: ['https://example.com/a.yaml']\n", "download 'https://example.com/a.yaml'"),
        ("resources: ['github.com/example/app//base?ref=v1']\n", "download 'github.com/example/app//base?ref=v1'"),
        ("components: ['git@example.com:a/b']\n", "download 'git@example.com:a/b'"),
        ("helmCharts: [{name: web}]\n", "chart 'web'"),
        ("transformers: ['{apiVersion: example.com/v1, kind: Own, metadata: {name: x}}']\n", "external plugins"),
    ] {
        write(root.path(), "kustomization.yaml", text);
        let error = build(&Disk, root.path(), Options::default()).expect_err(text);
        assert!(error.to_string().contains(part), "{error}");
    }
}
