//! Encryption at rest on both engines: bytes on disk, key rotation, and a server without its keys.

use std::path::Path;

use api::{Tree, tree};
use server::storage::encryption::Encryption;
use testkit::{Cluster, Storage};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const STORED: &str = "/registry/secrets/default/a";
const PASSWORD: &str = "hunter2-at-rest";

fn key(cipher: &str, name: &str, byte: u8) -> String {
    let secret = api::base64::encode(&[byte; 32]);
    format!("  - {cipher}: {{keys: [{{name: {name}, secret: {secret}}}]}}\n")
}

fn config(dir: &Path, providers: &str) -> server::Config {
    let path = dir.join("encryption.yaml");
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
    std::fs::write(&path, format!("{head}resources:\n- resources: [secrets]\n  providers:\n{providers}"))
        .expect("a file");
    server::Config { encryption: Some(Encryption::read(&path).expect("a good file")), ..server::Config::default() }
}

fn secret() -> Tree {
    tree! {
        "apiVersion" => "v1", "kind" => "Secret", "metadata" => tree! { "name" => "a" },
        "stringData" => tree! { "password" => PASSWORD },
    }
}

/// All that the engine has on disk, or the value in etcd.
async fn stored(cluster: &Cluster) -> Vec<u8> {
    if let Some(etcd) = &cluster.etcd {
        return etcd.value(STORED).await;
    }
    let files = std::fs::read_dir(cluster.dir().join("store")).expect("the store's directory");
    files.flat_map(|file| std::fs::read(file.expect("a file").path()).unwrap_or_default()).collect()
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

async fn rotation(kept: Storage) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut cluster = Cluster::start_with(kept, config(dir.path(), &key("aescbc", "old", 1)), async |_| {}).await;
    let password = api::base64::encode(PASSWORD.as_bytes());
    let created = cluster.client.post(SECRETS, &secret()).await;
    assert_eq!((created.code, created.tree().str("data.password")), (201, password.as_str()));
    let bytes = stored(&cluster).await;
    assert!(has(&bytes, "k8s:enc:aescbc:v1:old:") && !has(&bytes, &password), "it is in the clear");

    cluster.restart_with(config(dir.path(), &(key("aesgcm", "new", 2) + &key("aescbc", "old", 1)))).await;
    let path = format!("{SECRETS}/a");
    let read = cluster.client.get(&path).await.tree();
    assert_eq!(read.str("data.password"), password);
    assert!(!has(&stored(&cluster).await, "k8s:enc:aesgcm:v1:new:"));
    // The same object is written anew with the new key, once.
    let replaced = cluster.client.put(&path, &read).await;
    assert_eq!(replaced.code, 200);
    assert_ne!(replaced.tree().str("metadata.resourceVersion"), read.str("metadata.resourceVersion"));
    assert!(has(&stored(&cluster).await, "k8s:enc:aesgcm:v1:new:"));
    let again = cluster.client.put(&path, &replaced.tree()).await.tree();
    assert_eq!(again.str("metadata.resourceVersion"), replaced.tree().str("metadata.resourceVersion"));

    cluster.restart_with(config(dir.path(), &key("aesgcm", "new", 2))).await;
    let list = cluster.client.get(SECRETS).await.tree();
    assert_eq!(list.list("items")[0].str("data.password"), password);
    assert_eq!(list.list("items")[0].str("metadata.resourceVersion"), again.str("metadata.resourceVersion"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_on_the_embedded_store() {
    rotation(Storage::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_rotate_on_etcd() {
    rotation(Storage::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_the_keys_does_not_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let sealing = config(dir.path(), &key("secretbox", "a", 1));
    let mut cluster = Cluster::start_with(Storage::Embedded, sealing, async |_| {}).await;
    assert_eq!(cluster.client.post(SECRETS, &secret()).await.code, 201);
    for config in [server::Config::default(), config(dir.path(), &key("secretbox", "b", 2))] {
        let problem = cluster.restart_refused(config).await;
        assert!(problem.contains("/secrets/default/a"), "{problem}");
    }
}
