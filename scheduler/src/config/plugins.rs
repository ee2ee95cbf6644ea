//! The plugins of a profile by extension point: the default list with the changes of a configuration.

use std::collections::BTreeSet;

use api::Tree;
use api::field::Path;

use super::args;
use super::reader::Reader;
use crate::framework::{EnabledPlugin, POINTS, Point, Profile};
use crate::plugins::args::{Args, Shared};
use crate::plugins::list::{DEFAULT_SCHEDULER, PLUGINS, PluginEntry};

/// The fields of `plugins` and their extension points.
pub(super) const FIELDS: [(&str, Point); 12] = [
    ("preEnqueue", Point::PreEnqueue),
    ("queueSort", Point::QueueSort),
    ("preFilter", Point::PreFilter),
    ("filter", Point::Filter),
    ("postFilter", Point::PostFilter),
    ("preScore", Point::PreScore),
    ("score", Point::Score),
    ("reserve", Point::Reserve),
    ("permit", Point::Permit),
    ("preBind", Point::PreBind),
    ("bind", Point::Bind),
    ("postBind", Point::PostBind),
];

/// The plugins enabled and disabled for one point, or for all: indexes of the list.
#[derive(Default)]
struct Set {
    /// With a weight if one is given.
    enabled: Vec<(usize, Option<i64>)>,
    disabled: BTreeSet<usize>,
    disables_all: bool,
}

pub(super) fn read(reader: &mut Reader, tree: &Tree, path: &Path<'_>, shared: &Shared) -> Profile {
    reader.known(tree, path, &["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"]);
    let name = reader.text(tree, "schedulerName", path).unwrap_or_else(|| DEFAULT_SCHEDULER.to_string());
    if name.is_empty() {
        reader.errors.required(&path.field("schedulerName"), "");
    }
    let args = args::read(reader, tree, path, shared);
    let (plugins, at) = (tree.at("plugins"), path.field("plugins"));
    let known: Vec<&str> = ["multiPoint"].into_iter().chain(FIELDS.iter().map(|(field, _)| *field)).collect();
    reader.known(plugins, &at, &known);
    let everywhere = merged(&read_set(reader, plugins, "multiPoint", &at, None, &args));
    let sets = FIELDS.map(|(field, point)| (point, read_set(reader, plugins, field, &at, Some(point), &args)));
    let profile = build(&name, &args, &everywhere, &sets);
    check(reader, &profile, &at);
    profile
}

/// The plugin that orders the queue.
pub(crate) fn queue_sort_plugin(profile: &Profile) -> Option<&'static str> {
    profile.at(Point::QueueSort).next().map(|(_, plugin)| plugin.name())
}

fn read_set(reader: &mut Reader, tree: &Tree, field: &str, path: &Path<'_>, point: Option<Point>, args: &Args) -> Set {
    let (tree, at) = (tree.at(field), path.field(field));
    reader.known(tree, &at, &["enabled", "disabled"]);
    let mut set = Set::default();
    let enabled = at.field("enabled");
    for (index, one) in reader.list(tree, "enabled", &at).iter().enumerate() {
        let at = enabled.index(index);
        reader.known(one, &at, &["name", "weight"]);
        let weight = reader.int(one, "weight", &at).filter(|weight| *weight != 0);
        if weight.is_some_and(|weight| !(0..=i64::from(i32::MAX)).contains(&weight)) {
            reader.errors.invalid(&at.field("weight"), weight.unwrap_or(0), "must be a positive weight");
        }
        let Some(place) = find(reader, one, &at) else { continue };
        if set.enabled.iter().any(|(other, _)| *other == place) {
            reader.errors.duplicate(&at.field("name"), one.str("name"));
        }
        let extends = point.is_none_or(|point| (PLUGINS[place].make)(args).points().contains(&point));
        if !extends {
            let detail = format!("plugin does not extend {field} plugin");
            reader.errors.invalid(&at.field("name"), one.str("name"), &detail);
            continue;
        }
        set.enabled.push((place, weight));
    }
    let disabled = at.field("disabled");
    for (index, one) in reader.list(tree, "disabled", &at).iter().enumerate() {
        let at = disabled.index(index);
        reader.known(one, &at, &["name", "weight"]);
        match one.str("name") {
            "*" => set.disables_all = true,
            _ => set.disabled.extend(find(reader, one, &at)),
        }
    }
    set
}

