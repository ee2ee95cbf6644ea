//! The restrictions and the privileges of containers.

use std::fs;
use std::path::Path;

use cri::{
    Capability, Device, IDMapping, Mount, MountPropagation, NamespaceMode, NetworkConfig, ProfileType,
    RunPodSandboxRequest, RuntimeConfig, RuntimeService, SecurityProfile, UpdateRuntimeConfigRequest, UserNamespace,
};

use crate::harness::{Node, container, secured, text, wait_for};

#[tokio::test]
async fn a_container_sees_little_of_the_host() {
    let node = Node::start().await;
    let mut config = container(
        "main",
        "cat /proc/self/mountinfo; echo --; ls -a /; echo --; ls /dev; wc -c < /proc/cmdline; ls /sys/firmware | wc -l; echo x > /proc/sys/kernel/domainname",
    );
    let context = secured(&mut config);
    context.masked_paths = ["/proc/cmdline", "/sys/firmware", "/proc/none"].map(String::from).to_vec();
    context.readonly_paths = ["/proc/sys"].map(String::from).to_vec();
    let (code, output) = node.shell(config).await;
    assert_ne!(code, 0, "{output}");
    assert!(!output.contains("/dev/vda /"), "{output}");
    assert!(output.contains("Read-only file system"), "{output}");
    for expected in ["\nnull\n", "\npts\n", "\nurandom\n", "\n0\n0\n"] {
        assert!(output.contains(expected), "{expected:?} in {output}");
    }
    assert!(!output.contains("\nsda\n") && !output.contains("\nkmsg\n"), "{output}");
    node.end().await;
}

#[tokio::test]
async fn capabilities_users_and_groups() {
    let node = Node::start().await;
    let show = "grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp:' /proc/self/status; id";
    let mut config = container("root", show);
    secured(&mut config).capabilities = Some(Capability {
        drop_capabilities: vec!["ALL".into()],
        add_capabilities: vec!["KILL".into()],
        ..Default::default()
    });
    secured(&mut config).no_new_privs = true;
    secured(&mut config).seccomp = Some(SecurityProfile::default());
    let (_, output) = node.shell(config).await;
    for expected in
        ["CapEff:\t0000000000000020", "CapBnd:\t0000000000000020", "NoNewPrivs:\t1", "Seccomp:\t2", "uid=0(root)"]
    {
        assert!(output.contains(expected), "{expected:?} in {output}");
    }
    let mut config = container("web", show);
    secured(&mut config).run_as_username = "web".into();
    secured(&mut config).supplemental_groups = vec![99];
    secured(&mut config).capabilities =
        Some(Capability { add_ambient_capabilities: vec!["NET_BIND_SERVICE".into()], ..Default::default() });
    let (_, output) = node.shell(config).await;
    for expected in
        ["CapEff:\t0000000000000400", "CapAmb:\t0000000000000400", "uid=33(web) gid=34(web)", "50(logs)", "99"]
    {
        assert!(output.contains(expected), "{expected:?} in {output}");
    }
    node.end().await;
}

