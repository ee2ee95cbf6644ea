//! Delays the shutdown of the machine while pods are stopped: logind, called over D-Bus, delays it until a lock is
//! released, and announces it with a signal. Without logind, SIGPWR is used.

mod bus;
#[cfg(test)]
mod tests;
mod wire;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stdx::backoff::Backoff;
use stdx::sync::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use bus::{Bus, Error, Result};
use wire::{Kind, Message, Value};

const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const DROP_IN: &str = "99-kubelet.conf";
/// logind reloads its configuration at some time, without a signal.
const LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The address of the bus, and logind's configuration.
#[derive(Debug, Clone)]
pub struct Paths {
    pub(crate) bus: String,
    pub(crate) drop_ins: PathBuf,
}

impl Paths {
    /// The paths of a real machine.
    pub fn of_machine() -> Paths {
        let bus = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").unwrap_or_else(|_| bus::SYSTEM.to_string());
        Paths { bus, drop_ins: "/etc/systemd/logind.conf.d".into() }
    }
}

#[derive(Clone, Default)]
struct Lock(Arc<Mutex<Option<OwnedFd>>>);

impl Lock {
    fn held(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.0.lock()
    }
}

/// Waits for a shutdown of the machine, and delays it.
pub struct Inhibitor {
    goes_down: watch::Receiver<bool>,
    lock: Lock,
    task: JoinHandle<()>,
}

impl Inhibitor {
    /// Delays the shutdown for as long as pods need to terminate.
    pub fn start(places: Paths, period: Duration) -> Inhibitor {
        let (tell, goes_down) = watch::channel(false);
        let lock = Lock::default();
        let task = tokio::spawn(follow(places, period, tell, lock.clone()));
        Inhibitor { goes_down, lock, task }
    }

    /// Waits until a shutdown begins, or is cancelled. True if it begins.
    pub async fn changed(&mut self) -> bool {
        if self.goes_down.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.goes_down.borrow_and_update()
    }

    /// The machine may go down.
    pub fn release(&self) {
        self.lock.held().take();
    }
}

impl Drop for Inhibitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(places: Paths, period: Duration, tell: watch::Sender<bool>, lock: Lock) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut has_held = false;
    // A machine that shuts down stops its bus too, and is not delayed again.
    while !*tell.borrow() {
        match Session::open(&places, period).await {
            Ok(mut session) => {
                tracing::info!(seconds = period.as_secs(), "inhibitor lock taken: system shutdown waits for pods");
                has_held = true;
                backoff.reset();
                let Err(error) = session.listen(&tell, &lock).await;
                tracing::warn!(%error, "lost connection to logind, reconnecting");
            }
            Err(error) if !has_held => {
                tracing::warn!(%error, "no inhibitor lock: system shutdown does not wait for pods; send SIGPWR to start a graceful shutdown");
                return;
            }
            Err(error) => tracing::debug!(%error, "failed to call logind"),
        }
        tokio::time::sleep(backoff.next_pause()).await;
    }
}

/// A connection that receives logind's signals.
struct Session {
    bus: Bus,
    /// The unique name of logind's connection: only its signals count.
    owner: String,
    lock: Option<OwnedFd>,
}

impl Session {
    async fn open(places: &Paths, period: Duration) -> Result<Session> {
        let mut bus = Bus::connect(&places.bus).await?;
        // The first call starts logind.
        let delay = delay(&mut bus).await?;
        for rule in [
            format!(
                "type='signal',sender='{LOGIND}',path='{LOGIND_PATH}',interface='{MANAGER}',member='PrepareForShutdown'"
            ),
            format!("type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='{LOGIND}'"),
        ] {
            bus.call(Message { member: "AddMatch".into(), body: vec![Value::Text(rule)], ..bus::bus_call() }).await?;
        }
        let get_owner = Message { member: "GetNameOwner".into(), body: vec![Value::text(LOGIND)], ..bus::bus_call() };
        let owner = match bus.call(get_owner).await?.0.body.into_iter().next() {
            Some(Value::Text(owner)) => owner,
            _ => return Err(Error::Other("the bus does not say who logind is")),
        };
        if delay < period {
            lengthen(&mut bus, places, period).await;
        }
        let lock = Some(hold(&mut bus).await?);
        Ok(Session { bus, owner, lock })
    }

