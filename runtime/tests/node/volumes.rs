//! Volumes: images, mount propagation, recursive read-only mounts, ID-mapped mounts.

use std::fs;
use std::path::Path;

use cri::{
    ContainerConfig, HugepageLimit, IDMapping, ImageSpec, LinuxContainerResources, Mount, MountPropagation,
    NamespaceMode, UserNamespace,
};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

use crate::harness::{LINKS, Node, VOLUME, container, enter_new_mount_ns, options, secured, text, unified, wait_for};

fn image(target: &str, image: &str, sub_path: &str) -> Mount {
    Mount {
        container_path: target.into(),
        image: Some(ImageSpec { image: image.into(), ..Default::default() }),
        image_sub_path: sub_path.into(),
        ..Default::default()
    }
}

fn directory(target: &str, host: &Path) -> Mount {
    Mount { container_path: target.into(), host_path: host.to_string_lossy().into_owned(), ..Default::default() }
}

fn with(name: &str, command: &str, mounts: Vec<Mount>) -> ContainerConfig {
    ContainerConfig { mounts, ..container(name, command) }
}

fn tmpfs(path: &Path) {
    fs::create_dir_all(path).unwrap();
    mount("tmpfs", path, "tmpfs", MountFlags::empty(), None).unwrap();
}

#[tokio::test]
async fn mounts_an_image_as_a_volume() {
    let node = Node::start().await;
    let command = "cat /whole/data/file /sub/deep; touch /whole/x 2>/dev/null || echo refused; exec sleep 1000";
    let config = with("main", command, vec![image("/whole", VOLUME, ""), image("/sub", VOLUME, "data/sub")]);
    let pod = node.sandbox_config("images");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, config, &pod).await;
    let log = node.status(&id).await.log_path;
    wait_for("the output", || text(Path::new(&log)).contains("refused"));
    assert!(text(Path::new(&log)).starts_with("abovedeep"), "{}", text(Path::new(&log)));

    let error = node.create(&sandbox, with("none", "true", vec![image("/x", "none.local/x:1", "")]), &pod).await;
    assert!(error.unwrap_err().message().contains("none.local/x:1"));
    for (name, sub_path) in [("missing", "nowhere"), ("file", "data/file")] {
        let config = with(name, "true", vec![image("/x", VOLUME, sub_path)]);
        let id = node.create(&sandbox, config, &pod).await.unwrap();
        let error = node.start_container(&id).await.unwrap_err();
        assert!(error.message().contains(sub_path), "{error}");
    }
    // `..` does not leave the image's root.
    let config = with("climbs", "ls /x", vec![image("/x", VOLUME, "../../..")]);
    assert_eq!(node.shell_in(&sandbox, &pod, config).await, (0, "data\n".into()));
    node.end().await;
}

#[tokio::test]
async fn propagates_mounts_as_requested() {
    enter_new_mount_ns();
    let node = Node::start().await;
    let host = node.path("shared");
    tmpfs(&host);
    mount_change(&host, MountPropagationFlags::SHARED).unwrap();
    let pod = node.sandbox_config("propagation");
    let sandbox = node.run_sandbox(&pod).await;
    let mut ids = Vec::new();
    for kind in [MountPropagation::Private, MountPropagation::HostToContainer, MountPropagation::Bidirectional] {
        let volume = Mount { propagation: kind as i32, ..directory("/data", &host) };
        let mut config = with(&format!("kind{}", kind as i32), "exec sleep 1000", vec![volume]);
        secured(&mut config).privileged = true;
        ids.push(node.run(&sandbox, config, &pod).await);
    }
    tmpfs(&host.join("later"));
    fs::write(host.join("later/file"), "news").unwrap();
    for (id, expected) in ids.iter().zip(["", "news", "news"]) {
        assert_eq!(node.exec(id, "cat /data/later/file 2>/dev/null").await.1, expected);
    }
    for (id, expected) in ids.iter().zip([false, false, true]) {
        let (code, printed) =
            node.exec(id, "mkdir -p /data/own && mount -t tmpfs own /data/own && touch /data/own/x").await;
        assert_eq!(code, 0, "{printed}");
        assert_eq!(host.join("own/x").exists(), expected);
    }
    node.remove_all().await;
    for place in ["own", "later", "."] {
        unmount(host.join(place), UnmountFlags::DETACH).unwrap();
    }
    node.end().await;
}

