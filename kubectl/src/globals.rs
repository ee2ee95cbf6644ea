//! The flags that every command has.

use crate::flags::{Flag, Kind, switch, text, typed};

/// The global flags.
pub(crate) const GLOBALS: &[Flag] = &[
    text("as", '\0', "", "Username to impersonate. It can be a regular user or a service account in a namespace."),
    typed("as-group", '\0', Kind::Array, "", "Group to impersonate; can be repeated."),
    text("as-uid", '\0', "", "UID to impersonate."),
    typed("as-user-extra", '\0', Kind::Array, "", "User extra to impersonate, as KEY=VALUE; can be repeated."),
    text("cache-dir", '\0', "", "Directory of the discovery cache; by default ~/.kube/cache."),
    text(
        "certificate-authority",
        '\0',
        "",
        "File with the certificates of the CAs that the server's certificate may be from.",
    ),
    text("client-certificate", '\0', "", "File with a client certificate for TLS."),
    text("client-key", '\0', "", "File with the key of the client certificate."),
    text("cluster", '\0', "", "The cluster of the kubeconfig to use."),
    text("context", '\0', "", "The context of the kubeconfig to use."),
    switch("disable-compression", '\0', "Do not ask the server for compressed responses."),
    switch("insecure-skip-tls-verify", '\0', "Accept any certificate of the server. Connections are not secure then."),
    text("kubeconfig", '\0', "", "The kubeconfig file to use."),
    text("kuberc", '\0', "", "The file with preferences; `off` turns them off."),
    switch("match-server-version", '\0', "Require that the server has the version of this client."),
    text("namespace", 'n', "", "The namespace of this request."),
    text("password", '\0', "", "Password for basic authentication.").hidden(),
    text("profile", '\0', "none", "Profile to capture.").hidden(),
    text("profile-output", '\0', "profile.pprof", "File of the profile.").hidden(),
    text("request-timeout", '\0', "0", "How long one request may take, such as 1s, 2m or 3h; 0 is without a limit."),
    text("server", 's', "", "The address and port of the API server."),
    text("tls-server-name", '\0', "", "The name that the server's certificate must have; by default its host name."),
    text("token", '\0', "", "Bearer token for authentication."),
    text("user", '\0', "", "The user of the kubeconfig to use."),
    text("username", '\0', "", "Username for basic authentication.").hidden(),
    typed("v", 'v', Kind::Int, "0", "Verbosity of the log; 6 and more show requests."),
    text("vmodule", '\0', "", "Verbosity by file.").hidden(),
    typed("log-flush-frequency", '\0', Kind::Duration, "5s", "Time between flushes of the log.").hidden(),
    switch("warnings-as-errors", '\0', "Exit with a non-zero code if the server sent warnings."),
];
