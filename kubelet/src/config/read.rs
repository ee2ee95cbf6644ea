//! Merges files and flags, and collects all errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{Tree, tree};

use super::error::InvalidValue;
use super::eviction::{Amount, DEFAULT_HARD, SIGNALS, Threshold};
use super::fields::{FIELDS, Field, FieldSetter};
use super::values::{boolean, duration, int, list, map, text};
use super::{Config, Overlay};

/// Upstream's defaults, as a KubeletConfiguration.
const DEFAULTS: &str = include_str!("defaults.yaml");
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// A configuration, and how it is shown.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The parsed configuration.
    pub config: Config,
    /// The KubeletConfiguration that is in effect.
    pub shown: Tree,
}

/// Reads a file, the drop-in files of a directory in the order of their names, and flags; later ones override earlier
/// ones. An error is a list of `FIELD: what is wrong`, with the file's name.
pub fn read_file(file: Option<&Path>, dir: Option<&Path>, flags: &Overlay) -> Result<Settings, Vec<String>> {
    let mut whole = tree! {};
    let mut errors = Vec::new();
    for path in file.map(Path::to_path_buf).into_iter().chain(drop_ins(dir)?) {
        match one(&path) {
            Ok(tree) => whole = api::patch::merge(whole, &tree),
            Err(whys) => errors.extend(whys.into_iter().map(|why| format!("{}: {why}", path.display()))),
        }
    }
    if errors.is_empty() { read(&whole, flags) } else { Err(errors) }
}

/// The drop-in files of a directory, which end in `.conf`.
fn drop_ins(dir: Option<&Path>) -> Result<Vec<PathBuf>, Vec<String>> {
    let Some(dir) = dir else { return Ok(Vec::new()) };
    let entries = std::fs::read_dir(dir).map_err(|error| vec![format!("{}: {error}", dir.display())])?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.is_file() && path.extension().is_some_and(|end| end == "conf"));
    paths.sort();
    Ok(paths)
}

fn one(path: &Path) -> Result<Tree, Vec<String>> {
    let bytes = std::fs::read(path).map_err(|error| vec![error.to_string()])?;
    let tree = api::yaml::decode(&bytes).map_err(|error| vec![error.to_string()])?;
    let (version, kind) = (tree.str("apiVersion"), tree.str("kind"));
    if version != API_VERSION || kind != KIND {
        return Err(vec![format!("it must be a {KIND} of {API_VERSION}, not a {kind:?} of {version:?}")]);
    }
    // Each file is checked separately, and an error names its file.
    let errors = apply(&tree, &mut Config::default());
    if errors.is_empty() { Ok(tree) } else { Err(errors) }
}

/// Reads a KubeletConfiguration, with flags merged over it.
pub fn read(tree: &Tree, flags: &Overlay) -> Result<Settings, Vec<String>> {
    let said = replaced(tree, &flags.0);
    let mut config = Config::default();
    let mut errors = apply(&said, &mut config);
    errors.extend(apply_combined_settings(&said, &mut config));
    errors.extend(super::check::check(&config));
    if !errors.is_empty() {
        return Err(errors);
    }
    let defaults = api::yaml::decode(DEFAULTS.as_bytes()).unwrap_or_default();
    Ok(Settings { config, shown: api::patch::merge(defaults, &said) })
}

/// A flag replaces a whole field, even if it is a map.
fn replaced(tree: &Tree, flags: &Tree) -> Tree {
    let mut said = tree.clone();
    for field in FIELDS {
        let value = flags.at(field.path);
        if value.is_null() {
            continue;
        }
        match field.path.rsplit_once('.') {
            Some((parent, name)) => said.child(parent).set(name, value.clone()),
            None => said.set(field.path, value.clone()),
        }
    }
    said
}

fn apply(tree: &Tree, config: &mut Config) -> Vec<String> {
    let mut errors = Vec::new();
    unknown(tree, "", &mut errors);
    for field in FIELDS {
        let value = tree.at(field.path);
        if value.is_null() || field.zero_is_unset && is_zero(value) {
            continue;
        }
        errors.extend(set_field(field, value, config).err().map(|error| error.at(field.path).to_string()));
    }
    errors
}

