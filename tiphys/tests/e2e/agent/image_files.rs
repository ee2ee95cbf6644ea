//! Image archives of the data directory are imported when a node starts.

use std::fs;

use runtime::images::archive::Output;
use runtime::images::{Config, Images, NoProgress};

use super::cluster::{Cluster, ENTER, Runtime};
use crate::busybox;
use crate::support::BINARY;

const NAME: &str = "archive.local/app:1";

#[test]
fn pods_run_images_of_archives() {
    let dir = tempfile::tempdir().expect("a directory");
    let archives = dir.path().join("data/images");
    fs::create_dir_all(&archives).expect("a directory");
    let images = Images::open(&dir.path().join("source"), Default::default()).expect("images");
    let cmd = ["/bin/busybox", "sleep", "1000000"].map(String::from).to_vec();
    let config = Config { cmd, ..Default::default() };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio.block_on(async {
        images.build(NAME, vec![busybox::layer()], config, &NoProgress).await.expect("an image");
        images.export(&[NAME.to_string()], Output::File(archives.join("app.tar"))).await.expect("an archive");
    });
    let cluster = Cluster::up_in(dir, Runtime::Embedded, ENTER, &[]);
    let run = |words: &[&str]| {
        let output = cluster.command(BINARY).arg("kubectl").args(words).output().expect("nsenter is there");
        assert!(output.status.success(), "{words:?}: {}\n{}", String::from_utf8_lossy(&output.stderr), cluster.log());
    };
    run(&["wait", "--for=create", "serviceaccount/default", "--timeout=60s"]);
    run(&["run", "app", "--image", NAME, "--image-pull-policy=Never"]);
    run(&["wait", "--for=condition=Ready", "pod/app", "--timeout=60s"]);
}