fn find(reader: &mut Reader, one: &Tree, path: &Path<'_>) -> Option<usize> {
    let name = one.str("name");
    let place = PLUGINS.iter().position(|listed| listed.name == name);
    if place.is_none() {
        let names: Vec<&str> = PLUGINS.iter().map(|listed| listed.name).collect();
        reader.errors.not_supported(&path.field("name"), name, &names);
    }
    place
}

/// The default list with the changes of a configuration: plugins that are named again keep their position.
fn merged(multi: &Set) -> Vec<(usize, i64)> {
    let named = |place: usize| multi.enabled.iter().find(|(other, _)| *other == place);
    let weight = |place: usize, given: Option<i64>| given.unwrap_or(PLUGINS[place].weight);
    let stays = |place: &usize| !multi.disables_all && !multi.disabled.contains(place);
    let mut all: Vec<(usize, i64)> = (0..PLUGINS.len())
        .filter(stays)
        .map(|place| (place, weight(place, named(place).and_then(|(_, given)| *given))))
        .collect();
    for (place, given) in &multi.enabled {
        if !all.iter().any(|(other, _)| other == place) {
            all.push((*place, weight(*place, *given)));
        }
    }
    all
}

fn build(name: &str, args: &Args, everywhere: &[(usize, i64)], sets: &[(Point, Set); 12]) -> Profile {
    let used = |place: &usize| {
        let named = sets.iter().any(|(_, set)| set.enabled.iter().any(|(other, _)| other == place));
        named || everywhere.iter().any(|(other, _)| other == place)
    };
    let places: Vec<usize> = (0..PLUGINS.len()).filter(used).collect();
    let score = &sets[6].1;
    let enabled = |place: &usize| {
        let listed: &PluginEntry = &PLUGINS[*place];
        let of_score = score.enabled.iter().find(|(other, _)| other == place).and_then(|(_, weight)| *weight);
        let of_all = everywhere.iter().find(|(other, _)| other == place).map(|(_, weight)| *weight);
        EnabledPlugin { plugin: (listed.make)(args), weight: of_score.or(of_all).unwrap_or(listed.weight).max(1) }
    };
    let mut profile = Profile::new(name, places.iter().map(enabled).collect());
    let position = |place: &usize| places.iter().position(|other| other == place);
    for (point, set) in sets {
        let at_point = at_point(*point, everywhere, set, args);
        profile = profile.with_point(*point, at_point.iter().filter_map(position).collect());
    }
    profile
}

/// First the plugins enabled for this point that are also in the list, then the rest of the list, then the other
/// enabled ones.
fn at_point(point: Point, everywhere: &[(usize, i64)], set: &Set, args: &Args) -> Vec<usize> {
    let extends = |place: usize| (PLUGINS[place].make)(args).points().contains(&point);
    let is_named = |place: usize| set.enabled.iter().any(|(other, _)| *other == place);
    let is_off = |place: usize| set.disables_all || set.disabled.contains(&place);
    let listed: Vec<usize> = everywhere.iter().map(|(place, _)| *place).filter(|place| extends(*place)).collect();
    let named = || set.enabled.iter().map(|(place, _)| *place);
    let first = named().filter(|place| listed.contains(place) && !is_off(*place));
    let mut all: Vec<usize> = first.collect();
    all.extend(listed.iter().copied().filter(|place| !is_named(*place) && !is_off(*place)));
    let rest: Vec<usize> = named().filter(|place| !all.contains(place)).collect();
    all.extend(rest);
    all
}

fn check(reader: &mut Reader, profile: &Profile, path: &Path<'_>) {
    match profile.positions(Point::QueueSort).len() {
        1 => {}
        0 => reader.errors.required(&path.field("queueSort"), "at least one queue sort plugin is needed"),
        _ => reader.errors.forbidden(&path.field("queueSort"), "only one queue sort plugin can be enabled"),
    }
    if profile.positions(Point::Bind).is_empty() {
        reader.errors.required(&path.field("bind"), "at least one bind plugin is needed");
    }
}

/// Every point has its field.
const _: () = assert!(FIELDS.len() == POINTS.len());
