//! Generates random objects of a type for tests, reproducible by seed.

use crate::json::Strict;
use crate::schema::{Presence, Ty, Type, Wire};
use crate::tree::{Map, Str, Tree};
use crate::{base64, time, typed};

/// Deeper levels only get scalars, so that recursive types end.
const MAX_DEPTH: usize = 9;

/// An object of a type, as decoded by the server.
pub fn object(ty: &'static Type, seed: u64) -> Tree {
    let mut random = Random::new(seed);
    let mut tree = random.structure(ty, 0);
    if let Some(gvk) = &ty.gvk
        && ty.field("kind").is_some()
        && !is_on_wire(ty, "kind")
    {
        let slash = if gvk.group.is_empty() { "" } else { "/" };
        tree.set("kind", gvk.kind);
        tree.set("apiVersion", format!("{}{slash}{}", gvk.group, gvk.version));
    }
    typed::conform(&mut tree, ty, &mut Strict::default()).expect("a generated object fits its type");
    tree
}

/// JSON of no particular type; never null.
pub fn value(seed: u64) -> Tree {
    Random::new(seed).any(0)
}

/// A small generator (splitmix64), so that seeds are reproducible.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit.max(1) as u64) as usize
    }

    fn one_of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    fn structure(&mut self, ty: &'static Type, depth: usize) -> Tree {
        let mut map = Map::new();
        for field in ty.fields() {
            let scalar = !matches!(field.ty, Ty::Struct(_) | Ty::List(_) | Ty::Map(_) | Ty::SchemaOrArray);
            let wanted = self.below(10) < [10, 7, 6, 5].get(depth).copied().unwrap_or(2);
            let required = field.required && matches!(field.presence, Presence::Always);
            if (wanted || required) && (scalar || depth < MAX_DEPTH) && is_on_wire(ty, field.name) {
                map.insert(field.name, self.of(field.ty, depth + 1));
            }
        }
        Tree::Map(map)
    }

    fn of(&mut self, ty: Ty, depth: usize) -> Tree {
        match ty {
            Ty::String => Tree::Str(self.text()),
            Ty::Bool => Tree::Bool(self.below(2) == 0),
            Ty::Int32 => Tree::Int(i64::from(self.int() as i32)),
            Ty::Int64 => Tree::Int(self.int()),
            Ty::Double => Tree::Float(self.float()),
            Ty::Bytes => Tree::from(base64::encode(&self.bytes())),
            Ty::Time => Tree::Str(time::format_seconds(self.seconds())),
            Ty::MicroTime => {
                let nanos = self.below(1_000_000) as u32 * 1000;
                Tree::Str(time::format_micros(time::Timestamp { seconds: self.seconds(), nanos }))
            }
            Ty::Quantity => Tree::from(self.one_of(&["0", "100m", "1.5", "2Gi", "1e3", "3", "250k", "-5", "17n"])),
            Ty::IntOrString if self.below(2) == 0 => Tree::Int(i64::from(self.int() as i32)),
            Ty::IntOrString => Tree::Str(self.text()),
            Ty::Raw | Ty::Fields => Tree::Map(self.any_map(depth)),
            Ty::Json => self.any(depth),
            Ty::SchemaOrArray | Ty::SchemaOrBool | Ty::SchemaOrStrings => self.schema_or(ty, depth),
            Ty::Struct(ty) => self.structure(ty, depth),
            Ty::List(item) => {
                let count = 1 + self.below(3);
                Tree::List((0..count).map(|_| self.of(*item, depth + 1)).collect())
            }
            Ty::Map(item) => {
                let mut map = Map::new();
                for _ in 0..=self.below(3) {
                    map.insert(self.text(), self.of(*item, depth + 1));
                }
                Tree::Map(map)
            }
        }
    }

    fn schema_or(&mut self, ty: Ty, depth: usize) -> Tree {
        let schema = Tree::Map(Map::from_entries(vec![("description".into(), Tree::Str(self.text()))], |_| {}));
        match (ty, self.below(2)) {
            (Ty::SchemaOrBool, 0) => Tree::Bool(depth.is_multiple_of(2)),
            (Ty::SchemaOrArray, 0) => Tree::List(vec![schema]),
            (Ty::SchemaOrStrings, 0) => Tree::List(vec![Tree::Str(self.text())]),
            _ => schema,
        }
    }

    fn any(&mut self, depth: usize) -> Tree {
        match self.below(if depth < MAX_DEPTH { 6 } else { 4 }) {
            0 => Tree::Bool(self.below(2) == 0),
            1 => Tree::Int(self.int()),
            2 => Tree::Float(self.below(1000) as f64 + 0.5),
            3 => Tree::Str(self.text()),
            4 => Tree::List((0..self.below(3)).map(|_| self.any(depth + 1)).collect()),
            _ => Tree::Map(self.any_map(depth)),
        }
    }

    fn any_map(&mut self, depth: usize) -> Map {
        let mut map = Map::new();
        for _ in 0..self.below(3) {
            map.insert(self.text(), self.any(depth + 1));
        }
        map
    }

    /// Mostly plain names, and sometimes texts that are difficult to encode.
    fn text(&mut self) -> Str {
        const ODD: [&str; 24] = [
            "",
            " ",
            "yes",
            "NO",
            "null",
            "~",
            "0x1F",
            "1e3",
            "017",
            "1:20",
            "2024-01-02",
            "<<",
            "- a",
            "a: b",
            "#",
            "'",
            "\"",
            "a\nb\n",
            "\n",
            "a \n b",
            "|",
            "é😀",
            "\u{2028}\u{feff}",
            "trailing ",
        ];
        match self.below(8) {
            0 => Str::new(ODD[self.below(ODD.len())]),
            1 => (0..self.below(12)).map(|_| self.character()).collect(),
            2 => Str::from("word ".repeat(self.below(30))),
            _ => (0..=self.below(12)).map(|_| char::from(b'a' + self.below(26) as u8)).collect(),
        }
    }

    fn character(&mut self) -> char {
        let limit = [0x20, 0x80, 0x100, 0x3000, 0x11_0000][self.below(5)];
        char::from_u32(self.below(limit) as u32).unwrap_or('\u{fffd}')
    }

    fn int(&mut self) -> i64 {
        match self.below(4) {
            0 => 0,
            1 => self.number() as i64,
            2 => -(self.below(100) as i64),
            _ => self.below(10_000) as i64,
        }
    }

    fn float(&mut self) -> f64 {
        let value = f64::from_bits(self.number());
        if value.is_finite() && self.below(2) == 0 { value } else { self.below(100) as f64 / 4.0 }
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(20)).map(|_| self.number() as u8).collect()
    }

    /// Within the years that RFC 3339 can represent.
    fn seconds(&mut self) -> i64 {
        self.below(4_000_000_000) as i64 - 1_000_000_000
    }
}

