//! The demo image, built from the test's own program.

use std::fs;
use std::process::Command;

use runtime::images::archive::Output;
use runtime::images::{DEMO_IMAGE, NoProgress};

use crate::support::Store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_the_program_from_its_image() {
    let store = Store::new();
    let image = store.images.get(DEMO_IMAGE).expect("built on first use");
    assert_eq!(image.repo_tags, ["tiphys.local/hello:latest"]);
    assert_eq!(image.config.entrypoint, ["/tiphys", "hello"]);
    assert!(image.pinned);
    let lower = store.images.view("c", &image.id).unwrap();
    let output = Command::new("chroot").arg(&lower[0]).args(["/tiphys", "--list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(listed.contains("runs_the_program_from_its_image"), "{listed}{}", String::from_utf8_lossy(&output.stderr));

    let made = fs::metadata(&lower[0]).unwrap().modified().unwrap();
    assert_eq!(store.images.pull("tiphys.local/hello:latest", None, &NoProgress).await.unwrap(), image.id);
    assert_eq!(fs::metadata(&lower[0]).unwrap().modified().unwrap(), made, "built once");
    assert_eq!(store.names("layers").len(), 2);
    assert!(store.images.get("tiphys.local/hello:other").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exports_and_imports_the_demo_image() {
    let store = Store::new();
    let id = store.images.pull(DEMO_IMAGE, None, &NoProgress).await.unwrap();
    let file = store.path().join("demo.tar");
    store.images.export(&[DEMO_IMAGE.into()], Output::File(file.clone())).await.unwrap();
    let other = Store::new();
    assert_eq!(other.images.import(&file, None, &NoProgress).await.unwrap(), [id]);
}
