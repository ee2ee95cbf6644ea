//! Kubeconfigs and credentials: merged files, and every way to prove who the user is.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{User, Web, discovery, json, pki, pki_for_clients, response, table};

const VERSION: &str = r#"{"gitVersion":"v9"}"#;

async fn plain_server() -> Web {
    Web::start(|_| json(VERSION)).await
}

/// The Authorization header of a request with these credentials and flags.
fn authorization(server: &Web, user: &User, credentials: &str, flags: &str) -> String {
    user.kubeconfig_of(&format!("http://{}", server.address), "", credentials);
    let outcome = user.run(&format!("get --raw /version {flags}"));
    assert_eq!(outcome.code, Some(0), "{credentials} {flags}: {outcome:?}");
    let requests = server.requests();
    let head = requests.last().expect("a request");
    let line = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then(|| value.to_string())
    });
    line.unwrap_or_default()
}

/// A credential plugin: a script that counts how often it runs.
fn plugin(user: &User, version: &str, status: &str) {
    let script = format!(
        "#!/bin/sh\necho run >> {0}/runs\nprintf %s \"$KUBERNETES_EXEC_INFO\" > {0}/info\n\
         echo '{{\"apiVersion\":\"client.authentication.k8s.io/{version}\",\"kind\":\"ExecCredential\",\"status\":{status}}}'\n",
        user.home.path().display()
    );
    let path = user.write(".kube/plugin", &script);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
}

fn runs(user: &User) -> usize {
    let text = std::fs::read_to_string(user.home.path().join("runs")).unwrap_or_default();
    text.lines().count()
}

