//! A real bus, and a fake logind.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::*;

#[test]
fn trusts_only_logind_and_the_bus() {
    let prepare = |sender: &str, body: Value| Message {
        kind: Kind::Signal,
        sender: sender.into(),
        interface: MANAGER.into(),
        member: "PrepareForShutdown".into(),
        body: vec![body],
        ..Message::default()
    };
    let owner = |sender: &str, name: &str| Message {
        kind: Kind::Signal,
        sender: sender.into(),
        interface: "org.freedesktop.DBus".into(),
        member: "NameOwnerChanged".into(),
        body: vec![Value::text(name)],
        ..Message::default()
    };
    let cases = [
        (prepare(":1.7", Value::Bool(true)), LogindSignal::GoesDown),
        (prepare(":1.7", Value::Bool(false)), LogindSignal::Stays),
        (prepare(":1.8", Value::Bool(true)), LogindSignal::Nothing),
        (prepare(":1.7", Value::Uint(1)), LogindSignal::Nothing),
        (Message { kind: Kind::Call, ..prepare(":1.7", Value::Bool(true)) }, LogindSignal::Nothing),
        (Message { member: "Other".into(), ..prepare(":1.7", Value::Bool(true)) }, LogindSignal::Nothing),
        (owner("org.freedesktop.DBus", LOGIND), LogindSignal::BeganAnew),
        (owner("org.freedesktop.DBus", "org.example"), LogindSignal::Nothing),
        (owner(":1.8", LOGIND), LogindSignal::Nothing),
    ];
    for (message, expected) in cases {
        assert_eq!(judge(&message, ":1.7"), expected, "{message:?}");
    }
}

#[test]
fn rounds_the_delay_up_to_seconds() {
    for (millis, expected) in [(30_000, "=30\n"), (30_001, "=31\n"), (0, "=0\n")] {
        assert!(drop_in(Duration::from_millis(millis)).ends_with(expected), "{millis}");
    }
}

/// A bus daemon on a separate socket; it is stopped on drop.
struct Daemon {
    process: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        let config = format!(
            "<busconfig><type>custom</type><listen>unix:path={}/bus</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow send_destination=\"*\"/><allow receive_sender=\"*\"/>\
             <allow own=\"*\"/><allow user=\"*\"/></policy></busconfig>",
            dir.path().display()
        );
        std::fs::write(dir.path().join("config"), config).expect("a file");
        let file = format!("--config-file={}/config", dir.path().display());
        let mut process = Command::new("dbus-daemon")
            .args([file.as_str(), "--nofork", "--nopidfile", "--print-address"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon is there (package dbus)");
        let mut address = String::new();
        let first_line = BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut address);
        assert!(first_line.is_ok_and(|count| count > 0), "the bus is up");
        Daemon { process, dir }
    }