#[tokio::test]
async fn enforces_seccomp_profiles() {
    let node = Node::start().await;
    let mut config = container("default", "unshare -U true 2>&1; mount -t tmpfs x /tmp 2>&1; echo alive");
    secured(&mut config).seccomp = Some(SecurityProfile::default());
    let (_, output) = node.shell(config).await;
    assert!(
        output.contains("alive") && output.contains("Operation not permitted") && output.contains("permission denied"),
        "{output}"
    );

    let profile = node.path("profile.json");
    fs::write(&profile, r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO","errnoRet":95}]}"#).unwrap();
    let mut config = container("local", "mkdir /tmp/x 2>&1");
    let localhost = |path: &Path| {
        Some(SecurityProfile {
            profile_type: ProfileType::Localhost as i32,
            localhost_ref: path.to_string_lossy().into_owned(),
        })
    };
    secured(&mut config).seccomp = localhost(&profile);
    let (code, output) = node.shell(config).await;
    assert!(code != 0 && output.contains("Not supported") || output.contains("not supported"), "{output}");

    let pod = node.sandbox_config("bad");
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container("bad", "true");
    secured(&mut config).seccomp = localhost(Path::new("/nowhere.json"));
    let error = node.create(&sandbox, config, &pod).await.unwrap_err();
    assert!(error.message().contains("/nowhere.json"), "{error}");
    let mut config = container("bad", "true");
    secured(&mut config).apparmor = localhost(Path::new("mine"));
    let error = node.create(&sandbox, config, &pod).await.unwrap_err();
    assert!(error.message().contains("no AppArmor"), "{error}");
    node.end().await;
}

#[tokio::test]
async fn mounts_what_is_requested() {
    let node = Node::start().await;
    let host = node.path("volume");
    fs::create_dir_all(host.join("sub")).unwrap();
    fs::write(host.join("file"), "from the host").unwrap();
    let mount = |target: &str, readonly: bool| Mount {
        container_path: target.into(),
        host_path: host.to_string_lossy().into_owned(),
        readonly,
        ..Default::default()
    };
    let mut config = container(
        "main",
        "cat /data/file; echo x > /data/new && echo wrote; echo x > /fixed/new || echo refused; touch /root-file || echo root refused; cat /etc/hostname",
    );
    config.mounts = vec![mount("/data", false), mount("/fixed/sub", true), mount("/fixed", true)];
    secured(&mut config).readonly_rootfs = true;
    let (_, output) = node.shell(config).await;
    let lines: Vec<_> = output.lines().collect();
    assert!(lines.contains(&"from the hostwrote") || output.contains("from the host"), "{output}");
    for expected in ["wrote", "refused", "root refused"] {
        assert!(output.contains(expected), "{expected} in {output}");
    }
    assert_eq!(fs::read_to_string(host.join("new")).unwrap(), "x\n");

    let mut config = container("link", "cat /etc/evil/passwd | head -1");
    config.mounts = vec![mount("/", true)];
    let pod = node.sandbox_config("root");
    let sandbox = node.run_sandbox(&pod).await;
    let error = node.create(&sandbox, config, &pod).await.unwrap_err();
    assert!(error.message().contains("the root file system cannot be replaced by a mount"), "{error}");
    let mut config = container("shared", "true");
    config.mounts = vec![Mount { propagation: MountPropagation::Bidirectional as i32, ..mount("/data", false) }];
    let id = node.create(&sandbox, config, &pod).await.unwrap();
    let error = node.start_container(&id).await.unwrap_err();
    assert!(error.message().contains("not shared"), "{error}");
    node.end().await;
}

/// Root in a container can execute the runtime's own program through `/proc/self/exe` at the right moment; with a script
/// or a loader it can even choose the moment. It must not be able to overwrite the program.
#[tokio::test]
async fn the_runtimes_own_program_cannot_be_overwritten() {
    let node = Node::start().await;
    let program = env!("CARGO_BIN_EXE_tiphys-cri");
    let before = fs::read(program).unwrap();
    let pod = node.sandbox_config("exe");
    let sandbox = node.run_sandbox(&pod).await;
    // The interpreter of the script is opened while the process is still the runtime's.
    let mut config = container("script", "");
    config.command = vec!["/proc/self/exe".into(), "--help".into()];
    let id = node.create(&sandbox, config, &pod).await.unwrap();
    let _ = node.start_container(&id).await;
    // The program, held open and opened again for writing.
    let attack = "for pid in $(ls /proc | grep -E '^[0-9]+$'); do [ -e /proc/$pid/exe ] || continue; \
        case $(readlink /proc/$pid/exe) in *busybox*) continue;; esac; \
        (echo broken > /proc/$pid/exe) 2>&1 && echo WRITTEN $pid; done; echo tried";
    let mut config = container("attack", attack);
    let mut pod_mode = node.sandbox_config("exe2");
    let shared = crate::harness::options(NamespaceMode::Node, NamespaceMode::Pod);
    pod_mode.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(shared.clone());
    let second = node.run_sandbox(&pod_mode).await;
    secured(&mut config).namespace_options = Some(shared);
    secured(&mut config).privileged = true;
    let (_, output) = node.shell_in(&second, &pod_mode, config).await;
    assert!(output.contains("tried") && !output.contains("WRITTEN"), "{output}");
    // A privileged container may access the pause process, but its program is read-only.
    assert!(output.contains("Read-only file system"), "{output}");
    assert!(fs::read(program).unwrap() == before, "the program was changed");
    node.end().await;
}

#[tokio::test]
async fn restricts_devices() {
    let node = Node::start().await;
    let command =
        "mknod /tmp/disk b 254 0 && (head -c 1 /tmp/disk 2>&1 || echo closed); echo x > /dev/null && echo null works";
    let (_, output) = node.shell(container("plain", command)).await;
    assert!(output.contains("Operation not permitted") && output.contains("null works"), "{output}");
    let mut config = container("given", "ls -l /dev/mine; head -c 1 /dev/mine | wc -c");
    config.devices =
        vec![Device { container_path: "/dev/mine".into(), host_path: "/dev/zero".into(), permissions: "r".into() }];
    let (_, output) = node.shell(config).await;
    assert!(output.contains("1, 5") || output.contains("1,   5"), "{output}");
    assert!(output.ends_with("1\n"), "{output}");
    node.end().await;
}

#[tokio::test]
async fn no_file_of_the_runtime_leaks_into_a_container() {
    let node = Node::start().await;
    let pod = node.sandbox_config("files");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, container("main", "ls -l /proc/self/fd; exec sleep 1000"), &pod).await;
    let log = node.status(&id).await.log_path;
    wait_for("the list", || text(Path::new(&log)).lines().count() >= 5);
    let files = |output: &str| output.lines().filter(|l| l.contains("->")).count();
    // The three streams; the directory that `ls` itself read is closed by then.
    assert_eq!(files(&text(Path::new(&log))), 3, "{}", text(Path::new(&log)));
    assert_eq!(files(&node.exec(&id, "ls -l /proc/self/fd").await.1), 3);
    node.end().await;
}

