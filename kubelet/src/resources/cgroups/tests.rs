//! Groups on the kernel of this machine, of either version. Needs root.

use std::process::Stdio;

use api::{Tree, yaml};

use super::*;

/// cgroups below a separate root, which is removed at the end of the test.
struct Fixture {
    groups: Arc<CgroupManager>,
    hierarchies: Hierarchies,
    root: String,
}

impl Fixture {
    fn start(name: &str) -> Fixture {
        let root = format!("/tiphys-kubelet-{name}-{}", std::process::id());
        let scene = Fixture { groups: open(&root), hierarchies: Hierarchies::detect().expect("hierarchies"), root };
        scene.groups.limit_all().expect("limits");
        scene
    }

    /// Shares, quota and memory of a group, each "-" where there is no limit.
    fn show(&self, path: &str) -> String {
        let limits = self.hierarchies.limits(&format!("{}/kubepods{path}", self.root));
        // Weights of version 2 are coarser than shares.
        let shares = limits.cpu_shares.map(cgroup::limits::weight);
        let text = |number: Option<i64>| number.map_or("-".to_string(), |number| number.to_string());
        format!(
            "{} {} {}",
            shares.map_or("-".to_string(), |weight| weight.to_string()),
            text(limits.cpu_quota),
            text(limits.memory)
        )
    }

    fn pods(&self) -> usize {
        let directories = ["", "/burstable", "/besteffort"].map(|class| format!("{}/kubepods{class}", self.root));
        let below = directories.iter().flat_map(|directory| self.hierarchies.children(directory));
        below.filter(|name| name.starts_with("pod")).count()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.hierarchies.remove(&self.root).expect("nothing is left");
    }
}

fn open(root: &str) -> Arc<CgroupManager> {
    let config = Config { cgroup_root: root.to_string(), pod_pids_limit: 77, ..Config::default() };
    let machine = Machine { cores: 2, memory_bytes: 1 << 30, ..Machine::default() };
    Arc::new(CgroupManager::open(Arc::new(config), &machine).expect("groups"))
}

fn pod(uid: &str, class: &str, resources: &str) -> Tree {
    let text = format!(
        "{{metadata: {{uid: {uid}}}, spec: {{containers: [{{name: a, resources: {resources}}}]}}, status: {{qosClass: {class}}}}}"
    );
    yaml::decode(text.as_bytes()).expect("YAML")
}

#[tokio::test]
async fn creates_resizes_and_removes_cgroups() {
    let scene = Fixture::start("life");
    let groups = &scene.groups;
    assert_eq!(scene.show(""), "79 - 1073741824");
    let small = pod("g", "Guaranteed", "{limits: {cpu: 500m, memory: 32Mi}, requests: {cpu: 500m, memory: 32Mi}}");
    groups.ensure(&small).await.expect("a group");
    assert_eq!(scene.show("/podg"), "20 50000 33554432");
    let file = scene.hierarchies.in_v1("pids", &format!("{}/kubepods/podg", scene.root));
    let file = file.or(scene.hierarchies.in_v2(&format!("{}/kubepods/podg", scene.root))).expect("a directory");
    assert_eq!(std::fs::read_to_string(file.join("pids.max")).expect("a file").trim(), "77");
    for (uid, cpu) in [("b1", "1"), ("b2", "500m")] {
        groups.ensure(&pod(uid, "Burstable", &format!("{{requests: {{cpu: {cpu}}}}}"))).await.expect("a group");
    }
    groups.ensure(&pod("e", "BestEffort", "{}")).await.expect("a group");
    assert_eq!([scene.show("/burstable"), scene.show("/besteffort")], ["59 - -", "1 - -"]);
    assert_eq!(scene.pods(), 4);
    let large = pod("g", "Guaranteed", "{limits: {cpu: 1, memory: 16Mi}, requests: {cpu: 1, memory: 16Mi}}");
    groups.grow(&large, groups.limits_of(&large)).await.expect("more");
    assert_eq!(scene.show("/podg"), "39 100000 33554432", "memory shrinks last");
    assert!(groups.shrinks_below(&large, 16 << 20));
    groups.limit(&large, groups.limits_of(&large)).await.expect("limits");
    assert_eq!(scene.show("/podg"), "39 100000 16777216");
    for uid in ["g", "b1", "e"] {
        // A removal needs only the UID of the pod.
        groups.remove(&pod(uid, "", "{}")).await.expect("it goes");
    }
    assert_eq!((scene.pods(), scene.show("/burstable").as_str()), (1, "20 - -"));
    groups.remove(&pod("b2", "", "{}")).await.expect("it goes");
    assert_eq!((scene.pods(), scene.show("/burstable").as_str()), (0, "1 - -"));
}

