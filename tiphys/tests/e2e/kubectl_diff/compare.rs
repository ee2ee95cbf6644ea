//! What a command did, without what differs by nature: times, UIDs, revisions, addresses.

/// What a command did.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub requests: Vec<String>,
}

impl Outcome {
    /// How another outcome differs.
    pub fn difference(&self, other: &Outcome, is_code_only: bool, ignores_requests: bool) -> Option<String> {
        let mut text = String::new();
        let mut check = |name: &str, want: &str, got: &str| {
            if want != got {
                text.push_str(&format!("  {name}: want\n{}  got\n{}", indented(want), indented(got)));
            }
        };
        check("exit code", &format!("{:?}", self.code), &format!("{:?}", other.code));
        if !is_code_only {
            check("output", &self.out, &other.out);
            check("errors", &self.err, &other.err);
        }
        if !is_code_only && !ignores_requests {
            check("requests", &self.requests.join("\n"), &other.requests.join("\n"));
        }
        (!text.is_empty()).then_some(text)
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// A text without what differs by nature.
pub fn normalize(text: &str, namespace: &str) -> String {
    let text = text.replace(namespace, "NAMESPACE").replace(" from NAMESPACE namespace", "");
    // Clients before 1.34 print a null there.
    let is_shown = |line: &&str| !line.starts_with("hint: ") && line.trim() != "creationTimestamp: null";
    let lines = text.lines().filter(is_shown);
    lines.map(|line| format!("{}\n", words(without_log_prefix(line)))).collect()
}

/// `W1118 20:15:51.123456 12345 helpers.go:1] text` as `text`.
fn without_log_prefix(line: &str) -> &str {
    let is_log =
        line.len() > 5 && line.starts_with(['W', 'E', 'I']) && line[1..5].bytes().all(|byte| byte.is_ascii_digit());
    match line.split_once("] ") {
        Some((_, rest)) if is_log => rest,
        None if is_log => line[5..].trim_start(),
        _ => line,
    }
}

/// Words with a placeholder for times, ages, UIDs, revisions and addresses. Spaces in front of an age depend on its
/// length.
fn words(line: &str) -> String {
    let is_word = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | ':' | '.');
    let (mut out, mut word) = (String::new(), String::new());
    for char in line.chars().chain(['\n']) {
        if is_word(char) {
            word.push(char);
            continue;
        }
        let replaced = placeholder(&word);
        if replaced == "AGE" {
            out.truncate(out.trim_end().len());
            out.push(' ');
        }
        out.push_str(replaced);
        word.clear();
        if char != '\n' {
            out.push(char);
        }
    }
    // The width of a column depends on the longest age in it.
    while out.contains("AGE  ") {
        out = out.replace("AGE  ", "AGE ");
    }
    out.trim_end().replace("AGE ", "AGE").replace("resourceVersion\": \"NUMBER", "resourceVersion\": \"").to_string()
}

fn placeholder(word: &str) -> &str {
    let bytes = word.trim_end_matches('.').as_bytes();
    let is_digits = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let is_uid = bytes.len() >= 36 && [8, 13, 18, 23].iter().all(|at| bytes[*at] == b'-');
    let is_time = bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && bytes.ends_with(b"Z");
    let is_age = bytes.last().is_some_and(|last| b"smhdy".contains(last))
        && bytes.first().is_some_and(u8::is_ascii_digit)
        && bytes.iter().all(|byte| byte.is_ascii_digit() || b"smhdy".contains(byte));
    let is_clock = bytes.len() == 8 && bytes[2] == b':' && bytes[5] == b':' && is_digits(&bytes[6..]);
    let is_address = word.starts_with("10.")
        && word.split('.').count() == 4
        && word.split('.').all(|part| is_digits(part.as_bytes()));
    match () {
        () if is_uid => "UID",
        () if is_time => "TIME",
        () if is_clock => "CLOCK",
        () if is_age => "AGE",
        () if is_address => "ADDRESS",
        // Revisions and node ports.
        () if is_digits(bytes) && bytes.len() >= 3 && word != "8080" => "NUMBER",
        () => word,
    }
}

#[test]
fn normalizes_what_differs_by_nature() {
    let check = |text: &str, want: &str| assert_eq!(normalize(text, "ns-1"), format!("{want}\n"), "{text}");
    check("a   2      5m3s", "a   2 AGE");
    check("a   2      5m3s   <none>", "a   2 AGE<none>");
    check("a   2      9s    <none>", "a   2 AGE<none>");
    check("uid: 0f8fad5b-d9cb-469f-a165-70867728950e", "uid: UID");
    check("creationTimestamp: \"2026-11-18T20:15:51Z\"", "creationTimestamp: \"TIME\"");
    check("Created: Thu, 19 Nov 2026 22:35:07", "Created: Thu, 19 Nov NUMBER CLOCK");
    check("resourceVersion: \"1234\"", "resourceVersion: \"NUMBER\"");
    check("W1118 20:15:51.1 1 x.go:1] old", "old");
    check("pod \"a\" deleted from ns-1 namespace", "pod \"a\" deleted");
}
