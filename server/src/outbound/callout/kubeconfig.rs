//! Kubeconfig files, as the flags of webhooks name them: the server, the CA to trust, and the client's credentials.
//! Every error names the file and the field; unsupported fields are rejected.

use std::fmt;
use std::path::{Path, PathBuf};

use api::Tree;

use super::{Client, Credentials, Identity, Login, Logins, Trust, Url};

/// The content of a file: a client, and the URL that it is for.
pub struct Remote {
    pub client: Client,
    pub url: Url,
}

/// A kubeconfig file that cannot be used.
#[derive(Debug)]
pub struct Error {
    file: PathBuf,
    field: String,
    why: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joint = if self.field.is_empty() { "" } else { ": " };
        write!(f, "{}{joint}{}: {}", self.file.display(), self.field, self.why)
    }
}

impl std::error::Error for Error {}

const CLUSTER_FIELDS: &[&str] = &[
    "certificate-authority",
    "certificate-authority-data",
    // Bodies are never compressed, and extensions are only for other programs.
    "disable-compression",
    "extensions",
    "insecure-skip-tls-verify",
    "server",
    "tls-server-name",
];

const USER_FIELDS: &[&str] = &[
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "extensions",
    "password",
    "token",
    "tokenFile",
    "username",
];

/// Reads the file's current context.
pub fn read(file: &Path) -> Result<Remote, Error> {
    let reader = Reader { file };
    reader.remote(&reader.bytes()?)
}

/// Parses the text of a file; `file` is its path, for relative paths and messages.
pub fn parse(file: &Path, text: &str) -> Result<Remote, Error> {
    Reader { file }.remote(text.as_bytes())
}

/// Reads the file's users alone, which are named by hosts.
pub(crate) fn read_logins(file: &Path) -> Result<Logins, Error> {
    let reader = Reader { file };
    reader.logins(&reader.bytes()?)
}

/// The file itself and the files that it names, as far as it can be read.
pub fn files(file: &Path) -> Vec<PathBuf> {
    let mut files = vec![file.to_path_buf()];
    let Some(tree) = std::fs::read(file).ok().and_then(|bytes| api::yaml::decode(&bytes).ok()) else { return files };
    let named = [
        ("clusters", "cluster.certificate-authority"),
        ("users", "user.client-certificate"),
        ("users", "user.client-key"),
    ];
    for (list, field) in named {
        let paths = tree.list(list).iter().map(|entry| entry.str(field)).filter(|path| !path.is_empty());
        files.extend(paths.map(|path| Reader { file }.beside(path)));
    }
    files
}

struct Reader<'a> {
    file: &'a Path,
}

/// A named entry of one of the file's lists.
struct Entry<'a> {
    at: String,
    tree: &'a Tree,
}

