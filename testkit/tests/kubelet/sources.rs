//! Static pods, and a node that stays idle, in simulated time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Tree;
use kubelet::Config;
use testkit::sim::{self, Simulation};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::life::serve;
use super::pods::Directory;
use super::remembered::{Remembered, remembered};
use super::scene::{MINUTE, Set, start_agent};

/// A node whose kubelet is restarted, with a directory of static pods.
struct Scene {
    runtime: Arc<Remembered>,
    dir: Directory,
    clock: Arc<Set>,
    agent: Option<(kubelet::Kubelet, JoinHandle<()>)>,
}

impl Scene {
    fn new() -> Scene {
        let (runtime, dir) = (remembered(), Directory::new());
        std::fs::create_dir(dir.path().join("manifests")).expect("a directory");
        Scene { runtime, dir, clock: Set::new(), agent: None }
    }

    async fn start(&mut self, simulation: &Simulation, change: impl FnOnce(&mut Config)) {
        let manifests = self.dir.path().join("manifests");
        let agent = start_agent(simulation, &self.runtime, self.dir.path(), self.clock.clone(), |config| {
            config.static_pod_path = Some(manifests);
            change(config);
        });
        self.agent = Some(agent.await);
    }

    async fn stop(&mut self) {
        if let Some((running, node)) = self.agent.take() {
            node.abort();
            running.stop().await;
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("manifests").join(name)
    }

    async fn until_order(&self, simulation: &Simulation, order: &[&str]) {
        let runtime = &self.runtime;
        simulation.until(&format!("{order:?}"), 3 * MINUTE, async |_| runtime.order() == order).await;
    }
}

fn manifest(name: &str, of_pod: &str, of_container: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{of_pod}, containers: [{{name: {name}, \
         image: 'i:1', {of_container}}}]}}}}"
    )
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
}

fn mirror(simulation: &Simulation, name: &str) -> Tree {
    let all = simulation.objects("pods", "default");
    all.into_iter().find(|pod| pod.str("metadata.name") == name).unwrap_or_default()
}

#[test]
fn a_quiet_node_stays_ready() {
    sim::run(1, 0, async |simulation| {
        let mut scene = Scene::new();
        scene.runtime.state().has_events = true;
        scene.start(simulation, |_| {}).await;
        for minute in 0..15 {
            for _ in 0..6 {
                simulation.pass(Duration::from_secs(10)).await;
                assert_eq!(simulation.ready_nodes(), 1, "in minute {minute}");
            }
            if minute == 10 {
                // The clock is set.
                scene.clock.jump(3600);
            }
        }
        scene.stop().await;
    });
}

#[test]
fn recreated_static_pods_restart() {
    sim::run(2, 0, async |simulation| {
        let mut scene = Scene::new();
        let (text, file) = (manifest("web", "hostNetwork: false", "stdin: false"), scene.file("web"));
        write(&file, &text);
        scene.start(simulation, |_| {}).await;
        scene.until_order(simulation, &["+web"]).await;
        scene.runtime.holds.send_replace(true);
        std::fs::remove_file(&file).expect("it goes");
        scene.until_order(simulation, &["+web", "?web"]).await;
        write(&file, &text);
        simulation.pass(MINUTE).await;
        scene.runtime.holds.send_replace(false);
        scene.until_order(simulation, &["+web", "?web", "-web", "+web"]).await;
        // A static pod that is added and removed again stays removed.
        scene.runtime.holds.send_replace(true);
        std::fs::remove_file(&file).expect("it goes");
        scene.until_order(simulation, &["+web", "?web", "-web", "+web", "?web"]).await;
        write(&file, &text);
        simulation.pass(MINUTE).await;
        std::fs::remove_file(&file).expect("it goes");
        simulation.pass(MINUTE).await;
        scene.runtime.holds.send_replace(false);
        let gone = async |world: &Simulation| mirror(world, "web-n1").is_null();
        simulation.until("no mirror", 3 * MINUTE, gone).await;
        assert!(scene.runtime.running().is_empty(), "{:?}", scene.runtime.order());
        scene.stop().await;
    });
}

#[test]
fn pods_of_an_unreachable_url_keep_running() {
    sim::run(3, 0, async |simulation| {
        let mut scene = Scene::new();
        let (answer, texts) = watch::channel(manifest("web", "hostNetwork: false", "stdin: false"));
        let url = serve(texts).await;
        let told = |url: &String| {
            let url = url.clone();
            move |config: &mut Config| config.static_pod_url = Some(url)
        };
        scene.start(simulation, told(&url)).await;
        let shown = async |world: &Simulation| mirror(world, "web-n1").str("status.phase") == "Running";
        simulation.until("a mirror", 3 * MINUTE, shown).await;
        scene.stop().await;
        answer.send_replace("that is no pod".to_string());
        scene.start(simulation, told(&url)).await;
        let uid = mirror(simulation, "web-n1").str("metadata.uid").to_string();
        simulation.pass(5 * MINUTE).await;
        assert_eq!(scene.runtime.order(), ["+web"], "it is not stopped");
        assert_eq!(mirror(simulation, "web-n1").str("metadata.uid"), uid);
        // Nothing is a list of none.
        answer.send_replace(String::new());
        scene.until_order(simulation, &["+web", "-web"]).await;
        let gone = async |world: &Simulation| mirror(world, "web-n1").is_null();
        simulation.until("no mirror", 3 * MINUTE, gone).await;
        scene.stop().await;
    });
}

#[test]
fn leftovers_are_removed_when_the_runtime_is_back() {
    sim::run(4, 0, async |simulation| {
        let mut scene = Scene::new();
        let left = scene.dir.path().join("kubelet/pods/left");
        std::fs::create_dir_all(&left).expect("a directory");
        scene.runtime.state().is_mute = true;
        scene.start(simulation, |_| {}).await;
        simulation.pass(2 * MINUTE).await;
        assert!(left.exists(), "it may belong to another program");
        scene.runtime.state().is_mute = false;
        simulation.until("nothing is left", 3 * MINUTE, async |_| !left.exists()).await;
        scene.stop().await;
    });
}

#[test]
fn static_pods_stop_at_their_deadline() {
    sim::run(5, 0, async |simulation| {
        let mut scene = Scene::new();
        scene.runtime.state().address = Some("127.0.0.1".to_string());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let hook = format!("lifecycle: {{preStop: {{httpGet: {{port: {port}}}}}}}");
        let told = tokio::spawn(async move { listener.accept().await.is_ok() });
        write(&scene.file("brief"), &manifest("brief", "activeDeadlineSeconds: 60", &hook));
        scene.start(simulation, |_| {}).await;
        scene.until_order(simulation, &["+brief", "-brief"]).await;
        let failed = async |world: &Simulation| mirror(world, "brief-n1").str("status.phase") == "Failed";
        simulation.until("its end", 3 * MINUTE, failed).await;
        assert_eq!(mirror(simulation, "brief-n1").str("status.reason"), "DeadlineExceeded");
        assert!(told.is_finished(), "its hook has found it");
        scene.stop().await;
    });
}
