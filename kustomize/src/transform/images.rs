//! Names, tags and digests of images.

use api::Tree;
use regex_automata::nfa::thompson::pikevm::PikeVM;

use super::check_scalar;
use crate::error::Error;
use crate::field_spec::{Creates, FieldSpec};
use crate::fields::{Reader, map_text, scalar_text};
use crate::resources::Resources;

#[derive(Debug, Clone)]
pub(crate) struct Image {
    matcher: PikeVM,
    new_name: String,
    new_tag: String,
    tag_suffix: String,
    digest: String,
}

impl Image {
    pub(super) fn read(tree: &Tree) -> Result<Image, Error> {
        let reader = Reader::new(tree, "Image").known(&["name", "newName", "newTag", "tagSuffix", "digest"])?;
        let name = reader.text("name")?;
        // The name is a regular expression; a tag or a digest may follow it.
        let pattern = format!("^{name}(:[a-zA-Z0-9_.{{}}-]*)?(@sha256:[a-zA-Z0-9_.{{}}-]*)?$");
        let matcher = PikeVM::new(&pattern).map_err(|error| Error::Regex(error.to_string()))?;
        Ok(Image {
            matcher,
            new_name: reader.text("newName")?,
            new_tag: map_text(tree, "newTag"),
            tag_suffix: reader.text("tagSuffix")?,
            digest: reader.text("digest")?,
        })
    }

    pub(super) fn apply(&self, resources: &mut Resources, specs: &[FieldSpec]) -> Result<(), Error> {
        for resource in resources.list.iter_mut().filter(|one| one.kind() != "CustomResourceDefinition") {
            self.set_containers(&mut resource.tree)?;
            for spec in specs {
                spec.apply(&mut resource.tree, Creates::Nothing, &mut |value| self.set(value))?;
            }
        }
        Ok(())
    }

    /// Lists of containers anywhere in the object.
    fn set_containers(&self, tree: &mut Tree) -> Result<(), Error> {
        match tree {
            Tree::List(items) => items.iter_mut().try_for_each(|item| self.set_containers(item)),
            Tree::Map(map) => map.iter_mut().try_for_each(|(key, value)| {
                self.set_containers(value)?;
                match value {
                    Tree::List(items) if matches!(key, "containers" | "initContainers") => {
                        items.iter_mut().filter_map(|item| item.get_mut("image")).try_for_each(|image| self.set(image))
                    }
                    _ => Ok(()),
                }
            }),
            _ => Ok(()),
        }
    }

    fn set(&self, value: &mut Tree) -> Result<(), Error> {
        check_scalar(value)?;
        let image = scalar_text(value);
        if !self.matcher.is_match(&mut self.matcher.create_cache(), &image) {
            return Ok(());
        }
        let (name, mut tag, mut digest) = split(&image);
        let name = if self.new_name.is_empty() { name } else { &self.new_name };
        let suffixed = format!("{tag}{}", self.tag_suffix);
        match (self.new_tag.as_str(), self.digest.as_str()) {
            ("", "") if !self.tag_suffix.is_empty() => (tag, digest) = (&suffixed, ""),
            ("", "") => {}
            (new_tag, new_digest) => (tag, digest) = (new_tag, new_digest),
        }
        let mut out = name.to_string();
        if !tag.is_empty() {
            out.push_str(&format!(":{tag}"));
        }
        if !digest.is_empty() {
            out.push_str(&format!("@{digest}"));
        }
        *value = Tree::from(out);
        Ok(())
    }
}

/// Name, tag and digest. A colon before a slash belongs to the port of a registry.
fn split(image: &str) -> (&str, &str, &str) {
    let (rest, digest) = image.split_once('@').unwrap_or((image, ""));
    let slash = rest.find('/').unwrap_or(0);
    match rest[slash..].find(':') {
        Some(colon) => (&rest[..slash + colon], &rest[slash + colon + 1..], digest),
        None => (rest, "", digest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_images() {
        for (image, want) in [
            ("nginx", ("nginx", "", "")),
            ("nginx:1", ("nginx", "1", "")),
            ("host:5000/nginx", ("host:5000/nginx", "", "")),
            ("host:5000/a/nginx:1@sha256:ab", ("host:5000/a/nginx", "1", "sha256:ab")),
        ] {
            assert_eq!(split(image), want);
        }
    }
}
