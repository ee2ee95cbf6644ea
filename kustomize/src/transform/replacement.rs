//! Replacements: a value of one resource copied into fields of others.

use api::{Tree, yaml};

use crate::error::Error;
use crate::field_spec::split_path;
use crate::fields::{Reader, map_text, scalar_text};
use crate::files::Loader;
use crate::id::ResId;
use crate::resource::Resource;
use crate::resources::Resources;
use crate::select::{Target, read_id};

const DEFAULT_FIELD: &str = "metadata.name";

#[derive(Debug, Clone, Default)]
struct FieldOptions {
    delimiter: String,
    index: i64,
    create: bool,
}

#[derive(Debug, Clone)]
enum Source {
    Value(Tree),
    Field { id: ResId, path: String, options: FieldOptions },
}

#[derive(Debug, Clone)]
struct ReplacementTarget {
    select: Target,
    reject: Vec<Target>,
    fields: Vec<String>,
    options: FieldOptions,
}

#[derive(Debug, Clone)]
pub(crate) struct Replacement {
    source: Source,
    targets: Vec<ReplacementTarget>,
}

impl Replacement {
    /// Inline replacements, and those of files.
    pub(super) fn read_all(items: &[Tree], loader: &Loader) -> Result<Vec<Replacement>, Error> {
        let mut out = Vec::new();
        for item in items {
            let reader = Reader::new(item, "ReplacementField").known(&["path", "source", "sourceValue", "targets"])?;
            let path = reader.text("path")?;
            if path.is_empty() {
                out.push(Replacement::read(item)?);
                continue;
            }
            if reader.get("source").is_some() || !reader.list("targets")?.is_empty() {
                return Err(Error::TwoReplacements);
            }
            match yaml::decode(&loader.load(&path)?)? {
                Tree::List(items) => out.extend(items.iter().map(Replacement::read).collect::<Result<Vec<_>, _>>()?),
                item @ Tree::Map(_) => out.push(Replacement::read(&item)?),
                Tree::Str(_) => return Err(Error::ReplacementFile("string")),
                _ => return Err(Error::ReplacementFile("invalid")),
            }
        }
        Ok(out)
    }

    fn read(tree: &Tree) -> Result<Replacement, Error> {
        let reader = Reader::new(tree, "Replacement");
        let source = match (reader.get("sourceValue"), reader.get("source")) {
            (Some(_), Some(_)) => return Err(Error::TwoSources),
            (Some(value), None) => Source::Value(value.clone()),
            (None, Some(source)) => Source::Field {
                id: read_id(source),
                path: or_default(map_text(source, "fieldPath")),
                options: read_options(source.at("options")),
            },
            (None, None) => return Err(Error::IncompleteReplacement),
        };
        if reader.get("targets").is_none() {
            return Err(Error::IncompleteReplacement);
        }
        let targets = reader.list("targets")?.iter().map(read_target).collect::<Result<_, _>>()?;
        Ok(Replacement { source, targets })
    }

    pub(super) fn apply(&self, resources: &mut Resources) -> Result<(), Error> {
        let value = self.value(resources)?;
        for target in &self.targets {
            target.apply(resources, &value)?;
        }
        Ok(())
    }

    fn value(&self, resources: &Resources) -> Result<Tree, Error> {
        let (id, path, options) = match &self.source {
            Source::Value(value) => return Ok(value.clone()),
            Source::Field { id, path, options } => (id, path, options),
        };
        let is_selected = |resource: &&Resource| resource.all_ids().iter().any(|own| own.is_selected_by(id));
        let mut found = resources.list.iter().filter(is_selected);
        let name = || if path == DEFAULT_FIELD { id.to_string() } else { format!("{id}:{path}") };
        let source = found.next().ok_or_else(|| Error::NoSource(name()))?;
        if found.next().is_some() {
            return Err(Error::SeveralSources(name()));
        }
        let value = find(&source.tree, &split_smart(path)).filter(|value| !is_empty(value));
        let value = value.ok_or_else(|| Error::NoSourceField { path: path.clone(), id: id.to_string() })?;
        refine(value, options)
    }
}

fn is_empty(value: &Tree) -> bool {
    match value {
        Tree::Null => true,
        Tree::List(items) => items.is_empty(),
        Tree::Map(map) => map.is_empty(),
        _ => false,
    }
}