impl Reader<'_> {
    fn error(&self, field: impl Into<String>, why: impl fmt::Display) -> Error {
        Error { file: self.file.to_path_buf(), field: field.into(), why: why.to_string() }
    }

    fn bytes(&self) -> Result<Vec<u8>, Error> {
        std::fs::read(self.file).map_err(|error| self.error("", error))
    }

    fn tree(&self, bytes: &[u8]) -> Result<Tree, Error> {
        let tree = api::yaml::decode(bytes).map_err(|error| self.error("", error))?;
        if !matches!(tree.str("kind"), "" | "Config") {
            return Err(self.error("kind", format!("expected Config, got {:?}", tree.str("kind"))));
        }
        Ok(tree)
    }

    fn logins(&self, bytes: &[u8]) -> Result<Logins, Error> {
        let tree = self.tree(bytes)?;
        let mut named = Vec::new();
        for (at, user) in tree.list("users").iter().enumerate() {
            let entry = Entry { at: format!("users[{at}].user"), tree: user.at("user") };
            named.push((user.str("name").to_string(), self.login(&entry)?));
        }
        let current = tree.str("current-context");
        let context = tree.list("contexts").iter().find(|context| context.str("name") == current);
        let current = context.map(|context| context.str("context.user").to_string());
        Ok(Logins { named, current })
    }

    fn login(&self, user: &Entry<'_>) -> Result<Login, Error> {
        self.check_fields(user, USER_FIELDS)?;
        Ok(Login { identity: self.identity(user)?, credentials: self.credentials(user) })
    }

    fn remote(&self, bytes: &[u8]) -> Result<Remote, Error> {
        let tree = self.tree(bytes)?;
        let current = tree.str("current-context");
        if current.is_empty() {
            return Err(self.error("current-context", "a context must be named"));
        }
        let context = self.entry(&tree, "contexts", "context", current, "current-context")?;
        let cluster_name = context.tree.str("cluster");
        let cluster = self.entry(&tree, "clusters", "cluster", cluster_name, &format!("{}.cluster", context.at))?;
        let url = Url::parse(cluster.tree.str("server"));
        let url = url.map_err(|why| self.error(format!("{}.server", cluster.at), why))?;
        let user = match context.tree.str("user") {
            "" => None,
            name => Some(self.entry(&tree, "users", "user", name, &format!("{}.user", context.at))?),
        };
        Ok(Remote { client: self.client(&cluster, user.as_ref())?, url })
    }

    fn entry<'t>(&self, tree: &'t Tree, list: &str, key: &str, name: &str, by: &str) -> Result<Entry<'t>, Error> {
        let at = tree.list(list).iter().position(|entry| entry.str("name") == name);
        let at = at.ok_or_else(|| self.error(by, format!("{key} {name:?} not found")))?;
        Ok(Entry { at: format!("{list}[{at}].{key}"), tree: tree.list(list)[at].at(key) })
    }

    fn client(&self, cluster: &Entry<'_>, user: Option<&Entry<'_>>) -> Result<Client, Error> {
        self.check_fields(cluster, CLUSTER_FIELDS)?;
        let trust = self.trust(cluster)?;
        let login = user.map(|user| self.login(user)).transpose()?;
        let client = Login::client(login.as_ref(), &trust).map_err(|error| self.error(&cluster.at, error))?;
        let name = Some(cluster.tree.str("tls-server-name").to_string()).filter(|name| !name.is_empty());
        Ok(client.with_server_name(name))
    }

    fn check_fields(&self, entry: &Entry<'_>, known: &[&str]) -> Result<(), Error> {
        let keys = entry.tree.as_map().map(|map| map.keys()).into_iter().flatten();
        match keys.into_iter().find(|key| !known.contains(key)) {
            Some(key) => Err(self.error(format!("{}.{key}", entry.at), "it is not supported")),
            None => Ok(()),
        }
    }

    fn trust(&self, cluster: &Entry<'_>) -> Result<Trust, Error> {
        let bundle = self.data(cluster, "certificate-authority")?;
        let insecure = cluster.tree.bool("insecure-skip-tls-verify");
        match bundle {
            Some((field, _)) if insecure => {
                Err(self.error(field, "specifying a root certificates file with the insecure flag is not allowed"))
            }
            Some((field, pem)) => Trust::pem(&pem).map_err(|why| self.error(field, why)),
            None if insecure => Ok(Trust::InsecureSkipVerify),
            None => Ok(Trust::System),
        }
    }

    fn identity(&self, user: &Entry<'_>) -> Result<Option<Identity>, Error> {
        match (self.data(user, "client-certificate")?, self.data(user, "client-key")?) {
            (None, None) => Ok(None),
            (Some((field, chain)), Some((_, key))) => {
                Identity::pem(&chain, &key).map(Some).map_err(|why| self.error(field, why))
            }
            (Some((field, _)), None) => Err(self.error(field, "its key is missing")),
            (None, Some((field, _))) => Err(self.error(field, "its certificate is missing")),
        }
    }

    fn credentials(&self, user: &Entry<'_>) -> Credentials {
        let text = |key: &str| user.tree.str(key).to_string();
        if user.tree.has("tokenFile") {
            Credentials::BearerFile(self.beside(user.tree.str("tokenFile")))
        } else if user.tree.has("token") {
            Credentials::Bearer(text("token"))
        } else if user.tree.has("username") {
            Credentials::Basic { username: text("username"), password: text("password") }
        } else {
            Credentials::None
        }
    }

    /// The content of a field that has two forms, `KEY-data` and the file `KEY`, and the name of the form.
    fn data(&self, entry: &Entry<'_>, key: &str) -> Result<Option<(String, Vec<u8>)>, Error> {
        let data_key = format!("{key}-data");
        if entry.tree.has(&data_key) {
            let field = format!("{}.{data_key}", entry.at);
            let bytes = api::base64::decode(entry.tree.str(&data_key)).map_err(|why| self.error(&field, why))?;
            return Ok(Some((field, bytes)));
        }
        if entry.tree.str(key).is_empty() {
            return Ok(None);
        }
        let field = format!("{}.{key}", entry.at);
        let path = self.beside(entry.tree.str(key));
        let bytes = std::fs::read(&path).map_err(|why| self.error(&field, format!("{}: {why}", path.display())))?;
        Ok(Some((field, bytes)))
    }

    /// Paths in the file are relative to it.
    fn beside(&self, path: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'https://a:8443/x', tls-server-name: b}}]