#[tokio::test]
async fn recursive_read_only_mounts() {
    enter_new_mount_ns();
    let node = Node::start().await;
    let host = node.path("volume");
    fs::create_dir(&host).unwrap();
    tmpfs(&host.join("sub"));
    let readonly = Mount { readonly: true, ..directory("/data", &host) };
    for (name, recursive, expected) in [("plain", false, "top refused\n"), ("deep", true, "top refused\nsub refused\n")]
    {
        let volume = Mount { recursive_read_only: recursive, ..readonly.clone() };
        let command =
            "touch /data/x 2>/dev/null || echo top refused; touch /data/sub/x 2>/dev/null || echo sub refused";
        let (_, output) = node.shell(with(name, command, vec![volume])).await;
        assert_eq!(output, expected, "{name}");
    }
    let pod = node.sandbox_config("wrong");
    let sandbox = node.run_sandbox(&pod).await;
    let wrong = Mount { readonly: false, recursive_read_only: true, ..readonly };
    let error = node.create(&sandbox, with("wrong", "true", vec![wrong]), &pod).await.unwrap_err();
    assert!(error.message().contains("recursive_read_only needs readonly"), "{error}");
    unmount(host.join("sub"), UnmountFlags::DETACH).unwrap();
    node.end().await;
}

#[tokio::test]
async fn maps_owners_in_a_user_namespace() {
    use std::os::unix::fs::MetadataExt;
    let node = Node::start().await;
    node.network().await;
    let host = node.path("volume");
    fs::create_dir(&host).unwrap();
    fs::write(host.join("old"), "").unwrap();
    let map = vec![IDMapping { host_id: 100_000, container_id: 0, length: 65_536 }];
    let users = UserNamespace { mode: NamespaceMode::Pod as i32, uids: map.clone(), gids: map.clone() };
    let mut namespaces = options(NamespaceMode::Pod, NamespaceMode::Container);
    namespaces.userns_options = Some(users);
    let mut pod = node.networked_config("owners");
    pod.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(namespaces.clone());
    let sandbox = node.run_sandbox(&pod).await;
    let mapped = Mount { uid_mappings: map.clone(), gid_mappings: map, ..directory("/mapped", &host) };
    let command = "stat -c %u /mapped/old /plain/old /image/data/file; touch /mapped/new; touch /plain/new 2>/dev/null || echo refused";
    let mut config = with("main", command, vec![mapped, directory("/plain", &host), image("/image", VOLUME, "")]);
    secured(&mut config).namespace_options = Some(namespaces);
    let (_, output) = node.shell_in(&sandbox, &pod, config).await;
    assert_eq!(output, "0\n65534\n0\nrefused\n");
    assert_eq!(fs::metadata(host.join("new")).unwrap().uid(), 0, "on disk it is the host's user again");
    node.end().await;
}

/// A kubelet sets limits for every size of huge pages, even on machines without them.
#[tokio::test]
async fn limits_of_huge_pages() {
    let node = Node::start().await;
    let mut config = container("main", "exec sleep 1000");
    let limit = |page_size: &str, limit| HugepageLimit { page_size: page_size.into(), limit };
    config.linux.as_mut().unwrap().resources = Some(LinuxContainerResources {
        hugepage_limits: vec![limit("2MB", 4 << 20), limit("1GB", 0)],
        ..Default::default()
    });
    let pod = node.sandbox_config("pages");
    let sandbox = node.run_sandbox(&pod).await;
    let id = node.run(&sandbox, config, &pod).await;
    let counted = unified() || Path::new("/sys/fs/cgroup/hugetlb").exists();
    if counted {
        assert_eq!(node.cgroup_file(&id, "hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max"), "4194304");
    } else {
        wait_for("a warning", || node.log().contains("hugetlb.2MB.limit_in_bytes 4194304 is not set"));
    }
    node.end().await;
}

#[tokio::test]
async fn symlinks_of_an_image_do_not_lead_outside() {
    let node = Node::start().await;
    let volume = node.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("file"), "mine").unwrap();
    let mut config =
        with("main", "cat /etc/resolv.conf /volume/file; ls /tmp/tiphys-escape", vec![directory("/volume", &volume)]);
    config.image.as_mut().unwrap().image = LINKS.into();
    let (code, output) = node.shell(config.clone()).await;
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("mine") && output.ends_with("hostname\nresolv.conf\nvolume\n"), "{output}");
    // A magic link through another process's root is not followed either.
    let pod = node.sandbox_config("magic");
    let sandbox = node.run_sandbox(&pod).await;
    config.working_dir = "/work/new".into();
    let id = node.create(&sandbox, config, &pod).await.unwrap();
    let started = node.start_container(&id).await;
    assert!(started.is_err(), "it worked in a directory of another's");
    assert!(!Path::new("/tmp/tiphys-escape").exists(), "the host was written to");
    node.end().await;
}