#[tokio::test]
async fn removes_unknown_cgroups_without_processes() {
    let scene = Fixture::start("leftover");
    for uid in ["known", "unknown", "used"] {
        scene.groups.ensure(&pod(uid, "Burstable", "{requests: {cpu: 1}}")).await.expect("a group");
    }
    let mut process = std::process::Command::new("sh");
    let mut process = process.args(["-c", "read line"]).stdin(Stdio::piped()).spawn().expect("sh is there");
    let used = format!("{}/kubepods/burstable/podused", scene.root);
    let directory = scene.hierarchies.in_v1("cpu", &used).or(scene.hierarchies.in_v2(&used)).expect("a directory");
    std::fs::write(directory.join("cgroup.procs"), process.id().to_string()).expect("it enters");
    let anew = open(&scene.root);
    anew.ensure(&pod("known", "Burstable", "{requests: {cpu: 1}}")).await.expect("it is there");
    anew.clean_up(|uid| uid == "known").await.expect("a clean place");
    assert_eq!(scene.pods(), 2);
    process.kill().expect("it ends");
    process.wait().expect("it has ended");
    anew.clean_up(|_| false).await.expect("a clean place");
    assert_eq!(scene.pods(), 0);
}

#[tokio::test]
async fn destroys_a_cgroup_with_processes() {
    let scene = Fixture::start("lost");
    let group = pod("lost", "Burstable", "{requests: {cpu: 1}}");
    scene.groups.ensure(&group).await.expect("a group");
    let path = format!("{}/kubepods/burstable/podlost", scene.root);
    let directories = [scene.hierarchies.in_v1("cpu", &path), scene.hierarchies.in_v2(&path)];
    // Each process is in the cgroup of one hierarchy only, as after a runtime that was killed while it moved it.
    for directory in directories.into_iter().flatten() {
        let mut process = std::process::Command::new("sleep").arg("600").spawn().expect("sleep is there");
        std::fs::write(directory.join("cgroup.procs"), process.id().to_string()).expect("it enters");
        scene.groups.remove(&group).await.expect_err("a process is left");
        assert_eq!(scene.pods(), 1);
        scene.groups.ensure(&group).await.expect("a group");
        let reaper = std::thread::spawn(move || process.wait().expect("it was killed"));
        scene.groups.destroy(&group).await.expect("it goes");
        assert!(!reaper.join().expect("a status").success());
        scene.groups.ensure(&group).await.expect("a group");
    }
    scene.groups.destroy(&group).await.expect("it goes");
    assert_eq!(scene.pods(), 0);
}

#[tokio::test]
async fn limits_an_existing_empty_cgroup() {
    let scene = Fixture::start("unlimited");
    let path = format!("{}/kubepods/podg", scene.root);
    // As after an attempt that failed right after the cgroup was created.
    scene.hierarchies.create(&path).expect("a group");
    let pod = pod("g", "Guaranteed", "{limits: {cpu: 500m, memory: 32Mi}, requests: {cpu: 500m, memory: 32Mi}}");
    scene.groups.ensure(&pod).await.expect("a group");
    assert_eq!(scene.show("/podg"), "20 50000 33554432");
    scene.groups.remove(&pod).await.expect("it goes");
}

#[test]
fn rejects_unsupported_settings_by_name() {
    let cases: [(Config, bool, &str); 4] = [
        (Config::default(), false, ""),
        (Config { single_process_oom_kill: Some(false), ..Config::default() }, false, "singleProcessOOMKill"),
        (Config { single_process_oom_kill: Some(false), ..Config::default() }, true, ""),
        (Config { cgroup_driver: CgroupDriver::Systemd, ..Config::default() }, true, "cgroupDriver"),
    ];
    for (config, unified, expected) in cases {
        if config.cgroup_driver == CgroupDriver::Systemd && systemd::runs() {
            continue;
        }
        let message = check(&config, unified).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{message}");
    }
}
