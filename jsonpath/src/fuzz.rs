//! Fuzzing harness: no template panics on any object, and the limit of visited values holds. `fuzz/` runs it with a
//! fuzzer, the tests below with mutations of valid templates.

use api::json;

use crate::{JsonPath, relaxed};

/// The input is a template, a zero byte and a JSON object.
pub fn fuzz_jsonpath(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let template = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let _ = relaxed(&template);
    let Ok(path) = JsonPath::parse(&template) else { return };
    let object = parts.next().and_then(|text| json::decode(text).ok()).unwrap_or_default();
    for allow in [false, true] {
        let path = path.clone().allow_missing_keys(allow).max_steps(20_000);
        let _ = path.execute(&object);
        let _ = path.execute_json(&object);
    }
}

#[cfg(test)]
mod tests {
    use api::generate::{self, Random};

    use super::*;

    const TEMPLATES: &[&str] = &[
        "{range .items[*]}{.metadata.name}{\"\\t\"}{end}",
        "{.items[?(@.a==\"x\")].b[0:3:2]} and {..name}",
        "{range .*}{range .*}{@}{end}{end}",
        "{['a','b'][1,2,-1].c}{true}{1.5}{'q\\'x'}",
        "{range .a}{range .b}{range .c}{range .d}",
    ];

    #[test]
    fn templates_survive_mutations() {
        let mut random = Random::new(11);
        for round in 0..4000 {
            let mut data = TEMPLATES[round % TEMPLATES.len()].as_bytes().to_vec();
            for _ in 0..random.below(4) {
                let at = random.below(data.len() + 1);
                match random.below(4) {
                    0 => data.truncate(at),
                    1 => data.insert(at, b"{}[]().,:'\"\\@$*? range end<=>!\n"[random.below(31)]),
                    2 if at < data.len() => drop(data.remove(at)),
                    _ => {
                        let piece = data[at..data.len().min(at + random.below(16))].to_vec();
                        let to = random.below(data.len() + 1);
                        data.splice(to..to, piece);
                    }
                }
            }
            data.push(0);
            data.extend(json::encode(&generate::value(random.number()), None));
            fuzz_jsonpath(&data);
        }
    }

    #[test]
    fn unclosed_ranges_end_at_the_limit() {
        let template = "{range .*}".repeat(40);
        let object = api::tree! { "a" => api::list![api::list![api::list![1, 2], 3], 4], "b" => api::list![1, 2] };
        let path = JsonPath::parse(&template).expect("a template").max_steps(10_000);
        assert!(path.execute(&object).is_err());
    }
}
