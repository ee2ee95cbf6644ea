//! What a running command works with: its arguments, the configuration, the client, the server's resources, and the
//! standard streams. Everything that costs time is opened when it is first used.

use std::cell::{Cell, OnceCell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell as AsyncCell;

use crate::discovery::{Cache, Mapper, Resource, read_groups};
use crate::error::{Error, Result, message};
use crate::flags::{Kind, Values};
use crate::kubeconfig::{self, Config, Connection, Impersonation, Overrides, Paths};
use crate::transport::{Client, Options, PluginPolicy, Request, RequestLog, Warnings};

/// The version of upstream whose behaviour this client has.
pub(crate) const CLIENT_VERSION: &str = "v1.37.0";
/// The exit code after SIGPIPE.
const BROKEN_PIPE: u8 = 141;
/// The largest object that is read from the standard input.
const MAX_INPUT: u64 = 1024 * 1024 * 1024;

/// The context of a command.
pub(crate) struct Context {
    /// `kubectl create deployment`.
    pub(crate) path: String,
    pub(crate) args: Vec<String>,
    /// How many arguments come before `--`.
    pub(crate) dash: Option<usize>,
    pub(crate) flags: Values,
    /// Which credential plugins the user allows.
    pub(crate) plugin_policy: PluginPolicy,
    out: RefCell<std::io::BufWriter<std::io::Stdout>>,
    written: Cell<usize>,
    warnings: Warnings,
    config: OnceCell<Config>,
    connection: OnceCell<Connection>,
    client: AsyncCell<Arc<Client>>,
    mapper: RefCell<Option<(Rc<Mapper>, bool)>>,
}

impl Context {
    /// A context for a parsed command line.
    pub(crate) fn new(path: String, args: Vec<String>, dash: Option<usize>, flags: Values) -> Context {
        Context {
            path,
            args,
            dash,
            flags,
            plugin_policy: PluginPolicy::default(),
            out: RefCell::new(std::io::BufWriter::with_capacity(64 * 1024, std::io::stdout())),
            written: Cell::new(0),
            warnings: Warnings::default(),
            config: OnceCell::new(),
            connection: OnceCell::new(),
            client: AsyncCell::new(),
            mapper: RefCell::new(None),
        }
    }

    /// Writes to the standard output.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        self.write(text.as_bytes())
    }

    /// Writes to the standard output.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<()> {
        self.written.set(self.written.get() + bytes.len());
        self.out.borrow_mut().write_all(bytes).map_err(out_error)
    }

    /// How many bytes were written to the standard output.
    pub(crate) fn written(&self) -> usize {
        self.written.get()
    }

    /// Shows everything that is written: before waiting for something.
    pub(crate) fn flush(&self) -> Result<()> {
        self.out.borrow_mut().flush().map_err(out_error)
    }

    /// Writes a line to the standard error stream.
    pub(crate) fn note(&self, text: &str) {
        let _ = self.flush();
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "{text}");
    }

    /// Writes a warning, once.
    pub(crate) fn warn(&self, text: &str) {
        let _ = self.flush();
        self.warnings.add(text);
    }

    /// How many different warnings there were.
    pub(crate) fn warning_count(&self) -> usize {
        self.warnings.count()
    }

    /// The whole standard input.
    pub(crate) fn read_stdin(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(MAX_INPUT).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// An error of the command line of this command.
    pub(crate) fn usage_error<T>(&self, text: &str) -> Result<T> {
        message(format!("{text}\nSee '{} -h' for help and examples", self.path))
    }

    /// Where the kubeconfig is.
    pub(crate) fn paths(&self) -> Paths {
        kubeconfig::environment_paths(self.flags.str("kubeconfig"))
    }

    /// The merged kubeconfig.
    pub(crate) fn config(&self) -> Result<&Config> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let config = kubeconfig::load(&self.paths())?;
        Ok(self.config.get_or_init(|| config))
    }

    /// The parameters of the connection.
    pub(crate) fn connection(&self) -> Result<&Connection> {
        if let Some(connection) = self.connection.get() {
            return Ok(connection);
        }
        let connection = kubeconfig::connection(self.config()?, &self.overrides()?)?;
        Ok(self.connection.get_or_init(|| connection))
    }

    fn overrides(&self) -> Result<Overrides> {
        let text = |name: &str| self.flags.str(name).to_string();
        let switch = |name: &str| self.flags.changed(name).then(|| self.flags.bool(name));
        let mut extra = Vec::new();
        for pair in self.flags.list("as-user-extra") {
            let Some((key, value)) = pair.split_once('=') else {
                return message(format!("invalid --as-user-extra {pair:?}: want KEY=VALUE"));
            };
            extra.push((key.to_string(), value.to_string()));
        }
        let impersonation =
            Impersonation { user: text("as"), uid: text("as-uid"), groups: self.flags.list("as-group"), extra };
        Ok(Overrides {
            context: text("context"),
            cluster: text("cluster"),
            // A binding's subjects have a flag with the same name, which is a list.
            user: if self.flags.kind("user") == Some(Kind::Text) { text("user") } else { String::new() },
            namespace: text("namespace"),
            server: text("server"),
            tls_server_name: text("tls-server-name"),
            insecure: switch("insecure-skip-tls-verify"),
            certificate_authority: text("certificate-authority"),
            client_certificate: text("client-certificate"),
            client_key: text("client-key"),
            token: text("token"),
            username: text("username"),
            password: text("password"),
            disable_compression: switch("disable-compression"),
            impersonation,
        })
    }

    /// The namespace, and whether a flag names it.
    pub(crate) fn namespace(&self) -> Result<(String, bool)> {
        Ok((self.connection()?.namespace.clone(), self.flags.changed("namespace")))
    }

    /// The client.
    pub(crate) async fn client(&self) -> Result<&Arc<Client>> {
        self.client
            .get_or_try_init(async || {
                let options = Options {
                    log: RequestLog { verbosity: self.flags.int("v") },
                    warnings: self.warnings.clone(),
                    timeout: self.request_timeout()?,
                    command: self.path.clone(),
                    plugin_policy: self.plugin_policy.clone(),
                    keep_alive: Some(self.flags.duration("keepalive")).filter(|period| !period.is_zero()),
                    forwards_paths: self.flags.has("append-server-path") && !self.flags.bool("append-server-path"),
                };
                let client = Client::new(self.connection()?, options).await?;
                if self.flags.bool("match-server-version") {
                    check_version(&client).await?;
                }
                Ok(client)
            })
            .await
    }

    fn request_timeout(&self) -> Result<Option<Duration>> {
        let text = self.flags.str("request-timeout");
        if let Ok(seconds) = text.parse::<u64>() {
            return Ok((seconds > 0).then(|| Duration::from_secs(seconds)));
        }
        match api::time::parse_duration(text) {
            Ok(nanos) => Ok(u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)),
            Err(_) => message(
                "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a \
                 corresponding time unit (e.g. 1s | 2m | 3h)",
            ),
        }
    }

    fn cache(&self) -> Result<Cache> {
        let root = match self.flags.str("cache-dir") {
            "" => kubeconfig::home().join(".kube/cache").to_string_lossy().into_owned(),
            directory => directory.to_string(),
        };
        Ok(Cache::new(&root, &self.connection()?.server.url()))
    }

    /// The server's resources, from the cache if it may be used.
    pub(crate) async fn mapper(&self) -> Result<Rc<Mapper>> {
        if let Some((mapper, _)) = &*self.mapper.borrow() {
            return Ok(mapper.clone());
        }
        self.load_mapper(true).await
    }

    /// The server's resources as they are now.
    pub(crate) async fn fresh_mapper(&self) -> Result<Rc<Mapper>> {
        if let Some((mapper, true)) = &*self.mapper.borrow() {
            return Ok(mapper.clone());
        }
        self.load_mapper(false).await
    }

    /// Forgets what the server had: a command has just created types.
    pub(crate) fn forget_mapper(&self) {
        if let Some((_, is_fresh)) = &mut *self.mapper.borrow_mut() {
            *is_fresh = false;
        }
    }

    async fn load_mapper(&self, may_be_cached: bool) -> Result<Rc<Mapper>> {
        let client = self.client().await?;
        let (groups, is_fresh) = read_groups(client, &self.cache()?, may_be_cached).await?;
        let mapper = Rc::new(Mapper::new(groups));
        *self.mapper.borrow_mut() = Some((mapper.clone(), is_fresh));
        Ok(mapper)
    }

    /// The resource that the user names. One that the cache does not have may be new.
    pub(crate) async fn resolve(&self, text: &str) -> Result<Resource> {
        if let Ok(found) = self.mapper().await?.resolve(text) {
            return Ok(found.clone());
        }
        let mapper = self.fresh_mapper().await?;
        match mapper.resolve(text) {
            Ok(found) => Ok(found.clone()),
            Err(_) => {
                if let Some(nearest) = mapper.nearest(text) {
                    self.note(&format!("hint: did you mean {nearest:?}?"));
                }
                Err(Error::NoResource(text.to_string()))
            }
        }
    }

    /// The resource of an object.
    pub(crate) async fn resource_of(&self, api_version: &str, kind: &str) -> Result<Resource> {
        if let Ok(found) = self.mapper().await?.of_kind(api_version, kind) {
            return Ok(found.clone());
        }
        let mapper = self.fresh_mapper().await?;
        mapper.of_kind(api_version, kind).cloned().map_err(|error| Error::new(error.to_string()))
    }
}

/// `--match-server-version`. Metadata after a plus is not part of a version.
async fn check_version(client: &Client) -> Result<()> {
    let server = client.tree(&Request::get("/version")).await?;
    let version = server.str("gitVersion");
    if version.split('+').next() == Some(CLIENT_VERSION) {
        return Ok(());
    }
    message(format!("server version ({version}) differs from client version ({CLIENT_VERSION})"))
}

fn out_error(error: std::io::Error) -> Error {
    if error.kind() == ErrorKind::BrokenPipe { Error::Exit(BROKEN_PIPE) } else { Error::Io(error) }
}