/// Kind and apiVersion of nested objects only exist in JSON; generated ones would be lost.
fn is_on_wire(ty: &'static Type, name: &str) -> bool {
    ty.wire().iter().any(|wire| match wire {
        Wire::Field { field, .. } => field.name == name,
        Wire::Inline { ty, .. } => is_on_wire(ty, name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;
    use crate::{json, protobuf, yaml};

    fn shaped(mut tree: Tree, ty: &'static Type) -> Tree {
        typed::conform(&mut tree, ty, &mut Strict::default()).expect("still fits its type");
        tree
    }

    #[test]
    fn every_kind_round_trips_in_all_encodings() {
        let kinds = schema().types().iter().filter(|ty| ty.gvk.is_some());
        for ty in kinds {
            for seed in 0..8 {
                let first = object(ty, seed);
                let text = json::encode(&first, Some(ty));
                let from_json = shaped(json::decode(&text).expect("our own JSON"), ty);
                assert_eq!(from_json, first, "{} {seed} through JSON", ty.name);
                let bytes = protobuf::encode(&from_json, ty);
                let from_protobuf = protobuf::decode(&bytes, Some(ty)).expect("our own protobuf");
                assert_eq!(from_protobuf, first, "{} {seed} through protobuf", ty.name);
                let text = yaml::encode(&from_protobuf);
                let from_yaml = yaml::decode(&text).map(|tree| shaped(tree, ty));
                assert_eq!(
                    from_yaml,
                    Ok(first),
                    "{} {seed} through YAML:\n{}",
                    ty.name,
                    String::from_utf8_lossy(&text)
                );
                assert_eq!(protobuf::encode(&from_protobuf, ty), bytes, "{} {seed} twice", ty.name);
            }
        }
    }

    #[test]
    fn values_round_trip_through_yaml() {
        for seed in 0..3000 {
            let tree = value(seed);
            let text = yaml::encode(&tree);
            assert_eq!(yaml::decode(&text), Ok(tree), "{seed}:\n{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn seeds_are_reproducible() {
        let pod = crate::schema::type_of("", "v1", "Pod").expect("Pod");
        assert_eq!(object(pod, 7), object(pod, 7));
        assert_ne!(object(pod, 7), object(pod, 8));
    }
}
