//! Configuration files that cannot be used: the server does not start, and names the file and the position.

use testkit::FlaggedServer;

const SECRET: &str = "Tok3nInAFile";

#[tokio::test(flavor = "multi_thread")]
async fn invalid_files_are_named_with_position() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("good-policy"), super::POLICY).expect("a file");
    let policy = |rest: &str| format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rest}");
    let config = |kind: &str, rest: &str| format!("apiVersion: apiserver.config.k8s.io/v1\nkind: {kind}\n{rest}\n");
    let user = format!("users: [{{name: u, user: {{token: {SECRET}, exec: {{}}}}}}]");
    let kubeconfig = format!(
        "kind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nclusters: [{{name: k, cluster: {{server: 'https://a'}}}}]\n{user}\n"
    );
    let key = format!(
        "resources: [{{resources: [secrets], providers: [{{aescbc: {{keys: [{{name: k, secret: {SECRET}}}]}}}}]}}]"
    );
    let cases: Vec<(&[&str], String, &str)> = vec![
        (&["--audit-policy-file=FILE"], policy("rules:\n- level: All\n"), "file:4: rules[0].level: All"),
        (&["--audit-policy-file=FILE"], policy("rules: [\n"), "file:"),
        (
            &["--audit-policy-file=DIR/good-policy", "--audit-webhook-config-file=FILE"],
            kubeconfig.clone(),
            "file: users[0].user.exec: it is not supported",
        ),
        (
            &["--authorization-mode=ABAC", "--authorization-policy-file=FILE"],
            "{}\n{\"kind\":\"Policy\"}\n".to_string(),
            "file: line 1: ",
        ),
        (
            &["--authorization-mode=Webhook", "--authorization-webhook-config-file=FILE"],
            kubeconfig.clone(),
            "file: users[0].user.exec",
        ),
        (
            &["--authorization-config=FILE"],
            config("AuthorizationConfiguration", "authorizers: [{type: X, name: x}]"),
            "file: authorizers[0].type: Unsupported value: \"X\"",
        ),
        (
            &["--authorization-config=FILE"],
            config(
                "AuthorizationConfiguration",
                "authorizers: [{type: Webhook, name: w, webhook: {matchConditions: [{expression: '1'}]}}]",
            ),
            "file: authorizers[0].webhook.matchConditions[0].expression: Invalid value",
        ),
        (
            &["--authentication-config=FILE"],
            config("AuthenticationConfiguration", "jwt: [{issuer: {url: 'http://a', audiences: [x]}}]"),
            "file: jwt[0].issuer.url: the scheme must be https",
        ),
        (
            &["--authentication-config=FILE"],
            config(
                "AuthenticationConfiguration",
                "jwt: [{issuer: {url: 'https://a', audiences: [x]}, claimMappings: {username: {expression: x}}}]",
            ),
            "file: jwt[0].claimMappings.username.expression: Invalid value: \"x\": compilation failed: ERROR",
        ),
        (&["--authentication-token-webhook-config-file=FILE"], kubeconfig, "file: users[0].user.exec"),
        (&["--token-auth-file=FILE"], format!("a,b,c\n{SECRET},x\n"), "file: line 2: at least 3 columns"),
        (&["--basic-auth-file=FILE"], format!("a,b,c\n{SECRET},x\n"), "file: line 2: at least 3 columns"),
        (
            &["--admission-control-config-file=FILE"],
            config("AdmissionConfiguration", "plugins: [{name: Foo, configuration: {}}]"),
            "file: plugins[0].name: unknown plugin \"Foo\"",
        ),
        (&["--encryption-provider-config=FILE"], config("EncryptionConfiguration", &key), "file"),
        (&["--client-ca-file=FILE"], "nonsense".to_string(), "file"),
        (&["--service-account-signing-key-file=FILE"], "nonsense".to_string(), "file"),
    ];
    let path = dir.path().join("file");
    for (flags, text, want) in cases {
        std::fs::write(&path, &text).expect("a file");
        let place = |flag: &&str| {
            let flag = flag.replace("FILE", &path.display().to_string());
            flag.replace("DIR", &dir.path().display().to_string())
        };
        let flags: Vec<String> = flags.iter().map(place).collect();
        let error = match FlaggedServer::start(dir.path(), &flags).await {
            Ok(_) => panic!("it starts with {flags:?}"),
            Err(error) => error.describe(),
        };
        assert!(error.contains(&dir.path().join(want).display().to_string()), "{flags:?}: {error}");
        assert!(!error.contains(SECRET), "{flags:?}: {error}");
    }
}