    fn places(&self) -> Paths {
        Paths { bus: format!("unix:path={}/bus", self.dir.path().display()), drop_ins: self.dir.path().join("conf.d") }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A fake logind: the locks that were taken, until they are released.
struct Logind {
    signals: mpsc::Sender<bool>,
    locks: mpsc::Receiver<(Vec<Value>, pipe::Receiver)>,
}

impl Logind {
    /// A logind whose delay is five seconds until it is changed.
    async fn start(places: &Paths) -> Logind {
        let mut bus = Bus::connect(&places.bus).await.expect("a bus");
        for name in [LOGIND, "org.freedesktop.systemd1"] {
            let body = vec![Value::text(name), Value::Uint(4)];
            let answer =
                bus.call(Message { member: "RequestName".into(), body, ..bus::bus_call() }).await.expect("a name");
            assert_eq!(answer.0.body, [Value::Uint(1)], "it is its own");
        }
        let (signals, requests) = mpsc::channel(4);
        let (taken, locks) = mpsc::channel(4);
        tokio::spawn(serve(bus, places.drop_ins.join(DROP_IN), requests, taken));
        Logind { signals, locks }
    }

    async fn lock(&mut self) -> pipe::Receiver {
        let (arguments, lock) = self.locks.recv().await.expect("a lock is taken");
        let words = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"];
        assert_eq!(arguments, words.map(Value::text));
        lock
    }
}

async fn serve(
    mut bus: Bus,
    conf: PathBuf,
    mut requests: mpsc::Receiver<bool>,
    taken: mpsc::Sender<(Vec<Value>, pipe::Receiver)>,
) {
    let mut seconds = 5;
    loop {
        let call = tokio::select! {
            heard = bus.next() => heard.expect("a message").0,
            Some(goes) = requests.recv() => {
                bus.send(prepares(goes), &[]).await.expect("it is sent");
                continue;
            }
        };
        let (body, files) = match call.member.as_str() {
            "Get" => (vec![Value::Variant(Box::new(Value::Long(seconds * 1_000_000)))], Vec::new()),
            "KillUnit" => {
                assert_eq!(call.body, [Value::text("systemd-logind.service"), Value::text("all"), Value::Int(1)]);
                let text = std::fs::read_to_string(&conf).expect("a file");
                seconds = text.trim().rsplit('=').next().and_then(|last| last.parse().ok()).expect("a number");
                (Vec::new(), Vec::new())
            }
            "Inhibit" => {
                let (sender, receiver) = pipe::pipe().expect("a pipe");
                taken.send((call.body.clone(), receiver)).await.expect("the test is there");
                (vec![Value::Handle(0)], vec![sender.into_nonblocking_fd().expect("a file")])
            }
            _ => continue,
        };
        let (handles, reply_to) = (u32::try_from(files.len()).expect("few"), Some(call.serial));
        let answer =
            Message { kind: Kind::Return, reply_to, destination: call.sender, handles, body, ..Message::default() };
        bus.send(answer, &files).await.expect("it is sent");
    }
}

fn prepares(goes: bool) -> Message {
    Message {
        kind: Kind::Signal,
        path: LOGIND_PATH.into(),
        interface: MANAGER.into(),
        member: "PrepareForShutdown".into(),
        body: vec![Value::Bool(goes)],
        ..Message::default()
    }
}

/// Waits until a lock is released.
async fn is_free(mut lock: pipe::Receiver) {
    assert_eq!(lock.read(&mut [0]).await.expect("a pipe"), 0);
}

fn is_held(lock: &pipe::Receiver) -> bool {
    matches!(lock.try_read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn delays_the_shutdown_until_pods_have_stopped() {
    let daemon = Daemon::start();
    let places = daemon.places();
    let mut logind = Logind::start(&places).await;
    let mut inhibitor = Inhibitor::start(places.clone(), Duration::from_secs(30));
    let lock = logind.lock().await;
    let conf = std::fs::read_to_string(places.drop_ins.join(DROP_IN)).expect("a file");
    assert!(conf.ends_with("[Login]\nInhibitDelayMaxSec=30\n"), "{conf}");
    // Every client can send the signal; only logind's counts.
    let mut other = Bus::connect(&places.bus).await.expect("a bus");
    other.send(prepares(true), &[]).await.expect("it is sent");
    logind.signals.send(true).await.expect("it is there");
    assert!(inhibitor.changed().await);
    assert!(is_held(&lock), "pods end");
    inhibitor.release();
    is_free(lock).await;
    logind.signals.send(false).await.expect("it is there");
    assert!(!inhibitor.changed().await, "it does not go down after all");
    let lock = logind.lock().await;
    assert!(is_held(&lock), "it is held up the next time too");
    drop(inhibitor);
    is_free(lock).await;
}

#[tokio::test]
async fn does_not_delay_without_bus_or_logind() {
    let daemon = Daemon::start();
    let nowhere = Paths { bus: "unix:path=/nowhere/bus".into(), ..daemon.places() };
    for places in [nowhere, daemon.places()] {
        let (tell, goes_down) = watch::channel(false);
        follow(places, Duration::from_secs(30), tell, Lock::default()).await;
        assert!(!*goes_down.borrow());
    }
}