/// The part of a source that its options select.
fn refine(value: &Tree, options: &FieldOptions) -> Result<Tree, Error> {
    if options.delimiter.is_empty() {
        return Ok(value.clone());
    }
    check_delimited(value)?;
    let text = scalar_text(value);
    let part = usize::try_from(options.index).ok().and_then(|index| text.split(&options.delimiter).nth(index));
    let part = part.ok_or_else(|| Error::DelimiterIndex { index: options.index, value: text.clone() })?;
    Ok(Tree::from(part))
}

fn check_delimited(value: &Tree) -> Result<(), Error> {
    if matches!(value, Tree::List(_) | Tree::Map(_)) { Err(Error::DelimiterOfCompound) } else { Ok(()) }
}

fn or_default(path: String) -> String {
    if path.is_empty() { DEFAULT_FIELD.to_string() } else { path }
}

fn read_options(tree: &Tree) -> FieldOptions {
    FieldOptions {
        delimiter: map_text(tree, "delimiter"),
        index: tree.int("index").unwrap_or(0),
        create: tree.bool("create"),
    }
}

fn read_target(tree: &Tree) -> Result<ReplacementTarget, Error> {
    let reader = Reader::new(tree, "TargetSelector");
    let select = reader.get("select").ok_or(Error::NoReplacementTarget)?;
    let mut fields = reader.texts("fieldPaths")?;
    if fields.is_empty() {
        fields.push(DEFAULT_FIELD.to_string());
    }
    Ok(ReplacementTarget {
        select: Target::read(select),
        reject: reader.list("reject")?.iter().map(Target::read).collect(),
        fields,
        options: read_options(tree.at("options")),
    })
}

impl ReplacementTarget {
    fn apply(&self, resources: &mut Resources, value: &Tree) -> Result<(), Error> {
        let select = self.select.compile()?;
        let reject =
            self.reject.iter().map(|target| Ok((target, target.compile()?))).collect::<Result<Vec<_>, Error>>()?;
        for resource in &mut resources.list {
            let ids = resource.all_ids();
            let is_rejected = reject.iter().any(|(target, compiled)| {
                let by_id = target.id != ResId::default() && ids.iter().any(|id| compiled.matches_id(id));
                let has_metadata = !target.labels.is_empty() || !target.annotations.is_empty();
                by_id || has_metadata && compiled.matches_metadata(&resource.tree)
            });
            if is_rejected || !select.matches_metadata(&resource.tree) || !ids.iter().any(|id| select.matches_id(id)) {
                continue;
            }
            self.copy_to(&mut resource.tree, value)?;
        }
        Ok(())
    }

    fn copy_to(&self, tree: &mut Tree, value: &Tree) -> Result<(), Error> {
        for field in &self.fields {
            let mut count = 0;
            let steps = split_smart(field);
            visit(tree, &steps, self.options.create, value, &mut |target| {
                count += 1;
                self.set(target, value)
            })?;
            if count == 0 {
                let missing = if self.options.create { Error::NoCreatedField } else { Error::NoTargetField };
                return Err(missing(field.clone()));
            }
        }
        Ok(())
    }

    fn set(&self, target: &mut Tree, value: &Tree) -> Result<(), Error> {
        let mut value = value.clone();
        if !self.options.delimiter.is_empty() {
            check_delimited(target)?;
            let old = scalar_text(target);
            let mut parts: Vec<String> = old.split(&self.options.delimiter).map(str::to_string).collect();
            let text = scalar_text(&value);
            match usize::try_from(self.options.index) {
                Err(_) => parts.insert(0, text),
                Ok(index) if index >= parts.len() => parts.push(text),
                Ok(index) => parts[index] = text,
            }
            value = Tree::from(parts.join(&self.options.delimiter));
        }
        *target = typed(target, value);
        Ok(())
    }
}

