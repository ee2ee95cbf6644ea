//! Fuzzing harnesses of the decoders: no input panics, and decoded values round-trip. `fuzz/` runs them with a
//! fuzzer; the tests below with mutations of valid input.

use crate::json::Strict;
use crate::schema::{self, Type};
use crate::selector::{FieldSelector, Selector};
use crate::{json, protobuf, typed, yaml};

/// Takes any bytes; a panic is a defect.
#[cfg(test)]
type Target = fn(&[u8]);

/// All targets. A new decoder adds a line here and a file in `fuzz/`.
#[cfg(test)]
static TARGETS: &[(&str, Target)] = &[
    ("json", fuzz_json),
    ("yaml", fuzz_yaml),
    ("protobuf", fuzz_protobuf),
    ("selector", fuzz_selector),
    ("patch", crate::patch::fuzz_patch),
];

pub fn fuzz_json(data: &[u8]) {
    let Some((ty, data)) = split_type(data) else { return };
    let _ = json::decode_as(data, Some(ty), &mut Strict::default())
        .map(|mut tree| typed::conform(&mut tree, ty, &mut Strict::default()));
    if let Ok(tree) = json::decode(data) {
        let text = json::encode(&tree, None);
        let again = json::decode(&text).expect("our own JSON is read");
        assert_eq!(json::encode(&again, None), text, "JSON changes when it is read again");
    }
}

pub fn fuzz_yaml(data: &[u8]) {
    let Some((ty, data)) = split_type(data) else { return };
    let _ = yaml::decode_as(data, Some(ty), &mut Strict::default())
        .map(|mut tree| typed::conform(&mut tree, ty, &mut Strict::default()));
    if let Ok(tree) = yaml::decode(data) {
        let text = yaml::encode(&tree);
        let again = yaml::decode(&text).expect("our own YAML is read");
        assert_eq!(yaml::encode(&again), text, "YAML changes when it is read again");
    }
}

pub fn fuzz_protobuf(data: &[u8]) {
    let Some((ty, data)) = split_type(data) else { return };
    let _ = protobuf::decode(data, Some(ty));
    if let Ok(tree) = protobuf::decode_message(data, ty) {
        let mut message = Vec::new();
        protobuf::encode_message(&mut message, &tree, ty);
        let again = protobuf::decode_message(&message, ty).expect("our own protobuf is read");
        assert_eq!(json::encode(&again, Some(ty)), json::encode(&tree, Some(ty)), "protobuf changes the object");
    }
}

pub fn fuzz_selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(selector) = Selector::parse(text) {
        assert_eq!(Selector::parse(&selector.to_string()), Ok(selector), "a label selector changes");
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector), "a field selector changes");
    }
}

/// The first two bytes select a type of the table.
fn split_type(data: &[u8]) -> Option<(&'static Type, &[u8])> {
    let (choice, rest) = data.split_first_chunk::<2>()?;
    let types = schema::schema().types();
    Some((types[usize::from(u16::from_le_bytes(*choice)) % types.len()], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, Random};

    /// Cuts, flips, doubles and splices bytes.
    fn mutate(data: &mut Vec<u8>, random: &mut Random) {
        for _ in 0..=random.below(4) {
            let at = random.below(data.len() + 1);
            match random.below(5) {
                0 => data.truncate(at),
                1 => data.insert(at, random.number() as u8),
                2 if at < data.len() => data[at] = random.number() as u8,
                3 if at < data.len() => data[at] ^= 1 << random.below(8),
                _ => {
                    let piece = data[at..data.len().min(at + random.below(32))].to_vec();
                    let place = random.below(data.len() + 1);
                    data.splice(place..place, piece);
                }
            }
        }
    }

    fn good_input(target: &str, random: &mut Random) -> Vec<u8> {
        let types = schema::schema().types();
        let choice = random.below(types.len());
        let object = generate::object(types[choice], random.number());
        let mut data = u16::try_from(choice).expect("few types").to_le_bytes().to_vec();
        match target {
            "json" => data.extend(json::encode(&object, Some(types[choice]))),
            "yaml" => data.extend(yaml::encode(&object)),
            "protobuf" if random.below(2) == 0 => data.extend(protobuf::encode(&object, types[choice])),
            "protobuf" => protobuf::encode_message(&mut data, &object, types[choice]),
            "patch" => {
                let pod = schema::type_of("", "v1", "Pod").expect("Pod is in the table");
                let (object, patch) = (generate::object(pod, random.number()), generate::object(pod, random.number()));
                let json_patch = b"[{\"op\":\"add\",\"path\":\"/spec/containers/-\",\"value\":{\"name\":\"x\"}}]";
                let pick = random.below(3);
                data = vec![pick as u8];
                data.extend(json::encode(&object, Some(pod)));
                data.push(0);
                data.extend(if pick == 0 { json_patch.to_vec() } else { json::encode(&patch, Some(pod)) });
            }
            _ => return b"tier in (a,b),!x,n>3,m notin (),k==v,a!=b\\,c".to_vec(),
        }
        data
    }

    fn check(name: &str) {
        let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
        let mut random = Random::new(42);
        for _ in 0..500 {
            let mut data = good_input(name, &mut random);
            target(&data);
            for _ in 0..3 {
                mutate(&mut data, &mut random);
                target(&data);
            }
        }
    }

    #[test]
    fn json_survives_mutations() {
        check("json");
    }

    #[test]
    fn yaml_survives_mutations() {
        check("yaml");
    }

    #[test]
    fn protobuf_survives_mutations() {
        check("protobuf");
    }

    #[test]
    fn patches_survive_mutations() {
        check("patch");
    }

    #[test]
    fn selectors_survive_mutations() {
        check("selector");
    }

    #[test]
    fn survives_random_bytes() {
        let mut random = Random::new(7);
        for _ in 0..2000 {
            let data: Vec<u8> = (0..random.below(200)).map(|_| random.number() as u8).collect();
            TARGETS.iter().for_each(|(_, target)| target(&data));
        }
    }
}