users: [{name: u, user: {token: t}}]
";

    fn check(text: &str, want: &str) {
        let got = Reader { file: Path::new("/etc/w.yaml") }.remote(text.as_bytes());
        let got = got.map_or_else(|error| error.to_string(), |remote| remote.url.to_string());
        assert!(got.contains(want), "{got}\nwant {want}");
    }

    #[test]
    fn a_file_names_server_and_credentials() {
        check(GOOD, "https://a:8443/x");
        check(&GOOD.replace("tls-server-name: b", "insecure-skip-tls-verify: true"), "https://a:8443/x");
    }

    #[test]
    fn users_are_logins_by_the_names_of_hosts() {
        let reader = Reader { file: Path::new("/etc/w.yaml") };
        let logins = reader.logins(GOOD.as_bytes()).expect("users");
        assert!(matches!(logins.find("any:1"), Some(Login { credentials: Credentials::Bearer(t), .. }) if t == "t"));
        let bad = reader.logins(GOOD.replace("token: t", "auth-provider: {}").as_bytes());
        let error = bad.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error, "/etc/w.yaml: users[0].user.auth-provider: it is not supported");
    }

    #[test]
    fn errors_name_file_and_field() {
        let cases = [
            ("kind: Config", "kind: Pod", "/etc/w.yaml: kind: expected Config, got \"Pod\""),
            ("current-context: c", "", "/etc/w.yaml: current-context: a context must be named"),
            ("current-context: c", "current-context: d", "current-context: context \"d\" not found"),
            ("cluster: k,", "cluster: z,", "contexts[0].context.cluster: cluster \"z\" not found"),
            ("user: u}", "user: z}", "contexts[0].context.user: user \"z\" not found"),
            ("https://a:8443/x", "a:8443", "clusters[0].cluster.server: "),
            ("tls-server-name: b", "proxy-url: b", "clusters[0].cluster.proxy-url: it is not supported"),
            ("tls-server-name: b", "certificate-authority: b", "cluster.certificate-authority: /etc/b: No such file"),
            ("tls-server-name: b", "certificate-authority-data: '!'", "certificate-authority-data: illegal base64"),
            ("tls-server-name: b", "certificate-authority-data: YQ==", "authority-data: no certificate found"),
            ("token: t", "exec: {command: x}", "users[0].user.exec: it is not supported"),
            ("token: t", "client-key-data: YQ==", "users[0].user.client-key-data: its certificate is missing"),
            ("kind: Config", "kind: [", "/etc/w.yaml: "),
        ];
        for (from, to, want) in cases {
            check(&GOOD.replace(from, to), want);
        }
    }
}
