use std::os::unix::fs::PermissionsExt;

use stdx::sync::Mutex;

use super::*;

/// A directory with a clock that the test sets.
struct Fixture {
    _dir: tempfile::TempDir,
    pki: Pki,
    time: Arc<Mutex<SystemTime>>,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().expect("a directory");
        let time = Arc::new(Mutex::new(SystemTime::now()));
        let clock = time.clone();
        let clock = Arc::new(move || *clock.lock());
        let lifetimes = Lifetimes { ca: DAY * 300, leaf: DAY * 30 };
        let pki = Pki::with_clock(dir.path().join("pki"), lifetimes, clock).expect("a directory");
        Fixture { _dir: dir, pki, time }
    }

    fn pass(&self, days: u32) {
        *self.time.lock() += DAY * days;
    }

    /// CA and leaf, as a start reads or issues them.
    fn pair(&self) -> (CertificateAndKey, CertificateAndKey) {
        let ca = self.pki.ensure_ca("ca", "kubernetes").expect("a CA bundle");
        let leaf = self.pki.leaf(&ca, &subject()).expect("a leaf");
        (ca, leaf)
    }
}

const DAY: Duration = Duration::from_secs(86_400);

fn subject() -> Subject {
    Subject {
        file: "apiserver".to_string(),
        ca: "ca",
        common_name: "kube-apiserver".to_string(),
        organization: "o".to_string(),
        names: vec!["a.example".to_string(), "b.example".to_string()],
        addresses: vec![IpAddr::from([10, 0, 0, 1])],
    }
}

#[test]
fn renews_leaves_after_two_thirds_of_their_time() {
    let fixture = Fixture::new();
    let (ca, leaf) = fixture.pair();
    fixture.pass(19);
    assert!(fixture.pair() == (ca.clone(), leaf.clone()));
    fixture.pass(2);
    let (same, renewed) = fixture.pair();
    assert!(same == ca && renewed.certificate != leaf.certificate && renewed.key != leaf.key);
    let left = described(&renewed).expect("a certificate").not_after.duration_since(fixture.pki.now());
    assert!(left.expect("time") > DAY * 29);
}

#[test]
fn renews_cas_with_the_same_key() {
    let fixture = Fixture::new();
    let (ca, _) = fixture.pair();
    fixture.pass(201);
    let (renewed, leaf) = fixture.pair();
    assert!(renewed.certificate != ca.certificate && renewed.key == ca.key);
    assert!(described(&leaf).expect("a leaf").fits(&subject(), &described(&ca).expect("the old one")));
}

#[test]
fn reissues_leaves_for_another_ca_or_names() {
    let fixture = Fixture::new();
    let (ca, leaf) = fixture.pair();
    let mut other = subject();
    other.names.push("c.example".to_string());
    let named = fixture.pki.leaf(&ca, &other).expect("a leaf");
    assert_eq!(described(&named).expect("a leaf").alternative_names(), "a.example,b.example,c.example,10.0.0.1");
    let next = fixture.pki.new_ca("ca", "kubernetes", &ca.certificate).expect("a CA bundle");
    assert_eq!(certificates(&next).expect("a bundle").len(), 2);
    let signed = fixture.pki.leaf(&next, &subject()).expect("a leaf");
    assert!(signed.certificate != leaf.certificate);
    assert!(described(&signed).expect("a leaf").fits(&subject(), &described(&next).expect("the new one")));
}

#[test]
fn files_are_private_and_repaired() {
    let fixture = Fixture::new();
    let (_, leaf) = fixture.pair();
    for entry in fs::read_dir(fixture.pki.dir()).expect("a directory") {
        let entry = entry.expect("a file");
        let mode = entry.metadata().expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
    fs::write(&leaf.path, "half of a cert").expect("a file");
    assert!(fixture.pair().1.certificate != leaf.certificate);
    fs::write(fixture.pki.path("ca", "crt"), "half of a cert").expect("a file");
    let error = fixture.pki.ensure_ca("ca", "kubernetes").err().expect("an error");
    assert!(error.describe().contains("ca.crt"), "{}", error.describe());
}