#[tokio::test]
async fn a_user_namespace_maps_root_to_another_user() {
    let node = Node::start().await;
    let mut pod = node.sandbox_config("users");
    let map = |host_id| vec![IDMapping { host_id, container_id: 0, length: 65536 }];
    let users = UserNamespace { mode: NamespaceMode::Pod as i32, uids: map(100_000), gids: map(100_000) };
    let mut options = crate::harness::options(NamespaceMode::Pod, NamespaceMode::Container);
    options.userns_options = Some(users);
    pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(options.clone());
    fs::write(node.path("net.d/10.conf"), r#"{"cniVersion":"1.0.0","name":"lo","type":"loopback"}"#).unwrap();
    let request = RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
    let error = node.runtime.run_pod_sandbox(request.clone()).await.unwrap_err();
    assert!(error.message().contains("assigned no address"), "{error}");
    fs::remove_file(node.path("net.d/10.conf")).unwrap();
    let cidr = NetworkConfig { pod_cidr: "10.213.77.0/24".into() };
    let config = RuntimeConfig { network_config: Some(cidr) };
    node.runtime.update_runtime_config(UpdateRuntimeConfigRequest { runtime_config: Some(config) }).await.unwrap();
    let sandbox = node.run_sandbox(&pod).await;
    let mut config = container(
        "main",
        "id -u; cat /proc/self/uid_map; touch /mine && ls -ln /mine; stat -c %u /bin/busybox; exec sleep 1000",
    );
    secured(&mut config).namespace_options = Some(options);
    let id = node.run(&sandbox, config, &pod).await;
    let log = node.status(&id).await.log_path;
    wait_for("the output", || text(Path::new(&log)).lines().count() >= 4);
    let output = text(Path::new(&log));
    assert!(output.starts_with("0\n") && output.contains("100000") && output.ends_with("0\n"), "{output}");
    let upper = fs::read_dir(node.path("root/images/snapshots")).unwrap().flatten().next().unwrap().path();
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(upper.join("upper/mine")).unwrap().uid(), 100_000, "on disk it is not root's");
    assert_eq!(node.exec(&id, "id -u").await, (0, "0\n".into()));
    node.remove_all().await;
    node.end().await;
}
