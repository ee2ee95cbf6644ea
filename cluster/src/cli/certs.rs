//! `tiphys certs`: lists the certificates of a data directory, and rotates them. A running cluster reloads rotated
//! ones.

use std::path::Path;
use std::time::SystemTime;

use super::table::aligned;
use crate::error::{Error, Result};
use crate::pki::subjects::CAS;
use crate::pki::{CertificateAndKey, Description, Pki, Subject, described};

/// A certificate of the directory.
struct Entry {
    file: String,
    pair: CertificateAndKey,
    description: Description,
}

/// A table of all of them.
pub fn list(data_dir: &Path) -> Result<String> {
    let pki = open(data_dir)?;
    let mut rows = vec![["NAME", "SUBJECT", "ISSUER", "EXPIRES", "RENEWED", "NAMES"].map(str::to_string).to_vec()];
    for entry in entries(&pki)? {
        let Description { common_name, organization, issuer, not_after, .. } = &entry.description;
        let group = if organization.is_empty() { String::new() } else { format!(" ({organization})") };
        let renewal = date(pki.renewal(&entry.description));
        let names = entry.description.alternative_names();
        rows.push(vec![entry.file, format!("{common_name}{group}"), issuer.clone(), date(*not_after), renewal, names]);
    }
    Ok(aligned(rows.into_iter()).iter().map(|line| format!("{line}\n")).collect())
}

/// The certificates with the times at which they expire.
pub(super) fn expirations(data_dir: &Path) -> Result<Vec<(String, SystemTime)>> {
    let pki = open(data_dir)?;
    Ok(entries(&pki)?.into_iter().map(|entry| (entry.file, entry.description.not_after)).collect())
}

/// Issues new certificates; returns their names.
pub fn rotate(data_dir: &Path, names: &[String], all: bool) -> Result<Vec<String>> {
    let pki = open(data_dir)?;
    let entries = entries(&pki)?;
    let is_ca = |entry: &&Entry| CAS.iter().any(|(file, _)| *file == entry.file);
    if let Some(name) = names.iter().find(|name| !entries.iter().any(|entry| entry.file == **name)) {
        return Err(Error::Flags(vec![format!("there is no certificate {name:?} in {}", pki.dir().display())]));
    }
    let named = |entry: &&Entry| names.contains(&entry.file);
    let mut made = Vec::new();
    for entry in entries.iter().filter(is_ca).filter(named) {
        pki.new_ca(&entry.file, &entry.description.common_name, &entry.pair.certificate)?;
        made.push(entry.file.clone());
    }
    for entry in entries.iter().filter(|entry| !is_ca(entry)) {
        let subject = subject(entry);
        // Everything that a rotated CA has signed is rotated with it.
        if all || named(&entry) || made.iter().any(|file| file == subject.ca) {
            let ca = pki.read(subject.ca)?.unwrap_or_default();
            pki.issue(&ca, &subject)?;
            made.push(entry.file.clone());
        }
    }
    Ok(made)
}

fn open(data_dir: &Path) -> Result<Pki> {
    let dir = data_dir.join("pki");
    if !dir.is_dir() {
        return Err(Error::Flags(vec![format!("{} is not a directory of certificates", dir.display())]));
    }
    Pki::open(dir)
}

fn entries(pki: &Pki) -> Result<Vec<Entry>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(pki.dir()).map_err(Error::file(pki.dir()))? {
        let path = entry.map_err(Error::file(pki.dir()))?.path();
        if path.extension().is_some_and(|end| end == "crt") {
            files.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    files.sort_unstable();
    let mut entries = Vec::new();
    for file in files {
        if let Some(pair) = pki.read(&file)? {
            entries.push(Entry { description: described(&pair)?, file, pair });
        }
    }
    Ok(entries)
}

/// The subject of an existing certificate.
fn subject(entry: &Entry) -> Subject {
    let description = &entry.description;
    let by_issuer = CAS.iter().find(|(_, name)| *name == description.issuer);
    Subject {
        file: entry.file.clone(),
        ca: by_issuer.map_or("ca", |(file, _)| *file),
        common_name: description.common_name.clone(),
        organization: description.organization.clone(),
        names: description.names.clone(),
        addresses: description.addresses.clone(),
    }
}

fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    api::time::format_seconds(i64::try_from(seconds).unwrap_or(i64::MAX)).chars().take("2026-01-01".len()).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::pki::subjects;

    #[test]
    fn lists_and_rotates_certificates() {
        let dir = tempfile::tempdir().expect("a directory");
        let pki = Pki::open(dir.path().join("pki")).expect("a directory");
        let subjects = subjects::subjects("n", vec!["a.example".to_string()], vec![IpAddr::from([10, 0, 0, 1])]);
        subjects::ensure(&pki, &subjects).expect("certificates");
        let text = list(dir.path()).expect("a list");
        let words = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a line");
            line.split_whitespace().map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(words("apiserver").last().map(String::as_str), Some("a.example,10.0.0.1"));
        assert_eq!(words("admin")[1..4], ["kubernetes-admin", "(system:masters)", "kubernetes"]);
        assert_eq!(words("front-proxy-client")[2], "front-proxy-ca");

        let read = |file: &str| pki.read(file).expect("a pair").expect("a pair").certificate;
        let before = (read("admin"), read("apiserver"), read("ca"));
        let named =
            |names: &[&str]| rotate(dir.path(), &names.iter().map(ToString::to_string).collect::<Vec<_>>(), false);
        assert_eq!(named(&["admin"]).expect("a rotation"), ["admin"]);
        assert!(read("admin") != before.0 && read("apiserver") == before.1 && read("ca") == before.2);
        let made = named(&["front-proxy-ca"]).expect("a rotation");
        assert_eq!(made, ["front-proxy-ca", "front-proxy-client"]);
        assert_eq!(rotate(dir.path(), &[], true).expect("a rotation").len(), subjects.len());
        assert!(read("apiserver") != before.1 && read("ca") == before.2);
        // Rotated certificates are the same as those of a start, which keeps them.
        let (admin, serving) = (read("admin"), read("apiserver"));
        subjects::ensure(&pki, &subjects).expect("certificates");
        assert!(read("admin") == admin && read("apiserver") == serving);
        let error = named(&["nobody"]).expect_err("an error").describe();
        assert!(error.contains("there is no certificate \"nobody\""), "{error}");
    }
}
