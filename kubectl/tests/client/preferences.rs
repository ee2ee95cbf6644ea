//! `kuberc`: the file, and what it does.

use crate::support::{User, Web, json};

#[test]
fn preferences_are_set_and_shown() {
    let user = User::new();
    let set = |line: &str, code: i32, want: &str| {
        let outcome = user.run(&format!("kuberc set {line}"));
        let text = format!("{}{}", outcome.out, outcome.err);
        assert!(outcome.code == Some(code) && text.contains(want), "{line}: {want:?} is not in {outcome:?}");
    };
    set("", 1, "required flag(s) \"section\" not set");
    set("--section=x", 1, "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: x");
    set("--section=aliases --command=get", 1, "--name is required when --section=aliases");
    set("--section=defaults --name=x --command=get", 1, "--name should not be specified when --section=defaults");
    set("--section=defaults --prependarg=x --command=get", 1, "are only valid for --section=aliases");
    set("--section=defaults", 1, "--command is required");
    set("--section=defaults --command=get --option=x", 1, "invalid option format \"x\", expected flag=value");
    set("--section=credentialplugin", 1, "--policy is required");
    set("--section=credentialplugin --policy=Allowlist", 1, "--allowlist-entry is required");
    set(
        "--section=credentialplugin --policy=DenyAll --allowlist-entry=command=x",
        1,
        "--allowlist-entry may only be used",
    );
    set("--section=credentialplugin --policy=Allowlist --allowlist-entry=name=x", 1, "is deprecated, use \"command\"");
    set("--section=defaults --command=get --option=--output=name", 0, "Updated ");
    set("--section=defaults --command=get --option=output=json", 1, "defaults for command \"get\" already exist");
    set("--section=defaults --command=get --option=output=yaml --overwrite", 0, "Updated ");
    set("--section=aliases --name=getn --command=get --prependarg=nodes", 0, "Updated ");
    set("--section=aliases --name=getn --command=get", 1, "alias \"getn\" already exists");
    set("--section=aliases --name=getn --command=get --option=output=name --overwrite", 0, "Updated ");
    set("--section=credentialplugin --policy=Allowlist --allowlist-entry=command=a,command=b", 0, "Updated ");
    let want = "aliases:\n- command: get\n  name: getn\n  options:\n  - default: name\n    name: output\n  prependArgs:\n  - nodes\n\
                apiVersion: kubectl.config.k8s.io/v1beta1\ncredentialPluginAllowlist:\n- command: a\n- command: b\n\
                credentialPluginPolicy: Allowlist\ndefaults:\n- command: get\n  options:\n  - default: yaml\n    name: output\n\
                kind: Preference\n";
    for line in ["kuberc view", "alpha kuberc view"] {
        assert_eq!(user.run(line).out, want);
    }
    assert!(user.run("kuberc view -o json").out.contains("\"kind\": \"Preference\""));
    set("--section=credentialplugin --policy=DenyAll", 0, "Updated ");
    assert!(!user.run("kuberc view").out.contains("Allowlist"));
}

#[test]
fn recommended_preferences_are_offered() {
    let user = User::new();
    let declined = user.run_with("kuberc view", "n\n");
    assert!(declined.code == Some(0) && declined.out.contains("recommended options? (y/N)"), "{declined:?}");
    assert!(!user.home.path().join(".kube/kuberc").exists());
    user.run_with("kuberc view", "y\n");
    assert!(user.run("kuberc view").out.contains("name: server-side"));
    user.fails("kuberc view --kuberc=/nonexistent/x", "kuberc file not found at /nonexistent/x");
    let off = user.command("kuberc view").env("KUBERC", "off").output().expect("kubectl starts");
    assert!(String::from_utf8_lossy(&off.stderr).contains("KUBERC is disabled"));
}

#[test]
fn a_broken_file_is_an_error_everywhere_but_where_it_is_repaired() {
    let user = User::new();
    user.write(
        ".kube/kuberc",
        "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\ncredentialPluginPolicy: [",
    );
    user.fails("version --client", "error occurred while applying preferences");
    user.fails("kuberc view", "error reading kuberc file");
    user.write(
        ".kube/kuberc",
        "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\ncredentialPluginPolicy: x\n",
    );
    user.fails("version --client", "unknown plugin policy: \"x\"");
    assert_eq!(user.run("kuberc set --section=credentialplugin --policy=AllowAll").code, Some(0));
    assert_eq!(user.run("version --client").code, Some(0));
    user.write(".kube/kuberc", "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\nnope: 1\n");
    let outcome = user.run("version --client");
    assert!(outcome.code == Some(0) && outcome.err.contains("unknown field \"nope\""), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credential_plugins_run_only_if_the_policy_allows_them() {
    let server = Web::start(|_| json("{}")).await;
    let user = User::new();
    let plugin = user.write(
        "plugin",
        "#!/bin/sh\ntouch \"$HOME/ran\"\necho '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{\"token\":\"from-plugin\"}}'\n",
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&plugin, mode).expect("a mode");
    user.write(
        ".kube/config",
        &format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- {{name: c, cluster: {{server: 'http://{}'}}}}\n\
             contexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\nusers:\n- {{name: u, user: {{exec: {{apiVersion: \
             client.authentication.k8s.io/v1, command: {plugin}, interactiveMode: Never}}}}}}\n",
            server.address
        ),
    );
    let preferences = |rest: &str| {
        user.write(".kube/kuberc", &format!("apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n{rest}"))
    };
    let ran = || std::fs::remove_file(user.home.path().join("ran")).is_ok();
    let run = || user.run("get --raw /");
    preferences("credentialPluginPolicy: DenyAll\n");
    let outcome = run();
    assert!(outcome.code == Some(1) && outcome.err.contains("policy set to \"DenyAll\"") && !ran(), "{outcome:?}");
    preferences("credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{command: other}]\n");
    let outcome = run();
    assert!(outcome.code == Some(1) && outcome.err.contains("not allowed") && !ran(), "{outcome:?}");
    preferences(&format!("credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{{command: {plugin}}}]\n"));
    let outcome = run();
    assert!(outcome.code == Some(0) && ran(), "{outcome:?}");
    assert!(server.requests().concat().contains("Bearer from-plugin"), "{:?}", server.requests());
}