/// A scalar keeps the type of the field that it replaces, if it can.
fn typed(target: &Tree, value: Tree) -> Tree {
    let is_scalar = !matches!(value, Tree::List(_) | Tree::Map(_));
    match target {
        Tree::Str(_) if is_scalar => Tree::from(scalar_text(&value)),
        Tree::Int(_) if is_scalar => scalar_text(&value).parse::<i64>().map(Tree::Int).unwrap_or(value),
        Tree::Float(_) if is_scalar => scalar_text(&value).parse::<f64>().map(Tree::Float).unwrap_or(value),
        Tree::Bool(_) if is_scalar => scalar_text(&value).parse::<bool>().map(Tree::Bool).unwrap_or(value),
        // A created field has the type that its text looks like.
        Tree::Null if matches!(value, Tree::Str(_)) => {
            yaml::decode_core(scalar_text(&value).as_bytes()).ok().filter(is_plain).unwrap_or(value)
        }
        _ => value,
    }
}

fn is_plain(value: &Tree) -> bool {
    !matches!(value, Tree::Null | Tree::List(_) | Tree::Map(_))
}

/// A path split at dots outside of brackets; `[a.b]` is the key `a.b`, `[name=x]` selects an item.
fn split_smart(path: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut open: Option<String> = None;
    for part in split_path(path, '.') {
        let text = match open.take() {
            Some(before) => format!("{before}.{part}"),
            None => part,
        };
        match (text.starts_with('['), text.ends_with(']'), text.contains('=')) {
            (true, false, _) => open = Some(text),
            (true, true, false) if text.contains('.') => out.push(text.trim_matches(['[', ']']).to_string()),
            _ => out.push(text),
        }
    }
    out.extend(open);
    out
}

fn item_key(step: &str) -> Option<(&str, &str)> {
    step.strip_prefix('[')?.strip_suffix(']')?.split_once('=')
}

fn matches_item(item: &Tree, key: &str, text: &str) -> bool {
    if key.is_empty() {
        scalar_text(item) == text
    } else {
        item.get(key).is_some_and(|value| scalar_text(value) == text)
    }
}

fn find<'t>(tree: &'t Tree, path: &[String]) -> Option<&'t Tree> {
    path.iter().try_fold(tree, |here, step| match here {
        Tree::List(items) => match item_key(step) {
            Some((key, text)) => items.iter().find(|item| matches_item(item, key, text)),
            None if step == "-" => items.last(),
            None => items.get(step.trim_matches(['[', ']']).parse::<usize>().ok()?),
        },
        here => here.get(step),
    })
}

type Visitor<'v> = dyn FnMut(&mut Tree) -> Result<(), Error> + 'v;

/// Calls the visitor for each value at a path; `*` is any item or field.
fn visit(tree: &mut Tree, path: &[String], creates: bool, value: &Tree, visitor: &mut Visitor) -> Result<(), Error> {
    let Some((step, rest)) = path.split_first() else { return visitor(tree) };
    if tree.is_null() && creates {
        *tree = if item_key(step).is_some() { Tree::List(Vec::new()) } else { Tree::map_new() };
    }
    match tree {
        Tree::List(items) => visit_items(items, step, rest, creates, value, visitor),
        Tree::Map(map) if step == "*" => {
            map.iter_mut().try_for_each(|(_, item)| visit(item, rest, creates, value, visitor))
        }
        Tree::Map(map) => {
            if creates && !map.contains(step) {
                map.insert(step.as_str(), Tree::Null);
            }
            map.get_mut(step).map_or(Ok(()), |item| visit(item, rest, creates, value, visitor))
        }
        _ => Ok(()),
    }
}

fn visit_items(
    items: &mut Vec<Tree>,
    step: &str,
    rest: &[String],
    creates: bool,
    value: &Tree,
    visitor: &mut Visitor,
) -> Result<(), Error> {
    if step == "*" {
        return items.iter_mut().try_for_each(|item| visit(item, rest, creates, value, visitor));
    }
    if let Some((key, text)) = item_key(step) {
        if creates && !items.iter().any(|item| matches_item(item, key, text)) {
            items.push(if key.is_empty() {
                Tree::from(text)
            } else {
                api::tree! { key => text }
            });
        }
        let mut selected = items.iter_mut().filter(|item| matches_item(item, key, text));
        return selected.try_for_each(|item| visit(item, rest, creates, value, visitor));
    }
    if step == "-" && creates {
        items.push(Tree::Null);
    }
    let index =
        if step == "-" { items.len().checked_sub(1) } else { step.trim_matches(['[', ']']).parse::<usize>().ok() };
    match index.and_then(|index| items.get_mut(index)) {
        Some(item) => visit(item, rest, creates, value, visitor),
        None => Ok(()),
    }
}