fn set_field(field: &Field, value: &Tree, config: &mut Config) -> Result<(), InvalidValue> {
    match field.setter {
        FieldSetter::Set(set) => set(config, value),
        FieldSetter::Only(values, why) => {
            let said = plain(value);
            if said.is_some_and(|said| values.contains(&said.as_str())) {
                Ok(())
            } else {
                Err(InvalidValue::new(why.to_string()))
            }
        }
        FieldSetter::Together => Ok(()),
    }
}

fn plain(value: &Tree) -> Option<String> {
    match value {
        Tree::Bool(value) => Some(value.to_string()),
        Tree::Int(value) => Some(value.to_string()),
        Tree::Str(value) => Some(value.to_string()),
        _ => None,
    }
}

fn is_zero(value: &Tree) -> bool {
    match value {
        Tree::Int(number) => *number == 0,
        Tree::Str(text) => text.is_empty() || api::time::parse_duration(text) == Ok(0),
        Tree::List(items) => items.is_empty(),
        Tree::Map(map) => map.is_empty(),
        _ => false,
    }
}

/// Fields that no KubeletConfiguration has.
fn unknown(tree: &Tree, prefix: &str, errors: &mut Vec<String>) {
    let Some(map) = tree.as_map() else {
        if !tree.is_null() {
            errors.push(format!("{}: must be an object", prefix.trim_end_matches('.')));
        }
        return;
    };
    for (key, value) in map.iter() {
        let path = format!("{prefix}{key}");
        let below = format!("{path}.");
        if FIELDS.iter().any(|field| field.path == path) {
            continue;
        }
        match FIELDS.iter().any(|field| field.path.starts_with(&below)) {
            true => unknown(value, &below, errors),
            false => errors.push(format!("{path}: unknown field")),
        }
    }
}