    async fn listen(
        &mut self,
        tell: &watch::Sender<bool>,
        lock: &Lock,
    ) -> std::result::Result<std::convert::Infallible, Error> {
        *lock.held() = self.lock.take();
        loop {
            let (message, _) = self.bus.next().await?;
            match judge(&message, &self.owner) {
                LogindSignal::GoesDown => drop(tell.send_if_modified(|known| !std::mem::replace(known, true))),
                LogindSignal::Stays => {
                    *lock.held() = Some(hold(&mut self.bus).await?);
                    tell.send_if_modified(|known| std::mem::replace(known, false));
                }
                LogindSignal::BeganAnew => return Err(Error::Other("logind has begun anew")),
                LogindSignal::Nothing => {}
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum LogindSignal {
    GoesDown,
    Stays,
    BeganAnew,
    Nothing,
}

/// Every client can send a signal; only the sender that the bus adds is trustworthy.
fn judge(message: &Message, owner: &str) -> LogindSignal {
    let is = |sender: &str, interface: &str, member: &str| {
        message.kind == Kind::Signal
            && (message.sender.as_str(), message.interface.as_str(), message.member.as_str())
                == (sender, interface, member)
    };
    if is("org.freedesktop.DBus", "org.freedesktop.DBus", "NameOwnerChanged") {
        let is_logind = message.body.first() == Some(&Value::text(LOGIND));
        return if is_logind { LogindSignal::BeganAnew } else { LogindSignal::Nothing };
    }
    match message.body.first() {
        Some(Value::Bool(goes)) if is(owner, MANAGER, "PrepareForShutdown") => {
            if *goes {
                LogindSignal::GoesDown
            } else {
                LogindSignal::Stays
            }
        }
        _ => LogindSignal::Nothing,
    }
}

fn to_logind(interface: &str, member: &str, body: Vec<Value>) -> Message {
    Message {
        destination: LOGIND.into(),
        path: LOGIND_PATH.into(),
        interface: interface.into(),
        member: member.into(),
        body,
        ..Message::default()
    }
}

/// How long logind allows the shutdown to be delayed.
async fn delay(bus: &mut Bus) -> Result<Duration> {
    let body = vec![Value::text(MANAGER), Value::text("InhibitDelayMaxUSec")];
    let (answer, _) = bus.call(to_logind("org.freedesktop.DBus.Properties", "Get", body)).await?;
    match answer.body.into_iter().next() {
        Some(Value::Variant(value)) => match *value {
            Value::Long(micros) => Ok(Duration::from_micros(micros)),
            _ => Err(Error::Other("logind does not say how long it waits")),
        },
        _ => Err(Error::Other("logind does not say how long it waits")),
    }
}

/// Takes the lock, which is released by closing it.
async fn hold(bus: &mut Bus) -> Result<OwnedFd> {
    let words = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
    let (answer, files) = bus.call(to_logind(MANAGER, "Inhibit", words.map(Value::text).to_vec())).await?;
    let at = match answer.body.first() {
        Some(Value::Handle(at)) => usize::try_from(*at).unwrap_or(usize::MAX),
        _ => return Err(Error::Other("logind gives no lock")),
    };
    files.into_iter().nth(at).ok_or(Error::Other("logind gives no lock"))
}

/// Extends logind's delay to the time that pods need. If that fails, less time is better than none.
async fn lengthen(bus: &mut Bus, places: &Paths, period: Duration) {
    let done = async {
        write_drop_in(places, period)?;
        read_anew(bus).await?;
        for _ in 0..LOOKS {
            if delay(bus).await? >= period {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Error::Other("it is configured otherwise"))
    };
    if let Err(error) = done.await {
        tracing::warn!(%error, seconds = period.as_secs(), "logind's InhibitDelayMaxSec is shorter than the shutdown grace period");
    }
}

fn write_drop_in(places: &Paths, period: Duration) -> std::io::Result<()> {
    std::fs::create_dir_all(&places.drop_ins)?;
    std::fs::write(places.drop_ins.join(DROP_IN), drop_in(period))
}

fn drop_in(period: Duration) -> String {
    let seconds = period.as_secs() + u64::from(period.subsec_nanos() > 0);
    format!("# Of the kubelet: its pods may take so long to end.\n[Login]\nInhibitDelayMaxSec={seconds}\n")
}

async fn read_anew(bus: &mut Bus) -> Result<()> {
    let hang_up = Value::Int(1);
    let call = Message {
        destination: "org.freedesktop.systemd1".into(),
        path: "/org/freedesktop/systemd1".into(),
        interface: "org.freedesktop.systemd1.Manager".into(),
        member: "KillUnit".into(),
        body: vec![Value::text("systemd-logind.service"), Value::text("all"), hang_up],
        ..Message::default()
    };
    bus.call(call).await.map(drop)
}