fn exec(version: &str, more: &str) -> String {
    format!("{{exec: {{apiVersion: client.authentication.k8s.io/{version}, command: ./plugin{more}}}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_credentials_becomes_a_header() {
    let (server, user) = (plain_server().await, User::new());
    user.write(".kube/token", "from-file\n");
    let check = |credentials: &str, flags: &str, want: &str| {
        assert_eq!(authorization(&server, &user, credentials, flags), want, "{credentials} {flags}");
    };
    check("{}", "", "");
    check("{token: t}", "", "Bearer t");
    check("{tokenFile: token}", "", "Bearer from-file");
    check("{username: u, password: p}", "", "Basic dTpw");
    // Flags come before the file.
    check("{token: t}", "--token=flag", "Bearer flag");
    check("{}", "--username=u --password=p", "Basic dTpw");
    plugin(&user, "v1", r#"{"token":"one"}"#);
    check(&exec("v1", ", interactiveMode: Never"), "", "Bearer one");
    check(&exec("v1", ", interactiveMode: IfAvailable"), "--token=flag", "Bearer flag");
    plugin(&user, "v1beta1", r#"{"token":"beta"}"#);
    check(&exec("v1beta1", ""), "", "Bearer beta");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_file_is_read_by_each_command() {
    let (server, user) = (plain_server().await, User::new());
    user.write(".kube/token", "first");
    assert_eq!(authorization(&server, &user, "{tokenFile: token}", ""), "Bearer first");
    user.write(".kube/token", "second");
    assert_eq!(authorization(&server, &user, "{tokenFile: token}", ""), "Bearer second");
    std::fs::remove_file(user.home.path().join(".kube/token")).expect("removed");
    user.fails("get --raw /version", "failed to read token file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_runs_again_when_its_credential_has_expired() {
    let server = Web::start(|head| discovery(head).unwrap_or_else(|| json(&table(&["a"])))).await;
    let user = User::new();
    user.kubeconfig_of(&format!("http://{}", server.address), "", &exec("v1", ", interactiveMode: Never"));
    let run = |expires: &str| {
        plugin(&user, "v1", &format!(r#"{{"token":"t","expirationTimestamp":"{expires}"}}"#));
        let _ = std::fs::remove_file(user.home.path().join("runs"));
        let _ = std::fs::remove_dir_all(user.home.path().join(".kube/cache"));
        assert_eq!(user.run("get pods").code, Some(0));
        runs(&user)
    };
    assert_eq!(run("2100-01-01T00:00:00Z"), 1);
    assert!(run("2000-01-01T00:00:00Z") > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_plugin_credential_is_replaced() {
    let server = Web::start(|head| match head.to_lowercase().contains("bearer token-2") {
        true => json(VERSION),
        false => response("401 Unauthorized", "application/json", r#"{"kind":"Status","code":401}"#),
    })
    .await;
    let user = User::new();
    user.kubeconfig_of(&format!("http://{}", server.address), "", &exec("v1", ", interactiveMode: Never"));
    plugin(&user, "v1", "{\"token\":\"token-'$(wc -l < runs | tr -d ' ')'\"}");
    let outcome = user.run("get --raw /version");
    assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), VERSION), "{outcome:?}");
    assert_eq!(runs(&user), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_that_cannot_be_used_are_explained() {
    let (server, user) = (plain_server().await, User::new());
    plugin(&user, "v1", "{}");
    let check = |credentials: &str, want: &str| {
        user.kubeconfig_of(&format!("http://{}", server.address), "", credentials);
        user.fails("get --raw /version", want);
    };
    check(&exec("v1", ""), "interactiveMode must be specified");
    check(&exec("v1", ", interactiveMode: Sometimes"), "invalid interactiveMode");
    check(&exec("v1", ", interactiveMode: Always"), "standard input is not a terminal");
    check(&exec("v1alpha1", ""), "invalid apiVersion \"client.authentication.k8s.io/v1alpha1\"");
    check(&exec("v1", ", interactiveMode: Never"), "didn't return a token or cert/key pair");
    check(&exec("v1beta1", ""), "plugin returned version client.authentication.k8s.io/v1");
    check(
        "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./nope, interactiveMode: Never, installHint: get it}}",
        "get it",
    );
    assert!(server.requests().is_empty());
    plugin(&user, "v1", r#"{"token":"t"}"#);
    let with_info = exec("v1", ", interactiveMode: Never, provideClusterInfo: true");
    authorization(&server, &user, &with_info, "");
    let info = std::fs::read_to_string(user.home.path().join("info")).expect("what the plugin gets");
    let want = format!(r#""server":"http://{}""#, server.address);
    assert!(info.contains(&want) && info.contains(r#""interactive":false"#), "{info}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificates_are_from_files_data_flags_and_plugins() {
    let (pki, certificate, key) = pki_for_clients();
    let server = Web::start_tls(&pki, |_| json(VERSION)).await;
    let user = User::new();
    user.write(".kube/ca.crt", &pki.ca);
    let (cert_path, key_path) = (user.write(".kube/c.crt", &certificate), user.write(".kube/c.key", &key));
    let encode = |text: &str| base64_of(text);
    let run = |credentials: &str, flags: &str| {
        user.kubeconfig_of(&format!("https://{}", server.address), ", certificate-authority: ca.crt", credentials);
        user.run(&format!("get --raw /version {flags}"))
    };
    let works = |credentials: &str, flags: &str| {
        let outcome = run(credentials, flags);
        assert_eq!((outcome.code, outcome.out.as_str()), (Some(0), VERSION), "{credentials} {flags}: {outcome:?}");
    };
    works("{client-certificate: c.crt, client-key: c.key}", "");
    let data = format!("{{client-certificate-data: {}, client-key-data: {}}}", encode(&certificate), encode(&key));
    works(&data, "");
    works("{}", &format!("--client-certificate={cert_path} --client-key={key_path}"));
    let status = format!(
        r#"{{"clientCertificateData":"{}","clientKeyData":"{}"}}"#,
        certificate.replace("\r", "").replace('\n', "\\\\n"),
        key.replace("\r", "").replace('\n', "\\\\n")
    );
    plugin(&user, "v1", &status);
    works(&exec("v1", ", interactiveMode: Never"), "");
    assert_eq!(run("{}", "").code, Some(1), "the server needs a certificate");
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_in_the_servers_certificate_can_be_another() {
    let pki = pki(2100);
    let server = Web::start_tls(&pki, |_| json(VERSION)).await;
    let user = User::new();
    user.write(".kube/ca.crt", &pki.ca);
    let url = format!("https://localhost:{}", server.address.port());
    user.kubeconfig(&url, ", certificate-authority: ca.crt");
    user.fails("get --raw /version", "certificate is not valid for localhost");
    assert_eq!(user.run("get --raw /version --tls-server-name=127.0.0.1").code, Some(0));
    user.kubeconfig(&url, ", certificate-authority: ca.crt, tls-server-name: 127.0.0.1");
    assert_eq!(user.run("get --raw /version").code, Some(0));
    user.fails("get --raw /version --tls-server-name=other.example", "certificate is not valid for other.example");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openid_tokens_are_refreshed_and_written_back() {
    let pki = pki(2100);
    let fresh = format!("e30.{}.x", base64_of(r#"{"exp":4102444800}"#).trim_end_matches('='));
    let (token, own) = (fresh.clone(), Arc::new(std::sync::OnceLock::<String>::new()));
    let url = own.clone();
    let issuer = Web::start_tls(&pki, move |head| match head.starts_with("POST /token ") {
        true => json(&format!(r#"{{"id_token":"{token}","refresh_token":"next"}}"#)),
        false => json(&format!(r#"{{"token_endpoint":"{}/token"}}"#, url.get().expect("set"))),
    })
    .await;
    own.set(format!("https://{}", issuer.address)).expect("once");
    let (server, user) = (plain_server().await, User::new());
    let expired = format!("e30.{}.x", base64_of(r#"{"exp":1000}"#).trim_end_matches('='));
    let provider = format!(
        "{{auth-provider: {{name: oidc, config: {{idp-issuer-url: 'https://{}', client-id: me, client-secret: s, \
         id-token: {expired}, refresh-token: old, idp-certificate-authority-data: {}}}}}}}",
        issuer.address,
        base64_of(&pki.ca)
    );
    assert_eq!(authorization(&server, &user, &provider, ""), format!("Bearer {fresh}"));
    let requests = issuer.requests();
    assert!(requests[0].starts_with("GET /.well-known/openid-configuration "), "{requests:?}");
    assert!(
        requests[1].contains("grant_type=refresh_token") && requests[1].contains("refresh_token=old"),
        "{requests:?}"
    );
    let file = std::fs::read_to_string(user.home.path().join(".kube/config")).expect("a kubeconfig");
    assert!(file.contains(&fresh) && file.contains("refresh-token: next"), "{file}");
    // The token in the file is still valid.
    assert_eq!(user.run("get --raw /version").code, Some(0));
    assert_eq!(issuer.requests().len(), 2);
}

/// A SOCKS5 server without authentication, which counts its connections.
async fn socks() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let count = Arc::new(AtomicUsize::new(0));
    let served = count.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_socks(stream, served.clone()));
        }
    });
    (address, count)
}

async fn serve_socks(mut stream: TcpStream, served: Arc<AtomicUsize>) -> std::io::Result<()> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut methods = vec![0; usize::from(head[1])];
    stream.read_exact(&mut methods).await?;
    stream.write_all(&[5, 0]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let host = match request[3] {
        1 => std::net::Ipv4Addr::from(stream.read_u32().await?).to_string(),
        _ => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
    };
    let mut server = TcpStream::connect((host, stream.read_u16().await?)).await?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    served.fetch_add(1, Ordering::Relaxed);
    tokio::io::copy_bidirectional(&mut stream, &mut server).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_through_a_socks_proxy() {
    let pki = pki(2100);
    let (plain, secure) = (plain_server().await, Web::start_tls(&pki, |_| json(VERSION)).await);
    let (proxy, served) = socks().await;
    let user = User::new();
    user.write(".kube/ca.crt", &pki.ca);
    user.kubeconfig(&format!("http://{}", plain.address), &format!(", proxy-url: 'socks5://{proxy}'"));
    assert_eq!(user.run("get --raw /version").out, VERSION);
    let fields = format!(", certificate-authority: ca.crt, proxy-url: 'socks5://{proxy}'");
    user.kubeconfig(&format!("https://{}", secure.address), &fields);
    assert_eq!(user.run("get --raw /version").out, VERSION);
    assert_eq!(served.load(Ordering::Relaxed), 2);
}

/// Two files: the first has the contexts, the second the rest.
fn two_files(user: &User) -> String {
    let one = user.write(
        "one/config",
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- {name: a, context: {cluster: c, user: u, namespace: n}}\n\
         users:\n- {name: u, user: {token: first}}\n",
    );
    let two = user.write(
        "two/config",
        "apiVersion: v1\nkind: Config\ncurrent-context: ignored\nclusters:\n- {name: c, cluster: {server: 'http://127.0.0.1:1', certificate-authority: ca.crt}}\n\
         users:\n- {name: u, user: {token: second}}\n- {name: v, user: {}}\n",
    );
    format!("{one}:{}:{two}", user.home.path().join("missing").display())
}

#[test]
fn files_of_a_list_are_merged_and_changed_in_their_places() {
    let user = User::new();
    let list = two_files(&user);
    let run = |line: &str| {
        let output = user.command(line).env("KUBECONFIG", &list).output().expect("kubectl starts");
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let read = |name: &str| std::fs::read_to_string(user.home.path().join(name)).expect("a file");
    assert_eq!(run("config current-context"), "a\n");
    // The first file wins, and paths are relative to their file.
    assert_eq!(run("config view --raw -o jsonpath={.users[*].user.token}"), "first");
    let ca = run("config view -o jsonpath={.clusters[0].cluster.certificate-authority}");
    assert_eq!(ca, user.home.path().join("two/ca.crt").to_string_lossy());
    let before = read("one/config");
    run("config set-cluster c --server=http://127.0.0.1:2");
    assert!(
        read("two/config").contains("http://127.0.0.1:2")
            && read("two/config").contains("certificate-authority: ca.crt")
    );
    assert_eq!(read("one/config"), before, "an entry is changed in its own file");
    run("config set-context new --cluster=c --user=v");
    run("config use-context new");
    assert!(read("one/config").contains("current-context: new") && !read("two/config").contains("name: new"));
    assert!(read("two/config").contains("current-context: ignored"));
    run("config delete-user v");
    assert!(!read("two/config").contains("name: v"));
    // A flag is one file, whatever the variable says.
    let other =
        user.write("other", "apiVersion: v1\nkind: Config\ncurrent-context: z\ncontexts:\n- {name: z, context: {}}\n");
    assert_eq!(run(&format!("config current-context --kubeconfig={other}")), "z\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_come_before_the_file() {
    let (server, user) =
        (Web::start(|head| discovery(head).unwrap_or_else(|| json(&table(&["a"])))).await, User::new());
    let list = two_files(&user);
    user.write("two/ca.crt", &pki(2100).ca);
    let flags = format!("--server=http://{} --user=v --namespace=m --as=other --as-group=g", server.address);
    let output = user.command(&format!("get pods {flags}")).env("KUBECONFIG", &list).output().expect("kubectl starts");
    assert!(output.status.success(), "{output:?}");
    let requests = server.requests();
    let head = requests.last().expect("a request").to_lowercase();
    assert!(head.starts_with("get /api/v1/namespaces/m/pods?"), "{head}");
    assert!(head.contains("impersonate-user: other") && head.contains("impersonate-group: g"), "{head}");
    assert!(!head.contains("authorization"), "{head}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_version_can_be_required() {
    let server = Web::start(|_| json(r#"{"gitVersion":"v1.37.0+tiphys.1"}"#)).await;
    let user = User::new();
    user.kubeconfig(&format!("http://{}", server.address), "");
    assert_eq!(user.run("get --raw /x --match-server-version").code, Some(0));
    let other = plain_server().await;
    user.kubeconfig(&format!("http://{}", other.address), "");
    user.fails("get --raw /x --match-server-version", "server version (v9) differs from client version (v1.37.0)");
    assert_eq!(other.requests().len(), 1);
}