type CombinedSetting = (&'static str, fn(&Tree, &mut Config) -> Result<(), InvalidValue>);

/// Settings that depend on several fields, each with the field that errors name by default.
const PARTS: [CombinedSetting; 5] = [
    ("nodeStatusReportFrequency", report_frequency),
    ("kubeAPIQPS", requests),
    ("maxParallelImagePulls", pulls),
    ("shutdownGracePeriodByPodPriority", shutdown),
    ("evictionHard", thresholds),
];

fn apply_combined_settings(tree: &Tree, config: &mut Config) -> Vec<String> {
    PARTS.iter().filter_map(|(path, read)| Some(read(tree, config).err()?.or_at(path).to_string())).collect()
}

/// A field that may be missing.
fn read_optional<T>(
    tree: &Tree,
    path: &str,
    read: impl Fn(&Tree) -> Result<T, InvalidValue>,
) -> Result<Option<T>, InvalidValue> {
    let value = tree.at(path);
    if value.is_null() { Ok(None) } else { read(value).map(Some).map_err(|error| error.at(path)) }
}

/// The report frequency defaults to a configured update frequency.
fn report_frequency(tree: &Tree, config: &mut Config) -> Result<(), InvalidValue> {
    let said = read_optional(tree, "nodeStatusReportFrequency", duration)?.filter(|said| !said.is_zero());
    let made = read_optional(tree, "nodeStatusUpdateFrequency", duration)?.filter(|made| !made.is_zero());
    if let Some(frequency) = said.or(made) {
        config.node_status_report_frequency = frequency;
    }
    Ok(())
}

/// A limit of 0 is none.
fn requests(tree: &Tree, config: &mut Config) -> Result<(), InvalidValue> {
    let burst =
        |path: &str| read_optional(tree, path, int::<u32>).map(|burst| burst.filter(|burst| *burst > 0).unwrap_or(100));
    let rate = read_optional(tree, "kubeAPIQPS", int::<u32>)?.unwrap_or(50);
    config.requests.limit = (rate > 0).then_some((f64::from(rate), burst("kubeAPIBurst")?));
    let rate = read_optional(tree, "eventRecordQPS", int::<u32>)?.unwrap_or(50);
    config.requests.events = (rate > 0).then_some((rate, burst("eventBurst")?));
    Ok(())
}

/// Pulls are parallel by default if their number is configured.
fn pulls(tree: &Tree, config: &mut Config) -> Result<(), InvalidValue> {
    let most = read_optional(tree, "maxParallelImagePulls", int::<u32>)?;
    let serial = read_optional(tree, "serializeImagePulls", boolean)?;
    config.image_pulls.serialize = serial.unwrap_or(most.is_none_or(|most| most < 2));
    config.image_pulls.max_parallel = most;
    match most {
        Some(0) => Err(InvalidValue::new("must be a positive number").at("maxParallelImagePulls")),
        Some(2..) if config.image_pulls.serialize => {
            Err(InvalidValue::new("cannot be larger than 1 unless serializeImagePulls is set to false")
                .at("maxParallelImagePulls"))
        }
        _ => Ok(()),
    }
}

fn shutdown(tree: &Tree, config: &mut Config) -> Result<(), InvalidValue> {
    let entry = |item: &Tree| {
        let seconds = int::<u64>(item.at("shutdownGracePeriodSeconds"))?;
        Ok((int::<i64>(item.at("priority"))?, Duration::from_secs(seconds)))
    };
    let path = "shutdownGracePeriodByPodPriority";
    config.shutdown.by_priority = read_optional(tree, path, |value| list(value, entry))?.unwrap_or_default();
    config.shutdown.by_priority.sort_unstable();
    Ok(())
}

fn thresholds(tree: &Tree, config: &mut Config) -> Result<(), InvalidValue> {
    let amounts = |path: &str| {
        let amount = |value: &Tree| Amount::parse(&text(value)?);
        let amounts = read_optional(tree, path, |value| map(value, amount))?;
        if let Some(strange) = amounts.iter().flatten().map(|(signal, _)| signal).find(|signal| !is_signal(signal)) {
            return Err(InvalidValue::new(format!("unknown signal {strange:?}")).at(path));
        }
        Ok::<_, InvalidValue>(amounts)
    };
    let mut hard = amounts("evictionHard")?;
    let merges = read_optional(tree, "mergeDefaultEvictionSettings", boolean)?.unwrap_or(false);
    // Configured thresholds replace all defaults, unless the defaults are to be merged.
    if let Some(hard) = hard.as_mut().filter(|_| merges) {
        for (signal, least) in DEFAULT_HARD {
            hard.entry(signal.to_string()).or_insert(Amount::parse(least)?);
        }
    }
    let reclaims = amounts("evictionMinimumReclaim")?.unwrap_or_default();
    let graces = read_optional(tree, "evictionSoftGracePeriod", |value| map(value, duration))?.unwrap_or_default();
    let soft = amounts("evictionSoft")?.unwrap_or_default();
    let threshold = |(signal, least): (String, Amount), grace_period| Threshold {
        minimum_reclaim: reclaims.get(&signal).cloned(),
        signal,
        least,
        grace_period,
    };
    let eviction = &mut config.eviction;
    if let Some(hard) = hard {
        eviction.thresholds = hard.into_iter().filter(is_on).map(|pair| threshold(pair, None)).collect();
    } else {
        for one in &mut eviction.thresholds {
            one.minimum_reclaim = reclaims.get(&one.signal).cloned();
        }
    }
    for (signal, least) in soft {
        let missing =
            || InvalidValue::new(format!("grace period must be specified for the soft eviction threshold {signal}"));
        let grace = *graces.get(&signal).ok_or_else(missing).map_err(|error| error.at("evictionSoft"))?;
        eviction.thresholds.push(threshold((signal, least), Some(grace)));
    }
    Ok(())
}

fn is_signal(signal: &str) -> bool {
    SIGNALS.contains(&signal)
}

/// Zero and 100% switch a signal off.
fn is_on((_, least): &(String, Amount)) -> bool {
    match least {
        Amount::Quantity(quantity) => !quantity.is_zero(),
        Amount::Part(part) => *part > 0.0 && *part < 1.0,
    }
}
